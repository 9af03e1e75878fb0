import { type Document, WarmpathError } from '@warmpath/core';
import { labDocument, PAPER_LENGTHS, type Workload } from './workload.js';

/** Bounds on a trace from outside. */
const MAX_REQUESTS = 1_000_000;
const MAX_DOCUMENTS = 1_000;

/**
 * A workload from a trace file's JSON: `{requests: [[id, …], …]}`, ids (numbers or texts) in retrieval order. Documents
 * have 200 tokens and every question is another, for the format states neither.
 *
 * Error: `WARMPATH_INVALID_REQUEST` with the path of what is wrong. O(total documents).
 */
export function readTrace(name: string, input: unknown): Workload {
  const requests = isRecord(input) ? input['requests'] : undefined;
  if (!Array.isArray(requests)) throw invalid('requests', 'An array of requests was expected.');
  if (requests.length > MAX_REQUESTS) throw invalid('requests', `At most ${MAX_REQUESTS} requests are read.`);
  const known = new Map<string, Document>();
  return {
    name,
    preamble: { key: 'preamble', tokens: PAPER_LENGTHS.preamble },
    requests: requests.map((request: unknown, number) => ({
      documents: readRequest(request, `requests[${number}]`, known),
      question: { key: `question_${number}`, tokens: PAPER_LENGTHS.question },
    })),
  };
}

function readRequest(request: unknown, path: string, known: Map<string, Document>): readonly Document[] {
  if (!Array.isArray(request)) throw invalid(path, 'An array of document ids was expected.');
  if (request.length > MAX_DOCUMENTS) throw invalid(path, `At most ${MAX_DOCUMENTS} documents are read.`);
  const documents = request.map((value: unknown, rank) => {
    const id = readId(value, `${path}[${rank}]`);
    const document = known.get(id) ?? labDocument(id, PAPER_LENGTHS.documents);
    known.set(id, document);
    return document;
  });
  if (new Set(documents).size < documents.length) throw invalid(path, 'The same document appears twice.');
  return documents;
}

/** Numbers are padded so that they sort as texts in their own order. */
function readId(value: unknown, path: string): string {
  if (typeof value === 'string' && value !== '') return value;
  if (Number.isSafeInteger(value) && (value as number) >= 0) return `doc_${String(value).padStart(4, '0')}`;
  throw invalid(path, 'A document id is a text or a whole number of 0 or more.');
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function invalid(path: string, detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_INVALID_REQUEST', { path, detail });
}
