/**
 * Who says a text of a prompt: `tool` is what a tool returned; what the model said before (`assistant`) holds no
 * documents.
 */
export type PromptRole = 'system' | 'user' | 'tool' | 'assistant';

/** One text of a prompt in the order in which the model reads them: a message, a part of it, a tool's result. */
export interface PromptText {
  readonly role: PromptRole;
  readonly text: string;
  /**
   * `elements`: the text is JSON, elements of an array with commas between them, each of which the API itself calls a
   * document. `verbatim`: its bytes must stay, because an answer refers to places in it; nothing is looked for.
   */
  readonly kind?: 'elements' | 'verbatim';
}

/** The ways in which documents are written that can be recognised, in the order in which they are looked for. */
export const FORMAT_NAMES = [
  'tags',
  'python',
  'json',
  'headed',
  'numbered',
  'fields',
  'markdown',
  'separator',
] as const;
export type FormatName = (typeof FORMAT_NAMES)[number];
/**
 * `result`: what a tool returned, as one document. `recurrence`: text that recurs in other company. `counted`: under
 * numbers that all prompts of a kind have.
 */
export type BlockFormat = FormatName | 'result' | 'recurrence' | 'counted';

/** The digits of a label that counts the documents, `[3]` or `index="3"`. It moves with its document. */
export interface LabelSpan {
  readonly start: number;
  readonly end: number;
}

/** One document where it stands in a text: UTF-16 offsets, ends exclusive. */
export interface DocumentSpan {
  /** What moves as one. */
  readonly start: number;
  readonly end: number;
  /**
   * What the document says, inside `[start, end)`: without tags, label, title. In JSON, a string literal with its
   * quotes.
   */
  readonly contentStart: number;
  readonly contentEnd: number;
  /** What the prompt itself calls the document, where it does and where that is no mere number of its place. */
  readonly id: string | undefined;
  readonly title: string | undefined;
  /** Where the document's place is counted in its own text; empty in formats, and blocks, that do not count. */
  readonly labels: readonly LabelSpan[];
}

/** Why documents that were recognised stay in their order. */
export type FixedReason =
  /** JSON refers to its own elements by their places. */
  | 'order-referred'
  /** The operator has not allowed that documents of this prompt move. */
  | 'not-allowed';

/** Documents that stand side by side in one text and may change places. */
export interface DocumentBlock {
  /** Which of the texts it stands in. */
  readonly text: number;
  readonly format: BlockFormat;
  /** Whether the prompt marks it as documents itself (`<warmpath-documents>`), so that nothing was guessed. */
  readonly marked: boolean;
  /** From the first document to the end of the last that may move. */
  readonly start: number;
  readonly end: number;
  /** In the order of the text, at least two, none overlapping; of a `result`, that one. */
  readonly documents: readonly DocumentSpan[];
  /** Set if the order must not change; the documents can still be replaced by references. */
  readonly fixed: FixedReason | undefined;
}
