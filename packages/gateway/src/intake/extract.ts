import { RECOGNITION_MODES, type RecognitionMode, WarmpathError } from '@warmpath/core';
import type { Prompt, PromptApi } from './apis/prompt-api.js';
import type { JsonObject } from './apis/request-texts.js';
import { readObject } from './json-body.js';
import { type JsonMember, objectMembers, rewriteObject } from './json-members.js';

/** The request's own switches, from its top-level `warmpath` field. Policy, maxShift, pin and hints are checked by core. */
export interface RequestSwitches {
  readonly policy?: unknown;
  readonly maxShift?: unknown;
  readonly pin?: unknown;
  readonly hints?: unknown;
}

/** What a caller wants of bodies that have none of the gateway's fields. */
export interface ExtractOptions {
  /** Read them too, because there is something to replay. */
  readonly all?: boolean;
}

/** A body that concerns the gateway, taken apart. */
export interface ExtractedRequest {
  readonly api: PromptApi;
  /** The body without what is only for the gateway; its prompt still as the client sent it. */
  rewrite(changes: ReadonlyMap<string, string | undefined>): string;
  /** The body as `JSON.parse` gives it, the gateway's own fields included. */
  readonly object: JsonObject;
  /** The text of a top-level value, as the client wrote it. */
  rawValue(key: string): string | undefined;
  readonly model: string;
  /** The client wants nothing arranged; documents, if any, go to the engine as they are. */
  readonly bypass: boolean;
  /** As the client sent them; empty if there are none. */
  readonly documents: readonly unknown[];
  readonly switches: RequestSwitches;
  /** How documents in the prompt are looked for, where this request says so. */
  readonly recognise: RecognitionMode | undefined;
  /** The client's own name for the conversation. */
  readonly session: string | undefined;
  /** Whether to refer to documents that the conversation still shows; `undefined` where the request does not say. */
  readonly deduplicate: boolean | undefined;
  /** Whether to refer to parts of documents as well; `undefined` where the request does not say. */
  readonly blocks: boolean | undefined;
  /** Whether the body has fields that must not reach the engine. */
  readonly hasOwnFields: boolean;
  /** `undefined`: there is nothing to arrange. */
  readonly prompt: Prompt | undefined;
}

/** Fields of a request that only the gateway reads. */
export const GATEWAY_FIELDS: ReadonlyMap<string, undefined> = new Map([
  ['documents', undefined],
  ['warmpath', undefined],
]);
const BYPASS_FIELDS: ReadonlyMap<string, undefined> = new Map([['warmpath', undefined]]);

const SWITCHES = ['session', 'deduplicate', 'blocks', 'policy', 'hints', 'maxShift', 'pin', 'bypass', 'recognise'];
/** Characters of a session's name. */
export const SESSION_MAX_LENGTH = 256;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/**
 * Takes a request body apart. Answers `undefined` for a body that does not concern the gateway: it mentions neither
 * `documents` nor `warmpath` and goes through as it is, unparsed, unless the caller wants all. A bypassed request comes back
 * without documents.
 *
 * Errors: `WARMPATH_INVALID_JSON`, `WARMPATH_INVALID_REQUEST`, `WARMPATH_INVALID_DOCUMENTS`, each with a path.
 * Cost: one `JSON.parse` and one scan of the text, O(body).
 */
export function extract(
  body: Buffer,
  api: PromptApi,
  { all = false }: ExtractOptions = {},
): ExtractedRequest | undefined {
  if (!isObjectText(body)) throw new WarmpathError('WARMPATH_INVALID_JSON');
  if (!all && !mentionsKey(body, 'documents') && !mentionsKey(body, 'warmpath')) return undefined;
  const text = body.toString('utf8');
  // What asks nothing of the gateway is the engine's to refuse.
  const object = all ? attempt(() => readObject(body)) : readObject(body);
  if (object === undefined) return undefined;
  const hasOwnFields = Object.hasOwn(object, 'documents') || Object.hasOwn(object, 'warmpath');
  if (!hasOwnFields && !all) return undefined;

  const { bypass, session, deduplicate, blocks, recognise, ...switches } = readSwitches(object['warmpath']);
  const members = objectMembers(text);
  const removed = bypass ? BYPASS_FIELDS : GATEWAY_FIELDS;
  const documents = bypass ? [] : readDocuments(object['documents']);
  const raw = (key: string) => rawValue(text, members, key);
  const readPrompt = () => api.readPrompt(object, raw);
  return {
    api,
    rewrite: (changes) => rewriteObject(text, members, new Map([...removed, ...changes])),
    object,
    rawValue: raw,
    model: typeof object['model'] === 'string' ? object['model'] : '',
    bypass,
    documents,
    switches,
    recognise,
    session,
    deduplicate,
    blocks,
    hasOwnFields,
    // Without documents, messages that the gateway cannot read are the engine's to judge.
    prompt: documents.length > 0 ? readPrompt() : bypass ? undefined : attempt(readPrompt),
  };
}

/** Characters that Node looks for from quote to quote, in a twentieth of the time that it takes for longer words. */
const SHORT_WORD = 6;
/** Beginnings of the word that are looked at one by one before a search for the whole of it is cheaper. */
const BEGINNINGS = 32;

/** Whether a body may have this key. O(body), native. */
function mentionsKey(body: Buffer, key: string): boolean {
  const quoted = `"${key}"`;
  const short = quoted.slice(0, SHORT_WORD);
  let at = body.indexOf(short);
  for (let looks = 0; at >= 0 && looks < BEGINNINGS; looks++) {
    if (body.toString('latin1', at, at + quoted.length) === quoted) return true;
    at = body.indexOf(short, at + 1);
  }
  return at >= 0 && body.includes(quoted, at);
}

function attempt<Result>(read: () => Result): Result | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}

/** Parses a request body that must be one JSON object. Error: `WARMPATH_INVALID_JSON`, without any of the body's text. */
export function parseObject(text: string): Readonly<Record<string, unknown>> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    // The parser's own message quotes the body; it stays here.
    throw new WarmpathError('WARMPATH_INVALID_JSON');
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new WarmpathError('WARMPATH_INVALID_JSON', { detail: 'The body is not a JSON object.' });
  }
  return value as Readonly<Record<string, unknown>>;
}

/** A cheap look at both ends: a body that was cut short is refused here and does not cost the engine a connection. */
function isObjectText(body: Buffer): boolean {
  let first = 0;
  let last = body.length - 1;
  while (first < body.length && body[first]! <= 0x20) first++;
  while (last > first && body[last]! <= 0x20) last--;
  return last > first && body[first] === OPEN_BRACE && body[last] === CLOSE_BRACE;
}

interface Switches extends RequestSwitches {
  readonly bypass: boolean;
  readonly session: string | undefined;
  readonly deduplicate: boolean | undefined;
  readonly blocks: boolean | undefined;
  readonly recognise: RecognitionMode | undefined;
}

const NO_SWITCHES: Switches = {
  bypass: false,
  session: undefined,
  deduplicate: undefined,
  blocks: undefined,
  recognise: undefined,
};

function readSwitches(value: unknown): Switches {
  if (value === undefined || value === null) return NO_SWITCHES;
  if (typeof value !== 'object' || Array.isArray(value)) throw invalid('warmpath', 'an object was expected');
  for (const key of Object.keys(value)) {
    if (!SWITCHES.includes(key))
      throw invalid(`warmpath.${key}`, `unknown field; known ones are ${SWITCHES.join(', ')}`);
  }
  const { session, deduplicate, blocks, bypass, recognise, ...switches } = value as Record<string, unknown>;
  const isSession = typeof session === 'string' && session.length > 0 && session.length <= SESSION_MAX_LENGTH;
  if (session !== undefined && session !== null && !isSession) {
    throw invalid('warmpath.session', `a string of 1 to ${SESSION_MAX_LENGTH} characters was expected`);
  }
  const mode = RECOGNITION_MODES.find((known) => known === recognise);
  if (recognise !== undefined && recognise !== null && mode === undefined) {
    throw invalid('warmpath.recognise', `one of ${RECOGNITION_MODES.join(', ')} was expected`);
  }
  return {
    ...switches,
    bypass: readSwitch(bypass, 'bypass') ?? false,
    session: isSession ? session : undefined,
    deduplicate: readSwitch(deduplicate, 'deduplicate'),
    blocks: readSwitch(blocks, 'blocks'),
    recognise: mode,
  };
}

function readSwitch(value: unknown, name: string): boolean | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value !== 'boolean') throw invalid(`warmpath.${name}`, 'true or false was expected');
  return value;
}

function readDocuments(value: unknown): readonly unknown[] {
  if (value === undefined || value === null) return [];
  if (!Array.isArray(value)) throw new WarmpathError('WARMPATH_INVALID_DOCUMENTS', { path: 'documents' });
  return value;
}

function rawValue(text: string, members: readonly JsonMember[], key: string): string | undefined {
  const member = members.findLast((candidate) => candidate.key === key);
  return member === undefined ? undefined : text.slice(member.valueStart, member.end);
}

function invalid(path: string, detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_INVALID_REQUEST', { path, detail });
}
