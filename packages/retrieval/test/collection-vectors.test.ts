import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { isFull } from '../../../test/suite.js';
import { CollectionStore } from '../dist/collections/collection-store.js';
import { type Collection, Collections, type EmbeddingSettings } from '../dist/index.js';
import { startFakeEmbeddings } from './fake-embeddings.js';
import { allStages, DOCUMENTS, runStagedRetrieverCases } from './staged-retriever.cases.ts';

let folder: string;
const closing: (() => Promise<void>)[] = [];
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-collection-vectors-'));
});
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
  await rm(folder, { recursive: true, force: true });
});

const fakeEmbeddings = async () => {
  const fake = await startFakeEmbeddings();
  closing.push(() => fake.close());
  return fake;
};
const open = (embeddings?: Partial<EmbeddingSettings> & { readonly url: string }) => {
  const settings = embeddings && { model: 'fake', ...embeddings };
  const collections = new Collections(join(folder, 'collections'), { embeddings: settings });
  closing.push(() => collections.close());
  return collections;
};
const sources = (found: readonly { readonly metadata?: Readonly<Record<string, unknown>> }[]) =>
  found.map(({ metadata }) => metadata!['source']);
const last = async (collection: Collection, text: string, k = 5) =>
  (await allStages(collection.retriever, text, k)).at(-1)!;
const many = (count: number, of = 'tale') =>
  Array.from({ length: count }, (_, i) => ({
    id: `${of}${i}`,
    content: `The ${of} of number${i} and number${i + 1}.`,
  }));

runStagedRetrieverCases('a collection with vectors', async (documents) => {
  const root = await mkdtemp(join(tmpdir(), 'warmpath-cases-'));
  const fake = await startFakeEmbeddings();
  const own = new Collections(root, { embeddings: { url: fake.url, model: 'fake' } });
  const collection = await own.getOrMake('default', 'cases');
  await collection.put(documents);
  const byId = new Map(documents.map((document) => [document.id, document]));
  return {
    retriever: {
      async *search(query, options) {
        for await (const stage of collection.retriever.search(query, options)) {
          const candidates = stage.candidates.map(({ metadata, score }) => ({
            ...byId.get(metadata!['source'] as string)!,
            score,
          }));
          yield { ...stage, candidates };
        }
      },
    },
    close: async () => {
      await own.close();
      await fake.close();
      await rm(root, { recursive: true, force: true });
    },
  };
});

describe('a collection with an embedding endpoint', () => {
  it('answers from words first, then from words and vectors', async () => {
    const collection = await open(await fakeEmbeddings()).getOrMake('default', 'c');
    expect(await collection.put(DOCUMENTS)).toMatchObject({ added: DOCUMENTS.length, embedding: { embedded: 12 } });
    const stages = await allStages(collection.retriever, 'rye bread', 12);
    expect(stages).toHaveLength(2);
    expect(sources(stages[0]!.candidates)).toEqual(['bread']);
    expect(sources(stages[1]!.candidates)[0]).toBe('bread');
    // The vectors rank all that there is, whatever the words.
    expect(stages[1]!.candidates).toHaveLength(12);
    expect(stages[1]!.warnings).toBeUndefined();
  });

  it('says how many of the passages without vectors have got theirs, those of before among them', async () => {
    const documents = many(700);
    const before = await open().getOrMake('default', 'c');
    await before.put([...documents.slice(0, 100), { id: 'gone', content: 'The tale that leaves.' }]);
    await before.remove(['gone']);
    for (const close of closing.splice(0).reverse()) await close();
    const collection = await open(await fakeEmbeddings()).getOrMake('default', 'c');
    const file = join(folder, 'more.jsonl');
    const rest = documents.slice(100).map(({ id, content }) => `${JSON.stringify({ id, content })}\n`);
    await writeFile(file, rest.join(''));
    const told: number[][] = [];
    await collection.ingest([file], { onEmbedded: (...progress) => told.push(progress) });
    expect(told).toEqual([
      [256, 700],
      [512, 700],
      [700, 700],
    ]);
    told.length = 0;
    await collection.put(many(3, 'song'));
    await writeFile(file, [...rest, `${JSON.stringify({ id: 'last', content: 'The last tale.' })}\n`].join(''));
    await collection.ingest([file], { onEmbedded: (...progress) => told.push(progress) });
    expect(told).toEqual([[1, 1]]);
  });

  it('asks for no passage twice: not again, not after a move, not for another document that has it', async () => {
    const fake = await fakeEmbeddings();
    const root = join(folder, 'docs');
    await mkdir(root);
    await writeFile(join(root, 'b.md'), 'alpha beta');
    await writeFile(join(root, 'z.md'), 'gamma delta');
    const collection = await open(fake).getOrMake('default', 'c');
    expect(await collection.ingest([root])).toMatchObject({ added: 2, embedding: { embedded: 2 } });
    expect(await collection.ingest([root])).toMatchObject({ added: 0, embedding: { embedded: 0 } });
    // It leaves b.md in one transaction and comes back in another.
    await writeFile(join(root, 'b.md'), 'epsilon zeta');
    await writeFile(join(root, 'y.md'), 'alpha beta');
    await writeFile(join(root, 'z.md'), 'gamma delta.');
    await writeFile(join(root, 'x.md'), 'alpha beta');
    expect(await collection.ingest([root])).toMatchObject({ embedding: { embedded: 2 } });
    expect(fake.embedded).toEqual(['alpha beta', 'gamma delta', 'epsilon zeta', 'gamma delta.']);
    expect((await last(collection, 'alpha')).candidates).toHaveLength(3);
    // What has left and stayed away is forgotten.
    await collection.remove(['docs/x.md', 'docs/y.md']);
    await collection.put([{ id: 'again', content: 'alpha beta' }]);
    expect(fake.embedded).toHaveLength(5 + 1);
  });

  it.each([
    ['made of zeros', 0],
    ['too short for a direction', 1e-30],
  ])('asks for no passage again whose vector is %s', async (_, value) => {
    const fake = await fakeEmbeddings();
    const collection = await open(fake).getOrMake('default', 'c');
    fake.answer = ({ body }) => ({
      body: { data: body.input.map((_: string, index: number) => ({ index, embedding: Array(64).fill(value) })) },
    });
    expect(await collection.put(DOCUMENTS)).toMatchObject({ embedding: { embedded: DOCUMENTS.length } });
    const asked = fake.requests.length;
    expect(await collection.put([])).toMatchObject({ embedding: { embedded: 0 } });
    expect(fake.requests).toHaveLength(asked);
    expect(sources((await last(collection, 'rye bread')).candidates)).toEqual(['bread']);
    // Another endpoint's vectors are those of another model still, and a passage with words gets its own.
    const other = await open({ url: fake.url, model: 'other' }).get('default', 'c');
    await expect(other.put([])).rejects.toMatchObject({ code: 'WARMPATH_COLLECTION_EMBEDDINGS' });
    fake.answer = undefined;
    expect(await collection.put(many(1))).toMatchObject({ embedding: { embedded: 1 } });
    expect((await last(collection, 'tale')).candidates).toHaveLength(1);
  });

  it('follows what is added, changed and removed', async () => {
    const fake = await fakeEmbeddings();
    const collection = await open(fake).getOrMake('default', 'c');
    await collection.put(many(120));
    const byVectors = async (text: string) => sources((await last(collection, text, 1000)).candidates);
    const found = await byVectors('tale');
    expect(new Set(found).size).toBe(120);
    await collection.put([{ id: 'tale7', content: 'An epic about whales.' }, ...many(3, 'song')]);
    await collection.remove(['tale1', 'tale2']);
    const after = await byVectors('epic whales');
    expect(after[0]).toBe('tale7');
    expect(new Set(after)).toEqual(
      new Set([...found.filter((id) => id !== 'tale1' && id !== 'tale2'), 'song0', 'song1', 'song2']),
    );
    // So does whoever reads what another one writes, and whoever begins anew.
    const reader = await open(fake).get('default', 'c');
    expect(new Set(sources((await last(reader, 'epic whales', 1000)).candidates))).toEqual(new Set(after));
    await collection.remove(Array.from({ length: 110 }, (_, i) => `tale${i}`));
    expect((await byVectors('whales')).length).toBe(13);
    // What has left takes no place of what has not.
    expect((await last(collection, 'whales', 13)).candidates).toHaveLength(13);
    expect(new Set(sources((await last(reader, 'whales', 1000)).candidates)).size).toBe(13);
  });

  it('keeps what it paid for when the endpoint dies half way, finds the rest by words, and goes on later', async () => {
    const fake = await fakeEmbeddings();
    const collection = await open(fake).getOrMake('default', 'c');
    let requests = 0;
    fake.answer = () => (++requests > 5 ? { status: 503, headers: { 'retry-after': '0' } } : undefined);
    const report = await collection.put(many(600));
    expect(report).toMatchObject({ added: 600, embedding: { warning: { code: 'WARMPATH_RETRIEVAL_ERROR' } } });
    // A step and, of the next one, the request that was answered.
    expect(report.embedding!.embedded).toBe(256 + 64);
    expect((await last(collection, 'number599 number600')).candidates[0]!.metadata).toEqual({ source: 'tale599' });
    fake.answer = undefined;
    fake.embedded.length = 0;
    expect(await collection.put([{ id: 'one', content: 'one more' }])).toMatchObject({ embedding: { embedded: 281 } });
    expect(fake.embedded).toHaveLength(281);
    expect(fake.embedded).not.toContain(many(1)[0]!.content);
    expect((await last(collection, 'song', 1000)).candidates).toHaveLength(601);
  });

  it('lets no passage that the endpoint refuses keep others back', async () => {
    const fake = await fakeEmbeddings();
    const collection = await open(fake).getOrMake('default', 'c');
    const isLong = (text: string) => /number(17|200)\b/.test(text);
    const refuse = ({ body }: { readonly body: { readonly input: string[] } }) =>
      body.input.some(isLong) ? { status: 400, body: { error: { message: 'input is too long' } } } : undefined;
    fake.answer = refuse;
    const refused = many(300).filter(({ content }) => isLong(content)).length;
    const report = await collection.put(many(300));
    expect(report.embedding).toMatchObject({ embedded: 300 - refused });
    expect(report.embedding!.warning!.message).toContain('input is too long');
    expect((await last(collection, 'number17')).candidates[0]!.metadata).toEqual({ source: 'tale16' });
    // Those are asked for again, and no others.
    fake.embedded.length = 0;
    await collection.put([{ id: 'one', content: 'one more' }]);
    expect(fake.embedded).toEqual(['one more']);
    fake.answer = undefined;
    await collection.put([]);
    expect(fake.embedded).toHaveLength(1 + refused);
    // One that refuses all is left alone soon.
    fake.answer = () => ({ status: 400, body: { error: { message: 'no such model' } } });
    const before = fake.requests.length;
    expect(await collection.put(many(2000, 'song'))).toMatchObject({ added: 2000, embedding: { embedded: 0 } });
    expect(fake.requests.length - before).toBeLessThan(100);
  });

  it.each([
    ['is down', { status: 503 }, 'WARMPATH_RETRIEVAL_ERROR'],
    ['hangs', 'hang', 'WARMPATH_RETRIEVAL_TIMEOUT'],
    ['dies within an answer', 'cut', 'WARMPATH_RETRIEVAL_UNREACHABLE'],
    ['wants another key', { status: 401 }, 'WARMPATH_RETRIEVAL_ERROR'],
    ['gives nonsense', { body: '[]' }, 'WARMPATH_EMBEDDING_INVALID'],
    ['gives another dimension', { body: { data: [{ index: 0, embedding: [1, 2, 3] }] } }, 'WARMPATH_EMBEDDING_INVALID'],
  ] as const)('answers from words, and says so, where the endpoint %s', async (_, answer, code) => {
    const fake = await fakeEmbeddings();
    const writer = await open(fake).getOrMake('default', 'c');
    await writer.put(DOCUMENTS);
    const collection = await open(fake).get('default', 'c');
    fake.answer = () => answer;
    const stages = await allStages(collection.retriever, 'rye bread', 5);
    expect(stages.map(({ candidates, final }) => [sources(candidates), final])).toEqual([
      [['bread'], false],
      [['bread'], true],
    ]);
    expect(stages[1]!.warnings).toMatchObject([{ code }]);
    // As soon as it is itself again, so is the search; the first answer may still be held against a wrong one.
    fake.answer = undefined;
    await last(collection, 'rye bread');
    expect(await last(collection, 'rye bread')).not.toHaveProperty('warnings');
  });

  it('stores no vector of another dimension, and says which it has', async () => {
    const fake = await fakeEmbeddings();
    await (await open(fake).getOrMake('default', 'c')).put(DOCUMENTS);
    fake.dimension = 32;
    const collection = await open(fake).get('default', 'c');
    const report = await collection.put([{ id: 'new', content: 'a new passage' }]);
    expect(report).toMatchObject({ added: 1, embedding: { embedded: 0 } });
    expect(report.embedding!.warning).toMatchObject({
      code: 'WARMPATH_EMBEDDING_INVALID',
      message: expect.stringContaining('32 dimensions, and those of the collection have 64') as string,
    });
  });

  it('has vectors of one model: another one is refused before anything is written, and searched by words', async () => {
    const fake = await fakeEmbeddings();
    await (await open(fake).getOrMake('default', 'c')).put(DOCUMENTS);
    for (const settings of [
      { url: fake.url, model: 'other' },
      { url: fake.url, dimensions: 32 },
    ]) {
      const collection = await open(settings).get('default', 'c');
      const refusal = expect(collection.put([{ id: 'new', content: 'new' }])).rejects;
      await refusal.toMatchObject({
        code: 'WARMPATH_COLLECTION_EMBEDDINGS',
        message: expect.stringContaining('64 dimensions by fake') as string,
      });
      expect(collection.document('new')).toBeUndefined();
      const [stage, ...others] = await allStages(collection.retriever, 'rye bread', 5);
      expect(others).toEqual([]);
      expect(stage).toMatchObject({ final: true, warnings: [{ code: 'WARMPATH_COLLECTION_EMBEDDINGS' }] });
      expect(sources(stage!.candidates)).toEqual(['bread']);
    }
    // Without an endpoint it is a collection as any other, and loses nothing.
    const plain = await open().get('default', 'c');
    await plain.put([{ id: 'plain', content: 'a plain passage' }]);
    await plain.remove(['bees']);
    expect(await allStages(plain.retriever, 'rye bread', 5)).toHaveLength(1);
    const again = await open(fake).get('default', 'c');
    expect(await again.put([])).toMatchObject({ embedding: { embedded: 1 } });
    expect((await last(again, 'rye', 100)).candidates).toHaveLength(DOCUMENTS.length);
  });

  it('puts before questions and passages what the model wants, and takes another prefix for another model', async () => {
    const fake = await fakeEmbeddings();
    const e5 = { url: fake.url, queryPrefix: 'query: ', passagePrefix: 'passage: ' };
    const collection = await open(e5).getOrMake('default', 'c');
    await collection.put([{ id: 'one', content: 'rye bread' }]);
    expect((await last(collection, 'rye')).warnings).toBeUndefined();
    expect(fake.embedded).toEqual(['passage: rye bread', 'query: rye']);
    // Of questions it may be another one, for vectors of passages are as they were.
    const asked = await open({ ...e5, queryPrefix: 'Question: ' }).get('default', 'c');
    expect((await last(asked, 'rye')).warnings).toBeUndefined();
    for (const passagePrefix of [undefined, 'text: ']) {
      const other = await open({ ...e5, passagePrefix }).get('default', 'c');
      await expect(other.put([{ id: 'two', content: 'two' }])).rejects.toMatchObject({
        code: 'WARMPATH_COLLECTION_EMBEDDINGS',
        message: expect.stringContaining('by fake with "passage: " before passages') as string,
      });
      expect((await last(other, 'rye')).warnings).toMatchObject([{ code: 'WARMPATH_COLLECTION_EMBEDDINGS' }]);
    }
  });

  it('gives passages and questions each the time that is configured', async () => {
    const fake = await fakeEmbeddings();
    const collection = await open({ url: fake.url, timeoutMs: 31, questionTimeoutMs: 32 }).getOrMake('default', 'c');
    fake.answer = () => 'hang';
    const { embedding } = await collection.put([{ id: 'one', content: 'rye bread' }]);
    expect(embedding!.warning!.message).toContain('no answer within 31 ms');
    fake.answer = undefined;
    expect(
      (
        await open(fake)
          .get('default', 'c')
          .then((opened) => opened.put([]))
      ).embedding!.embedded,
    ).toBe(1);
    fake.answer = () => 'hang';
    expect((await last(collection, 'rye')).warnings![0]!.message).toContain('no answer within 32 ms');
  });

  it('takes in no vectors that are too long to be searched, and searches the words of those who have some', async () => {
    const fake = await fakeEmbeddings();
    fake.dimension = 4_097;
    const collection = await open(fake).getOrMake('default', 'c');
    const { embedding } = await collection.put(DOCUMENTS);
    expect(embedding).toMatchObject({ embedded: 0, warning: { code: 'WARMPATH_EMBEDDING_INVALID' } });
    expect(embedding!.warning!.message).toContain('4097 dimensions, and 4096 can be searched at most');
    // As they were taken in before that was refused.
    await closing.pop()!();
    const store = (await CollectionStore.open(join(folder, 'collections', 'default', 'c')))!;
    await store.beginWriting(Date.now());
    const vectors = [...store.texts(0, 100)].map(({ ordinal }) => [ordinal, new Float32Array(5_000).fill(1)] as const);
    await store.putVectors(new Map(vectors), { model: 'fake', dimension: 5_000, through: 100 });
    await store.endWriting();
    await store.close();
    fake.dimension = 5_000;
    const before = fake.requests.length;
    const { candidates, warnings } = await last(await open(fake).get('default', 'c'), 'rye bread');
    expect(sources(candidates)).toEqual(['bread']);
    expect(warnings).toMatchObject([{ code: 'WARMPATH_COLLECTION_VECTORS', path: 'embeddings' }]);
    expect(warnings![0]!.message).toBe('it has 12 vectors of 5000 dimensions, and memory for 0 (4 GiB).');
    expect(fake.requests).toHaveLength(before);
  });

  it('searches words where a stored vector cannot be searched, and looks at the vectors once only', async () => {
    const fake = await fakeEmbeddings();
    const collection = await open(fake).getOrMake('default', 'c');
    // Squares of these fit no float.
    fake.answer = ({ body }) => ({
      body: { data: body.input.map((_: string, index: number) => ({ index, embedding: Array(64).fill(1e30) })) },
    });
    await collection.put(DOCUMENTS);
    fake.answer = undefined;
    const warning = { code: 'WARMPATH_COLLECTION_VECTORS', message: expect.stringContaining('squares') as string };
    const first = await last(collection, 'rye bread');
    expect([sources(first.candidates), first.warnings]).toMatchObject([['bread'], [warning]]);
    const asked = fake.requests.length;
    expect((await last(collection, 'rye bread')).warnings).toMatchObject([warning]);
    expect(fake.requests).toHaveLength(asked);
  });

  it('sends the key and the dimensions that it is given', async () => {
    const fake = await fakeEmbeddings();
    const settings = { url: fake.url, apiKey: 'secret-key', dimensions: 64 };
    await (await open(settings).getOrMake('default', 'c')).put(DOCUMENTS);
    expect(fake.requests[0]).toMatchObject({
      headers: { authorization: 'Bearer secret-key' },
      body: { model: 'fake', dimensions: 64 },
    });
  });

  it('keeps tenants apart, with the same passages', async () => {
    const fake = await fakeEmbeddings();
    const collections = open(fake);
    const [one, two] = [await collections.getOrMake('one', 'c'), await collections.getOrMake('two', 'c')];
    await one.put(DOCUMENTS);
    await two.put(DOCUMENTS.slice(0, 2));
    // Whether a passage was embedded for somebody else is nobody's business.
    expect(fake.embedded).toHaveLength(DOCUMENTS.length + 2);
    expect((await last(two, 'bread glaciers', 100)).candidates).toHaveLength(2);
    expect((await last(one, 'bread glaciers', 100)).candidates).toHaveLength(DOCUMENTS.length);
  });

  it('can be deleted, closed and left while it searches and embeds', async () => {
    const fake = await fakeEmbeddings();
    const collections = open(fake);
    const collection = await collections.getOrMake('default', 'c');
    await collection.put(many(2000));
    await last(collection, 'tale');
    await collections.delete('default', 'c');
    await expect(last(collection, 'tale')).rejects.toMatchObject({ code: 'WARMPATH_COLLECTION_NOT_FOUND' });
    const again = await collections.getOrMake('default', 'c');
    await again.put(many(20));
    const abort = new AbortController();
    fake.answer = () => {
      abort.abort(new Error('gone'));
      return 'hang';
    };
    await expect(allStages(again.retriever, 'tale', 5, abort.signal)).rejects.toThrow('gone');
    await writeFile(join(folder, 'new.md'), 'new words');
    const end = new AbortController();
    fake.answer = () => {
      end.abort(new Error('interrupted'));
      return 'hang';
    };
    await expect(again.ingest([join(folder, 'new.md')], { signal: end.signal })).rejects.toThrow('interrupted');
    fake.answer = undefined;
    expect(await again.ingest([join(folder, 'new.md')])).toMatchObject({
      unchangedFiles: 1,
      embedding: { embedded: 1 },
    });
  });
});

describe('an ingestion with vectors in another process', () => {
  const children: ChildProcess[] = [];
  afterEach(() => {
    for (const child of children.splice(0)) child.kill('SIGKILL');
  });

  it.runIf(isFull)('pays for no committed vector again when it is killed, and ends with all of them', async () => {
    const fake = await fakeEmbeddings();
    const file = join(folder, 'lines.jsonl');
    const lines = many(1500).map(({ id, content }) => JSON.stringify({ id, text: content }));
    await writeFile(file, `${lines.join('\n')}\n`);
    const script = fileURLToPath(new URL('./ingest-process.js', import.meta.url));
    let kills = 0;
    for (let isDone = false; !isDone; ) {
      const child = spawn(process.execPath, [script, join(folder, 'collections'), file, fake.url], {
        stdio: ['pipe', 'pipe', 'inherit'],
      });
      children.push(child);
      const closed = once(child, 'close');
      child.stdin.end('go on\n');
      const committed = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
      isDone = (await committed.next()).done === true || kills === 3;
      if (!isDone) {
        kills++;
        child.kill('SIGKILL');
      }
      await closed;
    }
    expect(kills).toBe(3);
    // Each kill costs what was asked for and not committed: at most a step and the one that was under way.
    expect(fake.embedded.length).toBeLessThanOrEqual(1500 + 3 * 512);
    const collection = await open(fake).get('default', 'handbook');
    fake.embedded.length = 0;
    expect(await collection.ingest([file])).toMatchObject({ embedding: { embedded: 0 } });
    expect(fake.embedded).toEqual([]);
    expect((await last(collection, 'song', 1000)).candidates).toHaveLength(1000);
  });
});
