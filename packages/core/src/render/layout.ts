import type { Arrangement } from '../arrangement.js';
import type { Document, TokenCounter } from '../document.js';
import { WarmpathError } from '../errors.js';
import { fingerprint } from '../fingerprint.js';
import type { Preamble } from '../preamble.js';
import { costOfText, estimateTokens, tokensOfCost } from '../token-estimate.js';
import type { ChatEdit, ChatMessage, ContentPart, RenderOptions } from './prompt.js';
import { locationHint, orderHint, type TemplateName } from './prompt.js';
import { documentName, renderDocuments } from './template.js';

/** JSON with sorted object keys, so that equal data gives equal text. For parsed JSON. O(size). */
export function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_key, inner: unknown) => {
    if (typeof inner !== 'object' || inner === null || Array.isArray(inner)) return inner;
    const record = inner as Readonly<Record<string, unknown>>;
    return Object.fromEntries(
      Object.keys(record)
        .sort()
        .map((key) => [key, record[key]]),
    );
  });
}

/** Tokens of a chat template for each message (ChatML: start, role, line end, end). */
const TOKENS_PER_MESSAGE = 5;

export interface PreambleOptions extends RenderOptions {
  /** Counts tokens of text. Default: `estimateTokens`. */
  readonly countTokens?: TokenCounter;
}

export interface RenderChatOptions extends RenderOptions {
  /** Replaces the rendered documents, for a caller with their text in another form. */
  readonly documentsText?: string;
}

/**
 * Puts documents and hint into a chat. Never mutates its input. Messages and parts that nothing is added to stay the
 * same objects.
 *
 * - `question`: documents, hint and question in the last user message.
 * - `message`: documents in a user message of their own before the last one; the hint opens the question.
 * - `system`: documents at the end of the first system (or developer) message; the hint opens the question.
 *
 * @throws `WARMPATH_INVALID_REQUEST` (path `messages`) without a user message, or for content that is no text or parts
 */
export function renderChat(
  messages: readonly ChatMessage[],
  arrangement: Arrangement,
  options: RenderChatOptions,
): readonly ChatMessage[] {
  return applyEdits(messages, chatEdits(messages, arrangement, options));
}

/** The edits of `renderChat`, in the order of the messages. Same errors and cost. */
export function chatEdits(
  messages: readonly ChatMessage[],
  arrangement: Arrangement,
  options: RenderChatOptions,
): readonly ChatEdit[] {
  const hint = renderHint(arrangement, options.template);
  const isEmpty = arrangement.documents.length === 0;
  if (isEmpty && hint === '') return [];
  const question = questionIndex(messages);
  const body = isEmpty ? '' : (options.documentsText ?? renderDocuments(arrangement.documents, options.template));
  const asked = (text: string): readonly ChatEdit[] =>
    text === '' ? [] : [{ at: question, add: 'text-before', text }];
  if (isEmpty || options.layout === 'question') return asked(body + hint);
  if (options.layout === 'message') {
    return [{ at: question, add: 'message-before', role: 'user', text: body }, ...asked(hint)];
  }
  const system = systemIndex(messages);
  if (system < 0) return [{ at: 0, add: 'message-before', role: 'system', text: body }, ...asked(hint)];
  return [{ at: system, add: 'text-after', text: body }, ...asked(hint)];
}

/**
 * Applies edits; those of one message in their order. An unchanged message stays the same object. O(messages + text).
 *
 * @throws `WARMPATH_INVALID_REQUEST` where the content to edit is neither text nor parts
 */
export function applyEdits(messages: readonly ChatMessage[], edits: readonly ChatEdit[]): readonly ChatMessage[] {
  if (edits.length === 0) return messages;
  const byPlace = new Map<number, ChatEdit[]>();
  for (const edit of edits) {
    const here = byPlace.get(edit.at);
    if (here === undefined) byPlace.set(edit.at, [edit]);
    else here.push(edit);
  }
  return messages.flatMap((message, at) => {
    const here = byPlace.get(at);
    if (here === undefined) return [message];
    const before: ChatMessage[] = [];
    const after: ChatMessage[] = [];
    let changed = message;
    for (const { add, text, role = 'user' } of here) {
      if (add === 'text-before') changed = withTextBefore(changed, at, text);
      else if (add === 'text-after') changed = withTextAfter(changed, at, text);
      else (add === 'message-before' ? before : after).push({ role, content: text });
    }
    return [...before, changed, ...after];
  });
}

/** `documents + hint + prompt`. Without documents, the prompt as it is. O(length of the documents). */
export function renderCompletion(
  prompt: string,
  arrangement: Arrangement,
  options: Pick<RenderOptions, 'template'>,
): string {
  const body = renderDocuments(arrangement.documents, options.template);
  return body + renderHint(arrangement, options.template) + prompt;
}

/**
 * The preamble of a chat under this layout. The key is a hash of scope, layout, template and all fields of the messages
 * before the documents; key order in their JSON does not matter. Tokens cover the text, and a flat rate for the chat
 * template. O(length of these messages).
 *
 * @param scope all else that decides the start of the prompt: model, tools, cache salt
 * @throws the errors of `renderChat`
 */
export function chatPreamble(messages: readonly ChatMessage[], scope: string, options: PreambleOptions): Preamble {
  const before = messagesBeforeDocuments(messages, options);
  return { key: preambleKey(scope, options, before.map(messageHash)), tokens: chatTokens(before, options.countTokens) };
}

/** Tokens of messages: their text, and a flat rate for the chat template. O(length). */
export function chatTokens(messages: readonly ChatMessage[], countTokens: TokenCounter = estimateTokens): number {
  let tokens = 0;
  for (const message of messages) {
    const text = textOf(message);
    tokens += TOKENS_PER_MESSAGE + (text === '' ? 0 : Math.ceil(countTokens(text)));
  }
  return tokens;
}

function messageHash(message: ChatMessage): string {
  const { role, content } = message;
  // Most messages have only these two fields. JSON would take longer.
  if (typeof content === 'string' && Object.keys(message).length === 2) return fingerprint([role, content]);
  return fingerprint([canonicalJson(message)]);
}

/** The preamble of a plain completion: only `scope`. */
export function completionPreamble(scope: string, options: Pick<RenderOptions, 'template'>): Preamble {
  return { key: preambleKey(scope, { ...options, layout: 'completion' }, []), tokens: 0 };
}

function preambleKey(scope: string, options: { layout: string; template: string }, before: readonly string[]): string {
  return `preamble#${fingerprint([scope, options.layout, options.template, ...before])}`;
}

/**
 * The messages before the documents. Of the message that contains the documents, only the fields rendered before them.
 */
function messagesBeforeDocuments(messages: readonly ChatMessage[], options: RenderOptions): readonly ChatMessage[] {
  const question = questionIndex(messages);
  if (options.layout === 'message') return [...messages.slice(0, question), { role: 'user' }];
  if (options.layout === 'system') {
    const system = systemIndex(messages);
    return system < 0 ? [{ role: 'system' }] : messages.slice(0, system + 1);
  }
  const { role, name } = messages[question]!;
  return [...messages.slice(0, question), name === undefined ? { role } : { role, name }];
}

function questionIndex(messages: readonly ChatMessage[]): number {
  const index = messages.findLastIndex((message) => message.role === 'user');
  if (index >= 0) return index;
  const detail = 'There is no user message to put the documents before.';
  throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'messages', detail });
}

function systemIndex(messages: readonly ChatMessage[]): number {
  return messages.findIndex((message) => message.role === 'system' || message.role === 'developer');
}

function withTextBefore(message: ChatMessage, index: number, text: string): ChatMessage {
  const content = contentOf(message, index);
  if (typeof content === 'string') return { ...message, content: text + content };
  return { ...message, content: [{ type: 'text', text }, ...content] };
}

function withTextAfter(message: ChatMessage, index: number, text: string): ChatMessage {
  const content = contentOf(message, index);
  if (typeof content !== 'string') return { ...message, content: [...content, { type: 'text', text }] };
  return { ...message, content: content === '' ? text : `${content}\n\n${text}` };
}

function contentOf(message: ChatMessage, index: number): string | readonly ContentPart[] {
  const { content } = message;
  if (content === undefined || content === null) return '';
  if (typeof content === 'string' || Array.isArray(content)) return content;
  const path = `messages[${index}].content`;
  throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path, detail: 'Content is a string or an array of parts.' });
}

function textOf(message: ChatMessage): string {
  const { content } = message;
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  return (content as readonly ContentPart[]).map((part) => (typeof part?.text === 'string' ? part.text : '')).join('');
}

/**
 * The hints of an arrangement: where referenced documents are (RAGBoost §6), then the retrieval order of moved
 * documents (RAGBoost §5.3). They come after the documents, so the tokens of documents do not depend on them. Empty if
 * not needed. O(documents).
 */
export function renderHint(arrangement: Arrangement, template: TemplateName): string {
  const { references, hint, locationHint: isLocated, order: places } = arrangement;
  const location = isLocated ? references.map(({ document }) => named(document, template)).join(', ') : '';
  let order = '';
  if (hint !== undefined) {
    const names = inRetrievalOrder(arrangement).map((one) => named(one, template));
    const chains = references.length === 0 ? movedChains(places) : [[...names.keys()]];
    order = chains.map((chain) => chain.map((rank) => names[rank]!).join(' > ')).join(', ');
  }
  return (location === '' ? '' : `${locationHint(location)}\n`) + (order === '' ? '' : `${orderHint(order)}\n`);
}

/**
 * The moved documents by rank, in chains. A chain begins with a document that did not move; each other one belongs
 * directly behind the one before it. As few documents as possible count as moved, never the most relevant one. Empty if
 * nothing moved. O(k log k).
 */
export function movedChains(order: readonly number[]): readonly (readonly number[])[] {
  if (isRetrievalOrder(order)) return [];
  const stays = stayingRanks(order);
  const chains: number[][] = [];
  for (let rank = 1; rank < order.length; rank++) {
    if (stays[rank] === 1) continue;
    if (stays[rank - 1] === 1) chains.push([rank - 1]);
    chains.at(-1)!.push(rank);
  }
  return chains;
}

function isRetrievalOrder(order: readonly number[]): boolean {
  for (let place = 0; place < order.length; place++) if (order[place] !== place) return false;
  return true;
}

/** By rank: 1 for a longest rising subsequence of the order that begins with rank 0. O(k log k). */
function stayingRanks(order: readonly number[]): readonly number[] {
  const stays: number[] = new Array(order.length).fill(0);
  /** By length - 1: the place of the lowest rank that ends a subsequence of that length. */
  const ends: number[] = new Array(order.length).fill(-1);
  const before: number[] = new Array(order.length).fill(-1);
  let longest = 0;
  for (let place = order.indexOf(0); place < order.length; place++) {
    let low = 0;
    let high = longest;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (order[ends[middle]!]! < order[place]!) low = middle + 1;
      else high = middle;
    }
    if (low > 0) before[place] = ends[low - 1]!;
    ends[low] = place;
    if (low === longest) longest++;
  }
  for (let place = ends[longest - 1]!; place >= 0; place = before[place]!) stays[order[place]!] = 1;
  return stays;
}

const WORDING_TOKENS = estimateTokens(orderHint('\n'));

/** Cost of the characters around a name. */
const LINK_COST = costOfText('[] > ');

/** Estimated tokens of the order hint, with labels as names. O(k log k). */
export function hintTokens(documents: readonly Document[], order: readonly number[]): number {
  if (isRetrievalOrder(order)) return 0;
  const stays = stayingRanks(order);
  let tokens = WORDING_TOKENS;
  for (let rank = 0; rank < order.length; rank++) {
    // `movedChains` names the documents that moved, and those before a chain.
    const isNamed = stays[rank] === 0 || (rank + 1 < order.length && stays[rank + 1] === 0);
    if (isNamed) tokens += tokensOfCost(LINK_COST + costOfText(documents[rank]!.label));
  }
  return tokens;
}

/** All documents of the request, references included. */
function inRetrievalOrder({ documents, order, references }: Arrangement): readonly Document[] {
  const all: (Document | undefined)[] = new Array(documents.length + references.length).fill(undefined);
  for (const { document, rank } of references) all[rank] = document;
  const byRank: Document[] = new Array(documents.length);
  for (const [place, rank] of order.entries()) byRank[rank] = documents[place]!;
  let next = 0;
  return all.map((document) => document ?? byRank[next++]!);
}

function named(document: Document, template: TemplateName): string {
  return `[${documentName(document, template)}]`;
}
