import type { Arrangement, ArrangeRequest } from './arrangement.js';
import type { TokenCounter } from './document.js';
import { fingerprint } from './fingerprint.js';
import { withCachedPrefix } from './ordering/placement.js';
import type { OrderingPolicy } from './ordering/policy.js';
import type { Preamble } from './preamble.js';
import {
  applyEdits,
  chatEdits,
  chatPreamble,
  chatTokens,
  type PreambleOptions,
  type RenderChatOptions,
  renderHint,
} from './render/layout.js';
import type { ChatEdit, ChatMessage, RenderOptions } from './render/prompt.js';
import { documentName, renderDocuments } from './render/template.js';
import { SeenSegments, sentDocuments } from './session/dedup.js';
import type { RecalledConversation, SentTurn } from './session/recall.js';
import { estimateTokens } from './token-estimate.js';

/** An arranged turn of a conversation. */
export interface ConversationTurn {
  readonly history: RecalledConversation;
  /** As the client sent them. */
  readonly messages: readonly ChatMessage[];
  readonly arrangement: Arrangement;
  /** Hash of the request (`suppliedHash`). */
  readonly supplied: string;
}

/** A turn as it is sent to the engine. */
export interface RenderedTurn {
  readonly messages: readonly ChatMessage[];
  /** For `ConversationLog.sent`. */
  readonly turn: SentTurn;
}

/**
 * The preamble of this turn: the path of all earlier turns, which the engine has seen, and the messages since. So the
 * knowledge tree has a conversation as one growing prompt. O(new messages + documents of the conversation).
 *
 * @throws the errors of `renderChat`
 */
export function turnPreamble(
  history: RecalledConversation,
  messages: readonly ChatMessage[],
  scope: string,
  options: PreambleOptions,
): Preamble {
  if (history.sentMessages === 0) return chatPreamble(messages, scope, options);
  const latest = history.turns.at(-1);
  const { at, layout } = placeOfDocuments(history, messages, options);
  const fresh = messages.slice(latest?.length ?? 0);
  const asked = at < messages.length ? fresh : [...fresh, { role: 'user' }];
  const behind = latest === undefined ? scope : `${scope}\n${latest.id}`;
  const preamble = chatPreamble(asked, behind, { ...options, layout });
  if (latest === undefined) return preamble;
  const { key, tokens } = preamble;
  const steps = history.turns.flatMap((turn) => turn.steps);
  const before = steps.reduce((sum, step) => sum + step.tokens, 0);
  return { key, tokens: before + latest.tail + tokens, steps };
}

/**
 * The edits of this turn; those of earlier turns are in their records. Documents and hints go before the question,
 * never into a message that was sent before. If all new messages are answers and tool results, they are appended as a
 * user message. O(length of the documents).
 *
 * @throws the errors of `renderChat`
 */
export function turnEdits(
  history: RecalledConversation,
  messages: readonly ChatMessage[],
  arrangement: Arrangement,
  options: RenderChatOptions,
): readonly ChatEdit[] {
  const { documents } = arrangement;
  const { sentMessages } = history;
  if (sentMessages === 0) return chatEdits(messages, arrangement, options);
  const { at, layout } = placeOfDocuments(history, messages, options);
  if (at < messages.length) {
    const edits = chatEdits(messages.slice(sentMessages), arrangement, { ...options, layout });
    return edits.map((edit) => ({ ...edit, at: edit.at + sentMessages }));
  }
  if (documents.length === 0) return [];
  const text = options.documentsText ?? renderDocuments(documents, options.template);
  const hint = renderHint(arrangement, options.template);
  return [{ at: at - 1, add: 'message-after', role: 'user', text: text + hint }];
}

/**
 * The record of a turn, to be stored when it is sent. O(length of the edits).
 *
 * @param edits the result of `turnEdits`
 */
export function recordTurn(
  { history, messages, arrangement, supplied }: ConversationTurn,
  edits: readonly ChatEdit[],
  options: RenderOptions & { readonly countTokens?: TokenCounter },
): SentTurn {
  const latest = history.turns.at(-1);
  const link = history.links.at(-1) ?? '';
  const { documents, preamble } = arrangement;
  const { at } = placeOfDocuments(history, messages, options);
  const hint = renderHint(arrangement, options.template);
  const hintTokens = hint === '' ? 0 : (options.countTokens ?? estimateTokens)(hint);
  const hasSteps = documents.length > 0 && preamble !== undefined;
  const behind = chatTokens(messages.slice(hasSteps ? at : (latest?.length ?? 0)), options.countTokens);
  return {
    link,
    id: turnId(link, latest, [
      // Keys stand for texts, and are shorter.
      ...edits.map(({ at, add, role, text }) => `${at} ${add} ${role} ${text.length}`),
      ...(edits.length === 0 ? [] : [options.template, hint, ...documents.map(({ key }) => key)]),
    ]),
    length: messages.length,
    parent: latest === undefined ? undefined : { link: latest.link, id: latest.id },
    supplied,
    order: documents.map(({ label }) => label),
    edits,
    documents: sentDocuments(documents),
    steps: hasSteps ? stepsOf(preamble, arrangement) : [],
    tail: hintTokens + behind + (hasSteps ? 0 : (latest?.tail ?? 0)),
    answers: [],
  };
}

/** The record of a turn without edits. `history` may have been recalled from links alone. O(1). */
export function plainTurn({ links, turns }: RecalledConversation): SentTurn {
  const link = links.at(-1) ?? '';
  const latest = turns.at(-1);
  return {
    link,
    id: turnId(link, latest, []),
    length: links.length,
    parent: latest === undefined ? undefined : { link: latest.link, id: latest.id },
    supplied: '',
    order: [],
    edits: [],
    documents: [],
    steps: [],
    tail: latest?.tail ?? 0,
    answers: [],
  };
}

/** Equal for two turns if and only if they add the same to the same messages after the same turns. */
function turnId(link: string, latest: SentTurn | undefined, added: readonly string[]): string {
  return fingerprint([link, latest?.id ?? '', ...added]);
}

/**
 * Renders a turn for a caller with parsed messages: earlier turns as they were sent, then this one. O(length of the
 * prompt).
 *
 * @throws the errors of `renderChat`
 */
export function renderTurn(
  turn: ConversationTurn,
  options: RenderOptions & { readonly countTokens?: TokenCounter },
): RenderedTurn {
  const { history, messages, arrangement, supplied } = turn;
  const known = repeatedTurn(history, supplied);
  const sent = known ?? recordTurn(turn, turnEdits(history, messages, arrangement, options), options);
  return { messages: applyEdits(messages, conversationEdits([...history.turns, sent])), turn: sent };
}

/**
 * A hash of a request: its documents in order, and all that decides how they are written. O(documents).
 *
 * @param scope as in `chatPreamble`
 */
export function suppliedHash(request: ArrangeRequest, options: RenderOptions, scope = ''): string {
  const { documents, policy, maxShift, shiftPrice, pin, hints, visible, deduplicate = true, shown } = request;
  const name = typeof policy === 'object' ? policy.name : policy;
  const switches = [
    name,
    maxShift,
    shiftPrice,
    pin,
    hints,
    visible === undefined || !deduplicate,
    shown === undefined,
    options.template,
    options.layout,
  ];
  return fingerprint([scope, ...documents.map(({ key }) => key), JSON.stringify(switches)]);
}

/** The sent turn that this request repeats: the same documents after the same turns. */
export function repeatedTurn(history: RecalledConversation, supplied: string): SentTurn | undefined {
  return history.siblings.findLast((turn) => turn.supplied === supplied);
}

/**
 * A policy that repeats the order of a turn, so that a retry sends the same bytes. `name`: the policy that it replaces.
 */
export function repeatedOrder(turn: SentTurn, name: string): OrderingPolicy {
  const places = new Map(turn.order.map((label, place) => [label, place]));
  return {
    name,
    arrange: (context, view) => {
      const place = (rank: number) => places.get(context.documents[rank]!.label) ?? places.size + rank;
      const order = context.documents.map((_, rank) => rank).sort((a, b) => place(a) - place(b));
      return withCachedPrefix(order, context, view);
    },
  };
}

/** All edits of these turns, for `applyEdits`. O(edits). */
export function conversationEdits(turns: readonly SentTurn[]): readonly ChatEdit[] {
  return turns.flatMap(({ edits }) => edits);
}

/**
 * The texts of a prompt before the documents of this turn, for `ArrangeRequest.shown`: documents of earlier turns, and
 * messages of system, users and tools. Answers are left out, because a model may misquote. O(length of the messages and
 * documents).
 */
export function shownSegments(
  history: RecalledConversation,
  messages: readonly ChatMessage[],
  options: RenderOptions,
): SeenSegments {
  const seen = new SeenSegments();
  for (const document of history.turns.flatMap(({ documents }) => documents)) {
    seen.add(document.content, { name: documentName(document, options.template), shown: document.shown });
  }
  for (const { role, content } of messages.slice(0, placeOfDocuments(history, messages, options).at)) {
    if (role === 'assistant') continue;
    if (typeof content === 'string') seen.add(content);
    else for (const part of content ?? []) if (typeof part?.text === 'string') seen.add(part.text);
  }
  return seen;
}

/**
 * The message before which the documents go, and the layout there. Behind the last one if every question was sent
 * before.
 */
function placeOfDocuments(
  { sentMessages }: RecalledConversation,
  messages: readonly ChatMessage[],
  { layout }: RenderOptions,
): { readonly at: number; readonly layout: RenderOptions['layout'] } {
  const question = messages.findLastIndex(({ role }) => role === 'user');
  if (sentMessages === 0) {
    if (layout !== 'system') return { at: question, layout };
    return { at: messages.findIndex(({ role }) => role === 'system' || role === 'developer') + 1, layout };
  }
  if (question < sentMessages) return { at: messages.length, layout: 'question' };
  // A system message that was sent does not change.
  return { at: question, layout: layout === 'system' ? 'question' : layout };
}

/** The path steps of this turn: the text before its documents since the last step, and the documents. */
function stepsOf(preamble: Preamble, { documents }: Arrangement): SentTurn['steps'] {
  const before = (preamble.steps ?? []).reduce((sum, { tokens }) => sum + tokens, 0);
  return [
    { key: preamble.key, tokens: preamble.tokens - before },
    ...documents.map(({ key, tokens }) => ({ key, tokens })),
  ];
}
