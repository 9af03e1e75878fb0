import type { JsonObject, RequestMessage } from './request-texts.js';

export const API_NAMES = ['chat', 'completions', 'messages', 'responses'] as const;
/** An API that takes prompts: OpenAI's chat completions, its plain completions, Anthropic's Messages, OpenAI's Responses. */
export type ApiName = (typeof API_NAMES)[number];

/** How one API writes a request: what the rest of the gateway need not know. */
export interface PromptApi {
  readonly name: ApiName;
  /** Its path, the same at the gateway and at the engine. */
  readonly path: string;
  /**
   * The request's messages in the order in which the model reads them, with all their texts. What is not as the API wants it
   * has no texts; it never throws. O(parts), no text is copied.
   */
  messages(body: JsonObject): readonly RequestMessage[];
}
