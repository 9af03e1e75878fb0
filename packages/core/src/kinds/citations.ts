/** Characters before a number that decide whether it cites a document. */
const CONTEXT_LENGTH = 96;
/** Numbers in one citation that are traced back to its first: `[1, 2, 3]`. */
const MAX_LISTED = 24;

/** How the labels of a prompt are written, and so how an answer may cite them. */
export interface CitationForms {
  /** Words in front of a label, in lower case: `source`, `document`, `id`. */
  readonly words: ReadonlySet<string>;
  /** A label may stand without a word or a bracket, so `(3)` cites it. */
  readonly isBare: boolean;
}

/** The word in front of a label, and the name of the tag around it. */
const WORD_BEFORE = /([\p{L}_]{1,24})[\s:=#"'\\([./-]{0,4}$/u;
const TAG_BEFORE = /<([\p{L}_-]{1,24})[^<>]{0,64}$/u;

/** The forms of the labels that stand at these places of a text. O(labels). */
export function citationForms(text: string, starts: Iterable<number>): CitationForms {
  const words = new Set<string>();
  let isBare = false;
  for (const start of starts) {
    const before = text.slice(Math.max(0, start - CONTEXT_LENGTH), start);
    const word = WORD_BEFORE.exec(before)?.[1];
    const tag = TAG_BEFORE.exec(before)?.[1];
    for (const each of [word, tag]) if (each !== undefined) words.add(each.toLowerCase());
    isBare ||= /(?:^|[\n(])\s*$/.test(before);
  }
  return { words, isBare };
}

/** What joins two numbers of one citation: a sign, or a short word such as `and`. */
const JOINER = /(\d+)(?:\s?[,;&/–—、-]\s?|\s?,?\s\p{L}{1,4}\s|[和と와])$/u;
const OPEN_BRACKET = /[[【][^\]】\n]*$/;
const SPELLED = /(\p{L}+)(?:[\s:=#"'\\([./-]|no\.){0,4}$/iu;

/**
 * Replaces the numbers in a text that cite documents. Works on the pieces of a stream: any split gives the same text,
 * and only a number that may still become a label is held back.
 */
export class CitationMapper {
  readonly #labels: ReadonlyMap<string, string>;
  readonly #forms: CitationForms;
  /** Text that was read, as it came: what stands before the next number. */
  #before = '';
  #held = '';

  constructor(labels: ReadonlyMap<string, string>, forms: CitationForms) {
    this.#labels = labels;
    this.#forms = forms;
  }

  /** Takes the next piece. @returns what is certain of the text so far and was not returned before. */
  write(piece: string): string {
    return this.#read(piece, false);
  }

  /** @returns what was held back. */
  end(): string {
    return this.#read('', true);
  }

  #read(piece: string, isEnd: boolean): string {
    if (this.#labels.size === 0) return piece;
    const text = this.#held + piece;
    const digits = /\d+/g;
    let written = '';
    let from = 0;
    for (let match = digits.exec(text); match !== null; match = digits.exec(text)) {
      const [number] = match;
      const end = match.index + number.length;
      this.#remember(text.slice(from, match.index));
      written += text.slice(from, match.index);
      from = match.index;
      if (this.#mayCite(number, end === text.length && !isEnd)) {
        const behind = numberGoesOn(text, end, { isEnd, labels: this.#labels });
        if (behind === undefined) {
          this.#held = text.slice(from);
          return written;
        }
        written += behind ? number : this.#labels.get(number)!;
      } else written += number;
      this.#remember(number);
      from = end;
    }
    this.#held = '';
    this.#remember(text.slice(from));
    return written + text.slice(from);
  }

  #mayCite(number: string, isOpen: boolean): boolean {
    const isLabel = this.#labels.has(number) || (isOpen && this.#begins(number));
    return isLabel && this.#cites(this.#before, MAX_LISTED);
  }

  #begins(number: string): boolean {
    for (const label of this.#labels.keys()) if (label.startsWith(number)) return true;
    return false;
  }

  #cites(before: string, left: number): boolean {
    if (/[\d_]$/.test(before)) return false;
    const word = SPELLED.exec(before)?.[1]?.toLowerCase();
    if (word !== undefined && this.#isWord(word)) return true;
    if (/\p{L}$/u.test(before) && !/[和と와]$/.test(before)) return false;
    if (!/\d[.]$/.test(before) && OPEN_BRACKET.test(before)) return true;
    if (this.#forms.isBare && before.endsWith('(')) return true;
    const joined = left === 0 ? null : JOINER.exec(before);
    return joined !== null && this.#labels.has(joined[1]!) && this.#cites(before.slice(0, joined.index), left - 1);
  }

  /** The word itself, or its English plural. */
  #isWord(word: string): boolean {
    const { words } = this.#forms;
    return words.has(word) || (word.endsWith('s') && words.has(word.slice(0, -1)));
  }

  #remember(read: string): void {
    this.#before = (this.#before + read.slice(-CONTEXT_LENGTH)).slice(-CONTEXT_LENGTH);
  }
}

/**
 * Whether digits that end here are part of something longer, such as `417.5`, `417,000` or `417th`; `undefined` while
 * the text does not show it.
 */
function numberGoesOn(
  text: string,
  end: number,
  { isEnd, labels }: { readonly isEnd: boolean; readonly labels: ReadonlyMap<string, string> },
): boolean | undefined {
  if (end >= text.length) return isEnd ? false : undefined;
  if (/[A-Za-z_]/.test(text[end]!)) return true;
  if (text[end] !== '.' && text[end] !== ',') return false;
  const rest = /^\d{0,4}/.exec(text.slice(end + 1, end + 5))![0];
  const isCut = end + 1 + rest.length >= text.length && rest.length < 4 && !isEnd;
  if (text[end] === '.') return rest.length > 0 ? true : isCut ? undefined : false;
  if (isCut) return undefined;
  return rest.length === 3 && !labels.has(rest);
}
