import type { ChatMessage } from '@warmpath/core';
import type { JsonObject } from '../json/json-scanner.js';
import type { RequestMessage } from './request-texts.js';

export const API_NAMES = ['chat', 'completions', 'messages', 'responses'] as const;
/**
 * An API that takes prompts: OpenAI's chat completions, its plain completions, Anthropic's Messages, OpenAI's
 * Responses.
 */
export type ApiName = (typeof API_NAMES)[number];

/** How an API of conversations writes them. */
export interface ConversationMembers {
  /** The member that holds what stands before the messages, if the API has one. */
  readonly opening?: string;
  /** The member that holds the messages. */
  readonly messages: string;
  /** Whether that may be one text instead of a list. */
  readonly takesText: boolean;
  /** Whether a message of the list may be the system's. */
  readonly hasSystemMessages: boolean;
  /** What the API calls a content part that is text. */
  readonly partType: string;
  /**
   * One element of the list as a message of a chat.
   *
   * @throws WarmpathError `WARMPATH_INVALID_REQUEST` with the path of what is none.
   */
  read(value: unknown, place: number): ChatMessage;
  /** Where one element can be two messages: results of tools, and what the user says behind them. */
  readonly split?: {
    /** Stands in the bytes of every such element. */
    readonly sign: string;
    /** The type of the parts that are results. */
    readonly type: string;
    halves(message: ChatMessage): readonly ChatMessage[];
  };
}

/** How one API writes a request: what the rest of the gateway need not know. */
export interface PromptApi {
  readonly name: ApiName;
  /** Its path, the same at the gateway and at the engine. */
  readonly path: string;
  /** Members that chat templates render before the messages: a request that differs in one shares no prefix. */
  readonly promptFields: readonly string[];
  /** `undefined` for an API of single prompts. */
  readonly conversation: ConversationMembers | undefined;
  /** The member that bounds the answer, with the fewest tokens that every engine takes. */
  readonly answerLimit: { readonly field: string; readonly least: number };
  /**
   * The request's messages in the order in which the model reads them, with all their texts. What is not as the API
   * wants it has no texts; it never throws. O(parts), no text is copied.
   */
  messages(body: JsonObject): readonly RequestMessage[];
}

/** An API of conversations. */
export type MessageApi = PromptApi & { readonly conversation: ConversationMembers };

/** Whether the API's requests have messages that the next request begins with. */
export function hasMessages(api: PromptApi): api is MessageApi {
  return api.conversation !== undefined;
}

/** What engines know beside the fields of their API, and what makes prompts differ from the start. */
export const ENGINE_PROMPT_FIELDS = ['chat_template', 'chat_template_kwargs', 'cache_salt'];
