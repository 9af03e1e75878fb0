/** What stands before the documents in the prompt and must match for any of their KV to be reused. */
export interface Preamble {
  /** Equal for two requests if, and only if, everything rendered before the documents is equal (model, template, messages, tools). */
  readonly key: string;
  /** Tokens of it. */
  readonly tokens: number;
}
