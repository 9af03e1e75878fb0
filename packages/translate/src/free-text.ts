import { parseObject } from './errors.js';

/** The arguments of the function that stands for a tool with a free text. */
export function textArguments(text: string): string {
  return JSON.stringify({ input: text });
}

const BEGINNING = /^\s*\{\s*"input"\s*:\s*"/;
/** Characters before the text, from which on it is not looked for any more. */
const MAX_BEGINNING_LENGTH = 64;
const OPEN_ESCAPE = /^\\(?:u[\da-f]{0,3})?$/i;
const HIGH_SURROGATE = /[\ud800-\udbff]$/;

/**
 * Reads the free text that a model writes into one argument, as it comes in pieces. Arguments of another form are the
 * text themselves. Escapes that JSON does not have stay as they are. O(length) in all.
 */
export class FreeText {
  /** All of it that was given out. */
  text = '';
  #stage: 'before' | 'text' | 'behind' = 'before';
  /** What was not given out: before the text all arguments, then half of a character. */
  #held = '';
  #escape = '';

  /** @returns the next piece of the text */
  read(piece: string): string {
    if (this.#stage === 'behind') return '';
    let written = piece;
    if (this.#stage === 'before') {
      const given = this.#held + piece;
      const beginning = this.#held.length > MAX_BEGINNING_LENGTH ? undefined : BEGINNING.exec(given)?.[0];
      this.#held = beginning === undefined ? given : '';
      if (beginning === undefined) return '';
      this.#stage = 'text';
      written = given.slice(beginning.length);
    }
    const text = this.#held + this.#decoded(written);
    this.#held = this.#stage === 'text' ? (HIGH_SURROGATE.exec(text)?.[0] ?? '') : '';
    return this.#give(text.slice(0, text.length - this.#held.length));
  }

  /** @returns the rest of the text */
  end(): string {
    const rest = this.#held + this.#escape;
    const input = this.#stage === 'before' ? parseObject(rest)?.['input'] : undefined;
    this.#stage = 'behind';
    this.#held = this.#escape = '';
    return this.#give(typeof input === 'string' ? input : rest);
  }

  #give(text: string): string {
    this.text += text;
    return text;
  }

  #decoded(given: string): string {
    let text = '';
    for (const character of given) {
      if (this.#escape !== '') {
        const written = this.#escape + character;
        this.#escape = OPEN_ESCAPE.test(written) ? written : '';
        if (this.#escape === '') text += unescaped(written);
      } else if (character === '"') {
        this.#stage = 'behind';
        return text;
      } else if (character === '\\') this.#escape = character;
      else text += character;
    }
    return text;
  }
}

function unescaped(written: string): string {
  try {
    return JSON.parse(`"${written}"`) as string;
  } catch {
    return written;
  }
}

/** The free text in complete arguments, or in what there is of them. */
export function freeTextIn(written: string): string {
  const reader = new FreeText();
  reader.read(written);
  reader.end();
  return reader.text;
}
