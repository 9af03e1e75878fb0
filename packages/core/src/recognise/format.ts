import type { DocumentSpan, FormatName, PromptRole } from './block.js';

/** A part of a text to look for documents in. */
export interface Region {
  readonly text: string;
  readonly start: number;
  readonly end: number;
  readonly role: PromptRole;
  /** The prompt says that these are documents of this format: only the form counts, not whether it is plausible. */
  readonly certain: boolean;
}

/** What a format found: documents side by side. */
export interface Found {
  readonly documents: readonly DocumentSpan[];
  /** Text in front of the documents that belongs to the form (a wrapper's tag, a lead-in), or the first document's start. */
  readonly start: number;
  /** The same behind them. */
  readonly end: number;
}

/**
 * One way of writing documents. `find` answers blocks of at least two documents in the order of the text, none overlapping,
 * and changes nothing: a text written back piece by piece is the text. It throws for no input.
 * Cost: O(region), whatever stands in it.
 */
export interface DocumentFormat {
  readonly name: FormatName;
  /** Whether it is looked for where nothing marks documents; others are too common in texts that hold none. */
  readonly unasked: boolean;
  find(region: Region): readonly Found[];
}
