import type { ChatMessage } from '@warmpath/core';
import type { SaidMembers } from '../said-messages.js';
import type { JsonObject, RequestMessage } from './request-texts.js';

export const API_NAMES = ['chat', 'completions', 'messages', 'responses'] as const;
/** An API that takes prompts: OpenAI's chat completions, its plain completions, Anthropic's Messages, OpenAI's Responses. */
export type ApiName = (typeof API_NAMES)[number];

/** How one API writes a request: what the rest of the gateway need not know. */
export interface PromptApi {
  readonly name: ApiName;
  /** Its path, the same at the gateway and at the engine. */
  readonly path: string;
  /** Members that chat templates render before the messages: a request that differs in one shares no prefix. */
  readonly promptFields: readonly string[];
  /** Where messages stand that the next request begins with; an API of single prompts has none. */
  readonly said: SaidMembers | undefined;
  /** The member that bounds the answer, with the fewest tokens that every engine takes. */
  readonly answerLimit: { readonly field: string; readonly least: number };
  /**
   * The request's messages in the order in which the model reads them, with all their texts. What is not as the API wants it
   * has no texts; it never throws. O(parts), no text is copied.
   */
  messages(body: JsonObject): readonly RequestMessage[];
  /**
   * The prompt in the form that documents are rendered into. `rawValue` gives a member's text as the client wrote it.
   * Error: `WARMPATH_INVALID_REQUEST` with a path, where there is nothing that documents could be put before.
   */
  readPrompt(body: JsonObject, rawValue: (key: string) => string | undefined): Prompt;
}

/** An API of conversations. */
export type MessageApi = PromptApi & { readonly said: SaidMembers };

/** Whether the API's requests have messages that the next request begins with. */
export function hasMessages(api: PromptApi): api is MessageApi {
  return api.said !== undefined;
}

/** A prompt as documents are rendered into it. */
export type Prompt = ChatPrompt | CompletionPrompt;

export interface ChatPrompt {
  readonly kind: 'chat';
  /** As core's `renderChat` takes them, whatever the API calls its messages. */
  readonly messages: readonly ChatMessage[];
  /** The members of the body that say what was rendered; what rendering left alone keeps the client's own bytes. */
  write(rendered: readonly ChatMessage[]): ReadonlyMap<string, string>;
}

export interface CompletionPrompt {
  readonly kind: 'completion';
  readonly prompt: string;
}

/** What engines know beside the fields of their API, and what makes prompts differ from the start. */
export const ENGINE_PROMPT_FIELDS = ['chat_template', 'chat_template_kwargs', 'cache_salt'];
