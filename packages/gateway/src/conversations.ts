import {
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

/** Which conversation a request continues, by the configuration and the store. */
export class Conversations {
  readonly store: SessionStore;
  readonly #config: GatewayConfig['session'];

  constructor(config: GatewayConfig['session'], store: SessionStore) {
    this.#config = config;
    this.store = store;
  }

  /** Whether a body without any of the gateway's fields may continue a conversation. O(1). */
  mayContinue({ tenant, header }: Caller): boolean {
    const { enabled, infer } = this.#config;
    return enabled && (header !== undefined || (infer && this.store.holds(tenant)));
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
    const found = this.store.find(name, links, now);
    const request = { ...name, messages, links };
    return found instanceof Promise
      ? found.then((turnsAt) => recallHistory(request, turnsAt))
      : recallHistory(request, found);
  }
}
