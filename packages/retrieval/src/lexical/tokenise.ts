/**
 * Terms of a text for lexical search, without knowing its language:
 *
 * - lower case, without accents (`Frühjahr` → `fruhjahr`, `ß` → `ss`), full-width forms as plain ones;
 * - scripts that are written without spaces (Chinese, Japanese, Thai …) and Hangul as pairs of neighbours;
 * - identifiers whole and by their parts: `parseHttpHeader` → `parsehttpheader parse http header`, `snake_case` alike.
 *
 * No stop words, for BM25 weighs frequent terms down, and no stemming, for that needs a language.
 */
export function tokenise(text: string): string[] {
  const terms: string[] = [];
  forEachTerm(text, (term) => terms.push(term));
  return terms;
}

/** Longest term that is kept whole. What is longer is no word: its beginning stands for it. */
const LONGEST_TERM = 64;
/** Terms that one text has at most; a text of more is searched by its beginning. */
const MAX_TERMS = 1_000_000;

/** Calls `visit` with each term of a text, in order. O(length). */
export function forEachTerm(text: string, visit: (term: string) => void): void {
  const plain = isAscii(text) ? text : foldMarks(text);
  let count = 0;
  let start = -1;
  // What was seen in the word so far: most words need none of the slower ways.
  let seen = 0;
  const end = plain.length;
  for (let at = 0; at <= end; at++) {
    const code = at < end ? plain.charCodeAt(at) : 0;
    if (code < 128) {
      const kind = KINDS[code]!;
      if (kind !== 0) {
        if (start < 0) {
          start = at;
          seen = kind === UPPER ? FIRST_UPPER : kind;
        } else seen |= kind;
        continue;
      }
    } else if (isLetter(plain, at, code)) {
      if (start < 0) {
        start = at;
        seen = 0;
      }
      seen |= NOT_ASCII;
      continue;
    }
    if (start < 0) continue;
    const word = plain.slice(start, at);
    if (seen <= LOWER) visit(cut(word));
    else if (seen <= (LOWER | FIRST_UPPER)) visit(cut(word).toLowerCase());
    else visitWord(word, visit);
    start = -1;
    if (++count === MAX_TERMS) return;
  }
}

const LOWER = 1;
const FIRST_UPPER = 2;
const UPPER = 4;
const UNDERSCORE = 8;
const NOT_ASCII = 16;

/** What an ASCII character is in a word; 0 for one that ends it. The underscore is a part of identifiers. */
const KINDS = Uint8Array.from({ length: 128 }, (_, code) => {
  const character = String.fromCharCode(code);
  if (/[a-z0-9]/.test(character)) return LOWER;
  if (/[A-Z]/.test(character)) return UPPER;
  return character === '_' ? UNDERSCORE : 0;
});

const NON_ASCII_LETTER = /[\p{L}\p{N}\p{M}]/u;
/** What `NON_ASCII_LETTER` said of each code unit: 0 not asked yet, 1 no, 2 yes. */
const letters = new Uint8Array(0x10000);

/** Surrogates count as letters: characters beyond the first plane are rare ideographs, or signs that stand alone. */
function isLetter(text: string, at: number, code: number): boolean {
  if (letters[code] === 0) {
    const isSurrogate = code >= 0xd800 && code <= 0xdfff;
    letters[code] = isSurrogate || NON_ASCII_LETTER.test(text[at]!) ? 2 : 1;
  }
  return letters[code] === 2;
}

function isAscii(text: string): boolean {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the range is ASCII.
  return /^[\x00-\x7f]*$/.test(text);
}

/** Marks on Latin, Greek and Cyrillic letters; those of other scripts are vowels and stay. */
const MARKS = /[\u0300-\u036f]+/g;

function foldMarks(text: string): string {
  return text.normalize('NFKD').replace(MARKS, '').normalize('NFC').replaceAll('ß', 'ss').replaceAll('ẞ', 'ss');
}

/** Scripts without spaces between words, and Hangul, whose words carry their particles. */
const UNSPACED =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}々ー]+/gu;
const MAY_BE_UNSPACED = /[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1100-\u11ff\u2e80-\uffff]/;
/** Where a part of an identifier begins: `parseHttp`, `HTTPServer`, `snake_case`. */
const HAS_PARTS = /_|\p{Ll}\p{Lu}|\p{Lu}\p{Lu}\p{Ll}/u;
const PART_BORDER = /_+|(?<=\p{Ll})(?=\p{Lu})|(?<=\p{Lu})(?=\p{Lu}\p{Ll})/u;

function visitWord(word: string, visit: (term: string) => void): void {
  if (MAY_BE_UNSPACED.test(word)) visitMixed(word, visit);
  else if (word.length > 3 && HAS_PARTS.test(word)) visitIdentifier(word, visit);
  else visit(cut(word).toLowerCase());
}

function visitIdentifier(word: string, visit: (term: string) => void): void {
  const parts = word
    .slice(0, LONGEST_TERM * 4)
    .split(PART_BORDER)
    .filter(Boolean);
  if (parts.length > 1) visit(cut(parts.join('')).toLowerCase());
  for (const part of parts) visit(cut(part).toLowerCase());
}

/** A run that has letters of unspaced scripts: pairs of those, and words of what stands between them. */
function visitMixed(word: string, visit: (term: string) => void): void {
  let from = 0;
  for (const { 0: run, index } of word.matchAll(UNSPACED)) {
    if (index > from) visit(cut(word.slice(from, index)).toLowerCase());
    const letters = [...run];
    if (letters.length === 1) visit(run);
    for (let at = 1; at < letters.length; at++) visit(letters[at - 1]! + letters[at]!);
    from = index + run.length;
  }
  if (from < word.length) visit(cut(word.slice(from)).toLowerCase());
}

function cut(word: string): string {
  return word.length > LONGEST_TERM ? word.slice(0, LONGEST_TERM) : word;
}
