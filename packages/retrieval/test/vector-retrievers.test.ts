import { afterEach, describe, expect, it } from 'vitest';
import type {
  Query,
  ScoredDocument,
  SearchOptions,
  Stage,
  StagedRetriever,
  VectorEntry,
  VectorIndexOptions,
} from '../src/index.js';
import {
  Bm25Retriever,
  HashedTfIdf,
  HybridRetriever,
  OpenAiEmbedder,
  RerankEndpoint,
  RerankRetriever,
  reciprocalRankFusion,
  VectorIndex,
  VectorRetriever,
} from '../src/index.js';
import { FunctionRetriever, fromLangChain, fromLlamaIndex } from '../src/stores/function-retriever.js';
import { startJsonServer } from './json-server.js';
import { allStages, type CaseDocument, DOCUMENTS, runStagedRetrieverCases } from './staged-retriever.cases.js';

const { signal } = new AbortController();
const closing: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0)) await close();
});

const textOf = ({ title, content }: CaseDocument) => (title === undefined ? content : `${title}\n${content}`);

async function indexOf(entries: Iterable<VectorEntry>, options: VectorIndexOptions): Promise<VectorIndex> {
  const index = new VectorIndex(options);
  await index.add(entries);
  return index;
}

/** @param stagesFrom Vectors from which there are stages. */
async function vectorRetriever(documents: readonly CaseDocument[], stagesFrom: number): Promise<VectorRetriever> {
  const embedder = HashedTfIdf.learn(documents.map(textOf));
  const entries = documents.map((document) => ({ id: document.id, vector: embedder.vector(textOf(document)) }));
  const byId = new Map(documents.map((document) => [document.id, document]));
  return new VectorRetriever({
    index: await indexOf(entries, { dimension: embedder.dimension, stagesFrom }),
    embedder,
    passages: (ids) => ids.map((id) => byId.get(id)),
  });
}

runStagedRetrieverCases('vector search', async (documents) => ({ retriever: await vectorRetriever(documents, 1000) }));
runStagedRetrieverCases('vector search in stages', async (documents) => ({
  retriever: await vectorRetriever(documents, 1),
}));

runStagedRetrieverCases('hybrid search', async (documents) => ({
  retriever: new HybridRetriever({
    lexical: Bm25Retriever.over(documents),
    dense: await vectorRetriever(documents, 1),
  }),
}));

/** Ranks by shared letters: another order than the one it is given. */
const rerankServer = () =>
  startJsonServer(({ body }) => ({
    body: {
      results: body.documents.map((text: string, index: number) => {
        const query = new Set(body.query as string);
        const shared = [...new Set(text)].filter((letter) => query.has(letter)).length;
        return { index, relevance_score: text.includes(body.query) ? 2 : shared / 1000 };
      }),
    },
  }));

runStagedRetrieverCases('reranked search', async (documents) => {
  const server = await rerankServer();
  const endpoint = new RerankEndpoint({ url: server.url, model: 'm' });
  const retriever = new RerankRetriever({ endpoint, retriever: await vectorRetriever(documents, 1000) });
  return { retriever, close: async () => void (await Promise.all([endpoint.close(), server.close()])) };
});

runStagedRetrieverCases('vector search through an embedding endpoint', async (documents) => {
  const tfIdf = HashedTfIdf.learn(documents.map(textOf));
  const server = await startJsonServer(({ body }) => ({
    body: {
      data: (body.input as string[]).map((text, index) => {
        const vector = tfIdf.vector(text);
        // A model gives every text a direction.
        if (vector.every((value) => value === 0)) vector[0] = 1;
        return { index, embedding: [...vector] };
      }),
    },
  }));
  const embedder = new OpenAiEmbedder({ url: `${server.url}/v1`, model: 'm' });
  const vectors = await embedder.embed(documents.map(textOf), 'passage', signal);
  const index = await indexOf(
    documents.map(({ id }, i) => ({ id, vector: vectors[i]! })),
    { dimension: tfIdf.dimension },
  );
  const byId = new Map(documents.map((document) => [document.id, document]));
  return {
    retriever: new VectorRetriever({ index, embedder, passages: async (ids) => ids.map((id) => byId.get(id)) }),
    close: async () => void (await Promise.all([embedder.close(), server.close()])),
  };
});

runStagedRetrieverCases('a function', async (documents) => {
  const bm25 = Bm25Retriever.over(documents);
  return {
    retriever: new FunctionRetriever(async (query, options) => {
      const stages: Stage[] = [];
      for await (const stage of bm25.search(query, options)) stages.push(stage);
      return stages.at(-1)!.candidates;
    }),
  };
});

const found = (id: string, score = 1): ScoredDocument => ({ id, content: id, score });

/** Stages as they are given, one a turn of the event loop. */
function stagesOf(...stages: (readonly ScoredDocument[] | Error | 'never')[]): StagedRetriever & { ended: boolean } {
  const retriever = {
    ended: false,
    async *search(_: Query, { signal: inner }: SearchOptions): AsyncGenerator<Stage> {
      inner.addEventListener('abort', () => {
        retriever.ended = true;
      });
      for (const [index, candidates] of stages.entries()) {
        await new Promise<void>((resolve, reject) => {
          inner.addEventListener('abort', () => reject(inner.reason));
          if (candidates !== 'never') setImmediate(resolve);
        });
        if (candidates === 'never') return;
        if (candidates instanceof Error) throw candidates;
        yield { candidates, index, final: index === stages.length - 1 };
      }
    },
  };
  return retriever;
}

const unreachable = () => Object.assign(new Error('no answer'), { code: 'WARMPATH_RETRIEVAL_TIMEOUT' });

describe('vector search', () => {
  it('refuses to search vectors of one model with those of another', async () => {
    const embedder = HashedTfIdf.learn(DOCUMENTS.map(textOf));
    const other = HashedTfIdf.learn(['something else']);
    const entries = DOCUMENTS.map((document) => ({ id: document.id, vector: embedder.vector(textOf(document)) }));
    const index = await indexOf(entries, { dimension: embedder.dimension, embedder: embedder.name });
    const passages = (ids: readonly string[]) => ids.map((id) => DOCUMENTS.find((document) => document.id === id));
    const searched = (by: HashedTfIdf) => allStages(new VectorRetriever({ index, embedder: by, passages }), 'bees', 1);
    expect(await searched(embedder)).toHaveLength(1);
    await expect(searched(other)).rejects.toMatchObject({ code: 'WARMPATH_EMBEDDING_INVALID' });
  });

  it('asks for its index at each search, and fails with what that fails with', async () => {
    const embedder = HashedTfIdf.learn(DOCUMENTS.map(textOf));
    let isAway = true;
    const retriever = new VectorRetriever({
      index: async () => {
        if (isAway) throw new Error('the disk is away');
        return indexOf([], { dimension: embedder.dimension });
      },
      embedder,
      passages: () => [],
    });
    await expect(allStages(retriever, 'bees', 1)).rejects.toThrow('the disk is away');
    isAway = false;
    expect(await allStages(retriever, 'bees', 1)).toMatchObject([{ candidates: [], final: true }]);
  });
});

describe('hybrid search', () => {
  it('gives the lexical stages first, then every dense stage fused with the last of them', async () => {
    const hybrid = new HybridRetriever({
      lexical: stagesOf([found('a')], [found('a'), found('b')]),
      dense: stagesOf([found('b')], [found('c'), found('b')]),
    });
    const stages = await allStages(hybrid, 'q', 3);
    expect(stages.map(({ candidates, final }) => [candidates.map(({ id }) => id).join(''), final])).toEqual([
      ['a', false],
      ['ab', false],
      ['ba', false],
      ['bac', true],
    ]);
  });

  it('has answered by words before a late embedding comes, which then is a stage', async () => {
    let give!: () => void;
    const late = new Promise<void>((resolve) => {
      give = resolve;
    });
    const server = await startJsonServer(async () => {
      await late;
      return { body: { data: [{ index: 0, embedding: [0, 1] }] } };
    });
    const embedder = new OpenAiEmbedder({ url: server.url, model: 'm' });
    closing.push(
      () => embedder.close(),
      () => server.close(),
    );
    const index = await indexOf([{ id: 'bees', vector: [0, 1] }], { dimension: 2 });
    const passages = (ids: readonly string[]) => ids.map((id) => DOCUMENTS.find((document) => document.id === id));
    const hybrid = new HybridRetriever({
      lexical: Bm25Retriever.over(DOCUMENTS),
      dense: new VectorRetriever({ index, embedder, passages }),
    });
    const ids: string[][] = [];
    for await (const { candidates } of hybrid.search({ text: 'glaciers' }, { k: 3, signal })) {
      ids.push(candidates.map(({ id }) => id));
      give();
    }
    expect(ids).toEqual([['glacier'], ['glacier', 'bees']]);
  });

  it('begins the dense search before the lexical one has ended', async () => {
    let isDenseAsked = false;
    const dense: StagedRetriever = {
      async *search() {
        isDenseAsked = true;
        yield { candidates: [], index: 0, final: true };
      },
    };
    const hybrid = new HybridRetriever({ lexical: stagesOf([found('a')]), dense });
    await hybrid.search({ text: 'q' }, { k: 1, signal })[Symbol.asyncIterator]().next();
    expect(isDenseAsked).toBe(true);
    // Nobody waits for it where one stage is all that is taken; who takes the next one all the same gets it.
    isDenseAsked = false;
    const one = hybrid.search({ text: 'q' }, { k: 1, signal, stages: 1 })[Symbol.asyncIterator]();
    await one.next();
    expect(isDenseAsked).toBe(false);
    expect(await one.next()).toMatchObject({ value: { index: 1, final: true } });
  });

  it.each([
    ['dense', { lexical: [found('a')], dense: [] }, ['a']],
    ['lexical', { lexical: [], dense: [found('b')] }, ['b']],
  ])('goes on without the %s search where its server fails, and says so', async (name, lists, ids) => {
    const { WarmpathError } = await import('@warmpath/core');
    const failing = stagesOf(new WarmpathError('WARMPATH_RETRIEVAL_TIMEOUT', { path: 'x' }));
    const hybrid = new HybridRetriever({
      lexical: name === 'lexical' ? failing : stagesOf(lists.lexical),
      dense: name === 'dense' ? failing : stagesOf(lists.dense),
    });
    const last = (await allStages(hybrid, 'q', 3)).at(-1)!;
    expect(last.candidates.map(({ id }) => id)).toEqual(ids);
    expect(last).toMatchObject({ final: true, warnings: [{ code: 'WARMPATH_RETRIEVAL_TIMEOUT', path: name }] });
  });

  it('throws what is the caller’s to mend, and what both fail with', async () => {
    const hybrid = new HybridRetriever({ lexical: stagesOf([found('a')]), dense: stagesOf(unreachable()) });
    await expect(allStages(hybrid, 'q', 3)).rejects.toThrow('no answer');
    const wrong = new HybridRetriever({
      lexical: Bm25Retriever.over(DOCUMENTS),
      dense: await vectorRetriever(DOCUMENTS, 1000),
    });
    const stages = wrong.search({ text: 'q', vector: new Float32Array([1]) }, { k: 1, signal });
    await stages.next();
    await expect(stages.next()).rejects.toMatchObject({ code: 'WARMPATH_INVALID_VECTOR', path: 'query.vector' });
  });

  it('ends both searches when it is aborted or no longer listened to', async () => {
    for (const how of ['abort', 'break'] as const) {
      const [lexical, dense] = [stagesOf([found('a')]), stagesOf('never')];
      const abort = new AbortController();
      const search = new HybridRetriever({ lexical, dense }).search({ text: 'q' }, { k: 1, signal: abort.signal });
      const run = async () => {
        for await (const _ of search) {
          if (how === 'break') break;
          abort.abort(new Error('gone'));
        }
      };
      if (how === 'abort') await expect(run()).rejects.toThrow('gone');
      else await run();
      expect(dense.ended).toBe(true);
    }
  });

  it('fuses by ranks alone', () => {
    const fused = reciprocalRankFusion([
      [found('a', 100), found('b', 99)],
      [found('b', 0.2), found('c', 0.1)],
    ]);
    expect(fused.map(({ id }) => id)).toEqual(['b', 'a', 'c']);
    expect(fused[0]!.score).toBeCloseTo(1 / 62 + 1 / 61, 12);
  });
});

describe('reranking', () => {
  const over = async (answer: Parameters<typeof startJsonServer>[0], timeoutMs?: number) => {
    const server = await startJsonServer(answer);
    let clock = 0;
    const endpoint = new RerankEndpoint(
      { url: `${server.url}/v2`, apiKey: 'secret-key', model: 'reranker' },
      { now: () => clock, ...(timeoutMs !== undefined && { timeoutMs }) },
    );
    const retriever = new RerankRetriever({
      endpoint,
      retriever: stagesOf([found('a')], [found('a'), found('b'), found('c')]),
    });
    closing.push(
      () => endpoint.close(),
      () => server.close(),
    );
    const pass = (ms: number) => {
      clock += ms;
    };
    return { server, retriever, pass };
  };

  it.each([
    ['Cohere, Jina', (results: unknown) => ({ results })],
    ['Voyage', (data: unknown) => ({ object: 'list', data })],
  ])('is a last stage in the order that the endpoint gives (%s)', async (_, shape) => {
    const { retriever, server } = await over(() => ({
      body: shape([
        { index: 2, relevance_score: 0.9 },
        { index: 0, relevance_score: 0.1 },
      ]),
    }));
    const stages = await allStages(retriever, 'q', 2);
    expect(stages.map(({ candidates, final }) => [candidates.map(({ id }) => id).join(''), final])).toEqual([
      ['a', false],
      ['ab', false],
      ['ca', true],
    ]);
    expect(server.requests).toMatchObject([
      {
        path: '/v2/rerank',
        headers: { authorization: 'Bearer secret-key' },
        body: { model: 'reranker', query: 'q', documents: ['a', 'b', 'c'], top_n: 2 },
      },
    ]);
  });

  it.each([
    ['fails', () => ({ status: 500, body: { message: 'out of memory' } }), 'WARMPATH_RETRIEVAL_ERROR', 'out of memory'],
    ['is late', () => 'hang' as const, 'WARMPATH_RETRIEVAL_TIMEOUT', '50 ms'],
    ['dies half way', () => 'cut' as const, 'WARMPATH_RETRIEVAL_UNREACHABLE', 'connection failed'],
    [
      'ranks too few',
      () => ({ body: { results: [{ index: 1, relevance_score: 1 }] } }),
      'WARMPATH_RETRIEVAL_ERROR',
      '1 of 2',
    ],
    [
      'ranks what was not sent',
      () => ({
        body: {
          results: [
            { index: 7, relevance_score: 1 },
            { index: -1, relevance_score: 1 },
          ],
        },
      }),
      'WARMPATH_RETRIEVAL_ERROR',
      '0 of 2',
    ],
    ['answers nonsense', () => ({ body: 'null' }), 'WARMPATH_RETRIEVAL_ERROR', '0 of 2'],
  ])('leaves the last stage as the final one where the endpoint %s, and says so', async (_, answer, code, words) => {
    const { retriever } = await over(answer, 50);
    const last = (await allStages(retriever, 'q', 2)).at(-1)!;
    expect(last.candidates.map(({ id }) => id)).toEqual(['a', 'b']);
    expect(last).toMatchObject({ final: true, index: 2, warnings: [{ code, path: 'rerank' }] });
    expect(last.warnings![0]!.message).toContain(words);
    expect(JSON.stringify(last.warnings)).not.toContain('secret-key');
  });

  it('does not wait for an endpoint that keeps failing, and asks it again after a while', async () => {
    let isDown = true;
    const { retriever, server, pass } = await over(({ body }) => {
      if (isDown) return { status: 503 };
      const indices = (body.documents as string[]).map((_, index) => index);
      return { body: { results: indices.map((index) => ({ index, relevance_score: index })) } };
    });
    const last = async () => {
      const { candidates, warnings } = (await allStages(retriever, 'q', 2)).at(-1)!;
      return [candidates.map(({ id }) => id).join(''), warnings?.[0]?.code];
    };
    for (let time = 0; time < 6; time++) expect(await last()).toEqual(['ab', 'WARMPATH_RETRIEVAL_ERROR']);
    expect(server.requests).toHaveLength(3);
    isDown = false;
    expect(await last()).toEqual(['ab', 'WARMPATH_RETRIEVAL_ERROR']);
    pass(5_000);
    expect(await last()).toEqual(['cb', undefined]);
    expect(server.requests).toHaveLength(4);
  });
});

describe('adapters of frameworks', () => {
  it('takes a LangChain retriever', async () => {
    const retriever = fromLangChain({
      invoke: async (text) => [
        { id: 'x', pageContent: `about ${text}`, metadata: { page: 1 } },
        { pageContent: 'no id', metadata: {} },
      ],
    });
    expect((await allStages(retriever, 'bees', 5))[0]!.candidates).toMatchObject([
      { id: 'x', content: 'about bees', metadata: { page: 1 } },
      { id: 'no id', content: 'no id' },
    ]);
  });

  it('takes a LlamaIndex retriever', async () => {
    const node = (id_: string) => ({ id_, metadata: {}, getContent: () => `text of ${id_}` });
    const retriever = fromLlamaIndex({
      retrieve: async () => [
        { node: node('low'), score: 0.1 },
        { node: node('high'), score: 0.9 },
      ],
    });
    expect((await allStages(retriever, 'bees', 1))[0]!.candidates).toMatchObject([
      { id: 'high', content: 'text of high' },
    ]);
  });
});
