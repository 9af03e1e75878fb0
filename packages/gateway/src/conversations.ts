import {
  type ChatMessage,
  type ConversationName,
  messageChain,
  type RecalledHistory,
  recallHistory,
  WarmpathError,
} from '@warmpath/core';
import type { GatewayConfig } from './config.js';
import { type ExtractedRequest, SESSION_MAX_LENGTH } from './extract.js';
import { SESSION_HEADER } from './headers.js';
import type { SessionStore } from './session-store.js';

/** Whose request it is, and how the client calls the conversation in its headers. */
export interface Caller {
  readonly tenant: string;
  /** The value of `x-warmpath-session`. */
  readonly header: string | undefined;
}

/** One of these stands in every body that has an answer of the model, in any of the APIs. */
const MODEL_SPOKE = ['"assistant"', '"function_call"'];

/** Which conversation a request continues, by the configuration and the store. */
export class Conversations {
  readonly store: SessionStore;
  readonly #config: GatewayConfig['session'];

  constructor(config: GatewayConfig['session'], store: SessionStore) {
    this.#config = config;
    this.store = store;
  }

  /**
   * Whether a body without any of the gateway's fields may continue a conversation. O(1) but for a tenant that is unknown here and
   * may be known to another gateway: then the body is searched for a word of the model's, without which it continues nothing.
   */
  mayContinue({ tenant, header }: Caller, body: Buffer): boolean {
    const { enabled, infer } = this.#config;
    if (!enabled) return false;
    if (header !== undefined) return true;
    if (!infer) return false;
    return this.store.holds(tenant) || (this.store.isShared && MODEL_SPOKE.some((word) => body.includes(word)));
  }

  /**
   * What is known of the conversation; `undefined` where the configuration or the kind of prompt rules it out. The name in the
   * body counts before that in the header. Error: `WARMPATH_INVALID_REQUEST` for a name that is empty or too long.
   */
  recall(
    extracted: ExtractedRequest,
    { tenant, header }: Caller,
    now: number,
  ): RecalledHistory | Promise<RecalledHistory> | undefined {
    const { enabled, infer } = this.#config;
    const session = extracted.session ?? header;
    if (session !== undefined && (session === '' || session.length > SESSION_MAX_LENGTH)) {
      const detail = `a name of 1 to ${SESSION_MAX_LENGTH} characters was expected`;
      throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: SESSION_HEADER, detail });
    }
    // A plain prompt is one text: there is no telling where in it the documents of a new turn belong.
    if (!enabled || (session === undefined && !infer) || extracted.prompt?.kind !== 'chat') return undefined;
    const name: ConversationName = { tenant, session };
    const { messages } = extracted.prompt;
    const links = messageChain(messages.map((message) => JSON.stringify(message)));
    const found = this.store.find(name, endsOfTurns(messages, links, session !== undefined), now);
    const request = { ...name, messages, links };
    return found instanceof Promise
      ? found.then((turnsAt) => recallHistory(request, turnsAt))
      : recallHistory(request, found);
  }
}

/**
 * The links at which an earlier request may have ended: before an answer, and the last one. A client that names its conversation may
 * go on without an answer, so that every link counts.
 */
function endsOfTurns(messages: readonly ChatMessage[], links: readonly string[], isNamed: boolean): readonly string[] {
  if (isNamed) return links;
  return links.filter((_, i) => i === links.length - 1 || messages[i + 1]!.role === 'assistant');
}
