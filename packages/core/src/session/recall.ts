import type { Document } from '../document.js';
import { Fingerprint } from '../fingerprint.js';
import type { PathStep } from '../preamble.js';
import type { ChatEdit, ChatMessage, ContentPart } from '../render/prompt.js';
import { messageMeaning } from './message-meaning.js';

/** A document of a prompt that was sent: in full, or with references for parts. */
export interface SentDocument {
  /** Fingerprint of title and content. */
  readonly hash: string;
  /** What the prompt calls it. */
  readonly label: string;
  readonly title: string | undefined;
  readonly content: string;
  /** The text in the prompt, if parts of it are references. */
  readonly shown?: string;
}

/** Renderings remembered of one request: retries with other documents. */
export const MAX_RENDERINGS = 32;
/** Answers remembered of one rendering. */
export const MAX_ANSWERS = 8;

/** Names a turn: its link in the hash chain, and its rendering there. */
export interface TurnName {
  /** Link of the last message of the request. */
  readonly link: string;
  readonly id: string;
}

/**
 * What one request added to the client's messages. Immutable plain data that survives JSON. A turn is only replayed
 * together with all turns before it (`parent`).
 */
export interface SentTurn extends TurnName {
  /** Messages of the client's request. */
  readonly length: number;
  /** The turn before that added something; this rendering continues it. */
  readonly parent: TurnName | undefined;
  /** Hash of the request: documents in retrieval order, and all that decides how they are written. */
  readonly supplied: string;
  /** Labels of the documents sent, in prompt order. */
  readonly order: readonly string[];
  /** The edits of this turn alone. */
  readonly edits: readonly ChatEdit[];
  /** Documents whose full text is in `edits`. */
  readonly documents: readonly SentDocument[];
  /** Path steps behind those of `parent`. */
  readonly steps: readonly PathStep[];
  /** Tokens behind the last step. */
  readonly tail: number;
  /** Hashes of its answers (`answerHash`), the latest last. */
  readonly answers: readonly string[];
}

/** The documents that the messages of a request contain in full. */
export interface VisibleDocuments {
  /** The document with exactly this title and content, under the label that it was sent with. */
  find(document: Pick<Document, 'title' | 'content'>, hash: string): SentDocument | undefined;
  /** Whether this label names another text. O(documents of that label). */
  namesOther(label: string, document: Pick<Document, 'title' | 'content'>): boolean;
}

/** Contains no document, so only documents that come twice in a request are found. */
export const NOTHING_VISIBLE: VisibleDocuments = { find: () => undefined, namesOther: () => false };

/** The documents of these turns. O(documents). */
export function visibleIn(turns: readonly Pick<SentTurn, 'documents'>[]): VisibleDocuments {
  const byHash = new Map<string, SentDocument>();
  const byLabel = new Map<string, SentDocument[]>();
  for (const { documents } of turns) {
    for (const document of documents) {
      byHash.set(document.hash, document);
      const named = byLabel.get(document.label);
      if (named === undefined) byLabel.set(document.label, [document]);
      else named.push(document);
    }
  }
  return {
    find: ({ title, content }, hash) => {
      const sent = byHash.get(hash);
      // Hashes can be made to collide. A document must not be lost because of that.
      return sent !== undefined && isSameText(sent, { title, content }) ? sent : undefined;
    },
    namesOther: (label, document) => byLabel.get(label)?.some((sent) => !isSameText(sent, document)) ?? false,
  };
}

function isSameText(
  one: Pick<Document, 'title' | 'content'>,
  { title, content }: Pick<Document, 'title' | 'content'>,
): boolean {
  return one.content === content && (one.title ?? '') === (title ?? '');
}

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
  /** The hash chain over the meanings of the messages (`messageMeaning`). Default: made here. */
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
  return messageChain(Array.from({ length: messages.length }, (_, place) => [messageMeaning(messages.at(place))]));
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

/**
 * The hash chain over a conversation: link `i` identifies the messages 0 to `i`, by these texts and their order.
 * O(length).
 *
 * @param messages texts of each message, for instance its meaning (`messageMeaning`)
 * @param before the link that they follow, if any
 */
export function messageChain(messages: readonly (readonly string[])[], before = ''): readonly string[] {
  const hasher = new Fingerprint();
  let link = before;
  return messages.map((texts) => {
    hasher.reset().add(link);
    for (const text of texts) hasher.add(text);
    link = hasher.end().digits();
    return link;
  });
}

/** A range of bytes. `end` is exclusive. */
export interface ByteRange {
  readonly start: number;
  readonly end: number;
}

/** A hash chain over ranges of bytes. Its links differ from those of `messageChain`. O(bytes). */
export function byteChain(bytes: Uint8Array, messages: readonly ByteRange[]): readonly string[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const hasher = new Fingerprint();
  return messages.map(({ start, end }) => {
    // The lanes carry the hash of all ranges before.
    return hasher.addBytes(view, start, end).end().digits();
  });
}

/**
 * A hash of an answer: its trimmed text and its tool calls; `undefined` for an empty answer, which identifies nothing.
 * Content may be a string or parts. O(length).
 */
export function answerHash(
  message: Pick<ChatMessage, 'content'> & { readonly tool_calls?: unknown },
): string | undefined {
  const text = answerText(message.content).trim();
  const calls = Array.isArray(message.tool_calls) ? (message.tool_calls as readonly unknown[]).flatMap(readCall) : [];
  if (text === '' && calls.length === 0) return undefined;
  const hasher = new Fingerprint().add(text);
  for (const part of calls) hasher.add(part);
  return hasher.end().digits();
}

function answerText(content: ChatMessage['content']): string {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  return (content as readonly ContentPart[]).map((part) => (typeof part?.text === 'string' ? part.text : '')).join('');
}

function readCall(call: unknown): string[] {
  const given = (call as { readonly function?: { readonly name?: unknown; readonly arguments?: unknown } } | null)
    ?.function;
  return [String(given?.name ?? ''), asWritten(given?.arguments)];
}

/** Arguments in one form, because clients reformat their JSON. */
function asWritten(given: unknown): string {
  const text = String(given ?? '');
  try {
    return JSON.stringify(JSON.parse(text));
  } catch {
    return text;
  }
}
