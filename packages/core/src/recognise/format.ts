import type { DocumentSpan, FormatName, PromptRole } from './block.js';

/** A text to look for documents in: one of a prompt's, or what a prompt marks in it. */
export class Region {
  readonly text: string;
  readonly role: PromptRole;
  /** The prompt says that these are documents of this format: only the form counts, not whether it is plausible. */
  readonly certain: boolean;
  #lines: readonly number[] | undefined;

  constructor(text: string, { role, certain }: Pick<Region, 'role' | 'certain'>) {
    this.text = text;
    this.role = role;
    this.certain = certain;
  }

  /** Where its lines start. */
  get lines(): readonly number[] {
    this.#lines ??= lineStarts(this.text);
    return this.#lines;
  }
}

function lineStarts(text: string): readonly number[] {
  const starts = [0];
  for (let feed = text.indexOf('\n'); feed >= 0; feed = text.indexOf('\n', feed + 1)) starts.push(feed + 1);
  return starts;
}

/** What a format found: documents side by side. */
export interface DocumentGroup {
  readonly documents: readonly DocumentSpan[];
  /**
   * Text in front of the documents that belongs to the form (a wrapper's tag, a lead-in), or the first document's
   * start.
   */
  readonly start: number;
  /** The same behind them. */
  readonly end: number;
  /** The text refers to them by their places, so that their order must stay. */
  readonly isReferred?: boolean;
}

/**
 * One way of writing documents. `find` answers blocks of at least two documents in the order of the text, none
 * overlapping, and changes nothing: a text written back piece by piece is the text. It throws for no input.
 *
 * Cost: O(region), whatever stands in it. A format tries its patterns at the starts of lines (flag `y`), never over the
 * text, or looks with `indexOf` for a string that it cannot do without.
 */
export interface DocumentFormat {
  readonly name: FormatName;
  /** Whether it is looked for where nothing marks documents; others are too common in texts that hold none. */
  readonly unasked: boolean;
  find(region: Region): readonly DocumentGroup[];
}
