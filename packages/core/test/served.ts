import {
  type Arrangement,
  type ArrangeRequest,
  arrange,
  type Document,
  observe,
  type Preamble,
  prepareDocuments,
  ServedHistory,
} from '../src/index.js';

/** Prepared documents of the given ids; an id's text and tokens are always the same. */
export function documentsOf(ids: readonly string[]): readonly Document[] {
  return prepareDocuments(ids.map((id) => ({ id, content: `Text of ${id}.`, tokens: tokensOf(id) }))).documents;
}

/** 20 to 400 tokens, different for most ids. */
export function tokensOf(id: string): number {
  let sum = 0;
  for (const character of id) sum = (sum * 31 + character.charCodeAt(0) * 137) % 65_521;
  return 20 + (sum % 381);
}

/** Sends documents to the engine in exactly this order, and completes the request. */
export function serve(
  history: ServedHistory,
  ids: readonly string[],
  options: { preamble?: Preamble; now?: number } = {},
): Arrangement {
  const now = options.now ?? history.requests;
  const request: ArrangeRequest = {
    documents: documentsOf(ids),
    policy: 'retrieval',
    ...(options.preamble && { preamble: options.preamble }),
  };
  const arrangement = arrange(request, history, now);
  observe({ kind: 'dispatched', arrangement, now }, history);
  observe({ kind: 'completed', arrangement, now }, history);
  return arrangement;
}

/** A history that served these orders. */
export function historyOf(orders: readonly (readonly string[])[], preamble?: Preamble): ServedHistory {
  const history = new ServedHistory();
  for (const order of orders) serve(history, order, preamble === undefined ? {} : { preamble });
  return history;
}

/** The ids in prompt order. */
export function idsOf(arrangement: Arrangement): string[] {
  return arrangement.documents.map((document) => document.id);
}
