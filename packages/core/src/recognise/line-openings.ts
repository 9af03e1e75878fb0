/**
 * Where lines of a text begin with what may open a document. One pass finds them for all formats, which then read those
 * lines alone: most texts have none, and a pattern tried at every line costs more than all the rest. Each list has
 * starts of lines, in the order of the text, and holds every line that its formats could accept; whether one of them is
 * a document's is for the format to say.
 */
export interface LineOpenings {
  /** `{` or `[`, behind at most eight blanks. */
  readonly brackets: readonly number[];
  /** `[` and a digit. */
  readonly numbers: readonly number[];
  /** `#` without blanks before it. */
  readonly headings: readonly number[];
  /** Words and then a number: `Document 1`, `### Source [2]`, `[END CONTEXT 0]`. */
  readonly counted: readonly number[];
  /** Words and then a colon: `Source: a.md`, `- **Title**: …`. */
  readonly named: readonly number[];
  /** Words and then a dot, a slash or a digit: `port_2024.pdf#page=2: …`. */
  readonly files: readonly number[];
  /** A line that may be a rule: one sign three times, such as `---`, behind any blanks. */
  readonly rules: readonly number[];
}

/** Blanks before a bracket. */
const MAX_INDENT = 8;
/** Characters of the longest words that open a document, and the blanks behind them. */
const MAX_WORDS = 40;

const SPACE = 0x20;
const TAB = 0x09;
const HASH = 0x23;
const BRACKET = 0x5b;
const BRACE = 0x7b;
const WIDE_COLON = 0xff1a;

/** Classes of ASCII signs, as bits. */
const WORD = 1;
const DIGIT = 2;
/** What may stand before the words. */
const DECORATION = 4;
/** What follows words that are counted, and what follows those that are a name. */
const COUNTS = 8;
const NAMES = 16;
const RULES = 32;
/** What follows the first words of a file's name. */
const FILES = 64;
const CLASSES = Uint8Array.from({ length: 128 }, (_, code) => {
  const sign = String.fromCharCode(code);
  if (/[A-Za-z]/.test(sign)) return WORD;
  if (/\d/.test(sign)) return DIGIT | COUNTS | FILES;
  return (
    (' \t_-'.includes(sign) ? WORD : 0) |
    (' #*[<=-'.includes(sign) ? DECORATION : 0) |
    ('#[('.includes(sign) ? COUNTS : 0) |
    (':*'.includes(sign) ? NAMES : 0) |
    ('-=*_#~'.includes(sign) ? RULES : 0) |
    ('./'.includes(sign) ? FILES : 0)
  );
});

/** Cost: O(lines), and their first forty characters. */
export function lineOpenings(text: string): LineOpenings {
  const openings = { brackets: [], numbers: [], headings: [], counted: [], named: [], files: [], rules: [] };
  note(text, 0, openings);
  for (let feed = text.indexOf('\n'); feed >= 0; feed = text.indexOf('\n', feed + 1)) note(text, feed + 1, openings);
  return openings;
}

function note(text: string, line: number, openings: { readonly [Kind in keyof LineOpenings]: number[] }): void {
  let at = line;
  let code = text.charCodeAt(at);
  while (code === SPACE || code === TAB) code = text.charCodeAt(++at);
  if (code === BRACE || code === BRACKET) {
    if (at - line <= MAX_INDENT) openings.brackets.push(line);
    if (code === BRACKET && isDigit(text.charCodeAt(at + 1))) openings.numbers.push(line);
  } else if (code === HASH && at === line) openings.headings.push(line);
  if ((classOf(code) & RULES) !== 0 && text.charCodeAt(at + 1) === code && text.charCodeAt(at + 2) === code) {
    openings.rules.push(line);
  }
  while ((classOf(code) & DECORATION) !== 0) code = text.charCodeAt(++at);
  const words = at;
  const limit = at + MAX_WORDS;
  while (at < limit && (classOf(code) & WORD) !== 0) code = text.charCodeAt(++at);
  const behind = classOf(code);
  if (behind === 0 && code !== WIDE_COLON) return;
  // A sentence ends here, a file's name does not.
  if ((behind & FILES) !== 0 && text.charCodeAt(at + 1) > SPACE) openings.files.push(line);
  if (at === words) return;
  if ((behind & COUNTS) !== 0) openings.counted.push(line);
  else if ((behind & NAMES) !== 0 || code === WIDE_COLON) openings.named.push(line);
}

function isDigit(code: number): boolean {
  return (classOf(code) & DIGIT) !== 0;
}

function classOf(code: number): number {
  if (code < 128) return CLASSES[code]!;
  // Words of any language; behind the end of the text there is no code.
  return code === WIDE_COLON || Number.isNaN(code) ? 0 : WORD;
}
