/** What the hints say, each on a line of its own; `{documents}` stands for the names of the documents in question. */
export interface HintWording {
  /** States the retrieval order of all documents. */
  readonly order: string;
  /** Says of the documents that are not repeated that the conversation holds them. */
  readonly location: string;
}

/** Place of the documents' names in a hint. */
export const HINT_PLACE = '{documents}';

/** English, and short: nothing of a hint is ever cached. */
export const DEFAULT_HINT_WORDING: HintWording = {
  order: `In order of relevance: ${HINT_PLACE}.`,
  location: `Given earlier in this conversation: ${HINT_PLACE}.`,
};
