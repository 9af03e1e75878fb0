import { setTimeout as sleep } from 'node:timers/promises';
import { type ConversationName, recallConversation, WarmpathError } from '@warmpath/core';
import type { ConversationStore, RecalledConversation, StoreFailure, TurnLookup } from '@warmpath/core/internal';
import type { PromptView } from '../apis/prompt-view.js';
import type { NamedConversation } from '../intake/parse-request.js';

/** What a recall needs beside the request. */
export interface RecallOptions {
  readonly tenant: string;
  readonly now: number;
  /** Called when a shared store was not asked, or did not answer. */
  readonly missed: (failure: StoreFailure) => void;
  /** Called when the store itself has a defect. */
  readonly failed: (defect: unknown) => void;
}

/** Milliseconds in which a turn reaches a shared store from the gateway that has answered it. */
const REACHES_STORE_MS = 50;

/** Finds what a named conversation's earlier turns were rendered to. Without a name, nothing is ever recalled. */
export class Conversations {
  readonly store: ConversationStore;

  constructor(store: ConversationStore) {
    this.store = store;
  }

  /**
   * For a request that lacks an end user: it continues no conversation, and none is remembered.
   *
   * @returns whether documents of earlier turns may be missing.
   * @throws WarmpathError `WARMPATH_CONVERSATION_FORGOTTEN` where they may, and the request does not ask for a marked
   * answer.
   */
  withoutEndUser(prompt: PromptView, { session, forgotten }: NamedConversation): boolean {
    const name = { tenant: '', session };
    const { isForgotten } = recallConversation({ ...name, messages: prompt, links: prompt.links() }, () => []);
    if (isForgotten && forgotten === 'refuse') throw withoutEndUser('WARMPATH_CONVERSATION_FORGOTTEN');
    return isForgotten;
  }

  /**
   * What is known of the conversation that a prompt continues. Cost: O(body), mostly native: 0.3 ms for 400 KB; with a
   * shared store, one look-up, and a second one 50 ms later before the conversation counts as forgotten.
   *
   * @throws WarmpathError `WARMPATH_CONVERSATION_FORGOTTEN` where documents of earlier turns may be missing and the
   * request does not ask for a marked answer; `WARMPATH_STORE_UNAVAILABLE` where that is because the shared store did
   * not answer.
   */
  recall(
    prompt: PromptView,
    conversation: NamedConversation,
    { tenant, now, missed, failed }: RecallOptions,
  ): RecalledConversation | Promise<RecalledConversation> {
    const name: ConversationName = { tenant, user: conversation.user, session: conversation.session };
    const links = prompt.links();
    let isMissed = false;
    const missedFor = (reason: StoreFailure) => {
      isMissed = true;
      missed(reason);
    };
    const find = () =>
      orInstead<TurnLookup>(
        () => this.store.find(name, links, now, missedFor),
        (defect) => {
          isMissed = true;
          failed(defect);
          return () => [];
        },
      );
    const recalled = (turnsAt: TurnLookup) => recallConversation({ ...name, messages: prompt, links }, turnsAt);
    const unlessRefused = (history: RecalledConversation): RecalledConversation => {
      if (history.isForgotten && conversation.forgotten === 'refuse') throw forgotten(isMissed);
      return history;
    };
    const found = find();
    if (!(found instanceof Promise)) return unlessRefused(recalled(found));
    return found.then(async (turnsAt) => {
      const history = recalled(turnsAt);
      if (!history.isForgotten || isMissed) return unlessRefused(history);
      // The client is as fast as the gateway that answered it: what that one writes may be on its way.
      await sleep(REACHES_STORE_MS);
      return unlessRefused(recalled(await find()));
    });
  }
}

/**
 * The error for a request that names a conversation and has no end user, where the operator configured where end users
 * come from.
 */
export function withoutEndUser(code: 'WARMPATH_CONVERSATION_FORGOTTEN' | 'WARMPATH_FORBIDDEN'): WarmpathError {
  const detail =
    'This request has no end user. The operator of this gateway configured where end users come from (`server.jwt.endUserClaim` or `server.trustedHeaders.endUser`), so a request without one has no conversations.';
  return new WarmpathError(code, { detail });
}

/** What a call answers, now or later, or what stands in for that where it fails. */
function orInstead<Value>(
  call: () => Value | Promise<Value>,
  instead: (defect: unknown) => Value,
): Value | Promise<Value> {
  try {
    const value = call();
    return value instanceof Promise ? value.catch(instead) : value;
  } catch (defect) {
    return instead(defect);
  }
}

function forgotten(isMissed: boolean): WarmpathError {
  if (!isMissed) return new WarmpathError('WARMPATH_CONVERSATION_FORGOTTEN');
  const detail = 'The store of conversations did not answer, and this gateway does not know the earlier turns itself.';
  return new WarmpathError('WARMPATH_STORE_UNAVAILABLE', { detail });
}
