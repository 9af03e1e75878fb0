import { WarmpathError } from '@warmpath/core';
import { type Embedder, queryVector } from '../embeddings/embedder.js';
import { EARLIER_WEIGHT } from '../lexical/bm25.js';
import { JsonService, type JsonServiceOptions } from '../remote/json-service.js';
import { checkSearch, type Query, type SearchOptions, type Stage, type StagedRetriever } from '../staged-retriever.js';
import { conditionsOf, type Where } from '../where.js';
import { documentFrom, rankedDocuments, type StoredFields, storedName } from './stored-fields.js';

export interface OpenSearchOptions extends JsonServiceOptions {
  readonly index: string;
  /** Which of the two speaks here: their vector queries differ. `opensearch` by default. */
  readonly dialect?: 'opensearch' | 'elasticsearch';
  /** With an embedder vectors are searched, without one words (BM25). */
  readonly embedder?: Embedder;
  /** The field of the vectors; `embedding` by default. */
  readonly vectorField?: string;
  readonly fields?: StoredFields;
  /** Candidates of each stage of a vector search (`ef_search`, `num_candidates`); 16, 64 and 256 by default. */
  readonly breadths?: readonly number[];
}

/**
 * An index in OpenSearch (2.16 or later) or Elasticsearch (8): words in one stage, vectors in stages, each more
 * broadly. For both, fuse two of these in a `HybridRetriever`.
 */
export class OpenSearchRetriever implements StagedRetriever {
  readonly #options: OpenSearchOptions;
  readonly #service: JsonService;

  constructor(options: OpenSearchOptions) {
    const { apiKey, ...rest } = options;
    this.#options = options;
    this.#service = new JsonService({
      ...rest,
      headers: { ...(apiKey !== undefined && { authorization: `ApiKey ${apiKey}` }), ...options.headers },
    });
  }

  async *search(query: Query, options: SearchOptions): AsyncGenerator<Stage, void> {
    checkSearch(options);
    const { k, signal, where } = options;
    const { embedder, breadths = [16, 64, 256] } = this.#options;
    if (embedder === undefined) {
      yield await this.#stage(this.#wordQuery(query, where), options, 0, true);
      return;
    }
    const vector = await queryVector(query, embedder, signal);
    if (vector === undefined) {
      yield { candidates: [], index: 0, final: true };
      return;
    }
    for (const [index, breadth] of breadths.entries()) {
      const body = this.#vectorQuery([...vector], options, Math.max(k, breadth));
      yield await this.#stage(body, options, index, index === breadths.length - 1);
      signal.throwIfAborted();
    }
  }

  async close(): Promise<void> {
    await this.#service.close();
  }

  #wordQuery({ text, earlier }: Query, where: Where | undefined): object {
    const { fields: names = {} } = this.#options;
    const { content = 'content', title = 'title' } = names;
    // Lucene refuses more clauses than this by default; the first words of a question say what it is about.
    const match = (text: string, boost: object = {}) => {
      const words = text.toWellFormed().split(/\s+/, 1000).join(' ').slice(0, 20_000);
      return { multi_match: { query: words, fields: [content, title], ...boost } };
    };
    if (earlier === undefined && where === undefined) return { query: match(text) };
    const should = earlier === undefined ? {} : { should: match(earlier, { boost: EARLIER_WEIGHT }) };
    return { query: { bool: { must: match(text), ...should, ...filterOf(where, names) } } };
  }

  #vectorQuery(vector: readonly number[], { k, where }: SearchOptions, breadth: number): object {
    const { dialect, vectorField = 'embedding', fields = {} } = this.#options;
    const { filter } = filterOf(where, fields);
    const filtered = filter && { filter: { bool: { filter } } };
    if (dialect === 'elasticsearch') {
      return { knn: { field: vectorField, query_vector: vector, k, num_candidates: breadth, ...filtered } };
    }
    const knn = { vector, k, method_parameters: { ef_search: breadth }, ...filtered };
    return { query: { knn: { [vectorField]: knn } } };
  }

  async #stage(body: object, options: SearchOptions, index: number, final: boolean): Promise<Stage> {
    const { k, signal } = options;
    const { index: name, vectorField = 'embedding', fields = {} } = this.#options;
    const path = `/${encodeURIComponent(name)}/_search`;
    const asked = { ...body, size: k, _source: { excludes: [vectorField] } };
    const answer = (await this.#service.post(path, asked, signal)) as {
      readonly timed_out?: boolean;
      readonly hits?: { readonly hits?: unknown };
    } | null;
    const hits = answer?.hits?.hits;
    if (!Array.isArray(hits)) {
      throw new WarmpathError('WARMPATH_RETRIEVAL_ERROR', {
        path: `${this.#service.name}${path}: hits.hits`,
        detail: 'no hits.',
      });
    }
    const found = hits.map(({ _id, _score, _source }) => documentFrom(_id, _source ?? {}, _score, fields));
    const candidates = rankedDocuments(found, options);
    if (answer?.timed_out !== true) return { candidates, index, final };
    const message = 'the index ran out of time and answered with what it had found.';
    return { candidates, index, final, warnings: [{ code: 'WARMPATH_RETRIEVAL_TIMEOUT', path: name, message }] };
  }
}

/** Strings are compared whole, in the field itself or in the part `keyword` that a dynamic mapping makes. */
function filterOf(where: Where | undefined, fields: StoredFields): { readonly filter?: readonly object[] } {
  if (where === undefined) return {};
  const filter = conditionsOf(where).flatMap(([field, { in: accepted, prefix, ...bounds }]) => {
    const name = storedName(field, fields);
    const either = (isText: boolean, query: (name: string) => object): object => ({
      bool: { should: (isText ? [name, `${name}.keyword`] : [name]).map(query) },
    });
    const range = Object.fromEntries(Object.entries(bounds).filter(([, bound]) => bound !== undefined));
    const isText = (values: readonly unknown[]) => values.some((value) => typeof value === 'string');
    return [
      ...(accepted === undefined ? [] : [either(isText(accepted), (name) => ({ terms: { [name]: accepted } }))]),
      ...(prefix === undefined ? [] : [either(true, (name) => ({ prefix: { [name]: prefix } }))]),
      ...(Object.keys(range).length === 0
        ? []
        : [either(isText(Object.values(range)), (name) => ({ range: { [name]: range } }))]),
    ];
  });
  return { filter };
}
