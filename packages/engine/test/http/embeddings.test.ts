import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { modelPath } from '../../bench/random-model/src/model-path.js';
import { modelLines } from '../../src/model-lines.js';
import { TestEngine } from '../support/engine.js';

const PATH = '/v1/embeddings';
const TEXTS = ['The weight of Marlo is 52 kg.', 'Tibin weighs 40 kg.', 'x'];

describe('POST /v1/embeddings', () => {
  let engine: TestEngine;
  let client: OpenAI;
  beforeAll(async () => {
    engine = await TestEngine.start({ model: await modelPath('random:1m-embedding'), contextTokens: 512 });
    client = new OpenAI({ baseURL: `${engine.server.url}/v1`, apiKey: 'none', maxRetries: 0 });
  });
  afterAll(() => engine.close());

  const embed = async (input: unknown, fields: object = {}): Promise<number[][]> => {
    const body = { model: '', input: input as string[], encoding_format: 'float' as const, ...fields };
    return (await client.embeddings.create(body)).data.map(({ embedding }) => embedding);
  };
  const dot = (a: readonly number[], b: readonly number[]): number =>
    a.reduce((sum, value, at) => sum + value * b[at]!, 0);

  it('gives each text a vector of length 1, whatever stands beside it', async () => {
    const vectors = await embed(TEXTS);
    expect(vectors.map((vector) => dot(vector, vector).toFixed(4))).toEqual(['1.0000', '1.0000', '1.0000']);
    expect(dot(vectors[0]!, vectors[1]!)).toBeLessThan(0.999);
    for (const [index, text] of TEXTS.entries()) {
      const [alone] = await embed(text);
      expect(dot(alone!, vectors[index]!)).toBeCloseTo(1, 5);
    }
  });

  it('takes token ids, and counts them', async () => {
    const tokens = await Promise.all(TEXTS.map((content) => engine.tokenize({ prompt: content })));
    const [vectors, ofTokens] = [await embed(TEXTS), await embed(tokens)];
    expect(ofTokens.map((vector, index) => dot(vector, vectors[index]!).toFixed(4))).toEqual([
      '1.0000',
      '1.0000',
      '1.0000',
    ]);
    const { usage } = await client.embeddings.create({ model: '', input: TEXTS });
    expect(usage.prompt_tokens).toBe(tokens.flat().length);
    expect(await embed(tokens[0])).toHaveLength(1);
  });

  it('writes base64 as the client of OpenAI reads it, and fewer dimensions', async () => {
    const [vector] = await embed(TEXTS[0]);
    const read = (await client.embeddings.create({ model: '', input: TEXTS[0]! })).data[0]!.embedding;
    expect(read).toEqual(vector);
    const [short] = await embed(TEXTS[0], { dimensions: 8 });
    expect(short).toHaveLength(8);
    expect(dot(short!, short!)).toBeCloseTo(1, 5);
    expect(short![0]! / short![1]!).toBeCloseTo(vector![0]! / vector![1]!, 3);
  });

  it.each([
    ['no input', {}, 'input'],
    ['a number in a list of texts', { input: ['a', 1] }, 'input[1]'],
    ['an empty text', { input: ['a', ''] }, 'input[1]'],
    ['a token that does not exist', { input: [999_999] }, 'input[0]'],
    ['too many dimensions', { input: 'a', dimensions: 100_000 }, 'dimensions'],
    ['another encoding', { input: 'a', encoding_format: 'hex' }, 'encoding_format'],
  ])('refuses %s', async (_, body, param) => {
    expect(await engine.error(PATH, body)).toMatchObject({ status: 400, param });
  });

  it('refuses a text that is too long, and goes on', async () => {
    const error = await engine.error(PATH, { input: 'word '.repeat(5000) });
    expect(error).toMatchObject({ status: 400, code: 'context_length_exceeded' });
    expect(await embed('a')).toHaveLength(1);
  });

  it('goes on beside answers', async () => {
    const [vectors, answer] = await Promise.all([
      embed(TEXTS),
      engine.complete('a', { max_tokens: 20, ignore_eos: true }),
    ]);
    expect(vectors).toHaveLength(3);
    expect(answer.usage.completion_tokens).toBe(20);
  });
});

describe('an encoder', () => {
  let engine: TestEngine;
  beforeAll(async () => {
    engine = await TestEngine.start({ model: await modelPath('random:1m-encoder'), contextTokens: 512 });
  });
  afterAll(() => engine.close());

  it('embeds a text between its opening token and its separator', async () => {
    const tokens = await engine.tokenize({ prompt: TEXTS[0]! });
    const vectorOf = async (input: unknown): Promise<readonly number[]> => {
      const { data } = (await engine.call(PATH, { input })).body as { data: { embedding: number[] }[] };
      return data[0]!.embedding;
    };
    const vector = await vectorOf(TEXTS[0]);
    const [opening, end] = await engine.tokenize({ prompt: '<|im_end|>' });
    expect(tokens[0]).toBe(opening);
    expect(await vectorOf([...tokens, end])).toEqual(vector);
    expect(await vectorOf(tokens)).not.toEqual(vector);
  });

  it.each([
    ['/v1/completions', { prompt: 'a' }],
    ['/v1/chat/completions', { messages: [{ role: 'user', content: 'a' }] }],
  ])('refuses what generates: %s', async (path, body) => {
    expect(await engine.error(path, body)).toMatchObject({ status: 400, param: 'model' });
    expect((await engine.call(PATH, { input: 'a' })).status).toBe(200);
  });

  it('is described without what only chats have', () => {
    const lines = modelLines(engine.server.model);
    expect(lines).toContainEqual(['answers', 'embeddings alone: this model generates no text']);
    expect(lines.map(([label]) => label)).not.toContain('template');
  });
});

describe('requests for embeddings', () => {
  let engine: TestEngine;
  beforeAll(async () => {
    engine = await TestEngine.start({
      model: await modelPath('random:1m-embedding'),
      contextTokens: 65_536,
      queueLimit: 1,
    });
  });
  afterAll(() => engine.close());

  const until = async (isDone: () => boolean): Promise<void> => {
    while (!isDone()) {
      await engine.get('/health');
    }
  };
  const ended = (outcome: string): Promise<number> =>
    engine.metric('warmpath_engine_requests_total', `outcome="${outcome}"`);

  it('are counted, and their tokens apart from prompts', async () => {
    await engine.call(PATH, { input: [[300, 301], [302]] });
    expect(await ended('finished')).toBe(1);
    expect(await engine.metric('warmpath_engine_embedding_tokens_total')).toBe(3);
    expect(await engine.metric('vllm:e2e_request_latency_seconds_count')).toBe(1);
    expect(await engine.metric('vllm:request_success_total', 'finished_reason="stop"')).toBe(1);
    expect(await engine.metric('vllm:prompt_tokens_total')).toBe(0);
  });

  it('wait up to the limit of the queue, and end with their client', async () => {
    const input = new Array(2048).fill('word '.repeat(100));
    const first = engine.send(PATH, { input });
    await until(() => engine.server.stats().running === 1);
    const second = engine.send(PATH, { input });
    await until(() => engine.server.stats().waiting === 1);
    const { status, headers, body } = await engine.call(PATH, { input: 'a' });
    expect([status, headers.get('retry-after')]).toEqual([429, '1']);
    expect(body).toMatchObject({ error: { message: expect.stringContaining('--queue-limit') } });
    expect(JSON.parse(await engine.get('/health'))).toMatchObject({ running: 1, waiting: 1 });
    expect(await engine.metric('vllm:num_requests_waiting')).toBe(1);
    first.destroy();
    second.destroy();
    await until(() => engine.server.stats().running === 0);
    expect(await ended('aborted')).toBe(2);
    expect((await engine.call(PATH, { input: 'a' })).status).toBe(200);
  }, 60_000);
});

describe('a model without pooling', () => {
  it('says that it makes no embeddings', async () => {
    const engine = await TestEngine.start({ contextTokens: 256 });
    expect(await engine.error(PATH, { input: 'a' })).toMatchObject({ status: 400, param: 'model' });
    await engine.close();
  });
});
