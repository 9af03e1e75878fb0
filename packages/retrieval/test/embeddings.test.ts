import type { WarmpathError } from '@warmpath/core';
import { afterEach, describe, expect, it } from 'vitest';
import { EmbeddingEndpoint } from '../src/embeddings/embedding-endpoint.js';
import { HashedTfIdf, OpenAiEmbedder, type OpenAiEmbedderOptions } from '../src/index.js';
import { type JsonAnswer, startJsonServer } from './json-server.js';

const { signal } = new AbortController();
const closing: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0)) await close();
});

/** The length of a text and its first letter. */
const vectorOf = (text: string) => [text.length, text.charCodeAt(0), 0.5];
const answerFor = ({ body }: { body: { input: string[] } }) => ({
  body: { data: body.input.map((text, index) => ({ object: 'embedding', index, embedding: vectorOf(text) })) },
});

async function over(answer: Parameters<typeof startJsonServer>[0], options: Partial<OpenAiEmbedderOptions> = {}) {
  const server = await startJsonServer(answer);
  const embedder = new OpenAiEmbedder({ url: `${server.url}/v1`, model: 'm', apiKey: 'secret-key', ...options });
  closing.push(
    () => embedder.close(),
    () => server.close(),
  );
  return { server, embedder };
}

describe('an embedding endpoint', () => {
  it('is asked in batches, each text once, and answers in the order of the texts', async () => {
    const { server, embedder } = await over(answerFor, { batchSize: 3, passagePrefix: 'passage: ' });
    const texts = ['one', 'two', 'one', 'three', ' ', 'four', 'five'];
    const vectors = await embedder.embed(texts, 'passage', signal);
    expect(vectors.map((vector) => [...vector])).toEqual(
      texts.map((text) => (text === ' ' ? [] : vectorOf(`passage: ${text}`))),
    );
    expect(server.requests.map(({ path, headers, body }) => [path, headers.authorization, body.input.length])).toEqual([
      ['/v1/embeddings', 'Bearer secret-key', 3],
      ['/v1/embeddings', 'Bearer secret-key', 2],
    ]);
  });

  it('takes vectors in any order, and in base64', async () => {
    const { embedder } = await over(({ body }) => ({
      body: {
        data: (body.input as string[])
          .map((text, index) => ({
            index,
            embedding: Buffer.from(Float32Array.from(vectorOf(text)).buffer).toString('base64'),
          }))
          .reverse(),
      },
    }));
    const vectors = await embedder.embed(['a', 'bb'], 'query', signal);
    expect(vectors.map((vector) => [...vector])).toEqual([vectorOf('a'), vectorOf('bb')]);
  });

  it('is not asked for what the cache has, and a query is not a passage', async () => {
    const kept = new Map<string, Float32Array>();
    const { server, embedder } = await over(answerFor, {
      queryPrefix: 'query: ',
      cache: { get: (key) => kept.get(key), set: (key, vector) => void kept.set(key, vector) },
    });
    await embedder.embed(['one', 'two'], 'passage', signal);
    await embedder.embed(['two', 'three'], 'passage', signal);
    await embedder.embed(['one'], 'query', signal);
    expect(server.requests.map(({ body }) => body.input)).toEqual([['one', 'two'], ['three'], ['query: one']]);
    expect([...kept.keys()].every((key) => /^m:[0-9a-f]{64}$/.test(key))).toBe(true);
  });

  it('is asked by so many requests at once, and not more', async () => {
    const waiting: (() => void)[] = [];
    let most = 0;
    const { embedder } = await over(
      async (request) => {
        await new Promise<void>((resolve) => {
          waiting.push(resolve);
          if (waiting.length < 3) return;
          // One more would arrive within these turns.
          setImmediate(() =>
            setImmediate(() => {
              most = Math.max(most, waiting.length);
              for (const go of waiting.splice(0)) go();
            }),
          );
        });
        return answerFor(request as never);
      },
      { batchSize: 1, concurrency: 3 },
    );
    await embedder.embed(
      Array.from({ length: 30 }, (_, i) => `text ${i}`),
      'passage',
      signal,
    );
    expect(most).toBe(3);
  });

  it('is asked again after 429, 503 or a lost connection, as soon as it says', async () => {
    const answers = [{ status: 429, headers: { 'retry-after': '0' } }, 'cut' as const];
    const { server, embedder } = await over((request) => answers.shift() ?? answerFor(request as never));
    expect([...(await embedder.embed(['abc'], 'query', signal))[0]!]).toEqual(vectorOf('abc'));
    expect(server.requests).toHaveLength(3);
  });

  const vectors = (...embeddings: unknown[]) => ({
    body: { data: embeddings.map((embedding, index) => ({ index, embedding })) },
  });
  it.each([
    ['half of the vectors', vectors([1, 2]), 'data: it holds 1 vectors for 2 texts.'],
    ['two dimensions', vectors([1, 2], [1, 2, 3]), 'data[1].embedding: the vector has 3 dimensions where 2'],
    ['no numbers', vectors([1, 2], [1, null]), 'data[1].embedding: it is not made of numbers'],
    ['empty vectors', vectors([], []), 'data[0].embedding: the vector has 0 dimensions'],
    ['numbers beyond floats', vectors([1, 2], [1e300, 1]), 'data[1].embedding: it holds values that are no finite'],
    [
      'the same vector twice',
      { body: { data: [0, 0].map((index) => ({ index, embedding: [1] })) } },
      'data[1].index: 0 names',
    ],
    [
      'an index of nothing',
      { body: { data: [0, 9].map((index) => ({ index, embedding: [1] })) } },
      'data[1].index: 9 names',
    ],
    ['no data', { body: { object: 'list' } }, 'data: it holds no vectors for 2 texts.'],
    ['null', { body: 'null' }, 'data: it holds no vectors'],
    ['nulls', { body: { data: [null, null] } }, 'data[0].embedding: it is no vector'],
  ])('is refused with its place where it answers %s', async (_, answer, words) => {
    const { embedder } = await over(() => answer);
    const refusal = expect(embedder.embed(['one', 'two'], 'passage', signal)).rejects;
    await refusal.toMatchObject({ code: 'WARMPATH_EMBEDDING_INVALID', message: expect.stringContaining(words) });
  });

  it('is refused where its dimension changes between answers, or is not the one that is expected', async () => {
    let dimension = 2;
    const { embedder } = await over(() => vectors(Array(dimension++).fill(1)));
    await embedder.embed(['one'], 'query', signal);
    await expect(embedder.embed(['two'], 'query', signal)).rejects.toThrow('3 dimensions where 2 are expected');
    const other = await over(() => vectors([1, 2]), { dimension: 384 });
    await expect(other.embedder.embed(['one'], 'query', signal)).rejects.toThrow('2 dimensions where 384 are expected');
  });

  it.each([
    [
      'fails',
      { status: 400, body: { error: { message: 'no such model' } } },
      'WARMPATH_RETRIEVAL_ERROR',
      'status 400: no such model',
    ],
    ['is no JSON', { body: '<html>' }, 'WARMPATH_RETRIEVAL_ERROR', 'the answer is no JSON'],
    ['hangs', 'hang' as const, 'WARMPATH_RETRIEVAL_TIMEOUT', 'no answer within 50 ms'],
    ['dies half way', 'cut' as const, 'WARMPATH_RETRIEVAL_UNREACHABLE', 'the connection failed'],
    [
      'wants to be left alone for an hour',
      { status: 429, headers: { 'retry-after': '3600' } },
      'WARMPATH_RETRIEVAL_ERROR',
      'status 429',
    ],
  ])('has an error with a code and its URL where it %s', async (_, answer, code, words) => {
    const { server, embedder } = await over(() => answer, { ...(answer === 'hang' && { timeoutMs: 50 }), retries: 0 });
    const error = await embedder.embed(['private words'], 'query', signal).catch((thrown: Error) => thrown);
    expect(error).toMatchObject({ code, message: expect.stringContaining(words) });
    expect(String(error)).toContain(`${server.url}/v1/embeddings`);
    expect(String(error)).not.toMatch(/private words|secret-key/);
  });

  it('has an error with a code where nothing listens', async () => {
    const { server, embedder } = await over(answerFor, { retries: 0 });
    await server.close();
    await expect(embedder.embed(['one'], 'query', signal)).rejects.toMatchObject({
      code: 'WARMPATH_RETRIEVAL_UNREACHABLE',
      message: expect.stringContaining('ECONNREFUSED'),
    });
    closing.splice(1);
  });

  it('is left at once when the caller goes, also while it waits to ask again', async () => {
    for (const answer of ['hang' as const, { status: 503, headers: { 'retry-after': '20' } }]) {
      const abort = new AbortController();
      const reason = new Error('gone');
      const { embedder } = await over(() => {
        setImmediate(() => abort.abort(reason));
        return answer;
      });
      await expect(embedder.embed(['one'], 'query', abort.signal)).rejects.toBe(reason);
    }
  });
});

describe('an embedding endpoint that fails questions', () => {
  it('is left alone for longer each time, tried by one, and asked as ever once it answers', async () => {
    let clock = 0;
    let answer: () => JsonAnswer = () => ({ status: 503 });
    const server = await startJsonServer((request) =>
      answer().status === 200 ? answerFor(request as never) : answer(),
    );
    const endpoint = new EmbeddingEndpoint({ url: server.url, model: 'm' }, () => clock);
    closing.push(
      () => endpoint.close(),
      () => server.close(),
    );
    const ask = () =>
      endpoint.embed(['question'], 'query', signal).then(
        () => 'well',
        ({ code }: WarmpathError) => code,
      );
    const asked = async (times: number) => {
      const before = server.requests.length;
      const told = new Set<string>();
      for (let time = 0; time < times; time++) told.add(await ask());
      return [server.requests.length - before, ...told];
    };
    // A question that the endpoint does not like says nothing of the next one.
    answer = () => ({ status: 400 });
    expect(await asked(5)).toEqual([5, 'WARMPATH_RETRIEVAL_ERROR']);
    answer = () => ({ status: 503 });
    expect(await asked(10)).toEqual([3, 'WARMPATH_RETRIEVAL_ERROR']);
    for (const rest of [5_000, 10_000, 20_000, 40_000, 60_000, 60_000]) {
      clock += rest - 1;
      expect(await asked(3)).toEqual([0, 'WARMPATH_RETRIEVAL_ERROR']);
      clock += 1;
      // One tries, the others do not wait for it.
      const [first, ...others] = await Promise.all([ask(), ask(), ask()]);
      expect([first, ...others]).toEqual(Array(3).fill('WARMPATH_RETRIEVAL_ERROR'));
    }
    expect(server.requests).toHaveLength(5 + 3 + 6);
    // One that its caller gives up is no try.
    clock += 60_000;
    const left = new AbortController();
    const given = endpoint.embed(['question'], 'query', left.signal);
    left.abort(new Error('gone'));
    await expect(given).rejects.toThrow('gone');
    answer = () => ({ status: 200 });
    expect(await ask()).toBe('well');
    answer = () => ({ status: 503 });
    expect(await asked(2)).toEqual([2, 'WARMPATH_RETRIEVAL_ERROR']);
  });
});

describe('the hashed TF-IDF embedding', () => {
  const texts = ['the red fox', 'the blue whale', 'the red whale sings'];

  it('is the same for the same corpus in any order, and comes back from its state', () => {
    const [one, two] = [HashedTfIdf.learn(texts, 64), HashedTfIdf.learn([...texts].reverse(), 64)];
    for (const text of texts) {
      expect(two.vector(text)).toEqual(one.vector(text));
      expect(new HashedTfIdf(one.state).vector(text)).toEqual(one.vector(text));
    }
    expect(one.name).toMatch(/^hashed-tf-idf-64-[0-9a-f]{8}$/);
    expect(two.name).toBe(one.name);
    expect(HashedTfIdf.learn(texts.slice(1), 64).name).not.toBe(one.name);
  });

  it('weighs rare terms more, has length one, and zeros where there is no term', () => {
    const embedding = HashedTfIdf.learn(texts, 4096);
    const similarity = (a: string, b: string) =>
      embedding.vector(a).reduce((sum, value, i) => sum + value * embedding.vector(b)[i]!, 0);
    expect(similarity('fox', 'the red fox')).toBeGreaterThan(similarity('the', 'the red fox'));
    expect(similarity('the red fox', 'the red fox')).toBeCloseTo(1, 5);
    expect([...embedding.vector('?!')].every((value) => value === 0)).toBe(true);
  });
});
