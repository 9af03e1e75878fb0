import type { ChatMessage } from '../render/prompt.js';
import { answerPrint, messageChain } from './message-chain.js';
import type { SentTurn, TurnName } from './sent-turn.js';
import { NOTHING_VISIBLE, type VisibleDocuments, visibleIn } from './visible-documents.js';

/** The turns that were sent where the hash chain has this link, in the order in which they were last used. */
export type TurnLookup = (link: string) => readonly SentTurn[];

/** Whose conversation a request continues. */
export interface ConversationName {
  /** The isolation boundary: nothing is ever recalled across tenants. */
  readonly tenant: string;
  /** The client's own name for the conversation; inferred from the messages without one. */
  readonly session?: string | undefined;
}

/** What is known of the conversation that a request continues. */
export interface RecalledHistory extends ConversationName {
  /** The hash chain over the request's messages. */
  readonly links: readonly string[];
  /** The turns that are replayed, the oldest first. */
  readonly turns: readonly SentTurn[];
  /** How many of the leading messages the engine has had before: nothing in them changes any more. */
  readonly sentMessages: number;
  readonly visible: VisibleDocuments;
  /** Turns that were sent for exactly these messages behind the same history: this request may be one of them again. */
  readonly siblings: readonly SentTurn[];
}

/** A request as `recallHistory` reads it. */
export interface RecallRequest extends ConversationName {
  readonly messages: readonly ChatMessage[];
  /** The hash chain over the messages. Default: that over what `JSON.stringify` makes of them. */
  readonly links?: readonly string[];
}

/**
 * Finds what a request's history was rendered to when it was sent. The latest turn whose messages this request begins with
 * decides, and all turns before it must be known as well; a history that was cut, compacted, edited or that the store has
 * forgotten in part finds nothing beyond what is still equal, and its documents come back.
 *
 * In a named session the client vouches for the conversation. Without a name, the message behind a turn must also be the answer
 * that this turn was given, and no second rendering may fit: equal opening turns of two users are told apart by what the
 * model answered, and what cannot be told apart is left alone.
 *
 * Pure. Cost: O(length of the messages).
 */
export function recallHistory(request: RecallRequest, turnsAt: TurnLookup): RecalledHistory {
  const { tenant, session, messages } = request;
  const links = request.links ?? messageChain(messages.map((message) => JSON.stringify(message)));
  const last = links.length - 1;
  let turns: readonly SentTurn[] = [];
  for (let i = last - 1; i >= 0 && turns.length === 0; i--) {
    const candidates = turnsAt(links[i]!);
    if (candidates.length > 0) turns = replayable(candidates, messages[i + 1]!, session !== undefined, turnsAt);
  }
  const latest = turns.at(-1);
  const siblings = last < 0 ? [] : turnsAt(links[last]!).filter(({ parent }) => parent?.id === latest?.id);
  return {
    tenant,
    session,
    links,
    turns,
    sentMessages: latest?.length ?? 0,
    visible: turns.length === 0 ? NOTHING_VISIBLE : visibleIn(turns),
    siblings,
  };
}

/** The turns that end with the candidate this history continues; empty if there is none, or no telling which. */
function replayable(
  candidates: readonly SentTurn[],
  next: ChatMessage,
  isNamed: boolean,
  turnsAt: TurnLookup,
): readonly SentTurn[] {
  const print = next.role === 'assistant' ? answerPrint(next) : undefined;
  const answered = print === undefined ? [] : candidates.filter(({ answers }) => answers.includes(print));
  if (!isNamed) return answered.length === 1 ? withAncestors(answered[0]!, turnsAt) : [];
  // The client vouches for the conversation: of several renderings the one that fits, else the latest.
  for (const candidate of [...candidates, ...answered].reverse()) {
    const turns = withAncestors(candidate, turnsAt);
    if (turns.length > 0) return turns;
  }
  return [];
}

/** A turn behind all before it, or nothing if one of them is forgotten. */
function withAncestors(turn: SentTurn, turnsAt: TurnLookup): readonly SentTurn[] {
  const turns = [turn];
  let parent: TurnName | undefined = turn.parent;
  while (parent !== undefined) {
    const { link, id }: TurnName = parent;
    const found = turnsAt(link).find((candidate) => candidate.id === id);
    if (found === undefined) return [];
    turns.push(found);
    parent = found.parent;
  }
  return turns.reverse();
}
