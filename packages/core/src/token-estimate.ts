/** Tokens per UTF-16 unit, by kind of character. */
const PER_LETTER = 0.25;
const PER_DIGIT_OR_SIGN = 0.5;
const PER_ALPHABETIC = 0.45;
const PER_IDEOGRAM = 0.9;

/**
 * Estimates the tokens of a text when no tokenizer is at hand: a quarter of a token for an ASCII letter or white space,
 * half for a digit or punctuation, somewhat less than half for a letter of another alphabet, nearly one for an ideogram,
 * kana or Hangul syllable. Never below 1.
 *
 * Orders depend on the ratio between documents, which such an estimate keeps, not on the absolute count. Give a
 * `TokenCounter` for exact counts. Cost: O(length), no allocation.
 */
export function estimateTokens(text: string): number {
  let tokens = 0;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit < 0x80) tokens += isLetterOrSpace(unit) ? PER_LETTER : PER_DIGIT_OR_SIGN;
    else tokens += unit < 0x2e80 ? PER_ALPHABETIC : PER_IDEOGRAM;
  }
  return Math.max(1, Math.ceil(tokens));
}

function isLetterOrSpace(unit: number): boolean {
  return (unit >= 97 && unit <= 122) || unit === 32 || (unit >= 65 && unit <= 90) || unit === 10 || unit === 9;
}
