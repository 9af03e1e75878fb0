/** The part of the platform that this file uses: browsers and Node alike have it. */
declare const TextEncoder: new () => {
  encodeInto(text: string, into: Uint8Array): { readonly read: number; readonly written: number };
};

/** Twentieths of a token, by kind of character. */
const PER_LETTER = 4;
const PER_DIGIT_OR_SIGN = 13;
const PER_ALPHABETIC = 7;
const PER_IDEOGRAM = 17;
const UNITS_PER_TOKEN = 20;

/** Bytes of text looked at in one step. */
const STEP_BYTES = 16_384;

/** Up to so many characters, encoding a text takes longer than reading it unit by unit, and it allocates. */
const MAX_SHORT_CHARACTERS = 64;

/**
 * Twentieths of a token by UTF-8 byte: the first byte of a character tells its kind (up to U+07FF, up to U+2FFF, up to
 * U+FFFF, beyond), the others cost nothing. A character beyond U+FFFF is two UTF-16 units, and counts twice.
 */
const COST_OF_BYTE = Uint8Array.from({ length: 256 }, (_, byte) => {
  if (byte < 0x80) return isLetterOrSpace(byte) ? PER_LETTER : PER_DIGIT_OR_SIGN;
  if (byte < 0xc0) return 0;
  if (byte < 0xe3) return PER_ALPHABETIC;
  return byte < 0xf0 ? PER_IDEOGRAM : 2 * PER_IDEOGRAM;
});

/** The same by two bytes, in either order. */
const COST_OF_PAIR = Uint8Array.from(
  { length: 65_536 },
  (_, pair) => COST_OF_BYTE[pair & 255]! + COST_OF_BYTE[pair >> 8]!,
);
/** A byte that costs nothing. */
const FREE_BYTE = 0x80;

const encoder = new TextEncoder();
const bytes = new Uint8Array(STEP_BYTES);
const pairs = new Uint16Array(bytes.buffer);

/**
 * Estimates the tokens of a text without a tokenizer, by kind of character. Never below 1. O(length).
 *
 * The weights were fitted to `o200k_base`: within a quarter for English and code, within a half for other languages.
 * Older vocabularies spend up to three times as much on Greek, Arabic or Hindi. Give a `TokenCounter` for exact counts.
 */
export function estimateTokens(text: string): number {
  return tokensOfCost(costOfText(text));
}

/** What the characters of a text cost, which adds up over its parts; `tokensOfCost` makes tokens of it. O(length). */
export function costOfText(text: string): number {
  let cost = text.length <= MAX_SHORT_CHARACTERS ? costOfShort(text) : -1;
  if (cost >= 0) return cost;
  cost = 0;
  let rest = text;
  while (rest.length > 0) {
    const { read, written } = encoder.encodeInto(rest, bytes);
    cost += costOfStep(written);
    rest = rest.slice(read);
  }
  return cost;
}

/** See `costOfText`. */
export function tokensOfCost(cost: number): number {
  return Math.max(1, Math.ceil(cost / UNITS_PER_TOKEN));
}

/** The same for a text of which the UTF-8 is known. O(bytes). */
export function estimateTokensOfBytes(text: Uint8Array): number {
  let cost = 0;
  for (let at = 0; at < text.length; at += STEP_BYTES) {
    const part = text.subarray(at, at + STEP_BYTES);
    bytes.set(part);
    cost += costOfStep(part.length);
  }
  return tokensOfCost(cost);
}

/** Of a text of ASCII characters; -1 for any other. */
function costOfShort(text: string): number {
  let cost = 0;
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    if (unit >= 0x80) return -1;
    cost += COST_OF_BYTE[unit]!;
  }
  return cost;
}

/** Of the first so many of `bytes`. */
function costOfStep(length: number): number {
  let cost = 0;
  const count = (length + 1) >> 1;
  if (length < STEP_BYTES) bytes[length] = FREE_BYTE;
  for (let i = 0; i < count; i++) cost += COST_OF_PAIR[pairs[i]!]!;
  return cost;
}

function isLetterOrSpace(byte: number): boolean {
  return (byte >= 97 && byte <= 122) || byte === 32 || (byte >= 65 && byte <= 90) || byte === 10 || byte === 9;
}
