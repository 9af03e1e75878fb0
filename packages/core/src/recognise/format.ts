import type { DocumentSpan, FormatName, PromptRole } from './block.js';
import { type LineOpenings, lineOpenings } from './line-openings.js';

/** A text to look for documents in: one of a prompt's, or what a prompt marks in it. */
export class Region {
  readonly text: string;
  readonly role: PromptRole;
  /** The prompt says that these are documents of this format: only the form counts, not whether it is plausible. */
  readonly certain: boolean;
  #openings: LineOpenings | undefined;

  constructor(text: string, { role, certain }: Pick<Region, 'role' | 'certain'>) {
    this.text = text;
    this.role = role;
    this.certain = certain;
  }

  /** The lines at which a document could open. Looked for once for all formats. */
  get openings(): LineOpenings {
    this.#openings ??= lineOpenings(this.text);
    return this.#openings;
  }
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
 * Cost: O(region), whatever stands in it, and next to nothing where there is no sign of the form, because every text of
 * every request is looked through. So a format looks at the region's `openings` (a form with another kind of line adds
 * a list there), or for a string that it cannot do without, with `indexOf`; patterns are tried where these are found
 * (flag `y`), never over the text.
 */
export interface DocumentFormat {
  readonly name: FormatName;
  /** Whether it is looked for where nothing marks documents; others are too common in texts that hold none. */
  readonly unasked: boolean;
  find(region: Region): readonly DocumentGroup[];
}
