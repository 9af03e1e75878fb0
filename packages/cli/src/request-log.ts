import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { WarmpathError } from '@warmpath/core';

/** A log of requests, as far as planning needs it. */
export interface RequestLog {
  /** Document ids of every request, in retrieval order. */
  readonly contexts: readonly (readonly string[])[];
  /** Tokens of a document by its id, as first stated. */
  readonly tokens: ReadonlyMap<string, number>;
}

/**
 * Reads a log of requests, one JSON object a line: `{timestamp?, session?, documents: [{id, tokens?} | "id"], query_tokens?}`. Blank
 * lines are skipped and fields of other names ignored. Errors: `WARMPATH_USAGE` if the file cannot be read;
 * `WARMPATH_INVALID_JSON`, `WARMPATH_INVALID_REQUEST` and `WARMPATH_INVALID_DOCUMENTS` with line number and path. Holds all ids in
 * memory, each once.
 *
 * @param file path of the log, or `-` for `stdin`
 * @param onRequest told how many requests were read, after each
 */
export async function readRequestLog(
  file: string,
  stdin: Readable,
  onRequest: (count: number) => void,
): Promise<RequestLog> {
  const contexts: string[][] = [];
  const tokens = new Map<string, number>();
  const ids = new Map<string, string>();
  const input = file === '-' ? stdin : createReadStream(file);
  const failed = new Promise<never>((_, reject) => {
    input.once('error', (cause: unknown) => {
      reject(new WarmpathError('WARMPATH_USAGE', { path: 'file', detail: `cannot read ${file}`, cause }));
    });
  });
  const read = async () => {
    let line = 0;
    for await (const text of createInterface({ input, crlfDelay: Number.POSITIVE_INFINITY })) {
      line++;
      if (text.trim() === '') continue;
      contexts.push(readRequest(text, line, { ids, tokens }));
      onRequest(contexts.length);
    }
  };
  await Promise.race([read(), failed]);
  return { contexts, tokens };
}

/** What the requests so far have in common: one string an id, and the tokens stated. */
interface Known {
  readonly ids: Map<string, string>;
  readonly tokens: Map<string, number>;
}

function readRequest(text: string, line: number, known: Known): string[] {
  const request = parse(text, line);
  if (!isObject(request)) throw invalid(`line ${line}`, 'an object with `documents` was expected');
  const at = (path: string) => `line ${line}: ${path}`;
  const { timestamp, session, documents } = request;
  const queryTokens = request['query_tokens'];
  if (!Array.isArray(documents)) {
    throw new WarmpathError('WARMPATH_INVALID_DOCUMENTS', {
      path: at('documents'),
      detail: 'an array of documents was expected',
    });
  }
  if (timestamp !== undefined && typeof timestamp !== 'number' && typeof timestamp !== 'string') {
    throw invalid(at('timestamp'), 'a number or a string was expected');
  }
  if (session !== undefined && typeof session !== 'string' && typeof session !== 'number') {
    throw invalid(at('session'), 'a string or a number was expected');
  }
  if (queryTokens !== undefined && !isCount(queryTokens)) throw invalid(at('query_tokens'), COUNT_EXPECTED);
  return documents.map((document: unknown, i) => readDocument(document, at(`documents[${i}]`), known));
}

function readDocument(document: unknown, path: string, { ids, tokens }: Known): string {
  const isPlain = typeof document === 'string';
  if (!isPlain && !isObject(document)) throw invalid(path, 'an id or an object with an id was expected');
  const stated = isPlain ? document : document['id'];
  if (typeof stated !== 'string') throw invalid(`${path}.id`, 'a string was expected');
  // The first string of an id stands for all, so that a long log does not hold one for every mention.
  let id = ids.get(stated);
  if (id === undefined) {
    id = stated;
    ids.set(id, id);
  }
  const count = isPlain ? undefined : document['tokens'];
  if (count === undefined) return id;
  if (!isCount(count)) throw invalid(`${path}.tokens`, COUNT_EXPECTED);
  if (!tokens.has(id)) tokens.set(id, count);
  return id;
}

const COUNT_EXPECTED = 'a whole number of 0 or more was expected';

function parse(text: string, line: number): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new WarmpathError('WARMPATH_INVALID_JSON', {
      path: `line ${line}`,
      detail: 'the line is not valid JSON',
      cause,
    });
  }
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function invalid(path: string, detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_INVALID_REQUEST', { path, detail });
}
