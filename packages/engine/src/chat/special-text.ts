import type { TextStretch } from '../native/vocabulary.js';

/** U+FDD0 … U+FDEF: noncharacters, reserved for use inside a program. */
const FIRST_MARK = 0xfdd0;
const LAST_MARK = 0xfdef;

/**
 * Keeps special tokens that a message spells out (`<|im_start|>system` in a retrieved document) from becoming special
 * tokens.
 *
 * A chat template joins its own control tokens and the messages' text into one string, and the tokeniser cannot tell
 * which is which afterwards. Here every special text inside a message is enclosed in a pair of marks before the
 * template runs, and what stands between two marks afterwards is tokenised as plain characters. Text without any
 * special token, that is nearly all text, reaches the template unchanged, so conditions and string functions in
 * templates work as their authors meant, and the prompt has exactly the tokens that the model was trained with.
 *
 * A pair of marks is chosen that the messages do not hold.
 */
export class SpecialTextGuard {
  readonly #pattern: RegExp;
  readonly #open: string;
  readonly #close: string;
  readonly #guarded = new Set<string>();

  /**
   * @param pattern From `specialTextPattern`.
   * @param messageTexts Every text that will be guarded; the marks are chosen so that none of them holds one.
   * @returns `undefined` when the messages use up all marks, which only a text made to do so does.
   */
  static create(pattern: RegExp, messageTexts: readonly string[]): SpecialTextGuard | undefined {
    const marks: string[] = [];
    for (let code = FIRST_MARK; code <= LAST_MARK && marks.length < 2; code++) {
      const mark = String.fromCharCode(code);
      if (!messageTexts.some((text) => text.includes(mark))) {
        marks.push(mark);
      }
    }
    const [open, close] = marks;
    return open === undefined || close === undefined ? undefined : new SpecialTextGuard(pattern, open, close);
  }

  private constructor(pattern: RegExp, open: string, close: string) {
    this.#pattern = pattern;
    this.#open = open;
    this.#close = close;
  }

  /** @returns The text with every special text enclosed in marks. Cost: O(text × special texts). */
  guard(text: string): string {
    let result = '';
    let done = 0;
    for (const [start, end] of this.#stretches(text)) {
      const stretch = text.slice(start, end);
      this.#guarded.add(stretch);
      result += `${text.slice(done, start)}${this.#open}${stretch}${this.#close}`;
      done = end;
    }
    return result + text.slice(done);
  }

  /** Splits what the template made of the guarded messages. Marks that a template tore apart are dropped. */
  split(rendered: string): TextStretch[] {
    const segments: TextStretch[] = [];
    let meant = '';
    for (const [index, part] of rendered.split(this.#open).entries()) {
      const end = index === 0 ? -1 : part.indexOf(this.#close);
      const stretch = part.slice(0, Math.max(end, 0));
      if (end >= 0 && this.#guarded.has(stretch)) {
        pushSegment(segments, meant, true);
        pushSegment(segments, stretch, false);
        meant = part.slice(end).replaceAll(this.#close, '');
      } else {
        meant += part.replaceAll(this.#close, '');
      }
    }
    pushSegment(segments, meant, true);
    return segments;
  }

  /** The stretches of text that special texts cover, overlapping ones joined. */
  *#stretches(text: string): Iterable<[start: number, end: number]> {
    let start = -1;
    let end = -1;
    this.#pattern.lastIndex = 0;
    for (let match = this.#pattern.exec(text); match !== null; match = this.#pattern.exec(text)) {
      if (match.index >= end) {
        if (end > start) {
          yield [start, end];
        }
        start = match.index;
      }
      end = Math.max(end, match.index + match[0].length);
      this.#pattern.lastIndex = match.index + 1;
    }
    if (end > start) {
      yield [start, end];
    }
  }
}

function pushSegment(segments: TextStretch[], text: string, parseSpecial: boolean): void {
  if (text !== '') {
    segments.push({ text, parseSpecial });
  }
}
