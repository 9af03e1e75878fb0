/** Characters that show nothing: soft hyphens, zero-width characters, variation selectors, byte order marks. */
const INVISIBLE = /\p{Default_Ignorable_Code_Point}/gu;
/** A digit before a superscript, a fraction or a number in a circle, which is another number. */
const NUMBER_BORDER = /\p{Nd}(?=\p{No})/gu;

/** A text without invisible characters and without variants of width and form. O(length). */
export function normalise(text: string): string {
  if (isAscii(text)) return text;
  return text.replace(NUMBER_BORDER, '$& ').normalize('NFKC').replace(INVISIBLE, '').normalize('NFC');
}

function isAscii(text: string): boolean {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the range is ASCII.
  return /^[\x00-\x7f]*$/.test(text);
}

/**
 * Accents of Latin, Greek and Cyrillic letters, vowel signs of Hebrew, Arabic and Syriac. Signs of other scripts are
 * part of their letters.
 */
const MARKS =
  /(?:\u0640|[\u0300-\u036f]|[\u0483-\u0489]|[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7]|[\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed]|[\u0711\u0730-\u074a]|[\u1ab0-\u1aff]|[\u1dc0-\u1dff]|[\u20d0-\u20ff]|[\ufe20-\ufe2f])+/g;

/** Letters that Unicode does not decompose, as people write them who lack them. */
const LETTERS: Readonly<Record<string, string>> = {
  ß: 'ss',
  ł: 'l',
  ø: 'o',
  æ: 'ae',
  œ: 'oe',
  đ: 'd',
  ð: 'd',
  þ: 'th',
  ħ: 'h',
  ŧ: 't',
  ŋ: 'n',
  ı: 'i',
  ĸ: 'k',
  ς: 'σ',
  ى: 'ي',
  ی: 'ي',
  ک: 'ك',
  ة: 'ه',
  ٱ: 'ا',
};
const HAS_LETTERS = new RegExp(`[${Object.keys(LETTERS).join('')}]`, 'g');

/** A word in lower case, without accents and vowel signs. Idempotent. O(length). */
export function foldWord(word: string): string {
  const lower = word.toLowerCase();
  if (isAscii(lower)) return lower;
  const plain = lower.normalize('NFKD').replace(MARKS, '').toLowerCase().normalize('NFC');
  return plain.replace(HAS_LETTERS, (letter) => LETTERS[letter]!);
}
