import { createHmac, randomBytes } from 'node:crypto';
import {
  type DocumentBlock,
  fingerprint,
  hasRepeatedResult,
  messageChain,
  type PromptFindings,
  type RecogniseOptions,
  recogniseAll,
  recogniseBehind,
  withResults,
} from '@warmpath/core';
import type { MessageApi, PromptApi } from '../../intake/apis/prompt-api.js';
import type { JsonObject, RequestMessage, RequestText } from '../../intake/apis/request-texts.js';
import { BodyView } from '../../intake/body-view.js';

/** The blocks of one message, and when the message was said. */
export interface RecognisedMessage {
  /** Which of the messages in the body it is. */
  readonly position: number;
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

/** A request that names no documents, and has some in its texts. */
export interface RecognisedRequest {
  readonly api: PromptApi;
  /** The body, complete but for the gateway's own fields. */
  readonly view: BodyView;
  readonly model: string;
  /**
   * All texts in the order in which the model reads them, with ids of markers that do not change from request to
   * request.
   */
  readonly texts: readonly RequestText[];
  /** The same as the client wrote them. */
  readonly given: readonly RequestText[];
  /** Those with documents, in their order. */
  readonly messages: readonly RecognisedMessage[];
  /** What decides the prompt's beginning beside the messages: model, tools and the like, as the client wrote them. */
  readonly scope: string;
}

/** What messages have to know of those that they stand behind. */
export interface PromptFacts {
  readonly findings: PromptFindings;
  /** Whether there is anything to change: documents, or ids of markers. */
  readonly concernsGateway: boolean;
  /** Whether ids of markers are made the same for every request. */
  readonly hasStableIds: boolean;
  /** What the API puts before the messages into a member of its own, as the client wrote it. */
  readonly opening: string | undefined;
  /** The link of the hash chain over the client's messages up to the last; `undefined` where nobody needed it. */
  readonly link: string | undefined;
  /** Hashes of what tools returned, while nothing is to become of that (`hasRepeatedResult`). */
  readonly results: readonly string[];
  /** Whether the model has spoken. */
  readonly isAnswered: boolean;
  /** The first message with documents whose order can be decided. */
  readonly first: FirstBlocks | undefined;
}

/** What decides whether the order of a prompt's first documents is open. */
interface FirstBlocks {
  /** Which of the messages with blocks it is. */
  readonly place: number;
  readonly isSystem: boolean;
  readonly isFixed: boolean;
  /** Whether the model has spoken since. */
  readonly isAnswered: boolean;
}

/** What was found in a body. */
export interface LookedAt {
  readonly facts: PromptFacts;
  /** `undefined` where there are neither documents nor anything else to change. */
  readonly request: RecognisedRequest | undefined;
}

/** What decides which documents a request has. */
export interface RecogniseRequestOptions extends RecogniseOptions {
  readonly maxDocuments: number;
  /** Whether parts of documents are referred to, so that a result may be shortened that never came before. */
  readonly blocks: boolean;
}

/**
 * What marks documents in a prompt; without it, there is nothing to do for bodies of routes that look for marks only.
 */
const MARK = Buffer.from('warmpath-documents');

/** Whether a body may hold documents that are looked for in this mode. O(body) for marks, a native search. */
export function mayHoldDocuments(body: Buffer, mode: RecogniseOptions['mode']): boolean {
  return mode === 'conservative' || (mode === 'marked' && body.includes(MARK));
}

/**
 * Looks for documents in the texts of a body. Answers `undefined` where there are none, and then the body may go
 * through as it came; it never throws. Cost: a scan for the mark in `marked` mode; otherwise one `JSON.parse` and
 * core's `recognise`, O(body).
 */
export function recogniseRequest(
  body: Buffer,
  api: PromptApi,
  options: RecogniseRequestOptions,
): RecognisedRequest | undefined {
  return mayHoldDocuments(body, options.mode) ? lookAt(body, api, options)?.request : undefined;
}

/**
 * The same, with what a longer body has to know that begins like this one. `undefined` for what is no JSON object.
 */
export function lookAt(body: Buffer, api: PromptApi, options: RecogniseRequestOptions): LookedAt | undefined {
  const read = readBody(body);
  if (read === undefined) return undefined;
  const { view, object } = read;
  const messages = api.messages(object);
  const texts = textsOf(messages, options.mode === 'conservative' && hasExternalMarkers(body));
  const { blocks: found, findings } = recogniseAll(texts.texts, options);
  return looked({ api, view, object }, { messages, texts, options, found, findings }, undefined);
}

/**
 * The same of a body from which messages at the beginning were left out, when it is known what they hold: what is found
 * in the others is what would be found in the whole body. `undefined` where that cannot be known without reading all.
 * O(what is left of the body).
 */
export function lookBehind(
  before: PromptFacts,
  rest: Buffer,
  api: MessageApi,
  options: RecogniseRequestOptions,
): LookedAt | undefined {
  const read = readBody(rest);
  if (read === undefined) return undefined;
  const { view, object } = read;
  const holdsMessages = view.members.filter(({ key }) => key === api.conversation.messages);
  if (holdsMessages.length !== 1 || openingOf(view, api) !== before.opening) return undefined;
  if (options.mode === 'conservative' && !before.hasStableIds && hasExternalMarkers(rest)) return undefined;
  const messages = api.messages(object).filter(({ place }) => place[0] === api.conversation.messages);
  const texts = textsOf(messages, before.hasStableIds);
  const found = recogniseBehind(before.findings, texts.texts, options);
  if (found === undefined || (found.length > 0 && before.link === undefined)) return undefined;
  if (before.link === undefined && hasTwice([...before.results, ...hashesOf(texts.texts, options)])) return undefined;
  const { findings } = before;
  return looked({ api, view, object }, { messages, texts, options, found, findings }, before);
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

interface PromptTexts {
  readonly given: readonly RequestText[];
  readonly texts: readonly RequestText[];
  readonly hasStableIds: boolean;
}

function textsOf(messages: readonly RequestMessage[], hasStableIds: boolean): PromptTexts {
  const given = messages.flatMap((message) => message.texts);
  return { given, texts: hasStableIds ? given.map(stable) : given, hasStableIds };
}

function looked(
  { api, view, object }: { readonly api: PromptApi; readonly view: BodyView; readonly object: JsonObject },
  {
    messages,
    texts: { given, texts, hasStableIds },
    options,
    found,
    findings,
  }: {
    readonly messages: readonly RequestMessage[];
    readonly texts: PromptTexts;
    readonly options: RecogniseRequestOptions;
    readonly found: readonly DocumentBlock[];
    readonly findings: PromptFindings;
  },
  before: PromptFacts | undefined,
): LookedAt {
  const recognisedBlocks = found.filter(({ documents }) => documents.length <= options.maxDocuments);
  const all = options.mode === 'conservative' ? withResults(texts, recognisedBlocks) : recognisedBlocks;
  // Results that nothing can become of are none of the gateway's business.
  const wantsResults =
    before?.link !== undefined || recognisedBlocks.length > 0 || options.blocks || hasRepeatedResult(texts, all);
  const blocks = wantsResults ? all : recognisedBlocks;
  const lastAnswer = messages.findLastIndex(({ role }) => role === 'assistant');
  const isLinked = before?.link !== undefined || blocks.length > 0;
  const links = isLinked ? linksOf(messages, texts, before?.link) : undefined;
  const recognised = links === undefined ? [] : messagesWith(blocks, messages, { links, lastAnswer, before });
  const concernsGateway =
    before?.concernsGateway === true || blocks.length > 0 || texts.some((each, i) => each !== given[i]);
  const facts: PromptFacts = {
    findings,
    concernsGateway,
    hasStableIds,
    opening: before === undefined ? openingOf(view, api) : before.opening,
    link: links?.at(-1) ?? before?.link,
    results: links === undefined ? [...(before?.results ?? []), ...hashesOf(texts, options)] : [],
    isAnswered: lastAnswer >= 0 || before?.isAnswered === true,
    first: firstBlocks(recognised, before?.first, { messages, lastAnswer }),
  };
  if (!concernsGateway) return { facts, request: undefined };
  const model = typeof object['model'] === 'string' ? object['model'] : '';
  const scope = scopeOf(view, api);
  return { facts, request: { api, view, model, texts, given, messages: recognised, scope } };
}

function firstBlocks(
  recognised: readonly RecognisedMessage[],
  before: FirstBlocks | undefined,
  { messages, lastAnswer }: { readonly messages: readonly RequestMessage[]; readonly lastAnswer: number },
): FirstBlocks | undefined {
  if (before !== undefined) return lastAnswer < 0 ? before : { ...before, isAnswered: true };
  const place = recognised.findIndex(({ blocks }) => blocks.some(isOrdered));
  const first = recognised[place];
  if (first === undefined) return undefined;
  return {
    place,
    isSystem: messages[first.position]!.role === 'system',
    isFixed: first.blocks.find(isOrdered)!.fixed !== undefined,
    isAnswered: lastAnswer >= first.position,
  };
}

function hasTwice(hashes: readonly string[]): boolean {
  return new Set(hashes).size < hashes.length;
}

/** Hashes of the results that the model has had from its tools, as far as they could be referred to. */
function hashesOf(texts: readonly RequestText[], { mode }: RecogniseRequestOptions): readonly string[] {
  if (mode !== 'conservative') return [];
  return withResults(texts, []).map(({ text }) => fingerprint([texts[text]!.text]));
}

function openingOf({ scan, members }: BodyView, { conversation }: PromptApi): string | undefined {
  if (conversation?.opening === undefined) return undefined;
  const opening = members.filter(({ key }) => key === conversation.opening);
  return opening.map((member) => scan.text(member)).join();
}

function stable(text: RequestText): RequestText {
  const written = withStableIds(text.text);
  return written === text.text ? text : { ...text, text: written };
}

function linksOf(
  messages: readonly RequestMessage[],
  texts: readonly RequestText[],
  before: string | undefined,
): readonly string[] {
  let from = 0;
  const written: (readonly string[])[] = [];
  for (const { role, texts: own } of messages) {
    const said = texts.slice(from, from + own.length);
    written.push([role, ...said.map(({ text }) => text)]);
    from += own.length;
  }
  return messageChain(written, before);
}

function messagesWith(
  blocks: readonly DocumentBlock[],
  messages: readonly RequestMessage[],
  {
    links,
    lastAnswer,
    before,
  }: {
    readonly links: readonly string[];
    readonly lastAnswer: number;
    readonly before: PromptFacts | undefined;
  },
): readonly RecognisedMessage[] {
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
        linkBefore: links[position - 1] ?? before?.link ?? '',
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
 * What clients put around text from outside, with an id that nobody can foresee: whoever wrote the text cannot close
 * the marker.
 */
const NAME = 'EXTERNAL_UNTRUSTED_CONTENT';
const OPEN = new RegExp(`<<<${NAME} id="([\\w-]{4,64})">>>`, 'g');
/** Hexadecimal digits of an id. */
const ID_LENGTH = 16;

/** Known to this process alone, so that an id can still not be foreseen. */
const SECRET = randomBytes(32);

/** Whether a body may hold such markers. */
function hasExternalMarkers(body: Buffer): boolean {
  return body.includes(NAME);
}

/**
 * The text with ids of external-content markers that depend on what stands between them: the same content gets the same
 * id in every request, where the client drew a new one each time and broke the prefix there. A marker that is not
 * closed by its own id stays. O(text).
 */
function withStableIds(text: string): string {
  const parts: string[] = [];
  let copied = 0;
  OPEN.lastIndex = 0;
  for (let match = OPEN.exec(text); match !== null; match = OPEN.exec(text)) {
    const closing = `<<<END_${NAME} id="${match[1]}">>>`;
    const next = text.indexOf(`<<<END_${NAME}`, OPEN.lastIndex);
    if (next < 0) break;
    if (!text.startsWith(closing, next)) continue;
    const content = text.slice(OPEN.lastIndex, next);
    const id = createHmac('sha256', SECRET).update(content).digest('hex').slice(0, ID_LENGTH);
    parts.push(text.slice(copied, match.index), `<<<${NAME} id="${id}">>>${content}<<<END_${NAME} id="${id}">>>`);
    copied = next + closing.length;
    OPEN.lastIndex = copied;
  }
  if (copied === 0) return text;
  parts.push(text.slice(copied));
  return parts.join('');
}
