import { createHmac } from 'node:crypto';
import { type DocumentBlock, recognise } from '@warmpath/core';
import { hasRepeatedResult, isCounted, LabelMap, messageChain, withResults } from '@warmpath/core/internal';
import { callInputs } from '../apis/answer-texts.js';
import type { PromptApi } from '../apis/prompt-view.js';
import type { RequestMessage, RequestText, TextChange } from '../apis/request-texts.js';
import { BodyView } from '../json/json-body.js';
import { isObject, type JsonObject } from '../json/json-scanner.js';
import type { RecognisedMessage, RecognisedRequest, SentOrder } from '../shapes/shapes.js';

/** How documents are found in the texts of a request. */
export interface DocumentSearch {
  /** The blocks in the order of the texts, none overlapping. */
  find(texts: readonly RequestText[]): readonly DocumentBlock[];
  /** Whether a block's documents get labels of their own. */
  labelsOf(block: DocumentBlock): 'kept' | 'mapped';
  /** What ids of external-content markers follow from beside the text; they stay as they are if left out. */
  readonly markerKey?: string | undefined;
}

/**
 * Looks for documents in the texts of a body. `undefined` where there is nothing to change: the body may go through as
 * it came. It never throws. Cost: one `JSON.parse`, and the search.
 */
export function recogniseRequest(
  body: Buffer,
  api: PromptApi,
  { find, markerKey }: Pick<DocumentSearch, 'find' | 'markerKey'>,
): RecognisedRequest | undefined {
  const read = readBody(body);
  if (read === undefined) return undefined;
  const { view, object } = read;
  const messages = api.messages(object);
  const given = messages.flatMap((message) => message.texts);
  const texts =
    markerKey !== undefined && hasExternalMarkers(body) ? given.map((text) => stable(text, markerKey)) : given;
  const blocks = find(texts);
  if (blocks.length === 0 && texts.every((each, i) => each === given[i])) return undefined;
  return {
    api,
    view,
    model: typeof object['model'] === 'string' ? object['model'] : '',
    texts,
    given,
    messages: blocks.length === 0 ? [] : messagesWith(blocks, messages, texts),
    scope: scopeOf(view, api),
  };
}

/** Documents that the prompt marks. */
export function markedBlocks(texts: readonly RequestText[]): readonly DocumentBlock[] {
  return recognise(texts, { mode: 'marked' });
}

/** Every list of documents by its form, and results of tools where something can become of these. */
export function formedBlocks(
  texts: readonly RequestText[],
  { refersToParts }: { readonly refersToParts: boolean },
): readonly DocumentBlock[] {
  const found = recognise(texts, { mode: 'form' });
  const all = withResults(texts, found);
  return found.length > 0 || refersToParts || hasRepeatedResult(texts, all) ? all : found;
}

/** The blocks of both lists in the order of the texts. Of two that overlap, the one of the first list counts. */
export function mergedBlocks(
  first: readonly DocumentBlock[],
  second: readonly DocumentBlock[],
): readonly DocumentBlock[] {
  if (first.length === 0) return second;
  const free = second.filter(
    ({ text, start, end }) => !first.some((each) => each.text === text && each.start < end && start < each.end),
  );
  return [...first, ...free].sort((a, b) => a.text - b.text || a.start - b.start);
}

/** What is no JSON is the engine's to refuse. */
function readBody(body: Buffer): { readonly view: BodyView; readonly object: JsonObject } | undefined {
  try {
    const view = new BodyView(body);
    return { view, object: JSON.parse(body.toString('utf8')) as JsonObject };
  } catch {
    return undefined;
  }
}

function stable(text: RequestText, key: string): RequestText {
  const written = withStableIds(text.text, key);
  return written === text.text ? text : { ...text, text: written };
}

function linksOf(messages: readonly RequestMessage[], texts: readonly RequestText[]): readonly string[] {
  let from = 0;
  const written: (readonly string[])[] = [];
  for (const { role, texts: own } of messages) {
    const said = texts.slice(from, from + own.length);
    written.push([role, ...said.map(({ text }) => text)]);
    from += own.length;
  }
  return messageChain(written);
}

function messagesWith(
  blocks: readonly DocumentBlock[],
  messages: readonly RequestMessage[],
  texts: readonly RequestText[],
): readonly RecognisedMessage[] {
  const links = linksOf(messages, texts);
  const lastAnswer = messages.findLastIndex(({ role }) => role === 'assistant');
  const found: RecognisedMessage[] = [];
  // Blocks come in the order of the prompt.
  let next = 0;
  let first = 0;
  for (const [position, { role, texts: own }] of messages.entries()) {
    const from = next;
    while (next < blocks.length && blocks[next]!.text < first + own.length) next++;
    if (next > from) {
      found.push({
        position,
        link: links[position]!,
        linkBefore: links[position - 1] ?? '',
        firstText: first,
        blocks: blocks.slice(from, next),
        isNew: role === 'system' || position > lastAnswer,
      });
    }
    first += own.length;
  }
  return found;
}

function scopeOf({ scan, members }: BodyView, api: PromptApi): string {
  const fields = new Set(['model', ...api.promptFields]);
  return members
    .filter(({ key }) => fields.has(key))
    .map(({ key, valueStart, end }) => `${key}:${scan.text({ start: valueStart, end })}`)
    .sort()
    .join('\n');
}

/** Whether there is an order to decide about: a tool's result is one document. */
export function isOrdered({ format }: Pick<DocumentBlock, 'format'>): boolean {
  return format !== 'result';
}

/**
 * Clients put this marker around text from outside. Its id cannot be foreseen, so the author of the text cannot close
 * the marker.
 */
const NAME = 'EXTERNAL_UNTRUSTED_CONTENT';
const OPEN = new RegExp(`<<<${NAME} id="([\\w-]{4,64})">>>`, 'g');
/** Hexadecimal digits of an id. */
const ID_LENGTH = 16;

/** Whether a body may hold such markers. */
function hasExternalMarkers(body: Buffer): boolean {
  return body.includes(NAME);
}

/**
 * The text with ids of external-content markers that follow from `key` and from what stands between them. The same
 * content gets the same id in every request and in every gateway. A client that draws a new id each time would break
 * the prefix there. Who wrote the content cannot foresee the id, since it is a hash of all of it. A marker that is not
 * closed by its own id stays. O(text).
 */
function withStableIds(text: string, key: string): string {
  const parts: string[] = [];
  let copied = 0;
  OPEN.lastIndex = 0;
  for (let match = OPEN.exec(text); match !== null; match = OPEN.exec(text)) {
    const closing = `<<<END_${NAME} id="${match[1]}">>>`;
    const next = text.indexOf(`<<<END_${NAME}`, OPEN.lastIndex);
    if (next < 0) break;
    if (!text.startsWith(closing, next)) continue;
    const content = text.slice(OPEN.lastIndex, next);
    const id = createHmac('sha256', key).update(content).digest('hex').slice(0, ID_LENGTH);
    parts.push(text.slice(copied, match.index), `<<<${NAME} id="${id}">>>${content}<<<END_${NAME} id="${id}">>>`);
    copied = next + closing.length;
    OPEN.lastIndex = copied;
  }
  if (copied === 0) return text;
  parts.push(text.slice(copied));
  return parts.join('');
}

/** What decides which documents get labels of their own. */
export interface MapLabelsOptions {
  /** For messages that are not remembered. Documents that must not move keep their labels. */
  readonly labelsOf: (block: DocumentBlock) => 'kept' | 'mapped';
  /** How a message was sent before: its labels stay as they were. */
  readonly ordersOf: (message: RecognisedMessage) => readonly SentOrder[] | undefined;
}

/**
 * The request with labels that belong to documents, in place of those that count places, and with these labels in what
 * is said behind the documents. The very request where no document has such a label. O(texts).
 */
export function mapPromptLabels(
  request: RecognisedRequest,
  { labelsOf, ordersOf }: MapLabelsOptions,
): RecognisedRequest {
  const mapped: DocumentBlock[] = [];
  for (const message of request.messages) {
    const sent = ordersOf(message);
    for (const [at, block] of message.blocks.entries()) {
      const wanted = block.fixed === undefined ? labelsOf(block) : 'kept';
      if ((sent?.[at]?.labels ?? wanted) === 'mapped' && isCounted(block)) mapped.push(block);
    }
  }
  // Prompts of one request are answered each for itself, and may count their documents alike.
  const isBatch = request.api.conversation === undefined && request.texts.length > 1;
  if (mapped.length === 0 || isBatch) return request;
  const calls = answeredCalls(request);
  const map = LabelMap.of(request.texts, mapped, [{ text: request.scope, behind: -1 }, ...calls]);
  const written = new Map<DocumentBlock, DocumentBlock>();
  const ownLabels = new Map<DocumentBlock, string>();
  const all = request.messages.flatMap(({ blocks }) => blocks);
  const texts = request.texts.map((given, index) => {
    const own = all.filter(({ text }) => text === index);
    const { text, blocks } = map.relabel(given, index, own);
    for (const [at, block] of own.entries()) {
      written.set(block, blocks[at]!);
      const names = block.documents.map((_, rank) => map.labelOf(block, rank) ?? '');
      if (names[0] !== '') ownLabels.set(blocks[at]!, names.join());
    }
    return text === given.text ? given : { ...given, text };
  });
  return {
    ...request,
    texts,
    messages: request.messages.map((message) => ({
      ...message,
      blocks: message.blocks.map((block) => written.get(block)!),
    })),
    mapped: {
      map,
      labels: ownLabels,
      changes: calls.flatMap(({ place, text, behind, isObject: isJson }): readonly TextChange[] => {
        const said = map.inPrompt(text, behind);
        if (said === text) return [];
        return [isJson ? { place, json: said } : { place, text: said }];
      }),
    },
  };
}

/** Inputs of the tool calls that the model made, with the text that each follows. */
function answeredCalls({ api, view }: RecognisedRequest) {
  const body = JSON.parse(view.bytes.toString('utf8')) as JsonObject;
  let before = 0;
  return api.messages(body).flatMap(({ place, texts: own }) => {
    before += own.length;
    const [field, at] = place;
    const message: unknown = at === undefined ? undefined : (body[field as string] as unknown[])[at as number];
    const inputs = isObject(message) ? callInputs(message, place) : [];
    return inputs.map((input) => ({ ...input, behind: before - 1 }));
  });
}
