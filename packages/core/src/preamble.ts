/** A step of the path of a prompt in the knowledge tree: a document, or the text between documents. */
export interface PathStep {
  readonly key: string;
  readonly tokens: number;
}

/** The text of a prompt before its documents. It must match for any KV of the documents to be reused. */
export interface Preamble {
  /**
   * Equal for two requests if and only if all text before the documents is equal (model, template, messages, tools).
   */
  readonly key: string;
  /** Tokens of the preamble. */
  readonly tokens: number;
  /**
   * In a conversation: the path of earlier turns. `key` then identifies the text since. Their tokens are part of
   * `tokens`.
   */
  readonly steps?: readonly PathStep[];
}
