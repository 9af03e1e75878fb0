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

/** The turns at a link of the hash chain, in order of last use. */
export type TurnLookup = (link: string) => readonly SentTurn[];

/** Names a conversation. Turns are never shared between tenants, end users or names. */
export interface ConversationName {
  /** The isolation boundary. */
  readonly tenant: string;
  /** The end user, if the caller names one. */
  readonly user?: string | undefined;
  /** The caller's name for the conversation. */
  readonly session: string;
}

/** The remembered part of the conversation that a request continues. */
export interface RecalledConversation extends ConversationName {
  /** The hash chain over the request's messages. */
  readonly links: readonly string[];
  /** The turns to replay, oldest first. Turns that added nothing are left out. */
  readonly turns: readonly SentTurn[];
  /** Leading messages that were sent before. Nothing in them changes any more. */
  readonly sentMessages: number;
  readonly visible: VisibleDocuments;
  /** Turns with exactly these messages after the same turns: this request may repeat one. */
  readonly siblings: readonly SentTurn[];
  /**
   * Whether the messages contain an answer to an unknown turn. What was added to that turn is then missing from the
   * prompt, and the client must be told.
   */
  readonly isForgotten: boolean;
}

/** Messages that are read on demand: an array, or an unparsed body. */
export interface MessageSource {
  readonly length: number;
  at(place: number): ChatMessage | undefined;
  /** Reads the role only, if that is cheaper. */
  roleAt?(place: number): string | undefined;
}

/** Input of `recallConversation`. */
export interface RecallRequest extends ConversationName {
  readonly messages: MessageSource;
  /** The hash chain over the messages. Default: over their `JSON.stringify`. */
  readonly links?: readonly string[];
}

/** The turns that a request continues. */
interface Continued {
  readonly turns: readonly SentTurn[];
  /** Leading messages of the request that they cover. */
  readonly messages: number;
}

/**
 * Finds the turns that a request continues: the latest turn whose messages it begins with, and all turns before it.
 * Only looks at the named conversation.
 *
 * Pure. O(messages), and O(length of the messages) without `links`. Reads only messages behind the latest known turn.
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

/**
 * Whether there is an answer behind the known messages, apart from the one that follows them directly. O(messages
 * behind them).
 */
function hasUnknownAnswer(messages: MessageSource, sentMessages: number): boolean {
  let at = sentMessages;
  // The answer to the latest known turn may be several messages long: tool calls, then text.
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

/** The turns up to the candidate that this conversation continues; `undefined` if none fits. */
function replayable(
  candidates: readonly SentTurn[],
  answer: ChatMessage | undefined,
  turnsAt: TurnLookup,
): readonly SentTurn[] | undefined {
  const hash = answer && answerHash(answer);
  const answered = hash === undefined ? [] : candidates.filter(({ answers }) => answers.includes(hash));
  const unread = hash === undefined ? [] : candidates.filter(({ answers }) => answers.length === 0);
  // Old renderings and answers are dropped at these limits, so an unknown answer may belong to a dropped one.
  const isFull = candidates.length >= MAX_RENDERINGS || candidates.some(({ answers }) => answers.length >= MAX_ANSWERS);
  const isGone = hash !== undefined && answered.length + unread.length === 0 && isFull;
  if (isGone) return undefined;
  // Prefer the rendering with this answer, then one without answers, then the latest.
  for (const candidate of [...candidates, ...unread, ...answered].reverse()) {
    const turns = withAncestors(candidate, turnsAt);
    if (turns !== undefined) return turns;
  }
  return undefined;
}

/** A turn with all turns before it, itself only if it added something; `undefined` if one is forgotten. */
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
