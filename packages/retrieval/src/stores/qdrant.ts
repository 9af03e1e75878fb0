import { WarmpathError } from '@warmpath/core';
import { type Embedder, queryVector } from '../embeddings/embedder.js';
import { JsonService, type JsonServiceOptions } from '../remote/json-service.js';
import { checkSearch, type Query, type SearchOptions, type Stage, type StagedRetriever } from '../staged-retriever.js';
import { documentFrom, rankedDocuments, type StoredFields } from './stored-fields.js';

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
    const { k, signal } = options;
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
        ...(filter !== undefined && { filter }),
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
      yield { candidates: rankedDocuments(found, k), index, final: index === breadths.length - 1 };
      signal.throwIfAborted();
    }
  }

  async close(): Promise<void> {
    await this.#service.close();
  }
}
