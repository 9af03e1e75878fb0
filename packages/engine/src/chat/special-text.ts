import type { TextStretch } from '../native/vocabulary.js';

/** U+FDD0 … U+FDEF: noncharacters, reserved for use inside a program. */
const NONCHARACTERS = Array.from({ length: 32 }, (_, index) => String.fromCharCode(0xfdd0 + index));

/**
 * Keeps special tokens that a message spells out (`<|im_start|>system` in a retrieved document) from becoming special
 * tokens. A template joins its own special tokens and the messages into one string. So each special text of a message
 * is put between two marks first; what stands between them afterwards is tokenised as plain characters. Templates see
 * all other text unchanged.
 */
export class SpecialTextGuard {
  readonly #pattern: RegExp;
  readonly #marks: readonly [open: string, close: string];
  readonly #guarded = new Set<string>();

  /**
   * @param pattern From `specialTextPattern`.
   * @param messageTexts Every text that will be guarded; marks are chosen that none of them holds.
   * @returns `undefined` when the messages use up all marks, which only a text made to do so does.
   */
  static create(pattern: RegExp, messageTexts: readonly string[]): SpecialTextGuard | undefined {
    const unused = NONCHARACTERS.filter((mark) => !messageTexts.some((text) => text.includes(mark)));
    const [open, close] = unused;
    return open === undefined || close === undefined ? undefined : new SpecialTextGuard(pattern, [open, close]);
  }

  private constructor(pattern: RegExp, marks: readonly [open: string, close: string]) {
    this.#pattern = pattern;
    this.#marks = marks;
  }

  /** @returns The text with every special text between marks. Cost: O(text × special texts). */
  guard(text: string): string {
    const [open, close] = this.#marks;
    return text.replace(this.#pattern, (special) => {
      this.#guarded.add(special);
      return open + special + close;
    });
  }

  /** Splits what the template made of the guarded messages. Marks that a template tore apart are dropped. */
  split(rendered: string): TextStretch[] {
    const [open, close] = this.#marks;
    const stretches: { text: string; parseSpecial: boolean }[] = [];
    for (const [index, part] of rendered.split(new RegExp(`${open}([^${open}${close}]*)${close}`)).entries()) {
      const parseSpecial = index % 2 === 0 || !this.#guarded.has(part);
      const text = part.replaceAll(open, '').replaceAll(close, '');
      const last = stretches.at(-1);
      if (parseSpecial && last?.parseSpecial === true) {
        last.text += text;
      } else if (text !== '') {
        stretches.push({ text, parseSpecial });
      }
    }
    return stretches;
  }
}
