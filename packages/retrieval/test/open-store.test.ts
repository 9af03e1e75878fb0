import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Collections, type CollectionsOptions } from '../src/index.js';
import { startFakeEmbeddings } from './fake-embeddings.js';
import { startJsonServer } from './json-server.js';
import { allStages } from './staged-retriever.cases.js';

const closing: (() => Promise<unknown>)[] = [];
let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-stores-'));
});
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
  await rm(folder, { recursive: true, force: true });
});

async function open(stores: NonNullable<CollectionsOptions['stores']>, embeds = true) {
  const fake = await startFakeEmbeddings();
  closing.push(() => fake.close());
  const settings = embeds ? { embeddings: { url: fake.url, model: 'fake' } } : {};
  const collections = new Collections(folder, { ...settings, stores });
  closing.push(() => collections.close());
  return collections;
}

/** A server in the shape of Qdrant, with one point. */
async function qdrant() {
  const points = [{ id: 1, version: 3, score: 0.5, payload: { text: 'In Qdrant.', name: 'a' } }];
  const server = await startJsonServer(() => ({ body: { result: { points }, status: 'ok', time: 0.0004 } }));
  closing.push(() => server.close());
  return server;
}

describe('a collection that lives in a database', () => {
  it('is found in Qdrant, in the stages of its search', async () => {
    const server = await qdrant();
    const fields = { id: 'name', content: 'text', title: undefined };
    const handbook = { kind: 'qdrant', url: server.url, collection: 'k b', apiKey: 'secret', fields } as const;
    const collections = await open({ handbook });
    const { name, retriever } = await collections.searchable('default', 'handbook');
    const stages = await allStages(retriever, 'anything', 3);
    expect(name).toBe('handbook');
    expect(stages.map(({ candidates }) => candidates.map(({ id, content }) => [id, content]))).toEqual(
      Array(3).fill([['a', 'In Qdrant.']]),
    );
    expect(server.requests[0]).toMatchObject({ path: '/collections/k%20b/points/query' });
    expect(server.requests[0]!.headers['api-key']).toBe('secret');
    // It is opened once.
    expect((await collections.searchable('default', 'handbook')).retriever).toBe(retriever);
  });

  it.each(['opensearch', 'elasticsearch'] as const)(
    'is found in %s by words, and by vectors where a field is named',
    async (kind) => {
      const server = await startJsonServer(() => ({
        body: { timed_out: false, hits: { hits: [{ _id: '1', _score: 2, _source: { content: 'Found.' } }] } },
      }));
      closing.push(() => server.close());
      const words = { kind, url: server.url, index: 'kb' };
      const collections = await open({ words, both: { ...words, vectorField: 'embedding' } });
      const stagesOf = async (name: string) =>
        allStages((await collections.searchable('default', name)).retriever, 'anything', 3);
      expect(await stagesOf('words')).toMatchObject([{ final: true, candidates: [{ id: '1', content: 'Found.' }] }]);
      expect(server.requests).toHaveLength(1);
      expect(await stagesOf('both')).toHaveLength(4);
      expect(server.requests.filter(({ body }) => JSON.stringify(body).includes('knn'))).toHaveLength(3);
    },
  );

  it('is not written to, shows to its tenant alone, and needs something to embed questions with', async () => {
    const server = await qdrant();
    const settings = { kind: 'qdrant', url: server.url, collection: 'kb' } as const;
    const collections = await open({ handbook: settings, theirs: { ...settings, tenant: 'other' } });
    expect(collections.storedNames('default')).toEqual(['handbook']);
    expect(collections.storedNames('other')).toEqual(['theirs']);
    expect(await collections.names('default')).toEqual([]);
    const stored = { code: 'WARMPATH_COLLECTION_STORED' };
    await expect(collections.getOrMake('default', 'handbook')).rejects.toMatchObject(stored);
    await expect(collections.delete('default', 'handbook')).rejects.toMatchObject(stored);
    const missing = { code: 'WARMPATH_COLLECTION_NOT_FOUND' };
    await expect(collections.searchable('default', 'theirs')).rejects.toMatchObject(missing);
    await expect(collections.searchable('other', 'handbook')).rejects.toMatchObject(missing);
    await expect(collections.searchable('default', 'constructor')).rejects.toMatchObject(missing);
    // Another tenant's own one of that name is its own.
    expect((await collections.getOrMake('other', 'handbook')).name).toBe('handbook');
    const without = await open({ handbook: settings }, false);
    const needs = { code: 'WARMPATH_CONFIG_INVALID', path: 'collections.embeddings' };
    await expect(without.searchable('default', 'handbook')).rejects.toMatchObject(needs);
    expect(server.requests).toEqual([]);
  });
});
