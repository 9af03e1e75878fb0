import { type Document, WarmpathError } from '@warmpath/core';
import { labDocument, PAPER_LENGTHS, type Workload } from './workload.js';

/** Bounds on a trace from outside. */
const MAX_REQUESTS = 1_000_000;
const MAX_DOCUMENTS = 1_000;

/**
 * A workload from a trace file's JSON: `{requests: [[id, …], …], tokens?: {id: number}}`, ids (numbers or texts) in
 * retrieval order. Documents have the tokens that `tokens` gives them, by the id as written, or 200; every question is
 * another, for the format knows none.
 *
 * Error: `WARMPATH_INVALID_REQUEST` with the path of what is wrong. O(total documents).
 */
export function readTrace(name: string, input: unknown): Workload {
  const requests = isRecord(input) ? input['requests'] : undefined;
  if (!Array.isArray(requests)) throw invalid('requests', 'An array of requests was expected.');
  if (requests.length > MAX_REQUESTS) throw invalid('requests', `At most ${MAX_REQUESTS} requests are read.`);
  const known = new Documents(readTokens(isRecord(input) ? input['tokens'] : undefined));
  return {
    name,
    preamble: { key: 'preamble', tokens: PAPER_LENGTHS.preamble },
    requests: requests.map((request: unknown, number) => ({
      documents: readRequest(request, `requests[${number}]`, known),
      question: { key: `question_${number}`, tokens: PAPER_LENGTHS.question },
    })),
  };
}

/** Every document once, by the id as written. */
class Documents {
  readonly #tokens: ReadonlyMap<string, number>;
  readonly #known = new Map<string, Document>();

  constructor(tokens: ReadonlyMap<string, number>) {
    this.#tokens = tokens;
  }

  find(written: string | number): Document {
    const name = String(written);
    // Numbers are padded so that they sort as texts in their own order.
    const id = typeof written === 'number' ? `doc_${name.padStart(4, '0')}` : written;
    const document = this.#known.get(id) ?? labDocument(id, this.#tokens.get(name) ?? PAPER_LENGTHS.documents);
    this.#known.set(id, document);
    return document;
  }
}

function readTokens(tokens: unknown): ReadonlyMap<string, number> {
  if (tokens === undefined || tokens === null) return new Map();
  if (!isRecord(tokens)) throw invalid('tokens', 'An object of numbers by document id was expected.');
  return new Map(
    Object.entries(tokens).map(([id, value]) => {
      if (Number.isSafeInteger(value) && (value as number) >= 1) return [id, value as number];
      throw invalid(`tokens[${JSON.stringify(id)}]`, 'A whole number above 0 was expected.');
    }),
  );
}

function readRequest(request: unknown, path: string, known: Documents): readonly Document[] {
  if (!Array.isArray(request)) throw invalid(path, 'An array of document ids was expected.');
  if (request.length > MAX_DOCUMENTS) throw invalid(path, `At most ${MAX_DOCUMENTS} documents are read.`);
  const documents = request.map((value: unknown, rank) => known.find(readId(value, `${path}[${rank}]`)));
  if (new Set(documents).size < documents.length) throw invalid(path, 'The same document appears twice.');
  return documents;
}

function readId(value: unknown, path: string): string | number {
  if (typeof value === 'string' && value !== '') return value;
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number;
  throw invalid(path, 'A document id is a text or a whole number of 0 or more.');
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function invalid(path: string, detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_INVALID_REQUEST', { path, detail });
}
