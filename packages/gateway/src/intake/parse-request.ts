import { isUtf8 } from 'node:buffer';
import { hash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { WarmpathError } from '@warmpath/core';
import type { PromptApi } from '../apis/prompt-view.js';
import { BodyView, type ByteEdit, invalid, modelOf } from '../json/json-body.js';
import type { ByteSpan } from '../json/json-scanner.js';
import type { Caller } from './authenticate.js';
import { type AgentClient, type AgentSession, agentSessionOf, SESSION_HEADER } from './headers.js';
import { ILL_FORMED, readFields, readSessionName, switches, uncheckedOrdering } from './own-fields.js';

/** The request's switches for the order, from its `warmpath` field. Core checks them. */
export interface RequestSwitches {
  readonly policy?: unknown;
  readonly maxShift?: unknown;
  readonly shiftPrice?: unknown;
  readonly pin?: unknown;
  readonly hints?: unknown;
}

/** The name of a conversation, and its end user. */
export interface NamedConversation {
  readonly session: string;
  /** Whose headers name it; `warmpath` for a name of the gateway's own. */
  readonly client: AgentClient;
  /** The name of the conversation that started this one, as agents say. */
  readonly parent: string | undefined;
  /** The end user, where the request, a token or a trusted proxy names one. */
  readonly user: string | undefined;
  /** Whether the request lacks the end user that the configuration asks for: it continues no conversation. */
  readonly lacksUser: boolean;
  /** For a turn whose earlier turns are forgotten: refuse it, or mark the answer. */
  readonly forgotten: 'refuse' | 'mark';
}

/** A request with work for the gateway. Only the gateway's own fields are parsed. */
export interface ParsedRequest {
  readonly api: PromptApi;
  readonly body: BodyView;
  readonly model: string;
  /** Whether the client wants nothing arranged: documents go to the engine as they are. */
  readonly bypass: boolean;
  /** The array of documents; `undefined` without documents. */
  readonly documents: ByteSpan | undefined;
  readonly switches: RequestSwitches;
  /**
   * Whether to refer to documents, and to parts of documents, that the conversation still shows, where the request says
   * so.
   */
  readonly deduplicate: boolean | undefined;
  readonly blocks: boolean | undefined;
  /** What becomes of labels of documents in the prompt, where the request says so. */
  readonly labels: 'kept' | 'mapped' | undefined;
  /** `undefined` for a request that names no conversation. */
  readonly conversation: NamedConversation | undefined;
  /** Takes the gateway's own fields out of the body. */
  readonly ownFields: readonly ByteEdit[];
}

/** Characters of an end user's name; longer names are kept as a digest. */
const USER_MAX_LENGTH = 256;
const DIGEST_PREFIX = 'sha256:';

const OWN_FIELDS: ReadonlySet<string> = new Set(['documents', 'warmpath']);
const BYPASS_FIELDS: ReadonlySet<string> = new Set(['warmpath']);
/** A body without these keys has nothing for the gateway. */
const SIGNS = ['"documents"', '"warmpath"'];

/** What parsing needs beside the body. */
export interface RequestContext {
  readonly headers: IncomingHttpHeaders;
  readonly caller: Pick<Caller, 'endUser' | 'bodyNamesEndUser'>;
  /** Whether to read a body without the gateway's fields, too. */
  readonly all?: boolean;
  /** The client's body, where `bytes` are its translation: it names the end user. */
  readonly original?: Buffer | undefined;
}

/**
 * Reads the gateway's fields of a request. O(body): a native search for each key, and a scan where one is found.
 *
 * @returns `undefined` for a body without work for the gateway.
 * @throws WarmpathError `WARMPATH_INVALID_JSON`, `WARMPATH_BODY_TOO_COMPLEX`, `WARMPATH_INVALID_REQUEST`,
 * `WARMPATH_INVALID_DOCUMENTS`, each with a path.
 */
export function parseRequest(bytes: Buffer, api: PromptApi, context: RequestContext): ParsedRequest | undefined {
  if (!isObjectText(bytes)) throw new WarmpathError('WARMPATH_INVALID_JSON');
  const isNamed = typeof context.headers[SESSION_HEADER] === 'string';
  const isAsked = isNamed || context.all === true || SIGNS.some((sign) => bytes.includes(sign));
  const agent = isNamed ? undefined : agentSessionOf(context.headers);
  if (!isAsked && agent === undefined) return undefined;
  try {
    const body = new BodyView(bytes);
    const given = body.parse('warmpath');
    const asked = readSwitches(given);
    const { bypass } = asked;
    const documents = bypass ? undefined : documentsOf(body);
    const identity = context.original === undefined ? body : new BodyView(context.original);
    return {
      api,
      body,
      model: modelOf(body),
      bypass,
      documents,
      switches: asked.switches,
      deduplicate: asked.deduplicate,
      blocks: asked.blocks,
      labels: asked.labels,
      conversation: conversationOf(identity, { ...context, agent }, asked),
      ownFields: body.without(bypass ? BYPASS_FIELDS : OWN_FIELDS),
    };
  } catch (error) {
    // A request that asks nothing of the gateway is not refused because an agent sent it.
    if (isAsked) throw error;
    return undefined;
  }
}

interface AgentContext extends RequestContext {
  readonly agent: AgentSession | undefined;
}

const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const CLOSE_BRACKET = 0x5d;

/** Whether the body begins and ends as an object: a body that was cut is refused before it reaches the engine. */
function isObjectText(body: Buffer): boolean {
  let first = 0;
  let last = body.length - 1;
  while (first < body.length && isSpace(body[first]!)) first++;
  while (last > first && isSpace(body[last]!)) last--;
  return last > first && body[first] === OPEN_BRACE && body[last] === CLOSE_BRACE;
}

/** White space of JSON. A zero byte is none: it is how UTF-16 begins or ends. */
function isSpace(byte: number): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;
}

function documentsOf(body: BodyView): ByteSpan | undefined {
  const { scan } = body;
  const span = body.value('documents');
  if (span === undefined || scan.isNull(span)) return undefined;
  if (!scan.isArray(span)) throw new WarmpathError('WARMPATH_INVALID_DOCUMENTS', { path: 'documents' });
  const isEmpty = scan.bytes[scan.space(span.start + 1)] === CLOSE_BRACKET;
  return isEmpty ? undefined : span;
}

/**
 * The conversation's name: from the body, else from the header, else from those of agents. `prompt_cache_key` names no
 * conversation.
 */
function conversationOf(
  body: BodyView,
  { headers, caller, agent }: AgentContext,
  { session: given, forgotten, bypass }: Switches,
): NamedConversation | undefined {
  const user = endUserIn(body, caller);
  const header = headers[SESSION_HEADER];
  const own = given ?? (typeof header === 'string' ? readSessionName(header, SESSION_HEADER) : undefined);
  const session = own ?? agent?.name;
  if (session === undefined) return undefined;
  const switches = body.value('warmpath');
  if (given !== undefined && switches !== undefined) requireUtf8(body, switches, 'warmpath.session');
  const byAgent = own === undefined ? agent : undefined;
  return {
    session,
    client: byAgent?.client ?? 'warmpath',
    parent: byAgent?.parent,
    user,
    lacksUser: user === undefined && !caller.bodyNamesEndUser,
    // A request that is sent unchanged lacks nothing, and an agent did not ask to be refused.
    forgotten: bypass ? 'mark' : (forgotten ?? (byAgent === undefined ? 'refuse' : 'mark')),
  };
}

/** Hexadecimal digits that name a session in reports. */
const SESSION_ID_DIGITS = 16;

/** A conversation as reports name it: by a digest of tenant, end user, header and name. */
export interface RecordedSession {
  readonly id: string;
  readonly client: AgentClient;
  /** The session that started this one. */
  readonly parent: string | undefined;
}

export function recordedSession(tenant: string, conversation: NamedConversation): RecordedSession {
  const { client, user, session, parent } = conversation;
  const idOf = (name: string) =>
    hash('sha256', JSON.stringify([tenant, user ?? null, client, name])).slice(0, SESSION_ID_DIGITS);
  return { id: idOf(session), client, parent: parent === undefined ? undefined : idOf(parent) };
}

/** Who sends a body, as far as the configuration lets the body say that. */
export function endUserIn(body: BodyView, { endUser, bodyNamesEndUser }: RequestContext['caller']): string | undefined {
  return bodyNamesEndUser ? (endUser ?? endUserOf(body)) : endUser;
}

/**
 * The end user in the body: the first of the fields of OpenAI's and Anthropic's APIs.
 *
 * @throws WarmpathError `WARMPATH_INVALID_REQUEST` with the path, for what is neither a string nor a number.
 */
function endUserOf(body: BodyView): string | undefined {
  const metadata = body.value('metadata');
  const candidates = [
    readEndUser(body, body.value('safety_identifier'), 'safety_identifier'),
    readEndUser(body, body.value('user'), 'user'),
    readEndUser(body, metadata && body.scan.member(metadata.start, 'user_id'), 'metadata.user_id'),
  ];
  return candidates.find((name) => name !== undefined);
}

/**
 * One field that may name the end user. A number is read as its text: `1` is the user `"1"`, and `1.0` is another user.
 * Parsing would make two large numbers equal.
 */
function readEndUser(body: BodyView, span: ByteSpan | undefined, path: string): string | undefined {
  const { scan } = body;
  if (span === undefined || scan.isNull(span)) return undefined;
  const name = scan.isNumber(span) ? scan.text(span) : scan.string(span);
  if (name === undefined) throw invalid(path, 'a string or a number was expected');
  if (!name.isWellFormed()) throw invalid(path, ILL_FORMED);
  requireUtf8(body, span, path);
  return name === '' ? undefined : shortened(name);
}

/** Decoding reads all bytes that are not UTF-8 as the same character, which would make two names equal. */
function requireUtf8({ bytes }: BodyView, { start, end }: ByteSpan, path: string): void {
  if (!isUtf8(bytes.subarray(start, end))) throw invalid(path, ILL_FORMED);
}

/** The name, or a digest of a long one. A name that looks like a digest is digested, too. */
function shortened(name: string): string {
  const isShort = name.length <= USER_MAX_LENGTH && !name.startsWith(DIGEST_PREFIX);
  return isShort ? name : `${DIGEST_PREFIX}${hash('sha256', name)}`;
}

interface Switches extends Pick<ParsedRequest, 'bypass' | 'deduplicate' | 'blocks' | 'labels' | 'switches'> {
  readonly session: string | undefined;
  readonly forgotten: 'refuse' | 'mark' | undefined;
}

const NOTHING_TO_SEARCH =
  'there is nothing to search: the configuration of this gateway has no `collections`, or the API has no messages';

const NO_SWITCHES: Switches = {
  bypass: false,
  session: undefined,
  forgotten: undefined,
  deduplicate: undefined,
  blocks: undefined,
  labels: undefined,
  switches: {},
};

/** What is checked here of `warmpath`. */
const SWITCHES = uncheckedOrdering(switches);

function readSwitches(value: unknown): Switches {
  if (value === undefined || value === null) return NO_SWITCHES;
  if (Object.hasOwn(value, 'retrieval')) throw invalid('warmpath.retrieval', NOTHING_TO_SEARCH);
  const given = readFields(SWITCHES, value, 'warmpath');
  const { policy, hints, maxShift, shiftPrice, pin } = given;
  return {
    switches: { policy, hints, maxShift, shiftPrice, pin },
    bypass: given.bypass ?? false,
    session: given.session ?? undefined,
    forgotten: given.forgotten ?? undefined,
    deduplicate: given.deduplicate ?? undefined,
    blocks: given.blocks ?? undefined,
    labels: given.labels ?? undefined,
  };
}
