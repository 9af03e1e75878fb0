import {
  type ChatMessage,
  type ConversationName,
  type RecalledHistory,
  recallHistory,
  type TurnLookup,
  WarmpathError,
} from '@warmpath/core';
import type { GatewayConfig } from '../config/schema.js';
import { SESSION_HEADER } from '../dispatch/headers.js';
import { placeOf } from '../intake/apis/client-messages.js';
import type { Prompt, PromptApi } from '../intake/apis/prompt-api.js';
import { SESSION_MAX_LENGTH } from '../intake/extract.js';
import { type LinkedMessages, linkedMessages } from './message-links.js';
import type { SessionStore, StoreFailure } from './session-store.js';

/** Whose request it is, and how the client calls the conversation. */
export interface Caller {
  readonly tenant: string;
  /** The name in the body, else the value of `x-warmpath-session`. */
  readonly session: string | undefined;
}

/** One of these stands in every body that has an answer of the model, in any of the APIs. */
const MODEL_SPOKE = ['"assistant"', '"function_call"'];

/** What a recall is told beside the request. */
export interface RecallOptions {
  /** Whether the request brings some, and may therefore be an earlier one once more. */
  readonly hasDocuments: boolean;
  readonly now: number;
  /** Hears why a shared store was not asked, or did not answer. */
  readonly missed: (failure: StoreFailure) => void;
}

/** Which conversation a request continues, by the configuration and the store. */
export class Conversations {
  readonly store: SessionStore;
  readonly #config: GatewayConfig['session'];

  constructor(config: GatewayConfig['session'], store: SessionStore) {
    this.#config = config;
    this.store = store;
  }

  /**
   * Whether a body without documents may continue a conversation. O(1) but for a tenant that is unknown here and may be known to another
   * gateway: then the body is searched for a word of the model's, without which it continues nothing.
   */
  mayContinue({ tenant, session }: Caller, body: Buffer): boolean {
    const { enabled, infer } = this.#config;
    if (!enabled) return false;
    if (session !== undefined) return true;
    if (!infer) return false;
    return this.store.holds(tenant) || (this.store.isShared && MODEL_SPOKE.some((word) => body.includes(word)));
  }

  /**
   * What is known of the conversation that a body continues, with places as the client counts its messages; `undefined` where the
   * configuration or the kind of prompt rules it out. The body is not parsed. Error: `WARMPATH_INVALID_REQUEST` for a name that is empty or too long. O(body), mostly native:
   * 0.3 ms for 400 KB.
   */
  recall(
    { body, api }: { readonly body: Buffer; readonly api: PromptApi },
    { tenant, session }: Caller,
    { hasDocuments, now, missed }: RecallOptions,
  ): RecalledHistory | Promise<RecalledHistory> | undefined {
    const { enabled, infer } = this.#config;
    if (session !== undefined && (session === '' || session.length > SESSION_MAX_LENGTH)) {
      const detail = `a name of 1 to ${SESSION_MAX_LENGTH} characters was expected`;
      throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: SESSION_HEADER, detail });
    }
    if (!enabled || (session === undefined && !infer)) return undefined;
    // A plain prompt is one text: there is no telling where in it the documents of a new turn belong.
    const messages = linkedMessages(body, api);
    if (messages === undefined) return undefined;
    const { links } = messages;
    const name: ConversationName = { tenant, session };
    const request = { ...name, messages, links };
    const ends = endsOfTurns(messages, session !== undefined, hasDocuments);
    const found = ends.length === 0 ? nothing : this.store.find(name, ends, now, missed);
    return found instanceof Promise
      ? found.then((turnsAt) => recallHistory(request, turnsAt))
      : recallHistory(request, found);
  }
}

/**
 * The links at which an earlier request may have ended: before an answer, and the last one, if this may be that request once more. A
 * client that names its conversation may go on without an answer, so that every link counts.
 */
function endsOfTurns(
  { links, answeredLinks }: LinkedMessages,
  isNamed: boolean,
  hasDocuments: boolean,
): readonly string[] {
  if (isNamed) return links;
  return hasDocuments ? [...answeredLinks, links.at(-1)!] : answeredLinks;
}

const nothing: TurnLookup = () => [];

/**
 * The same history with places as rendering counts messages, which may know one of the client's as two, and counts what stands
 * before them. O(messages).
 */
export function historyOf(prompt: Prompt, history: RecalledHistory): RecalledHistory {
  if (prompt.kind !== 'chat' || history.sentMessages === 0) return history;
  const isSent = (message: ChatMessage) => (placeOf(message) ?? 0) < history.sentMessages;
  return { ...history, sentMessages: prompt.messages.findLastIndex(isSent) + 1 };
}
