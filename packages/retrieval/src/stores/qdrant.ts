import { WarmpathError } from '@warmpath/core';
import { type Embedder, queryVector } from '../embeddings/embedder.js';
import { JsonService, type JsonServiceOptions } from '../remote/json-service.js';
import { checkSearch, type Query, type SearchOptions, type Stage, type StagedRetriever } from '../staged-retriever.js';
import { conditionsOf, refuseWhere, type Where, type WhereValue } from '../where.js';
import { documentFrom, rankedDocuments, type StoredFields, storedName } from './stored-fields.js';

export interface QdrantOptions extends JsonServiceOptions {
  readonly collection: string;
  readonly embedder: Embedder;
  readonly fields?: StoredFields;
  /** The named vector that is searched, where points have several. */
  readonly vectorName?: string;
  /** Qdrant's `hnsw_ef` of each stage; 16, 64 and 256 by default. */
  readonly breadths?: readonly number[];
  /** A filter in Qdrant's own form. */
  readonly filter?: unknown;
}

/** A collection in Qdrant (1.10 or later), searched once a stage, each time more broadly. */
export class QdrantRetriever implements StagedRetriever {
  readonly #options: QdrantOptions;
  readonly #service: JsonService;

  constructor(options: QdrantOptions) {
    const { apiKey, ...rest } = options;
    this.#options = options;
    this.#service = new JsonService({
      ...rest,
      headers: { ...(apiKey !== undefined && { 'api-key': apiKey }), ...options.headers },
    });
  }

  async *search(query: Query, options: SearchOptions): AsyncGenerator<Stage, void> {
    checkSearch(options);
    const { k, signal, where } = options;
    const { collection, embedder, fields = {}, vectorName, breadths = [16, 64, 256], filter } = this.#options;
    const vector = await queryVector(query, embedder, signal);
    if (vector === undefined) {
      yield { candidates: [], index: 0, final: true };
      return;
    }
    for (const [index, breadth] of breadths.entries()) {
      const path = `/collections/${encodeURIComponent(collection)}/points/query`;
      const body = {
        query: [...vector],
        limit: k,
        with_payload: true,
        params: { hnsw_ef: Math.max(breadth, k) },
        ...(vectorName !== undefined && { using: vectorName }),
        ...filterOf(filter, where, fields),
      };
      const answer = (await this.#service.post(path, body, signal)) as {
        readonly result?: { readonly points?: unknown };
      } | null;
      const points = answer?.result?.points;
      if (!Array.isArray(points)) {
        throw new WarmpathError('WARMPATH_RETRIEVAL_ERROR', {
          path: `${this.#service.name}${path}: result.points`,
          detail: 'no points.',
        });
      }
      const found = points.map(({ id, score, payload }) => documentFrom(id, payload ?? {}, score, fields));
      yield { candidates: rankedDocuments(found, options), index, final: index === breadths.length - 1 };
      signal.throwIfAborted();
    }
  }

  async close(): Promise<void> {
    await this.#service.close();
  }
}

/** The filter of the options and that of the search, both of which hold. */
function filterOf(filter: unknown, where: Where | undefined, fields: StoredFields): { readonly filter?: unknown } {
  const own = filter === undefined ? [] : [filter];
  const must = [
    ...own,
    ...conditionsOf(where ?? {}).flatMap(([field, given]) => {
      const { in: values, prefix, ...range } = given;
      if (prefix !== undefined) refuseWhere(field, 'Qdrant cannot search by the beginning of a field.');
      const key = storedName(field, fields);
      const bounds = Object.entries(range).filter(([, bound]) => bound !== undefined);
      const isText = bounds.some(([, bound]) => typeof bound === 'string');
      if (isText) refuseWhere(field, 'Qdrant compares numbers, and no strings.');
      return [
        ...(values === undefined ? [] : [{ should: values.map((value) => equalTo(key, value)) }]),
        ...(bounds.length === 0 ? [] : [{ key, range: Object.fromEntries(bounds) }]),
      ];
    }),
  ];
  return must.length === 0 ? {} : { filter: filter !== undefined && must.length === 1 ? filter : { must } };
}

/** Qdrant matches strings, whole numbers and booleans; other numbers are a range of one. */
function equalTo(key: string, value: WhereValue): object {
  if (typeof value === 'number' && !Number.isSafeInteger(value)) return { key, range: { gte: value, lte: value } };
  return { key, match: { value } };
}
