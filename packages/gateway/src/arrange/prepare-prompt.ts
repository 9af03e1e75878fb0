import type { ArrangeRequest } from '@warmpath/core';
import type { RecalledConversation, WorkSteps } from '@warmpath/core/internal';
import type { FastifyRequest } from 'fastify';
import type { CallReply } from '../answer/held-reply.js';
import type { Sources } from '../answer/sourced-answer.js';
import type { ApiName, PromptApi } from '../apis/prompt-api.js';
import { PromptView } from '../apis/prompt-view.js';
import type { Translation } from '../apis/translate-request.js';
import type { Gateway } from '../gateway.js';
import { modelOf, type ParsedRequest, parseRequest } from '../intake/parse-request.js';
import { BodyView } from '../json/body-view.js';
import { isWorthReading } from '../json/json-body.js';
import { applyEdits } from '../json/json-scanner.js';
import { whenReady } from '../limits/event-loop-budget.js';
import type { Fallback } from '../observe/exchange.js';
import { failOpen } from '../observe/fail-open.js';
import { traced } from '../observe/tracing.js';
import type { InsertedRequest } from '../render/inserted-prompts.js';
import { replayInPlace } from './found/arrange-in-place.js';
import { mayHoldDocuments, type RecogniseRequestOptions, recogniseRequest } from './found/recognised-request.js';
import type { FoundRequest } from './found/serve-recognised.js';
import { isBadInput } from './inserted-documents.js';

/** Larger bodies are not searched for documents: some 40 ms of work. */
const MAX_SEARCHED_BYTES = 4_194_304;

/** One client call, and what the engine is to get of it. */
export interface Call {
  readonly request: FastifyRequest;
  readonly reply: CallReply;
  readonly tenant: string;
  /** The API that the client speaks. */
  readonly route: ApiName;
  /** The API in which the body is written. */
  readonly api: PromptApi;
  /** The client's, or its translation. */
  readonly body: Buffer;
  readonly translation?: Translation;
  /** What was retrieved for it. */
  readonly sources?: Sources;
}

/** A request as it waits for the engine: its documents are known, their order is not. */
export type PreparedPrompt = PlainPrompt | InsertedRequest | FoundRequest;

/** Nothing is added to it: the client's very bytes, but for fields of the gateway's own. */
export interface PlainPrompt {
  readonly kind: 'plain';
  readonly body: Buffer;
  /** Set where a defect is why. */
  readonly fallback?: Fallback;
  /** What is known of the conversation that it is a turn of, if it names one. */
  readonly history?: RecalledConversation | undefined;
}

/** A scan looks at so many bytes while other work looks at one. */
const SCANNED_BYTES_PER_STEP = 16;

/** What became of each step so far. */
interface Steps {
  /** `undefined` for a body that has nothing for the gateway. */
  readonly parsed: ParsedRequest | undefined;
  /** Its documents and switches, checked; `undefined` where nothing is to be arranged. */
  readonly asked: ArrangeRequest | undefined;
  readonly prompt: PromptView | undefined;
  /** `undefined` where no conversation is named. */
  readonly history: RecalledConversation | undefined;
  /** How documents in the prompt are looked for; `undefined` where they are not. */
  readonly search: RecogniseRequestOptions | undefined;
}

type ReadRequest = Omit<Steps, 'history' | 'search'>;

const NOTHING_ASKED: ReadRequest = { parsed: undefined, asked: undefined, prompt: undefined };

/**
 * Reads a request as far as the gateway has to: 1. what it asks for, 2. which conversation it continues, 3. where its
 * documents are. A body that has nothing for the gateway is not read.
 *
 * @throws WarmpathError bad input, with a path; a conversation that is forgotten. A defect forwards the original.
 */
export function preparePrompt(gateway: Gateway, call: Call): PreparedPrompt | Promise<PreparedPrompt> {
  const { exchange } = call.request;
  const isUnwanted = () => call.reply.raw.destroyed;
  try {
    const read = traced(gateway, exchange, 'read', () => readRequest(gateway, call, isUnwanted));
    const prepared = whenReady(read, (read) =>
      whenReady(recall(gateway, call, read), (history) => {
        const search = read.parsed?.bypass === true ? undefined : searchOptions(gateway, call, read.parsed);
        if (read.parsed === undefined && search === undefined) {
          lookLater(gateway, call, undefined);
          return plain(call, undefined, undefined);
        }
        return traced(gateway, exchange, 'documents', () =>
          gateway.eventLoopBudget.runSteps(documentSteps(gateway, call, stepsOf(read, history, search)), isUnwanted),
        );
      }),
    );
    return prepared instanceof Promise ? prepared.catch((error) => refused(gateway, call, error)) : prepared;
  } catch (error) {
    return refused(gateway, call, error);
  }
}

function stepsOf({ parsed, asked, prompt }: ReadRequest, history: Steps['history'], search: Steps['search']): Steps {
  return { parsed, asked, prompt, history, search };
}

/** What the request asks for. */
function readRequest(gateway: Gateway, call: Call, isUnwanted: () => boolean): ReadRequest | Promise<ReadRequest> {
  const { request, api, body, translation } = call;
  const parsed = parseRequest(body, api, {
    headers: request.headers,
    caller: request.exchange.caller,
    original: translation && (request.body as Buffer),
  });
  return parsed === undefined
    ? NOTHING_ASKED
    : gateway.eventLoopBudget.runSteps(readSteps(gateway, call, parsed), isUnwanted);
}

function* readSteps(gateway: Gateway, { api, body, tenant }: Call, parsed: ParsedRequest): WorkSteps<ReadRequest> {
  yield body.length / SCANNED_BYTES_PER_STEP;
  const asked = parsed.bypass ? undefined : yield* gateway.documents.readDocuments(parsed, tenant);
  const prompt = parsed.conversation === undefined ? undefined : PromptView.of(parsed.body, api);
  return { parsed, asked, prompt };
}

/** The model of a body that nobody has read; empty for one that cannot be read. O(body). */
export function modelIn({ body }: Pick<Call, 'body'>): string {
  try {
    return modelOf(new BodyView(body));
  } catch {
    return '';
  }
}

/** What the conversation's earlier turns were rendered to. `undefined` where no conversation is followed. */
function recall(
  gateway: Gateway,
  { request, tenant }: Call,
  { parsed, prompt }: Pick<Steps, 'parsed' | 'prompt'>,
): RecalledConversation | undefined | Promise<RecalledConversation | undefined> {
  const { exchange } = request;
  if (parsed?.conversation === undefined || prompt === undefined || !gateway.config.session.enabled) return undefined;
  const { conversation } = parsed;
  if (conversation.lacksUser) {
    const isForgotten = gateway.conversations.withoutEndUser(prompt, conversation);
    exchange.conversation = isForgotten ? 'forgotten' : 'ignored';
    return undefined;
  }
  const recalled = traced(gateway, exchange, 'conversation', () =>
    gateway.conversations.recall(prompt, conversation, {
      tenant,
      now: gateway.now(),
      missed: (failure) => exchange.wentWithout({ fallback: 'conversation', reason: `store ${failure}` }),
      failed: (defect) => failOpen(gateway, request, 'conversation', defect),
    }),
  );
  return whenReady(recalled, (history) => {
    exchange.conversation = history.isForgotten ? 'forgotten' : history.sentMessages > 0 ? 'known' : 'new';
    return history;
  });
}

/** Where the documents are, and what stands before them. */
function* documentSteps(
  gateway: Gateway,
  call: Call,
  { parsed, asked, prompt, history, search }: Steps,
): WorkSteps<PreparedPrompt> {
  try {
    if (parsed?.bypass) return plain(call, parsed, history);
    const { documents } = gateway;
    const hasDocuments = parsed?.documents !== undefined;
    // A conversation to which something was added goes before documents that stand in its prompt.
    const isReplayed = history?.turns.some(({ edits }) => edits.length > 0) === true;
    if (!hasDocuments && !isReplayed) {
      const found = findInPrompt(gateway, call, { parsed, asked, history, search });
      // The next slice is that of the order and the edits.
      yield found === undefined ? 0 : call.body.length;
      if (found !== undefined) return found;
      lookLater(gateway, call, parsed);
      if (parsed === undefined || history === undefined || history.turns.length === 0)
        return plain(call, parsed, history);
    }
    const whole = replayedInPlace(gateway, call, parsed!, search);
    const view = whole === parsed && prompt !== undefined ? prompt : PromptView.of(whole.body, call.api);
    if (view === undefined && !hasDocuments) return plain(call, parsed, history);
    if (view !== undefined) yield* documents.measure(whole, view, history?.sentMessages ?? 0);
    const turn = documents.asTurn(whole, view, asked!, history);
    yield call.body.length;
    return turn;
  } catch (error) {
    // Without documents nothing is asked of the gateway that it could refuse.
    if (isBadInput(error) && parsed?.documents === undefined && history === undefined)
      return plain(call, parsed, history);
    throw error;
  }
}

/** Behind the request, which does not wait for it: nothing is changed by that. */
function lookLater(
  { unrecognised, config }: Gateway,
  { api, body, route }: Call,
  parsed: ParsedRequest | undefined,
): void {
  if (unrecognised === undefined) return;
  const mode = parsed?.recognise ?? config.recognise[route];
  setImmediate(() => {
    try {
      unrecognised.look(body, api, mode);
    } catch {
      // What cannot be read is the engine's to refuse.
    }
  });
}

function plain(
  { body }: Call,
  parsed: ParsedRequest | undefined,
  history: RecalledConversation | undefined,
): PlainPrompt {
  return { kind: 'plain', body: parsed === undefined ? body : applyEdits(body, parsed.ownFields), history };
}

/** Bad input is the client's to mend; of a defect the client is not to know more than it must. */
function refused(gateway: Gateway, call: Call, error: unknown): PlainPrompt {
  if (isBadInput(error) || isUnavailable(error)) throw error;
  failOpen(gateway, call.request, 'original', error);
  return { kind: 'plain', body: call.body, fallback: 'original' };
}

/** How documents in the prompt are looked for; `undefined` where they are not. O(body) where it may hold some. */
function searchOptions(
  gateway: Gateway,
  { route, body }: Call,
  parsed: ParsedRequest | undefined,
): RecogniseRequestOptions | undefined {
  const { recognise, limits, session } = gateway.config;
  const mode = parsed?.recognise ?? recognise[route];
  if (body.length > MAX_SEARCHED_BYTES || !mayHoldDocuments(body, mode) || !isWorthReading(body)) return undefined;
  const blocks = parsed?.blocks ?? session.blocks;
  return { mode, relabel: recognise.relabel, templates: recognise.templates, maxDocuments: limits.documents, blocks };
}

/**
 * The request with documents of earlier prompts as they were sent, where it brings documents of its own: a conversation
 * may do so after results of tools. The very same request if nothing in it was changed.
 */
function replayedInPlace(
  gateway: Gateway,
  call: Call,
  parsed: ParsedRequest,
  search: RecogniseRequestOptions | undefined,
): ParsedRequest {
  const recognised = search && recogniseRequest(call.body, call.api, search);
  if (recognised === undefined) return parsed;
  const { recognise, arrange } = gateway.config;
  const { location, order } = arrange.wording;
  const orderHint = recognise.hints ? order : undefined;
  const body = replayInPlace(recognised, { tenant: call.tenant, orders: gateway.sentOrders, location, orderHint });
  if (body === recognised.view.bytes) return parsed;
  const { headers, exchange } = call.request;
  const again = parseRequest(body, call.api, { headers, caller: exchange.caller, all: true })!;
  return { ...again, conversation: parsed.conversation };
}

/**
 * Whether documents stand in the prompt of a request that brings none, as far as the configuration or the request wants
 * to know.
 */
function findInPrompt(
  gateway: Gateway,
  call: Call,
  { parsed, asked, history, search: options }: Omit<Steps, 'prompt'>,
): FoundRequest | undefined {
  if (options === undefined) return undefined;
  const { session } = gateway.config;
  const { api, body, tenant } = call;
  const deduplicate = parsed?.deduplicate ?? (session.enabled && session.deduplicate);
  const own = parsed === undefined ? body : applyEdits(body, parsed.ownFields);
  const found = recogniseRequest(own, api, options);
  if (found === undefined) return undefined;
  const switches = asked ?? gateway.documents.withDefaults({ documents: [] });
  return { kind: 'found', tenant, found, switches, deduplicate, blocks: options.blocks, history };
}

function isUnavailable(error: unknown): boolean {
  return (error as { code?: unknown } | null)?.code === 'WARMPATH_STORE_UNAVAILABLE';
}
