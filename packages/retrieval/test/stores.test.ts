import { afterEach, describe, expect, it } from 'vitest';
import { Bm25Retriever, HashedTfIdf, type StagedRetriever, VectorIndex } from '../src/index.js';
import { OpenSearchRetriever } from '../src/stores/opensearch.js';
import { QdrantRetriever } from '../src/stores/qdrant.js';
import { type JsonAnswer, type JsonRequest, startJsonServer } from './json-server.js';
import {
  allStages,
  type BuiltRetriever,
  type CaseDocument,
  runStagedRetrieverCases,
} from './staged-retriever.cases.js';

// The servers here answer in the shapes that the documentation of Qdrant 1.12, OpenSearch 2.18 and Elasticsearch 8.15
// gives; what they answer with is searched by this package. They are no Qdrant and no OpenSearch.

const { signal } = new AbortController();

/** Documents as records of a database, and their closest ones to a vector. */
async function recordsOf(documents: readonly CaseDocument[]) {
  const texts = documents.map(({ title, content }) => `${title ?? ''}\n${content}`);
  const embedder = HashedTfIdf.learn(texts);
  const entries = documents.map(({ id }, i) => ({ id, vector: embedder.vector(texts[i]!) }));
  const index = new VectorIndex({ dimension: embedder.dimension });
  await index.add(entries);
  const byId = new Map(documents.map((document) => [document.id, document]));
  const closest = async (vector: number[], k: number) => {
    for await (const { ids, scores } of index.search(vector, { k, signal })) {
      return ids.map((id, i) => ({ document: byId.get(id)!, score: scores[i]! }));
    }
    return [];
  };
  const record = ({ id, content, title, metadata }: CaseDocument) => ({
    passage: content,
    ...(title !== undefined && { heading: title }),
    ...(metadata !== undefined && { extra: metadata }),
    key: id,
  });
  return { embedder, closest, record };
}

const FIELDS = { id: 'key', content: 'passage', title: 'heading', metadata: 'extra' };

async function qdrant(documents: readonly CaseDocument[]): Promise<BuiltRetriever> {
  const { embedder, closest, record } = await recordsOf(documents);
  const server = await startJsonServer(async ({ body }) => {
    const found = await closest(body.query, body.limit);
    const points = found.map(({ document, score }, i) => ({ id: i + 1, version: 3, score, payload: record(document) }));
    return { body: { result: { points }, status: 'ok', time: 0.0004 } };
  });
  const retriever = new QdrantRetriever({ url: server.url, collection: 'kb', embedder, fields: FIELDS });
  return { retriever, close: () => ended(retriever, server) };
}

async function openSearch(documents: readonly CaseDocument[], dialect: 'opensearch' | 'elasticsearch') {
  const { embedder, closest, record } = await recordsOf(documents);
  const server = await startJsonServer(async ({ body }) => {
    const vector = dialect === 'opensearch' ? body.query.knn.embedding.vector : body.knn.query_vector;
    return { body: hitsOf((await closest(vector, body.size)).map(({ document, score }) => [score, record(document)])) };
  });
  const retriever = new OpenSearchRetriever({ url: server.url, index: 'kb', dialect, embedder, fields: FIELDS });
  return { retriever, close: () => ended(retriever, server) };
}

const hitsOf = (found: [number, object][]) => ({
  took: 3,
  timed_out: false,
  _shards: { total: 1, successful: 1, skipped: 0, failed: 0 },
  hits: {
    total: { value: found.length, relation: 'eq' },
    max_score: found[0]?.[0] ?? null,
    hits: found.map(([_score, _source], i) => ({ _index: 'kb', _id: `${i}`, _score, _source })),
  },
});

async function ended(...parts: { close(): Promise<void> }[]): Promise<void> {
  await Promise.all(parts.map((part) => part.close()));
}

runStagedRetrieverCases('Qdrant', qdrant);
runStagedRetrieverCases('OpenSearch', (documents) => openSearch(documents, 'opensearch'));
runStagedRetrieverCases('Elasticsearch', (documents) => openSearch(documents, 'elasticsearch'));
runStagedRetrieverCases('OpenSearch by words', async (documents) => {
  const { record } = await recordsOf(documents);
  const bm25 = Bm25Retriever.over(documents);
  const server = await startJsonServer(async ({ body }) => {
    const { query, fields } = body.query.multi_match;
    expect(fields).toEqual(['passage', 'heading']);
    const [stage] = await allStages(bm25, query, body.size);
    return { body: hitsOf(stage!.candidates.map((document) => [document.score, record(document)])) };
  });
  const retriever = new OpenSearchRetriever({ url: server.url, index: 'kb', fields: FIELDS });
  return { retriever, close: () => ended(retriever, server) };
});

const closing: { close(): Promise<void> }[] = [];
afterEach(() => ended(...closing.splice(0)));

async function asked(
  make: (url: string) => StagedRetriever & { close(): Promise<void> },
  answer: (request: JsonRequest) => JsonAnswer | 'hang' | 'cut',
) {
  const server = await startJsonServer(answer);
  const retriever = make(server.url);
  closing.push(server, retriever);
  return { retriever, server };
}

const embedder = { name: 'e', embed: async () => [Float32Array.of(1, 0.5)] };

describe('Qdrant', () => {
  const make = (url: string) =>
    new QdrantRetriever({
      url: `${url}/base`,
      apiKey: 'secret-key',
      collection: 'k/b',
      fields: { id: 'key' },
      embedder,
      breadths: [8, 128],
      retries: 0,
    });

  it('is asked once a stage, each time more broadly', async () => {
    const { retriever, server } = await asked(make, () => ({
      body: {
        result: {
          points: [
            { id: 1, score: 0.5, payload: { key: 'a-1', content: 'text', page: 3 } },
            { id: 2, score: 0.4 },
          ],
        },
      },
    }));
    const stages = await allStages(retriever, 'q', 10);
    const only = [{ id: 'a-1', content: 'text', metadata: { page: 3 }, score: 0.5 }];
    expect(stages).toEqual([
      { candidates: only, index: 0, final: false },
      { candidates: only, index: 1, final: true },
    ]);
    expect(server.requests.map(({ path, headers, body }) => [path, headers['api-key'], body])).toEqual(
      [10, 128].map((hnsw_ef) => [
        '/base/collections/k%2Fb/points/query',
        'secret-key',
        { query: [1, 0.5], limit: 10, with_payload: true, params: { hnsw_ef } },
      ]),
    );
  });

  it('says what the server says', async () => {
    const { retriever } = await asked(make, () => ({
      status: 404,
      body: { status: { error: "Not found: Collection `kb` doesn't exist!" }, time: 0.00002 },
    }));
    await expect(allStages(retriever, 'q', 3)).rejects.toMatchObject({
      code: 'WARMPATH_RETRIEVAL_ERROR',
      message: expect.stringContaining("status 404: Not found: Collection `kb` doesn't exist!"),
    });
  });

  it.each([{}, null, { result: { points: 'many' } }])('refuses an answer without points: %j', async (body) => {
    const withPassword = (url: string) => make(url.replace('://', '://operator:password@'));
    const { retriever, server } = await asked(withPassword, () => ({ body: JSON.stringify(body) }));
    const failure = expect(allStages(retriever, 'q', 3)).rejects;
    await failure.toMatchObject({
      code: 'WARMPATH_RETRIEVAL_ERROR',
      path: `${server.url}/base/collections/k%2Fb/points/query: result.points`,
    });
  });
});

describe('OpenSearch', () => {
  const make = (url: string) => new OpenSearchRetriever({ url, index: 'kb', embedder, breadths: [64], retries: 0 });

  it('is asked for vectors without sending them back', async () => {
    const { retriever, server } = await asked(make, () => ({ body: hitsOf([[0.5, { content: 'text' }]]) }));
    await allStages(retriever, 'q', 3);
    expect(server.requests[0]).toMatchObject({
      path: '/kb/_search',
      body: {
        size: 3,
        _source: { excludes: ['embedding'] },
        query: { knn: { embedding: { vector: [1, 0.5], k: 3, method_parameters: { ef_search: 64 } } } },
      },
    });
  });

  it('refuses an answer without hits, and names no password', async () => {
    const withPassword = (url: string) => make(url.replace('://', '://operator:password@'));
    const { retriever, server } = await asked(withPassword, () => ({ body: {} }));
    const path = `${server.url}/kb/_search: hits.hits`;
    await expect(allStages(retriever, 'q', 3)).rejects.toMatchObject({ code: 'WARMPATH_RETRIEVAL_ERROR', path });
  });

  it('says so where the index ran out of time, and what the server says where it fails', async () => {
    const partial = await asked(make, () => ({ body: { ...hitsOf([[0.5, { content: 'text' }]]), timed_out: true } }));
    expect(await allStages(partial.retriever, 'q', 3)).toMatchObject([
      { candidates: [{ content: 'text' }], warnings: [{ code: 'WARMPATH_RETRIEVAL_TIMEOUT', path: 'kb' }] },
    ]);
    const reason = 'no such index [kb]';
    const failing = await asked(make, () => ({
      status: 404,
      body: { error: { root_cause: [], type: 'index_not_found_exception', reason }, status: 404 },
    }));
    await expect(allStages(failing.retriever, 'q', 3)).rejects.toThrow(`status 404: ${reason}`);
  });
});
