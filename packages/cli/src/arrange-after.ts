import {
  type Arrangement,
  type ArrangeRequest,
  arrange,
  type Document,
  observe,
  prepareDocuments,
  prepareRequest,
  renderCompletion,
  renderHint,
  ServedHistory,
  WarmpathError,
} from '@warmpath/core';

const TEMPLATE = 'xml';
const FIELDS = ['documents', 'policy', 'maxShift', 'shiftPrice', 'pin', 'hints', 'history'];

/** What `warmpath arrange` prints; the shape that the gateway's `/v1/arrange` answers with. */
export interface ArrangeAnswer {
  readonly object: 'arrangement';
  readonly documents: readonly { id: string; label: string; title: string | undefined; tokens: number; rank: number }[];
  readonly order: readonly number[];
  readonly hint: { readonly labels: readonly string[]; readonly text: string } | null;
  /** Documents and hint as a prompt would hold them. */
  readonly text: string;
  readonly predictedCachedTokens: number;
  readonly trace: Arrangement['trace'];
}

/**
 * Arranges one request as if the engine had served `history` before: lists of document ids, oldest first, each in the
 * order in which it was served. Keeps nothing. Errors: those of core's `prepareRequest`, and `WARMPATH_INVALID_REQUEST`
 * with a path for an unknown field or a history of another shape.
 */
export function arrangeAfter(input: unknown): ArrangeAnswer {
  const { history, ...raw } = requireObject(input);
  const request = prepareRequest(raw, { template: TEMPLATE });
  const served = new ServedHistory();
  let now = 0;
  for (const documents of servedDocuments(history, request.documents)) {
    serve({ documents, policy: 'retrieval' }, served, now++);
  }
  return describe(arrange(request, served, now));
}

function serve(request: ArrangeRequest, history: ServedHistory, now: number): void {
  const arrangement = arrange(request, history, now);
  observe({ kind: 'completed', arrangement, now }, history);
}

/**
 * The documents of earlier requests. One that is not in this request is only a name: all that counts is where it stood.
 */
function servedDocuments(history: unknown, documents: readonly Document[]): readonly (readonly Document[])[] {
  if (history === undefined || history === null) return [];
  if (!Array.isArray(history)) throw invalid('history', 'an array of arrays of document ids was expected');
  const known = new Map(documents.map((document) => [document.id, document]));
  return history.map((ids: unknown, i) => {
    const path = `history[${i}]`;
    if (!Array.isArray(ids)) throw invalid(path, 'an array of document ids was expected');
    const others = ids.map((id: unknown, j) => {
      if (typeof id === 'string') return { id, content: id };
      throw invalid(`${path}[${j}]`, 'a document id, a string, was expected');
    });
    const prepared = prepareDocuments(others, { path }).documents;
    return prepared.map((document) => known.get(document.id) ?? document);
  });
}

function describe(arrangement: Arrangement): ArrangeAnswer {
  const { documents, order, hint, predictedCachedTokens, trace } = arrangement;
  return {
    object: 'arrangement',
    documents: documents.map(({ id, label, title, tokens }, place) => ({
      id,
      label,
      title,
      tokens,
      rank: order[place]!,
    })),
    order,
    hint: hint === undefined ? null : { labels: hint.labels, text: renderHint(arrangement, TEMPLATE) },
    text: renderCompletion('', arrangement, { template: TEMPLATE }),
    predictedCachedTokens,
    trace,
  };
}

function requireObject(input: unknown): Readonly<Record<string, unknown>> {
  if (typeof input !== 'object' || input === null || Array.isArray(input)) {
    throw new WarmpathError('WARMPATH_INVALID_REQUEST', { detail: 'an object with `documents` was expected' });
  }
  const unknown = Object.keys(input).find((key) => !FIELDS.includes(key));
  if (unknown !== undefined) throw invalid(unknown, `unknown field; known ones are ${FIELDS.join(', ')}`);
  return input as Readonly<Record<string, unknown>>;
}

function invalid(path: string, detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_INVALID_REQUEST', { path, detail });
}
