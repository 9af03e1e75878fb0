import { WarmpathError } from '@warmpath/core';
import type { SpeculationGate } from '@warmpath/core/internal';
import type { Query, ScoredDocument, SearchOptions, Stage } from '@warmpath/retrieval';
import { hasMessages, type MessageApi } from '../apis/prompt-view.js';
import type { GatewayConfig } from '../config/schema.js';
import { documentLimits } from '../config/schema-server.js';
import { SESSION_HEADER } from '../intake/headers.js';
import { readFields, retrieval } from '../intake/own-fields.js';
import { applyEdits, BodyView, type ByteEdit, invalid, modelOf } from '../json/json-body.js';
import type { Call } from '../shapes/shapes.js';
import { collectionTenant, type OpenCollections } from './open-collections.js';

/** A call that needs a search. */
export interface RetrievalCall {
  /** As received. */
  readonly call: Call;
  /** Statistics of its collection's searches. */
  readonly gate: SpeculationGate;
  /** Whether speculation is forbidden: later turns of a conversation depend on what was sent. */
  readonly mayNotSpeculate: boolean;
  search(signal: AbortSignal): AsyncIterable<Stage>;
  /** The call with these passages as its documents, without the gateway's own fields. */
  withDocuments(passages: readonly ScoredDocument[]): Call;
}

/** The search that a request or its model name asks for. */
interface Retrieval {
  readonly tenant: string;
  readonly collection: string;
  readonly k: number;
  /** Default: the last messages of the user. */
  readonly query: Query | undefined;
  readonly options: Pick<SearchOptions, 'stages' | 'where' | 'minScore' | 'expand'>;
}

/** Characters of a collection's name, at most. */
const LONGEST_NAME = 64;
/** Characters of a document's id, at most. The end of an id distinguishes it. */
const LONGEST_ID = 500;

/**
 * Reads the search of a call: `warmpath.retrieval`, or a model name that stands for a collection and is replaced by the
 * engine's. Returns other calls unchanged.
 *
 * @throws WarmpathError WARMPATH_INVALID_REQUEST with a path; those of collections
 */
export function readRetrievalCall(
  config: GatewayConfig,
  collections: OpenCollections,
  call: Call,
): Call | RetrievalCall {
  const { models } = collections.settings;
  const isNamed = Object.keys(models).length > 0;
  const { api } = call;
  if (!hasMessages(api) || (!isNamed && !call.body.includes('"retrieval"'))) return call;
  const body = readBody(call.body);
  if (body === undefined) return call;
  const name = modelOf(body);
  const model = Object.hasOwn(models, name) ? models[name] : undefined;
  const { retrieval: given, ...switches } = readSwitches(body);
  if (model === undefined && (given === undefined || given === null)) return call;
  const edits: ByteEdit[] = [];
  if (model !== undefined) edits.push(body.with('model', JSON.stringify(model.model)));
  if (given !== undefined) edits.push(body.with('warmpath', JSON.stringify(switches)));
  const brings = body.has('documents') && body.raw('documents') !== 'null' && body.raw('documents') !== '[]';
  if (brings && given !== undefined && given !== null) {
    throw invalid('documents', 'send either `documents` or `warmpath.retrieval`, not both');
  }
  // Own documents go before the collection.
  if (brings) return { ...call, body: applyEdits(call.body, edits) };
  const asked = readRetrieval(config, call, { given: given ?? {}, model });
  const query = asked.query ?? lastQuestion(api, body);
  if (asked.query === undefined && isChore(query.text)) return { ...call, body: applyEdits(call.body, edits) };
  const { tenant, collection, k, options } = asked;
  return {
    call,
    gate: collections.gateOf(tenant, collection, options.stages),
    mayNotSpeculate: namesConversation(call, body, switches),
    search: (signal) => collections.search(call.request, { tenant, name: collection, query, k, ...options, signal }),
    withDocuments(passages) {
      const documents = passages.map(({ id, title, content }) => ({ id: id.slice(-LONGEST_ID), title, content }));
      const bytes = applyEdits(call.body, [...edits, body.with('documents', JSON.stringify(documents))]);
      return { ...call, body: bytes, sources: { passages } };
    },
  };
}

/** Members that refer to state of an engine or of the gateway. */
const REMEMBERED = ['previous_response_id', 'conversation'];

function namesConversation({ request }: Call, body: BodyView, { session }: Record<string, unknown>): boolean {
  if (session !== undefined || request.headers[SESSION_HEADER] !== undefined) return true;
  return REMEMBERED.some((name) => body.has(name));
}

/** An unreadable body is refused later, with its own error. */
function readBody(bytes: Buffer): BodyView | undefined {
  try {
    return new BodyView(bytes);
  } catch {
    return undefined;
  }
}

function readSwitches(body: BodyView): Record<string, unknown> {
  const given = body.parse('warmpath') ?? {};
  if (typeof given !== 'object' || Array.isArray(given)) throw invalid('warmpath', 'an object was expected');
  return given as Record<string, unknown>;
}

/** Passages for an answer, where neither the request nor the model sets a number. */
const DEFAULT_PASSAGES = 6;

function readRetrieval(
  config: GatewayConfig,
  { request }: Call,
  {
    given,
    model,
  }: { readonly given: unknown; readonly model: OpenCollections['settings']['models'][string] | undefined },
): Retrieval {
  const path = 'warmpath.retrieval';
  const { collection, k = model?.k ?? DEFAULT_PASSAGES, query, ...options } = readFields(retrieval, given, path);
  const most = documentLimits(config.server).documents;
  if (k > most) throw invalid(`${path}.k`, `a whole number from 1 to ${most} was expected`);
  const { expand = 0 } = options;
  if (k * (1 + 2 * expand) > most) throw invalid(`${path}.expand`, `k · (1 + 2 · expand) is at most ${most}`);
  const own = collection ?? model?.collection;
  if (own === undefined) throw invalid(`${path}.collection`, 'the name of a collection was expected');
  // Statistics are kept by name, whether the collection exists or not.
  if (own.length > LONGEST_NAME) throw new WarmpathError('WARMPATH_COLLECTION_NAME', { path: `${path}.collection` });
  // The operator lends only the collection that the configuration names.
  const lender = own === model?.collection ? model.tenant : undefined;
  const tenant = lender ?? collectionTenant(config, request.report.caller);
  return { tenant, collection: own, k, query: query === undefined ? undefined : { text: query }, options };
}

/** Questions before the last one that a search takes into account. */
const EARLIER_QUESTIONS = 2;

/** The text of the last message of the user, as the API writes it, and those before it. */
function lastQuestion({ conversation }: MessageApi, body: BodyView): Query {
  const { messages: name, takesText } = conversation;
  const { scan } = body;
  const messages = body.value(name);
  const whole = takesText && messages !== undefined ? scan.string(messages) : undefined;
  if (whole !== undefined && whole.trim() !== '') return { text: whole };
  if (whole === undefined && (messages === undefined || !scan.isArray(messages)))
    throw invalid(name, 'an array of messages was expected');
  const spans = whole === undefined ? scan.elements(messages!.start).reverse() : [];
  const questions: string[] = [];
  for (const span of spans) {
    const role = scan.member(span.start, 'role');
    if (role === undefined || scan.string(role) !== 'user') continue;
    const content = scan.member(span.start, 'content');
    const text = content === undefined ? '' : textOf(scan.parse(content));
    if (text.trim() !== '' && questions.push(text) > EARLIER_QUESTIONS) break;
  }
  const [text, ...earlier] = questions;
  if (text !== undefined) return { text, ...(earlier.length > 0 && { earlier: earlier.join('\n') }) };
  throw invalid(name, 'the request has no user message to search for; send `warmpath.retrieval.query`');
}

/** How Open WebUI begins what it asks of a model for itself: titles, tags, follow-up questions, search queries. */
const OPEN_WEBUI_TASK = /^\s*### Task:[\s\S]*(?:<chat_history>|### Chat History)/i;
/** How LibreChat, NextChat, Chatbox and others ask for a title. */
const TITLE_REQUEST = new RegExp(
  String.raw`^\s*(?:please |based on [^.]{0,60}, )?(?:analy[sz]e|detect|provide|generate|create|write|give|summari[sz]e)\b` +
    String.raw`[\s\S]{0,300}?\b(?:title\b[\s\S]{0,120}\b(?:conversation|chat|session)` +
    String.raw`|(?:conversation|chat|session)\b[\s\S]{0,200}\btitle|this (?:conversation|chat|session) a (?:\w+ )?name)\b`,
  'i',
);

/** Whether a chat interface asks this for itself, which no document answers. */
function isChore(text: string): boolean {
  return OPEN_WEBUI_TASK.test(text) || TITLE_REQUEST.test(text);
}

function textOf(content: unknown): string {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  return content
    .map((part: unknown) => (part as { readonly text?: unknown } | null)?.text)
    .filter((text) => typeof text === 'string')
    .join('\n');
}
