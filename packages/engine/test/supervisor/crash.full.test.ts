import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { WarmpathError } from '@warmpath/core';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { EngineOptions } from '../../src/options.js';
import { type EngineProcess, spawnEngine } from '../../src/supervisor/spawn-engine.js';
import { type Answer, StreamedRequest, someTokens } from '../support/engine.js';

/** Several processes start in each of these, on a machine that may be busy. */
const TIMEOUT_MS = 300_000;

describe('an engine whose native part crashes', { timeout: TIMEOUT_MS }, () => {
  let marks: string;
  /** The one that was started last. */
  let engine: EngineProcess;
  let engines: EngineProcess[];
  let crashes: WarmpathError[];
  let tellCrash: () => void;

  beforeEach(async () => {
    marks = await mkdtemp(join(tmpdir(), 'warmpath-crash-'));
    crashes = [];
    engines = [];
    tellCrash = () => undefined;
  });
  afterEach(async () => {
    vi.unstubAllEnvs();
    for (const each of engines) await each.stop();
    await rm(marks, { recursive: true });
  });

  async function start(options: EngineOptions = {}): Promise<void> {
    engine = await spawnEngine(
      { port: 0, threads: 1, contextTokens: 1024, batchTokens: 64, maxRunning: 4, ...options },
      {
        onCrash: (error) => {
          crashes.push(error);
          tellCrash();
        },
      },
    );
    engines.push(engine);
  }

  /** The worker will crash at this place. */
  function crashAt(place: string, more: { after?: number; times?: number } = {}): void {
    vi.stubEnv('NODE_OPTIONS', `--import=${new URL('../support/crash-at.js', import.meta.url).href}`);
    vi.stubEnv('CRASH_AT', place);
    vi.stubEnv('CRASH_MARKS', marks);
    vi.stubEnv('CRASH_AFTER', String(more.after ?? 0));
    vi.stubEnv('CRASH_TIMES', String(more.times ?? 1));
  }

  function nextCrash(): Promise<void> {
    return new Promise((resolve) => {
      tellCrash = resolve;
    });
  }

  async function post(prompt: number[], fields: object = {}): Promise<{ status: number; body: unknown }> {
    const response = await fetch(`${engine.url}/v1/completions`, {
      method: 'POST',
      body: JSON.stringify({ prompt, temperature: 0, max_tokens: 8, ignore_eos: true, ...fields }),
    });
    return { status: response.status, body: await response.json() };
  }

  async function complete(prompt: number[], fields: object = {}): Promise<Answer> {
    const { status, body } = await post(prompt, fields);
    expect(body).not.toHaveProperty('error');
    expect(status).toBe(200);
    return body as Answer;
  }

  const textIn = ({ choices }: Answer): string => choices[0]!.text!;

  async function metric(name: string): Promise<number> {
    const text = await (await fetch(`${engine.url}/metrics`)).text();
    const line = text.split('\n').find((candidate) => candidate.startsWith(`${name}{`));
    // There are no figures of the worker while there is none.
    return line === undefined ? Number.NaN : Number(line.slice(line.lastIndexOf(' ') + 1));
  }

  /** A stream that was cut says so, and has no end of its own. */
  async function expectCut(stream: StreamedRequest): Promise<void> {
    const chunks = await stream.rest();
    expect(chunks.at(-1)).toMatchObject({ error: { code: 'WARMPATH_ENGINE_FAILED' } });
    expect(chunks.slice(0, -1).every(({ choices }) => choices[0]!.finish_reason === null)).toBe(true);
  }

  it.each(['SIGSEGV', 'SIGKILL'] as const)('idle, by %s: the next request finds another', async (signal) => {
    await start();
    const before = await complete(someTokens(100));
    const { pid } = engine;
    const crashed = nextCrash();
    process.kill(pid!, signal);
    await crashed;
    expect(crashes[0]!.message).toBe(`The engine process ended: signal ${signal}.`);
    expect(textIn(await complete(someTokens(100)))).toBe(textIn(before));
    expect(engine.pid).not.toBe(pid);
    expect(engine.restarts).toBe(1);
    expect(await metric('warmpath_engine_restarts_total')).toBe(1);
  });

  it('that hangs is ended, and its streams end with an error', async () => {
    // Two engines at once: the watch over each takes seconds.
    const hanging = [];
    for (const place of ['loop', 'hang']) {
      const own = join(marks, place);
      await mkdir(own);
      // The first decode warms the context up, the eleven after it are the prompt and ten tokens.
      crashAt(place, { after: 12 });
      vi.stubEnv('CRASH_MARKS', own);
      await start();
      const fields = { prompt: someTokens(40), stream: true, temperature: 0, max_tokens: 40, ignore_eos: true };
      hanging.push({ engine, streaming: new StreamedRequest(`${engine.url}/v1/completions`, fields) });
    }
    // The next workers are whole.
    vi.unstubAllEnvs();
    for (const { engine: hung, streaming } of hanging) {
      await expectCut(streaming);
      engine = hung;
      await complete(someTokens(40), { max_tokens: 40 });
      expect(engine.restarts).toBe(1);
    }
    expect(crashes.map(({ message }) => message).toSorted()).toEqual([
      expect.stringMatching(/One step has been computed for \d+ s, and [\d.]+ ms were expected/),
      expect.stringMatching(/has not answered for 8 s/),
    ]);
  });

  it('while requests run and wait: a stream ends with an error, the others are computed by the next one', async () => {
    await start({ maxRunning: 1 });
    const alone = textIn(await complete(someTokens(60, 5)));
    const fields = { prompt: someTokens(40), stream: true, temperature: 0, max_tokens: 900, ignore_eos: true };
    const streaming = new StreamedRequest(`${engine.url}/v1/completions`, fields);
    expect(await streaming.next()).toMatchObject({ object: 'text_completion' });
    const waiting = [complete(someTokens(60, 5)), complete(someTokens(60, 5))];
    await vi.waitFor(async () => expect(await metric('vllm:num_requests_waiting')).toBe(2), TIMEOUT_MS);
    process.kill(engine.pid!, 'SIGSEGV');
    expect((await Promise.all(waiting)).map(textIn)).toEqual([alone, alone]);
    await expectCut(streaming);
    expect(engine.restarts).toBe(1);
  });

  it('in the middle of a prompt: the request is computed again', async () => {
    crashAt('decode', { after: 4 });
    await start();
    // The first decode warms the context up; the prompt takes six more.
    const prompt = someTokens(360);
    const text = textIn(await complete(prompt));
    expect(await readdir(marks)).toHaveLength(1);
    expect(engine.restarts).toBe(1);
    expect(text).toBe(textIn(await complete(prompt)));
  });

  it('by a request that crashes it every time gets it twice and no more, and serves the others', async () => {
    crashAt('token');
    await start();
    const poison = await post([...someTokens(20), 1_399, 300]);
    expect(poison).toMatchObject({ status: 500, body: { error: { code: 'WARMPATH_ENGINE_FAILED' } } });
    expect((await complete(someTokens(20))).usage.completion_tokens).toBe(8);
    expect(crashes).toHaveLength(2);
  });

  it('that cannot be started again is given up, with the reason', async () => {
    await start();
    crashAt('context', { times: 100 });
    process.kill(engine.pid!, 'SIGKILL');
    const { status, body } = await post(someTokens(20));
    expect([status, body]).toMatchObject([500, { error: { code: 'WARMPATH_ENGINE_FAILED' } }]);
    expect(JSON.stringify(body)).toContain('could not be started again 5 times');
    const error = await engine.failed;
    expect(error).toMatchObject({ code: 'WARMPATH_ENGINE_FAILED' });
    expect(error.message).toContain('cannot create a context');
    expect(crashes).toHaveLength(6);
    expect((await fetch(`${engine.url}/health`)).status).toBe(503);
  });

  it('while it is being shut down is not started again', async () => {
    await start();
    const closing = engine.stop();
    process.kill(engine.pid!, 'SIGKILL');
    await closing;
    expect(crashes).toEqual([]);
    await expect(post([300])).rejects.toThrow();
  });

  it('by a defect of its own loop is replaced', async () => {
    crashAt('commit');
    await start();
    const { status, body } = await post(someTokens(100));
    expect([status, body]).toMatchObject([500, { error: { code: 'WARMPATH_ENGINE_FAILED' } }]);
    await vi.waitFor(() => expect(engine.restarts).toBe(1), TIMEOUT_MS);
    expect((await complete(someTokens(100))).usage.completion_tokens).toBe(8);
    expect(crashes[0]!.message).toContain('broken for a test');
    expect(engine.restarts).toBe(1);
  });

  it('without memory for a computation stays, and its request ends with an error', async () => {
    // Refused at the binding: llama_decode answers -2 when it cannot allocate.
    crashAt('refused', { after: 3 });
    await start();
    expect(await post(someTokens(200))).toMatchObject({ status: 500 });
    const answer = await complete(someTokens(200));
    expect(answer.usage.prompt_tokens_details.cached_tokens).toBe(128);
    expect(engine.restarts).toBe(0);
  });

  it('without memory for another context tries again later', async () => {
    // Refused at the binding: llama_init_from_model answers null. The first process gets its context.
    await start();
    crashAt('context');
    process.kill(engine.pid!, 'SIGKILL');
    expect((await complete(someTokens(20))).usage.completion_tokens).toBe(8);
    expect(crashes.map(({ message }) => message)).toEqual([
      'The engine process ended: signal SIGKILL.',
      expect.stringContaining('llama.cpp cannot create a context'),
    ]);
    expect(engine.restarts).toBe(1);
  });

  it.each(['save', 'restore'])(
    'by kill -9 in the middle of a swap (%s) computes what it needs again',
    async (place) => {
      const asked = [1, 2, 3, 4, 5, 1, 2].map((id) => [...someTokens(250, id), ...someTokens(10, 99)]);
      const fields = { segments: [250] };
      await start({ contextTokens: 8192 });
      const expected = [];
      for (const prompt of asked) {
        expected.push(textIn(await complete(prompt, fields)));
      }
      await engine.stop();
      crashAt(place, { after: 1 });
      vi.stubEnv('CRASH_SIGNAL', 'SIGKILL');
      await start({ hostTier: 2 ** 24 });
      const texts = [];
      for (const prompt of [...asked, ...asked]) {
        texts.push(textIn(await complete(prompt, fields)));
      }
      expect(texts).toEqual([...expected, ...expected]);
      expect(await readdir(marks)).toHaveLength(1);
      expect(engine.restarts).toBe(1);
      expect(await metric('warmpath_engine_host_failures_total')).toBe(0);
    },
  );

  it('by kill -9 in the middle of writing a file of the disk tier finds the other files', async () => {
    const asked = [1, 2, 3, 4, 5, 6, 7, 8].map((id) => [...someTokens(250, id), ...someTokens(10, 99)]);
    const fields = { segments: [250] };
    const disk = join(marks, 'disk');
    await start({ contextTokens: 8192 });
    const expected = [];
    for (const prompt of asked) {
      expected.push(textIn(await complete(prompt, fields)));
    }
    await engine.stop();
    const crashMarks = await mkdtemp(join(marks, 'crashes-'));
    crashAt('write', { after: 2 });
    vi.stubEnv('CRASH_MARKS', crashMarks);
    vi.stubEnv('CRASH_SIGNAL', 'SIGKILL');
    // Room for two documents on the host, so that the third pushes the first onto the disk.
    await start({ hostTier: 600_000, diskTier: disk });
    for (let round = 0; engine.restarts === 0; round++) {
      expect(round).toBeLessThan(10);
      const texts = [];
      for (const prompt of asked) {
        texts.push(textIn(await complete(prompt, fields)));
      }
      expect(texts).toEqual(expected);
    }
    expect(await metric('warmpath_engine_disk_refused_files_total')).toBe(1);
    expect(await metric('warmpath_engine_disk_failures_total')).toBe(0);
    expect(await metric('warmpath_engine_disk_used_bytes')).toBeGreaterThan(0);
  });

  it('with far too few cells for what is asked at once answers all', async () => {
    await start({ contextTokens: 512, maxRunning: 8 });
    const prompts = Array.from({ length: 12 }, (_, index) => someTokens(150 + 10 * index, index));
    const answers = await Promise.all(prompts.map((prompt) => complete(prompt, { max_tokens: 60 })));
    expect(answers.every(({ usage }) => usage.completion_tokens === 60)).toBe(true);
    expect(await metric('vllm:num_preemptions_total')).toBeGreaterThan(0);
    expect(await metric('warmpath_engine_used_cells')).toBe(await metric('warmpath_engine_cached_cells'));
    expect(crashes).toEqual([]);
  });
});
