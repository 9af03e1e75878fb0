/** What the hints say, each on a line of its own; `{documents}` stands for the names of the documents in question. */
export interface HintWording {
  /** States the retrieval order of all documents. */
  readonly order: string;
  /** Says of the documents that are not repeated that the conversation holds them. */
  readonly location: string;
}

/** Place of the documents' names in a hint. */
export const HINT_PLACE = '{documents}';

/** English; the demo model was trained on the wording of the order hint. */
export const DEFAULT_HINT_WORDING: HintWording = {
  order: `Read the documents in this order of relevance: ${HINT_PLACE}.`,
  location: `Given earlier in this conversation: ${HINT_PLACE}.`,
};
