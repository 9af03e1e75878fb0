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
  /** The turns that are replayed, the oldest first; those that added nothing are not among them. */
  readonly turns: readonly SentTurn[];
  /** How many of the leading messages the engine has had before: nothing in them changes any more. */
  readonly sentMessages: number;
  readonly visible: VisibleDocuments;
  /** Turns that were sent for exactly these messages behind the same history: this request may be one of them again. */
  readonly siblings: readonly SentTurn[];
}

/** Messages of which one or two are read: an array, or what reads a message when it is asked for. */
export interface MessagesByPlace {
  readonly length: number;
  at(place: number): ChatMessage | undefined;
}

/** A request as `recallHistory` reads it. */
export interface RecallRequest extends ConversationName {
  readonly messages: MessagesByPlace;
  /** The hash chain over the messages. Default: that over what `JSON.stringify` makes of them. */
  readonly links?: readonly string[];
}

/** The turn that a request continues: the last one whose messages it begins with. */
interface Continued {
  readonly turns: readonly SentTurn[];
  /** How many messages of the request it had. */
  readonly messages: number;
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
 * Pure. Cost: O(messages), and O(length of the messages) without `links`; it reads a message only behind a turn that was sent.
 */
export function recallHistory(request: RecallRequest, turnsAt: TurnLookup): RecalledHistory {
  const { tenant, session, messages } = request;
  const links = request.links ?? chainOf(messages);
  const last = links.length - 1;
  let continued: Continued | undefined;
  for (let i = last - 1; i >= 0 && continued === undefined; i--) {
    const candidates = turnsAt(links[i]!);
    if (candidates.length === 0) continue;
    const turns = replayable(candidates, messages.at(i + 1), session !== undefined, turnsAt);
    if (turns !== undefined) continued = { turns, messages: i + 1 };
  }
  const { turns, messages: sentMessages } = continued ?? NEW;
  const latest = turns.at(-1);
  const siblings = last < 0 ? [] : turnsAt(links[last]!).filter(({ parent }) => parent?.id === latest?.id);
  const visible = turns.length === 0 ? NOTHING_VISIBLE : visibleIn(turns);
  return { tenant, session, links, turns, sentMessages, visible, siblings };
}

const NEW: Continued = { turns: [], messages: 0 };

function chainOf(messages: MessagesByPlace): readonly string[] {
  return messageChain(Array.from({ length: messages.length }, (_, place) => JSON.stringify(messages.at(place))));
}

/** The turns that the candidate replays which this history continues; `undefined` if there is none, or no telling which. */
function replayable(
  candidates: readonly SentTurn[],
  next: ChatMessage | undefined,
  isNamed: boolean,
  turnsAt: TurnLookup,
): readonly SentTurn[] | undefined {
  const print = next?.role === 'assistant' ? answerPrint(next) : undefined;
  const answered = print === undefined ? [] : candidates.filter(({ answers }) => answers.includes(print));
  if (!isNamed) return answered.length === 1 ? withAncestors(answered[0]!, turnsAt) : undefined;
  // The client vouches for the conversation: of several renderings the one that fits, else one whose answer nobody read, else the latest.
  const unread = print === undefined ? [] : candidates.filter(({ answers }) => answers.length === 0);
  for (const candidate of [...candidates, ...unread, ...answered].reverse()) {
    const turns = withAncestors(candidate, turnsAt);
    if (turns !== undefined) return turns;
  }
  return undefined;
}

/** A turn behind all before it, itself only if it added something; `undefined` if one of them is forgotten. */
function withAncestors(turn: SentTurn, turnsAt: TurnLookup): readonly SentTurn[] | undefined {
  const turns = turn.edits.length === 0 ? [] : [turn];
  let parent: TurnName | undefined = turn.parent;
  while (parent !== undefined) {
    const { link, id }: TurnName = parent;
    const found = turnsAt(link).find((candidate) => candidate.id === id);
    if (found === undefined) return undefined;
    turns.push(found);
    parent = found.parent;
  }
  return turns.reverse();
}
