import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { isFull } from '../../../test/suite.js';
// The built package, as the other tests of collections take it: one database is opened by one copy of a library.
import { CollectionStore } from '../dist/collections/collection-store.js';
import { HANDED_IN } from '../dist/collections/records.js';
import { OpenAiEmbedder } from '../dist/index.js';
import { embedPassages, manyVectors } from '../dist/ingest/embed-passages.js';
import { startFakeEmbeddings } from './fake-embeddings.js';

let folder: string;
const closing: (() => Promise<void>)[] = [];
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-embed-passages-'));
});
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
  await rm(folder, { recursive: true, force: true });
});

const { signal } = new AbortController();
/** What a busy machine answers in, and what a test waits for one that never does. */
const TIMEOUT_MS = 1000;

const withoutVectors = (store: CollectionStore) => store.totals.passages - store.vectorCount;

/** A collection of so many passages without vectors, that is being written to, and an endpoint for them. */
async function passages(count: number) {
  const fake = await startFakeEmbeddings();
  /** What came back from the endpoint. */
  const answered = new Set<string>();
  const cache = { get: () => undefined, set: (key: string) => void answered.add(key) };
  const endpoint = new OpenAiEmbedder({ url: fake.url, model: 'fake', timeoutMs: TIMEOUT_MS, cache });
  const store = (await CollectionStore.open(folder, { create: true }))!;
  const documents = Array.from({ length: count }, (_, i) => ({
    id: `d${i}`,
    origin: HANDED_IN,
    bytes: 10,
    passages: [{ content: `passage ${i}`, tokens: 2 }],
  }));
  await store.beginWriting(Date.now());
  await store.apply({ documents });
  closing.push(
    () => fake.close(),
    () => endpoint.close(),
    () => store.close(),
    () => store.endWriting(),
  );
  const sizes = () => fake.requests.map(({ body }) => (body.input as string[]).length);
  return { fake, endpoint, store, sizes, answered };
}

describe('passages without vectors', () => {
  it.runIf(isFull)(
    'all get one from an endpoint that answers few of them in its time, which is found out once',
    async () => {
      const { fake, endpoint, store, sizes } = await passages(100);
      const most = 10;
      fake.answer = ({ body }) => ((body.input as string[]).length > most ? 'hang' : undefined);
      const told: number[] = [];
      const report = await embedPassages(store, endpoint, { signal, onProgress: (embedded) => told.push(embedded) });
      expect(report).toEqual({ embedded: 100 });
      expect(withoutVectors(store)).toBe(0);
      expect(store.embedding).toMatchObject({ through: store.position.nextOrdinal });
      // Nothing that was answered is asked for twice, and what took too long is not tried again.
      expect(fake.embedded).toHaveLength(100);
      const firstWell = sizes().findIndex((size) => size <= most);
      expect(new Set(sizes().slice(0, firstWell))).toEqual(new Set([64, 36, 25]));
      expect(new Set(sizes().slice(firstWell, -1))).toEqual(new Set([6]));
      expect(told.at(-1)).toBe(100);
    },
  );

  it.runIf(isFull)('get it from each request that is answered, whatever becomes of those beside it', async () => {
    const { fake, endpoint, store, sizes } = await passages(600);
    const isSlow = ({ body }: { readonly body: { readonly input: readonly string[] } }) =>
      body.input.length > 40 && body.input.includes('passage 70');
    fake.answer = (request) => (isSlow(request) ? 'hang' : undefined);
    expect(await embedPassages(store, endpoint, { signal })).toEqual({ embedded: 600 });
    expect(fake.embedded).toHaveLength(600);
    expect(sizes().slice(0, 4)).toEqual([64, 64, 64, 64]);
    expect(Math.max(...sizes().slice(4))).toBeLessThanOrEqual(64);
  });

  it('keep what they got when the endpoint fails for others of the same step', async () => {
    const { fake, endpoint, store } = await passages(600);
    fake.answer = ({ body }) =>
      (body.input as string[]).includes('passage 70') ? { status: 401, body: {} } : undefined;
    const report = await embedPassages(store, endpoint, { signal });
    expect(report).toMatchObject({ embedded: 3 * 64, warning: { code: 'WARMPATH_RETRIEVAL_ERROR' } });
    expect(withoutVectors(store)).toBe(600 - 3 * 64);
    // The first passage without a vector is where the next run begins.
    expect(store.embedding).toMatchObject({ through: 65 });
    fake.answer = undefined;
    expect(await embedPassages(store, endpoint, { signal })).toEqual({ embedded: 600 - 3 * 64 });
    expect(fake.embedded).toHaveLength(600);
    expect(withoutVectors(store)).toBe(0);
  });

  it.runIf(isFull)('wait for another run where one alone takes too long', async () => {
    const { fake, endpoint, store, sizes } = await passages(300);
    fake.answer = () => 'hang';
    const report = await embedPassages(store, endpoint, { signal });
    expect(report).toMatchObject({ embedded: 0, warning: { code: 'WARMPATH_RETRIEVAL_TIMEOUT' } });
    expect(sizes()).toEqual([64, 64, 64, 64, 64, 16, 4, 1]);
  });

  it('get none of another dimension than the others, whichever request is answered first', async () => {
    const { fake, endpoint, store } = await passages(256);
    const odd = ({ input }: { readonly input: readonly string[] }) => ({
      body: { data: input.map((_, index) => ({ index, embedding: [1, 2, 3] })) },
    });
    fake.answer = ({ body }) => ((body.input as string[]).includes('passage 1') ? undefined : odd(body));
    await embedPassages(store, endpoint, { signal });
    const stored = [...store.vectors(0, store.position.nextOrdinal)].map(({ vector }) => vector.length);
    expect(new Set(stored).size).toBe(1);
    expect(store.embedding!.dimension).toBe(stored[0]);
  });

  it('wait, where somebody else does, as soon as the endpoint is late', async () => {
    const { fake, endpoint, store } = await passages(300);
    fake.answer = ({ body }) => ((body.input as string[]).includes('passage 70') ? 'hang' : undefined);
    const report = await embedPassages(store, endpoint, { signal, endsWhenLate: true });
    expect(report).toMatchObject({ embedded: 3 * 64, warning: { code: 'WARMPATH_RETRIEVAL_TIMEOUT' } });
    expect(fake.requests).toHaveLength(4);
  });

  it('keep what they got when the caller goes', async () => {
    const { fake, endpoint, store, answered } = await passages(256);
    const abort = new AbortController();
    fake.answer = ({ body }) => ((body.input as string[]).includes('passage 70') ? 'hang' : undefined);
    const given = embedPassages(store, endpoint, { signal: abort.signal });
    while (answered.size < 3 * 64) await new Promise(setImmediate);
    abort.abort(new Error('interrupted'));
    await expect(given).rejects.toThrow('interrupted');
    expect(withoutVectors(store)).toBe(64);
  });
});

describe('a collection with many vectors', () => {
  it('says so above 100,000, and names the databases that hold more', () => {
    expect(manyVectors(100_000)).toBeUndefined();
    const { code, message } = manyVectors(123_456)!;
    expect(code).toBe('WARMPATH_COLLECTION_VECTORS');
    expect(message).toContain('The collection has 123,456 vectors.');
    expect(message).toContain('pgvector, qdrant, opensearch in `collections.stores`; lancedb');
  });
});
