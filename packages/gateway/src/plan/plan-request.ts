import { type PlanOptions, WarmpathError } from '@warmpath/core';
import { invalid, parseObject } from '../json/json-body.js';
import { JsonScanner } from '../json/json-scanner.js';

/** Bounds on a batch. */
export interface PlanLimits {
  readonly contexts: number;
  readonly documents: number;
}

/** A batch to plan. */
export interface PlanRequest {
  readonly contexts: readonly (readonly string[])[];
  readonly options: PlanOptions;
}

/** Larger bodies are looked at before they are parsed: parsed, values take many times the memory of their text. */
const SCANNED_FROM_BYTES = 1_048_576;
/** Values of a body: three for each of 15 documents with counts in each of 100,000 contexts. */
const MAX_VALUES = 5_000_000;

const FIELDS = ['contexts', 'capacity'];
const CONTEXT_FIELDS = ['documents'];
const DOCUMENT_FIELDS = ['id', 'tokens'];

/**
 * Reads the body of `POST /v1/plan`: `{contexts: [["id", …] | {documents: ["id" | {id, tokens?}, …]}, …], capacity?}`.
 * Tokens count only if every document has some: a guess for the others would decide over them. The first count of a
 * document holds. Errors: `WARMPATH_INVALID_JSON`, `WARMPATH_INVALID_REQUEST` and
 * `WARMPATH_TOO_MANY_DOCUMENTS`, with paths, and `WARMPATH_BODY_TOO_COMPLEX`. Cost: O(body).
 */
export function readPlanRequest(bytes: Buffer, limits: PlanLimits): PlanRequest {
  if (bytes.length > SCANNED_FROM_BYTES) checkSize(bytes, limits);
  const body = parseObject(bytes.toString('utf8'));
  checkFields(body, FIELDS, '');
  const { contexts, capacity } = body;
  if (!Array.isArray(contexts)) throw invalid('contexts', 'an array of contexts was expected');
  if (contexts.length > limits.contexts) {
    throw invalid('contexts', `there are ${contexts.length}; at most ${limits.contexts} are accepted`);
  }
  const tokens = new Map<string, number>();
  const lists = contexts.map((context, place) => readContext(context, `contexts[${place}]`, { limits, tokens }));
  const isCounted = tokens.size > 0 && lists.every((ids) => ids.every((id) => tokens.has(id)));
  return {
    contexts: lists,
    options: {
      ...(capacity !== undefined && capacity !== null && { capacity: readCapacity(capacity) }),
      ...(isCounted && { tokens: (id: string) => tokens.get(id)! }),
    },
  };
}

/** Refuses what need not be parsed to be refused. */
function checkSize(bytes: Buffer, limits: PlanLimits): void {
  const scan = new JsonScanner(bytes, MAX_VALUES);
  const members = scan.members(scan.space(0), FIELDS.length + 1);
  for (const { key } of members) checkField(key, FIELDS, '');
  // What is behind these has not been looked at.
  if (members.length > FIELDS.length) throw invalid(members.at(-1)!.key, 'a field is there more than once');
  const contexts = members.findLast(({ key }) => key === 'contexts');
  if (contexts === undefined || !scan.isArray({ start: contexts.valueStart, end: contexts.end })) return;
  const { length } = new JsonScanner(bytes, MAX_VALUES).elements(contexts.valueStart, limits.contexts + 1);
  if (length > limits.contexts) throw invalid('contexts', `at most ${limits.contexts} are accepted`);
}

function readContext(
  context: unknown,
  path: string,
  { limits, tokens }: { readonly limits: PlanLimits; readonly tokens: Map<string, number> },
): readonly string[] {
  let documents = context;
  let at = path;
  if (isObject(context)) {
    checkFields(context, CONTEXT_FIELDS, `${path}.`);
    documents = context['documents'];
    at = `${path}.documents`;
  }
  if (!Array.isArray(documents)) throw invalid(at, 'an array of documents was expected');
  if (documents.length > limits.documents) {
    throw new WarmpathError('WARMPATH_TOO_MANY_DOCUMENTS', {
      path: at,
      detail: `At most ${limits.documents} are accepted.`,
    });
  }
  return documents.map((document, place) => readDocument(document, `${at}[${place}]`, tokens));
}

function readDocument(document: unknown, path: string, tokens: Map<string, number>): string {
  if (typeof document === 'string') return document;
  if (!isObject(document)) throw invalid(path, 'an id or an object with an id was expected');
  checkFields(document, DOCUMENT_FIELDS, `${path}.`);
  const { id, tokens: count } = document;
  if (typeof id !== 'string') throw invalid(`${path}.id`, 'a string was expected');
  if (count === undefined || count === null) return id;
  if (typeof count !== 'number' || !Number.isSafeInteger(count) || count < 0) {
    throw invalid(`${path}.tokens`, 'a whole number of 0 or more was expected');
  }
  if (!tokens.has(id)) tokens.set(id, count);
  return id;
}

function readCapacity(value: unknown): number {
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= 0) return value;
  throw invalid('capacity', 'a whole number of 0 or more was expected');
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function checkFields(object: Readonly<Record<string, unknown>>, known: readonly string[], prefix: string): void {
  for (const key of Object.keys(object)) checkField(key, known, prefix);
}

function checkField(key: string, known: readonly string[], prefix: string): void {
  if (!known.includes(key)) throw invalid(`${prefix}${key}`, `unknown field; known ones are ${known.join(', ')}`);
}
