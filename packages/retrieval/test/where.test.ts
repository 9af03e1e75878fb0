import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
import { Bm25Retriever, Collections, HashedTfIdf, type Where } from '../src/index.js';
import { FunctionRetriever } from '../src/stores/function-retriever.js';
import { LanceDbRetriever } from '../src/stores/lancedb.js';
import { OpenSearchRetriever } from '../src/stores/opensearch.js';
import { QdrantRetriever } from '../src/stores/qdrant.js';
import { matchesWhere } from '../src/where.ts';
import { startFakeEmbeddings } from './fake-embeddings.js';
import { type JsonRequest, startJsonServer } from './json-server.js';
import { DOCUMENTS, expected, idsOf, wheres } from './where.cases.js';

const { signal } = new AbortController();

describe('a filter by metadata', () => {
  it('is what a naive one says, in memory and over any function', async () => {
    const lexical = Bm25Retriever.over(DOCUMENTS);
    const any = new FunctionRetriever(() => DOCUMENTS);
    await fc.assert(
      fc.asyncProperty(wheres, async (where) => {
        expect(await idsOf(lexical, where)).toEqual(expected(where));
        expect(await idsOf(any, where)).toEqual(expected(where));
      }),
      { seed: 21, numRuns: runs(200) },
    );
  });

  it('is what a naive one says in a collection, by words and by vectors, also after metadata have changed', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'warmpath-where-'));
    const fake = await startFakeEmbeddings();
    const collections = new Collections(folder, { embeddings: { url: fake.url, model: 'fake' } });
    const collection = await collections.getOrMake('default', 'kb');
    // What a document is called is its `source`.
    const documents = DOCUMENTS.map(({ metadata: { source: _, ...metadata }, ...rest }) => ({ ...rest, metadata }));
    await collection.put(documents);
    const left = (where: Where) =>
      documents.filter(({ id, metadata }) => matchesWhere(where, { ...metadata, source: id })).map(({ id }) => id);
    await fc.assert(
      fc.asyncProperty(wheres, async (where) => {
        expect(await idsOf(collection.retriever, where)).toEqual(left(where).sort());
      }),
      { seed: 22, numRuns: runs(60) },
    );
    const [first] = documents;
    await collection.put([{ ...first!, metadata: { ...first!.metadata, tags: 'changed' } }]);
    expect(await idsOf(collection.retriever, { tags: 'changed' })).toEqual([first!.id]);
    expect(await idsOf(collection.retriever, { source: { prefix: '1-' } })).toHaveLength(4);
    await collections.close();
    await fake.close();
    await rm(folder, { recursive: true });
  });

  it('finds k passages however many others are better', async () => {
    const documents = Array.from({ length: 3_000 }, (_, i) => ({
      id: `${i}`,
      content: i === 2_900 ? 'word and many other things besides' : 'word',
      metadata: { lang: i === 2_900 ? 'de' : 'en' },
    }));
    expect(await idsOf(Bm25Retriever.over(documents), { lang: 'de' })).toEqual(['2900']);
  });

  it.each([
    [{ constructor: 'x' }, {}],
    [{ '__proto__.polluted': true }, {}],
    [{ lang: 'de' }, undefined],
    [{ 'a.b': 1 }, { a: null }],
  ])('%j does not match %j', (where, metadata) => {
    expect(matchesWhere(where as unknown as Where, metadata)).toBe(false);
  });
});

describe('a filter in a database', () => {
  const requests: JsonRequest[] = [];
  let server: Awaited<ReturnType<typeof startJsonServer>>;
  const embedder = HashedTfIdf.learn(['word'], 8);
  beforeAll(async () => {
    server = await startJsonServer((request) => {
      requests.push(request);
      // All of them, whatever was asked: what a database does not filter is filtered here.
      const record = (i: number) => ({ content: 'word', extra: DOCUMENTS[i]!.metadata, key: DOCUMENTS[i]!.id });
      const points = DOCUMENTS.map((_, i) => ({ id: i, score: 1, payload: record(i) }));
      const hits = DOCUMENTS.map((_, i) => ({ _id: `${i}`, _score: 1, _source: record(i) }));
      return { body: { result: { points }, hits: { hits } } };
    });
  });
  afterAll(() => server.close());
  const fields = { id: 'key', metadata: 'extra' };
  const asked = () => requests.at(-1)!.body;
  const WHERE: Where = { tags: 'y', year: { gte: 2000, lt: 2021 }, 'deep.lang': { in: ['de', 'fr'] } };

  it('is sent to Qdrant in its own form, beside the filter of the options', async () => {
    const options = { url: server.url, collection: 'kb', embedder, fields, breadths: [16], filter: { must: [1] } };
    const retriever = new QdrantRetriever(options);
    expect(await idsOf(retriever, WHERE)).toEqual(expected(WHERE));
    expect(asked().filter).toEqual({
      must: [
        { must: [1] },
        { should: [{ key: 'extra.tags', match: { value: 'y' } }] },
        { key: 'extra.year', range: { gte: 2000, lt: 2021 } },
        {
          should: [
            { key: 'extra.deep.lang', match: { value: 'de' } },
            { key: 'extra.deep.lang', match: { value: 'fr' } },
          ],
        },
      ],
    });
    await idsOf(retriever, { year: 2020.5 });
    expect(asked().filter.must[1]).toEqual({ should: [{ key: 'extra.year', range: { gte: 2020.5, lte: 2020.5 } }] });
    const refused: readonly Where[] = [{ source: { prefix: 'docs/' } }, { year: { gt: '2020' } }];
    for (const where of refused) {
      await expect(idsOf(retriever, where)).rejects.toMatchObject({ code: 'WARMPATH_INVALID_REQUEST' });
    }
    await retriever.close();
  });

  it.each(['opensearch', 'elasticsearch'] as const)('is sent to %s, for words and for vectors', async (dialect) => {
    const filter = [
      { bool: { should: [{ terms: { 'extra.tags': ['y'] } }, { terms: { 'extra.tags.keyword': ['y'] } }] } },
      { bool: { should: [{ range: { 'extra.year': { gte: 2000, lt: 2021 } } }] } },
      {
        bool: {
          should: [
            { terms: { 'extra.deep.lang': ['de', 'fr'] } },
            { terms: { 'extra.deep.lang.keyword': ['de', 'fr'] } },
          ],
        },
      },
    ];
    const words = new OpenSearchRetriever({ url: server.url, index: 'kb', dialect, fields });
    expect(await idsOf(words, WHERE)).toEqual(expected(WHERE));
    expect(asked().query.bool.filter).toEqual(filter);
    await idsOf(words, { source: { prefix: 'docs/' } });
    expect(asked().query.bool.filter).toEqual([
      { bool: { should: [{ prefix: { 'extra.source': 'docs/' } }, { prefix: { 'extra.source.keyword': 'docs/' } }] } },
    ]);
    const vectors = new OpenSearchRetriever({
      url: server.url,
      index: 'kb',
      dialect,
      embedder,
      fields,
      breadths: [16],
    });
    expect(await idsOf(vectors, WHERE)).toEqual(expected(WHERE));
    const knn = dialect === 'opensearch' ? asked().query.knn.embedding : asked().knn;
    expect(knn.filter).toEqual({ bool: { filter } });
    await Promise.all([words.close(), vectors.close()]);
  });

  it('is sent to OpenSearch beside earlier questions, which count for less', async () => {
    const words = new OpenSearchRetriever({ url: server.url, index: 'kb', fields });
    for await (const _ of words.search({ text: 'and this?', earlier: 'What is a harbour?' }, { k: 3, signal }));
    expect(asked().query.bool).toEqual({
      must: { multi_match: { query: 'and this?', fields: ['content', 'title'] } },
      should: { multi_match: { query: 'What is a harbour?', fields: ['content', 'title'], boost: 0.3 } },
    });
    await words.close();
  });

  it('is sent to LanceDB as SQL', async () => {
    const filters: string[] = [];
    const query = new Proxy({} as never, {
      get: (_, name) => (argument: string) => {
        if (name === 'where') filters.push(argument);
        return name === 'toArray' ? Promise.resolve([]) : query;
      },
    });
    const table = { name: 'kb', vectorSearch: () => query };
    const retriever = new LanceDbRetriever({ table, embedder, fields });
    await idsOf(retriever, { ...WHERE, source: { prefix: "it's/" } });
    expect(filters).toEqual([
      "`extra`.`tags` IN ('y') AND `extra`.`year` >= 2000 AND `extra`.`year` < 2021 AND " +
        "`extra`.`deep`.`lang` IN ('de', 'fr') AND starts_with(`extra`.`source`, 'it''s/')",
    ]);
    const without = new LanceDbRetriever({ table, embedder });
    await expect(idsOf(without, WHERE)).rejects.toMatchObject({ code: 'WARMPATH_INVALID_REQUEST' });
  });
});
