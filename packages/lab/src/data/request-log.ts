import { WarmpathError } from '@warmpath/core';
import { invalid, isObject, JsonFields, readCount } from './json-fields.js';
import { type Line, type ReadLinesOptions, readLines } from './lines.js';

/** Documents that one request may name, as everywhere. */
const MAX_DOCUMENTS = 1_000;
/** Strings of ids that are kept to be used again; beyond it each mention has its own. */
const MAX_SHARED_IDS = 2 ** 21;

/** A document of a logged request. */
export interface LoggedDocument {
  readonly id: string;
  /** Tokens of the rendered document, where the log states them. */
  readonly tokens: number | undefined;
}

/** One line of a log of requests. */
export interface LoggedRequest {
  /** Line of the file, counted from 1. */
  readonly line: number;
  /** In retrieval order; a document may be named twice. */
  readonly documents: readonly LoggedDocument[];
  /** Milliseconds of any clock; of a date, since 1970. */
  readonly timestampMs: number | undefined;
  readonly session: string | undefined;
  /** Tokens of everything behind the documents. */
  readonly queryTokens: number | undefined;
}

export interface ReadRequestLogOptions extends ReadLinesOptions {
  /** Called for a line that is wrong, which is then left out. Default: the error is thrown. */
  readonly onInvalid?: (error: WarmpathError, line: number) => void;
}

/**
 * Reads a log of requests, one JSON object a line, as a stream:
 * `{documents: [{id, tokens?} | "id"], timestamp?, session?, query_tokens?}`. `timestamp` is a number of milliseconds
 * or an ISO 8601 date, `session` a text or a number. Blank lines are skipped and fields of other names ignored.
 *
 * Errors: `WARMPATH_USAGE` if the file cannot be read; `WARMPATH_INVALID_JSON`, `WARMPATH_INVALID_REQUEST`,
 * `WARMPATH_INVALID_DOCUMENTS` and `WARMPATH_TOO_MANY_DOCUMENTS` (above 1,000) with line number and path. Cost:
 * O(length); memory for one line, and for one string an id.
 */
export async function* readRequestLog(
  file: string,
  { onInvalid, ...reading }: ReadRequestLogOptions = {},
): AsyncGenerator<LoggedRequest> {
  const ids = new SharedStrings();
  for await (const line of readLines(file, reading)) {
    const request = readOrReport(line, ids, onInvalid);
    if (request !== undefined) yield request;
  }
}

function readOrReport(
  line: Line,
  ids: SharedStrings,
  onInvalid: ReadRequestLogOptions['onInvalid'],
): LoggedRequest | undefined {
  try {
    return readRequest(line, ids);
  } catch (error) {
    if (onInvalid === undefined || !WarmpathError.isInstance(error)) throw error;
    onInvalid(error, line.number);
    return undefined;
  }
}

function readRequest(line: Line, ids: SharedStrings): LoggedRequest {
  const fields = JsonFields.ofLine(line);
  const path = fields.pathOf('documents');
  const documents = fields.raw('documents');
  if (!Array.isArray(documents)) {
    throw new WarmpathError('WARMPATH_INVALID_DOCUMENTS', { path, detail: 'an array of documents was expected' });
  }
  if (documents.length > MAX_DOCUMENTS) {
    const detail = `${documents.length} documents, and the limit is ${MAX_DOCUMENTS}.`;
    throw new WarmpathError('WARMPATH_TOO_MANY_DOCUMENTS', { path, detail });
  }
  return {
    line: line.number,
    documents: documents.map((document: unknown, i) => readDocument(document, `${path}[${i}]`, ids)),
    timestampMs: readTimestamp(fields),
    session: readSession(fields),
    queryTokens: fields.optionalCount('query_tokens'),
  };
}

function readDocument(document: unknown, path: string, ids: SharedStrings): LoggedDocument {
  if (typeof document === 'string') return { id: ids.share(document), tokens: undefined };
  if (!isObject(document)) throw invalid(path, 'an id or an object with an id was expected');
  const { id, tokens } = document;
  if (typeof id !== 'string') throw invalid(`${path}.id`, 'a string was expected');
  return {
    id: ids.share(id),
    tokens: tokens === undefined || tokens === null ? undefined : readCount(tokens, `${path}.tokens`),
  };
}

function readTimestamp(fields: JsonFields): number | undefined {
  if (!fields.has('timestamp')) return undefined;
  const timestamp = fields.raw('timestamp');
  if (typeof timestamp === 'number') return timestamp;
  const isDate = typeof timestamp === 'string' && /^\d{4}-\d\d-\d\d/.test(timestamp);
  const milliseconds = isDate ? Date.parse(timestamp) : Number.NaN;
  if (!Number.isNaN(milliseconds)) return milliseconds;
  throw invalid(fields.pathOf('timestamp'), 'a number of milliseconds or an ISO 8601 date was expected');
}

function readSession(fields: JsonFields): string | undefined {
  if (!fields.has('session')) return undefined;
  const session = fields.raw('session');
  if (typeof session === 'string' || typeof session === 'number') return String(session);
  throw invalid(fields.pathOf('session'), 'a string or a number was expected');
}

/** The first string of an id stands for all, so that a long log does not hold one for every mention. Bounded. */
class SharedStrings {
  readonly #strings = new Map<string, string>();

  share(text: string): string {
    const known = this.#strings.get(text);
    if (known !== undefined) return known;
    if (this.#strings.size < MAX_SHARED_IDS) this.#strings.set(text, text);
    return text;
  }
}
