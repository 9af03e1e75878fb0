import type { ChatMessage } from '@warmpath/core';
import type { JsonObject } from '../json/json-scanner.js';
import type { RequestMessage } from './request-texts.js';

export const API_NAMES = ['chat', 'completions', 'messages', 'responses'] as const;
/**
 * An API that takes prompts: OpenAI's chat completions, its plain completions, Anthropic's Messages, OpenAI's
 * Responses.
 */
export type ApiName = (typeof API_NAMES)[number];

/** How an API with messages writes conversations. */
export interface ConversationMembers {
  /** The member with the system prompt, if the API has one. */
  readonly opening?: string;
  /** The member with the messages. */
  readonly messages: string;
  /** Whether this member may be one text instead of a list. */
  readonly takesText: boolean;
  /** Whether the list may contain system messages. */
  readonly hasSystemMessages: boolean;
  /** Type of a text part. */
  readonly partType: string;
  /**
   * Reads an element of the list as a chat message.
   *
   * @throws WarmpathError `WARMPATH_INVALID_REQUEST` with the path of an invalid element
   */
  read(value: unknown, place: number): ChatMessage;
  /** For APIs in which one element may be two messages: results of tools, and words of the user behind them. */
  readonly split?: {
    /** Bytes that every such element contains. */
    readonly sign: string;
    /** Type of the parts that are results. */
    readonly type: string;
    halves(message: ChatMessage): readonly ChatMessage[];
  };
}

/** How one API writes a request. */
export interface PromptApi {
  readonly name: ApiName;
  /** Its path, at the gateway and at the engine. */
  readonly path: string;
  /** Members that chat templates render before the messages. Requests that differ in one share no prefix. */
  readonly promptFields: readonly string[];
  /** `undefined` for an API without messages. */
  readonly conversation: ConversationMembers | undefined;
  /** The member that limits the answer, and the smallest limit that all engines accept. */
  readonly answerLimit: { readonly field: string; readonly least: number };
  /**
   * The messages of a request in the order in which the model reads them, with all their texts. Invalid parts have no
   * texts. Never throws. O(parts); copies no text.
   */
  messages(body: JsonObject): readonly RequestMessage[];
}

/** An API with messages. */
export type MessageApi = PromptApi & { readonly conversation: ConversationMembers };

/** Whether requests of the API have messages, which the next request repeats. */
export function hasMessages(api: PromptApi): api is MessageApi {
  return api.conversation !== undefined;
}

/** Fields of engines beside their API's that change the beginning of a prompt. */
export const ENGINE_PROMPT_FIELDS = ['chat_template', 'chat_template_kwargs', 'cache_salt'];
