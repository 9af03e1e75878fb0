/** A step of the path that a prompt takes through the knowledge tree: a document, or what stands between documents. */
export interface PathStep {
  readonly key: string;
  readonly tokens: number;
}

/** What stands before the documents in the prompt and must match for any of their KV to be reused. */
export interface Preamble {
  /**
   * Equal for two requests if, and only if, everything rendered before the documents is equal (model, template,
   * messages, tools).
   */
  readonly key: string;
  /** Tokens of it. */
  readonly tokens: number;
  /**
   * In a conversation, the path that earlier turns took; `key` then stands for what came since. Its tokens are part of
   * `tokens`. So the knowledge tree has one path for the one growing prompt, and knows how far the engine holds it.
   */
  readonly steps?: readonly PathStep[];
}
