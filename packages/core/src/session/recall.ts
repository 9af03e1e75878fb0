import type { ChatMessage } from '../render/prompt.js';
import { answerHash, messageChain } from './message-chain.js';
import {
  MAX_ANSWERS,
  MAX_RENDERINGS,
  NOTHING_VISIBLE,
  type SentTurn,
  type TurnName,
  type VisibleDocuments,
  visibleIn,
} from './sent-turn.js';

/** The turns that were sent where the hash chain has this link, in the order in which they were last used. */
export type TurnLookup = (link: string) => readonly SentTurn[];

/** Which conversation a request continues: nothing is ever recalled across tenants, end users or names. */
export interface ConversationName {
  /** The isolation boundary. */
  readonly tenant: string;
  /** The end user, where the caller names one. */
  readonly user?: string | undefined;
  /** The caller's name for the conversation. */
  readonly session: string;
}

/** What is known of the conversation that a request continues. */
export interface RecalledConversation extends ConversationName {
  /** The hash chain over the request's messages. */
  readonly links: readonly string[];
  /** The turns that are replayed, the oldest first; those that added nothing are not among them. */
  readonly turns: readonly SentTurn[];
  /** How many of the leading messages the engine has had before: nothing in them changes any more. */
  readonly sentMessages: number;
  readonly visible: VisibleDocuments;
  /** Turns that were sent for exactly these messages behind the same history: this request may be one of them again. */
  readonly siblings: readonly SentTurn[];
  /**
   * Whether the messages hold an answer to a turn that is not known: the log has forgotten it, or it went past the log.
   * What was added to that turn is missing from the prompt, and the client must know.
   */
  readonly isForgotten: boolean;
}

/** Messages that are read when they are needed: an array, or an unparsed body. */
export interface MessageSource {
  readonly length: number;
  at(place: number): ChatMessage | undefined;
  /** The role alone, where that takes less than reading the message. */
  roleAt?(place: number): string | undefined;
}

/** A request as `recallConversation` reads it. */
export interface RecallRequest extends ConversationName {
  readonly messages: MessageSource;
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
 * Finds what a request's history was rendered to when it was sent. The latest turn whose messages this request begins
 * with decides, and all turns before it must be known as well. The caller vouches for the conversation by naming it:
 * equal words in another conversation are never looked at.
 *
 * Pure. Cost: O(messages), and O(length of the messages) without `links`. Reads only messages behind the latest known
 * turn.
 */
export function recallConversation(request: RecallRequest, turnsAt: TurnLookup): RecalledConversation {
  const { tenant, user, session, messages } = request;
  const links = request.links ?? chainOf(messages);
  const last = links.length - 1;
  let continued: Continued | undefined;
  for (let i = last - 1; i >= 0 && continued === undefined; i--) {
    const candidates = turnsAt(links[i]!);
    if (candidates.length === 0) continue;
    const answer = isAnswer(messages, i + 1) ? messages.at(i + 1) : undefined;
    const turns = replayable(candidates, answer, turnsAt);
    if (turns !== undefined) continued = { turns, messages: i + 1 };
  }
  const { turns, messages: sentMessages } = continued ?? NEW;
  const latest = turns.at(-1);
  const siblings = last < 0 ? [] : turnsAt(links[last]!).filter(({ parent }) => parent?.id === latest?.id);
  const visible = turns.length === 0 ? NOTHING_VISIBLE : visibleIn(turns);
  const isForgotten = hasUnknownAnswer(messages, sentMessages);
  return { tenant, user, session, links, turns, sentMessages, visible, siblings, isForgotten };
}

const NEW: Continued = { turns: [], messages: 0 };

/** Whether the model answered anything behind the known messages beside the last of these. O(messages behind them). */
function hasUnknownAnswer(messages: MessageSource, sentMessages: number): boolean {
  let at = sentMessages;
  // The answer to the latest known turn, which may be several messages long: calls of tools, then words.
  if (at > 0) while (at < messages.length && isAnswer(messages, at)) at++;
  for (; at < messages.length; at++) if (isAnswer(messages, at)) return true;
  return false;
}

function isAnswer(messages: MessageSource, place: number): boolean {
  const role = messages.roleAt === undefined ? messages.at(place)?.role : messages.roleAt(place);
  return role === 'assistant';
}

function chainOf(messages: MessageSource): readonly string[] {
  return messageChain(Array.from({ length: messages.length }, (_, place) => [JSON.stringify(messages.at(place))]));
}

/** The turns that the candidate replays which this history continues; `undefined` if none does. */
function replayable(
  candidates: readonly SentTurn[],
  answer: ChatMessage | undefined,
  turnsAt: TurnLookup,
): readonly SentTurn[] | undefined {
  const hash = answer && answerHash(answer);
  const answered = hash === undefined ? [] : candidates.filter(({ answers }) => answers.includes(hash));
  const unread = hash === undefined ? [] : candidates.filter(({ answers }) => answers.length === 0);
  // Of so many renderings, or answers to one, the oldest are gone: an answer to none that is left may be one of them.
  const isFull = candidates.length >= MAX_RENDERINGS || candidates.some(({ answers }) => answers.length >= MAX_ANSWERS);
  const isGone = hash !== undefined && answered.length + unread.length === 0 && isFull;
  if (isGone) return undefined;
  // Of several renderings the one that got this answer, else one whose answer is unknown, else the latest.
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
