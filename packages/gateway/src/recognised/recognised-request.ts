import {
  type DocumentBlock,
  hasRepeatedResult,
  messageChain,
  type RecogniseOptions,
  recognise,
  withResults,
} from '@warmpath/core';
import { isObject } from '../apis/content-texts.js';
import type { PromptApi } from '../apis/prompt-api.js';
import type { JsonObject, RequestMessage, RequestText } from '../apis/request-texts.js';
import { objectMembers } from '../json-members.js';
import { hasExternalMarkers, withStableIds } from './stable-ids.js';

/** The blocks of one message, and when the message was said. */
export interface RecognisedMessage {
  /** Link of the hash chain over the client's messages up to this one. */
  readonly link: string;
  /** The link before this one; empty for the first message. */
  readonly linkBefore: string;
  /** Which of the texts is its first. */
  readonly firstText: number;
  readonly blocks: readonly DocumentBlock[];
  /** Whether its order may still be decided: a system prompt, or what came since the model last spoke. */
  readonly isNew: boolean;
}

/** What decides which documents a request has. */
export interface RecogniseRequestOptions extends RecogniseOptions {
  readonly maxDocuments: number;
  /** Whether parts of documents are referred to, so that a result may be shortened that never came before. */
  readonly blocks: boolean;
}

/** A request that names no documents, and has some in its texts. */
export interface RecognisedRequest {
  readonly api: PromptApi;
  /** The body, complete but for the gateway's own fields. */
  readonly body: string;
  readonly model: string;
  /** All texts in the order in which the model reads them, with ids of markers that do not change from request to request. */
  readonly texts: readonly RequestText[];
  /** The same as the client wrote them. */
  readonly given: readonly RequestText[];
  /** Those with documents, in their order. */
  readonly messages: readonly RecognisedMessage[];
  /** What decides the prompt's beginning beside the messages: model, tools and the like, as the client wrote them. */
  readonly scope: string;
}

/** What marks documents in a prompt; without it, there is nothing to do for bodies of routes that look for marks only. */
const MARK = 'warmpath-documents';

/**
 * Looks for documents in the texts of a body. Answers `undefined` where there are none, and then the body may go through as it
 * came; it never throws. Cost: a scan for the mark in `marked` mode; otherwise one `JSON.parse` and core's
 * `recognise`, O(body).
 */
export function recogniseRequest(
  body: Buffer | string,
  api: PromptApi,
  options: RecogniseRequestOptions,
): RecognisedRequest | undefined {
  if (options.mode === 'off' || (options.mode === 'marked' && !body.includes(MARK))) return undefined;
  const text = typeof body === 'string' ? body : body.toString('utf8');
  const object = read(text);
  return object === undefined ? undefined : recogniseIn(object, api, { ...options, body: text });
}

/** What is no JSON is the engine's to refuse. */
function read(text: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function recogniseIn(
  object: JsonObject,
  api: PromptApi,
  options: RecogniseRequestOptions & { readonly body: string },
): RecognisedRequest | undefined {
  const messages = api.messages(object);
  const given = messages.flatMap((message) => message.texts);
  const texts = options.mode === 'conservative' && hasExternalMarkers(options.body) ? given.map(stable) : given;
  const found = recognise(texts, options).filter(({ documents }) => documents.length <= options.maxDocuments);
  const all = options.mode === 'conservative' ? withResults(texts, found) : found;
  // Results that nothing can become of are none of the gateway's business.
  const blocks = found.length > 0 || options.blocks || hasRepeatedResult(texts, all) ? all : found;
  if (blocks.length === 0 && texts.every((text, i) => text === given[i])) return undefined;
  const { body } = options;
  const model = typeof object['model'] === 'string' ? object['model'] : '';
  const recognised = blocks.length === 0 ? [] : messagesWith(blocks, messages, texts);
  return { api, body, model, texts, given, messages: recognised, scope: scopeOf(body, api) };
}

function stable(text: RequestText): RequestText {
  const written = withStableIds(text.text);
  return written === text.text ? text : { ...text, text: written };
}

function messagesWith(
  blocks: readonly DocumentBlock[],
  messages: readonly RequestMessage[],
  texts: readonly RequestText[],
): readonly RecognisedMessage[] {
  const lastAnswer = messages.findLastIndex(({ role }) => role === 'assistant');
  const firsts: number[] = [];
  let count = 0;
  for (const message of messages) {
    firsts.push(count);
    count += message.texts.length;
  }
  const textsOf = (position: number) =>
    texts.slice(firsts[position], firsts[position]! + messages[position]!.texts.length);
  const links = messageChain(
    messages.map(({ role }, position) => [role, ...textsOf(position).map(({ text }) => text)].join('\0')),
  );
  const found: RecognisedMessage[] = [];
  // Blocks come in the order of the prompt.
  let next = 0;
  for (const [position, { role, texts: own }] of messages.entries()) {
    const first = firsts[position]!;
    const from = next;
    while (next < blocks.length && blocks[next]!.text < first + own.length) next++;
    if (next === from) continue;
    found.push({
      link: links[position]!,
      linkBefore: links[position - 1] ?? '',
      firstText: first,
      blocks: blocks.slice(from, next),
      isNew: role === 'system' || position > lastAnswer,
    });
  }
  return found;
}

function scopeOf(body: string, api: PromptApi): string {
  const fields = new Set(['model', ...api.promptFields]);
  return objectMembers(body)
    .filter(({ key }) => fields.has(key))
    .map(({ key, valueStart, end }) => `${key}:${body.slice(valueStart, end)}`)
    .sort()
    .join('\n');
}
