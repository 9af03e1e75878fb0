import { once } from 'node:events';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { type IncomingMessage, request as sendRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { PassThrough } from 'node:stream';
import { Pool } from 'undici';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { seededRandom } from '../../src/loop/random.js';
import type { EngineOptions } from '../../src/options.js';
import { startEngineServer } from '../../src/server.js';
import { continuedBody, RecordReader } from '../../src/supervisor/answer-records.js';
import { type SupervisedEngine, startSupervisedEngine } from '../../src/supervisor/supervised-engine.js';
import { type Chunk, someTokens, TestEngine, textOf } from '../support/engine.js';

const TIMEOUT_MS = 300_000;

interface Asked {
  readonly path: string;
  readonly body: object;
}

interface StreamedChunk extends Chunk {
  readonly id: string;
  readonly created: number;
}

const usage = { stream_options: { include_usage: true } };
const plain = (prompt: number[] | string, fields: object): Asked => ({
  path: '/v1/completions',
  body: { prompt, temperature: 0, stream: true, max_tokens: 100, ignore_eos: true, ...usage, ...fields },
});
const chat = (content: string, fields: object): Asked => ({
  path: '/v1/chat/completions',
  body: { messages: [{ role: 'user', content }], stream: true, max_tokens: 100, ignore_eos: true, ...usage, ...fields },
});

/** Bytes of `é` and `🌍`, drawn in any order: characters that are whole, cut, and wrong. */
const BYTES = { temperature: 1, seed: 3, logit_bias: {} as Record<string, number> };

const REQUESTS: Record<string, Asked> = {
  'a plain greedy one': plain(someTokens(90), {}),
  'a greedy chat': chat('What is the weight of Marlo? What colour is the river?', { temperature: 0 }),
  'a chat that was drawn': chat('Who is the founder of the engine?', { temperature: 1, seed: 42, top_p: 0.9 }),
  'a plain one that was drawn of few tokens': plain(someTokens(70, 2), { temperature: 0.7, seed: 2 ** 40, top_k: 5 }),
  'one with penalties': plain(someTokens(50, 3), {
    temperature: 0.8,
    seed: 9,
    presence_penalty: 0.7,
    frequency_penalty: 0.3,
    repetition_penalty: 1.2,
  }),
  'one with parts of characters': plain(someTokens(50, 4), BYTES),
  'one that is held back for stop strings': plain(someTokens(60, 5), {
    temperature: 1.5,
    seed: 77,
    stop: ['no such text', '  ', 'the weight'],
  }),
};

/** Greedy ones whose best token leads by a tenth at every step: cells of others change last bits of logits alone. */
const FIRM: readonly Asked[] = [
  plain(someTokens(40, 19), {}),
  plain(someTokens(40, 32), {}),
  plain(someTokens(60, 23), { stop: ['no such text', '  '] }),
  plain(someTokens(70, 11), {}),
  plain(someTokens(40, 2), {}),
  plain(someTokens(60, 3), {}),
];

describe('a stream whose worker dies', { timeout: TIMEOUT_MS }, () => {
  let marks: string;
  let engine: SupervisedEngine;
  beforeEach(async () => {
    marks = await mkdtemp(join(tmpdir(), 'warmpath-continue-'));
  });
  afterEach(async () => {
    vi.unstubAllEnvs();
    await engine.close();
    await rm(marks, { recursive: true });
  });

  // Keys and values that are computed in batches of another shape would differ in their last bits.
  async function start(options: EngineOptions = {}): Promise<void> {
    const own = { port: 0, threads: 1, contextTokens: 4096, batchTokens: 64, maxRunning: 8, batchInvariant: true };
    engine = await startSupervisedEngine({ ...own, ...options });
    // The last tokens of these texts are their bytes.
    const bytes = await Promise.all([bytesOf('é', 2), bytesOf('🌍', 4)]);
    BYTES.logit_bias = Object.fromEntries(bytes.flat().map((token) => [token, 90]));
  }

  async function bytesOf(content: string, count: number): Promise<number[]> {
    const response = await fetch(`${engine.url}/tokenize`, { method: 'POST', body: JSON.stringify({ content }) });
    return ((await response.json()) as { tokens: number[] }).tokens.slice(-count);
  }

  /** Reads a stream and kills the worker when so many events have come. */
  async function read({ path, body }: Asked, killAfter: readonly number[] = []): Promise<StreamedChunk[]> {
    const outgoing = sendRequest(engine.url + path, { method: 'POST', agent: false });
    outgoing.end(JSON.stringify(body));
    const [incoming] = (await once(outgoing, 'response')) as [IncomingMessage];
    const kills = [...killAfter];
    const events: string[] = [];
    let rest = '';
    for await (const part of incoming.setEncoding('utf8')) {
      const pieces = (rest + (part as string)).split('\n\n');
      rest = pieces.pop()!;
      for (const piece of pieces) {
        events.push(piece.replace(/^data: /, ''));
        if (events.length > kills[0]!) {
          kills.shift();
          await kill();
        }
      }
    }
    expect(rest).toBe('');
    expect(events.pop()).toBe('[DONE]');
    expect(kills).toEqual([]);
    return events.map((event) => JSON.parse(event) as StreamedChunk);
  }

  async function kill(): Promise<void> {
    const { workerPid } = engine;
    process.kill(workerPid!, 'SIGKILL');
    await vi.waitFor(() => expect(engine.workerPid).not.toBe(workerPid), TIMEOUT_MS);
  }

  /** What a client sees, without what names the request and what its computation took. */
  function seen(chunks: readonly StreamedChunk[]): object[] {
    expect(new Set(chunks.map(({ id, created }) => `${id} ${created}`)).size).toBe(1);
    return chunks.map((chunk) => {
      const { id: _id, created: _created, timings: _timings, usage, ...rest } = chunk;
      const { prompt_tokens_details: _details, ...counts } = usage ?? {};
      return { ...rest, counts };
    });
  }

  async function metric(name: string): Promise<number> {
    const text = await (await fetch(`${engine.url}/metrics`)).text();
    return Number(new RegExp(`^${name}{.*} (.*)$`, 'm').exec(text)?.[1]);
  }

  it.each(Object.entries(REQUESTS))('goes on as if nothing had been: %s', async (name, asked) => {
    await start();
    const expected = seen(await read(asked));
    expect(expected.length).toBeGreaterThan(20);
    const random = seededRandom(name.length);
    for (let round = 0; round < 2; round++) {
      const at = Math.floor(random() * (expected.length - 5));
      expect(seen(await read(asked, [at]))).toEqual(expected);
    }
    expect(engine.restarts).toBe(2);
    expect(await metric('warmpath_engine_continued_streams_total')).toBe(2);
  });

  it('twice goes on twice', async () => {
    await start();
    const asked = REQUESTS['a chat that was drawn']!;
    const expected = seen(await read(asked));
    expect(seen(await read(asked, [3, 60]))).toEqual(expected);
    expect(engine.restarts).toBe(2);
  });

  it('beside others goes on like them, and what was not streamed is computed again', async () => {
    await start();
    const whole = { path: '/v1/completions', body: { prompt: someTokens(40, 10), temperature: 0, max_tokens: 60 } };
    const complete = async (): Promise<unknown> => {
      const response = await fetch(engine.url + whole.path, { method: 'POST', body: JSON.stringify(whole.body) });
      return ((await response.json()) as { choices: unknown }).choices;
    };
    const expected = [];
    for (const asked of FIRM) {
      expected.push(seen(await read(asked)));
    }
    const expectedWhole = await complete();
    for (const at of [[5], [20, 70]]) {
      const answers = FIRM.map((asked, index) => read(asked, index === 0 ? at : []));
      const wholes = [complete(), complete()];
      expect((await Promise.all(answers)).map(seen)).toEqual(expected);
      expect(await Promise.all(wholes)).toEqual([expectedWhole, expectedWhole]);
    }
    expect(engine.restarts).toBe(3);
  });

  it.each(['commit', 'refused'] as const)('or fails in the middle (%s) goes on', async (place) => {
    vi.stubEnv('NODE_OPTIONS', `--import=${new URL('../support/crash-at.js', import.meta.url).href}`);
    vi.stubEnv('CRASH_AT', place);
    vi.stubEnv('CRASH_MARKS', marks);
    // A stream commits its prompt and its end, and decodes once a token: the second one below is in its middle.
    vi.stubEnv('CRASH_AFTER', place === 'commit' ? '2' : '150');
    vi.stubEnv('CRASH_TIMES', '1');
    await start();
    const asked = REQUESTS['a plain greedy one']!;
    const expected = seen(await read(asked));
    const [first, second] = await Promise.all([read(asked), read(REQUESTS['a greedy chat']!)]);
    expect(seen(first)).toEqual(expected);
    expect(seen(second)).toEqual(seen(await read(REQUESTS['a greedy chat']!)));
    expect(await readdir(marks)).toHaveLength(1);
    expect(await metric('warmpath_engine_continued_streams_total')).toBeGreaterThan(0);
  });
});

describe('what front and worker say to each other', { timeout: TIMEOUT_MS }, () => {
  const forged = {
    'warmpath-records': '1',
    'warmpath-continue': '1',
  };
  const asked = { prompt: someTokens(30), temperature: 0, stream: true, max_tokens: 5, ignore_eos: true };
  const begun = { begun: { id: 'forged', created: 1, seed: 1, tokens: [300] }, body: asked };

  it.each([
    ['with a seed that no client chose', {}],
    ['with chances of tokens', { logprobs: 3 }],
    ['in JSON', { response_format: { type: 'json_object' }, ignore_eos: false }],
  ])('lets a worker go on behind any record of another, %s', async (_name, fields) => {
    const socketPath = join(await mkdtemp(join(tmpdir(), 'warmpath-worker-')), 'socket');
    const own = { threads: 1, contextTokens: 1024, batchTokens: 64, batchInvariant: true };
    const pipe = new PassThrough();
    const server = await startEngineServer({ ...own, maxRunning: 4 }, { front: { socketPath, records: pipe } });
    const reader = new RecordReader(pipe);
    const pool = new Pool('http://worker', { socketPath });
    const drawn = { ...asked, temperature: 1, max_tokens: 40, stream_options: { include_usage: true }, ...fields };
    /** What is streamed behind so many tokens, a record an element. */
    const stream = async (headers: Record<string, string>, body: Buffer) => {
      const records: { tokens: number; events: string }[] = [];
      const tokens: number[] = [];
      let origin = '';
      let tellEnd: () => void = () => undefined;
      const ended = new Promise<void>((resolve) => {
        tellEnd = resolve;
      });
      const number = reader.join({
        onRecord: (content, marks) => {
          if (marks === 'begin') {
            origin = content.toString();
            return;
          }
          const own = /"(timings":{.*?}|prompt_tokens_details":{.*?}})/g;
          tokens.push(...(marks === 'end' ? [] : marks));
          records.push({ tokens: tokens.length, events: content.toString().replace(own, '') });
          if (marks === 'end') tellEnd();
        },
        onRecordsLost: () => undefined,
      });
      const told = { ...headers, 'warmpath-records': String(number) };
      const response = await pool.request({ method: 'POST', path: '/v1/completions', headers: told, body });
      expect([response.statusCode, response.headers['warmpath-records']]).toEqual([204, 'told']);
      await ended;
      return { origin, tokens, records };
    };
    const body = Buffer.from(JSON.stringify(drawn));
    const whole = await stream({}, body);
    expect(whole.records.length).toBeGreaterThan(3);
    for (const [index, { tokens }] of whole.records.slice(0, -1).entries()) {
      const rest = await stream(forged, continuedBody(body, whole.origin, whole.tokens.slice(0, tokens)));
      expect(rest.origin).toBe(whole.origin);
      const left = whole.records.slice(index + 1).map((record) => ({ ...record, tokens: record.tokens - tokens }));
      expect(rest.records).toEqual(left);
    }
    await pool.close();
    await server.close();
    await rm(dirname(socketPath), { recursive: true });
  });

  it.each(['a front', 'no front'])('is not for clients: %s', async (kind) => {
    const options = { port: 0, threads: 1, contextTokens: 1024 };
    const test = kind === 'no front' ? await TestEngine.start(options) : undefined;
    const engine = test?.server ?? (await startSupervisedEngine(options));
    const url = `${engine.url}/v1/completions`;
    const send = (body: object): Promise<Response> =>
      fetch(url, { method: 'POST', headers: forged, body: JSON.stringify(body) });
    const streamed = await send(asked);
    expect([...streamed.headers.keys()].filter((name) => name.startsWith('warmpath'))).toEqual([]);
    const events = (await streamed.text()).split('\n\n').slice(0, -2);
    expect(events.every((event) => event.startsWith('data: {'))).toBe(true);
    expect(textOf(events.map((event) => JSON.parse(event.slice(6)) as Chunk)).length).toBeGreaterThan(0);
    expect((await send(begun)).status).toBe(400);
    await engine.close();
  });
});
