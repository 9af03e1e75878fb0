import { once } from 'node:events';
import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises';
import { type IncomingMessage, request as sendRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { WarmpathError } from '@warmpath/core';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { EngineOptions } from '../../src/options.js';
import { type SupervisedEngine, startSupervisedEngine } from '../../src/supervisor/supervised-engine.js';
import { type Answer, type Chunk, StreamedRequest, someTokens, textOf } from '../support/engine.js';

/** Three processes start in each of these, on a machine that may be busy. */
const TIMEOUT_MS = 300_000;

describe('an engine whose native part crashes', { timeout: TIMEOUT_MS }, () => {
  let marks: string;
  /** The one that was started last. */
  let engine: SupervisedEngine;
  let engines: SupervisedEngine[];
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
    for (const each of engines) await each.close();
    await rm(marks, { recursive: true });
  });

  async function start(options: EngineOptions = {}): Promise<void> {
    engine = await startSupervisedEngine(
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

  it.each(['SIGSEGV', 'SIGKILL'] as const)('idle, by %s: the next request finds another', async (signal) => {
    await start();
    const before = await complete(someTokens(100));
    const { workerPid } = engine;
    const crashed = nextCrash();
    process.kill(workerPid!, signal);
    await crashed;
    expect(crashes[0]!.message).toBe(`The engine process ended: signal ${signal}.`);
    expect(textIn(await complete(someTokens(100)))).toBe(textIn(before));
    expect(engine.workerPid).not.toBe(workerPid);
    expect(engine.restarts).toBe(1);
    expect(await metric('warmpath_engine_restarts_total')).toBe(1);
    // Nothing was under way, so nothing was sent again.
    expect(await metric('warmpath_engine_retries_total')).toBe(0);
  });

  it('that hangs is ended, and what it was asked is computed by the next one', async () => {
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
      const text = textOf(await streaming.rest());
      engine = hung;
      expect(engine.restarts).toBe(1);
      expect(await metric('warmpath_engine_continued_streams_total')).toBe(1);
      expect(text).toBe(textIn(await complete(someTokens(40), { max_tokens: 40 })));
    }
    expect(crashes.map(({ message }) => message).toSorted()).toEqual([
      expect.stringMatching(/no sign of life for 8 s/),
      expect.stringMatching(/One step has been computed for \d+ s, and [\d.]+ ms were expected/),
    ]);
  });

  it('while requests wait: they are computed by the next one, and a stream that had begun goes on', async () => {
    await start({ maxRunning: 1 });
    const alone = textIn(await complete(someTokens(60, 5)));
    const streaming = sendRequest(`${engine.url}/v1/completions`, { method: 'POST' });
    const fields = { temperature: 0, max_tokens: 900, ignore_eos: true };
    streaming.end(JSON.stringify({ prompt: someTokens(40), stream: true, ...fields }));
    const [stream] = (await once(streaming, 'response')) as [IncomingMessage];
    let text = '';
    stream.setEncoding('utf8').on('data', (part: string) => {
      text += part;
    });
    const ended = once(stream, 'end');
    const waiting = [complete(someTokens(60, 5)), complete(someTokens(60, 5))];
    await vi.waitFor(async () => expect(await metric('vllm:num_requests_waiting')).toBe(2), TIMEOUT_MS);
    process.kill(engine.workerPid!, 'SIGSEGV');
    expect((await Promise.all(waiting)).map(textIn)).toEqual([alone, alone]);
    await ended;
    const events = text.split('\n\n').filter((event) => event.startsWith('data: {'));
    const chunks = events.map((event) => JSON.parse(event.slice('data: '.length)) as Chunk);
    expect(chunks.filter(({ choices: [choice] }) => choice!.finish_reason === null)).toHaveLength(events.length - 1);
    expect(textOf(chunks).length).toBe(textIn(await complete(someTokens(40), fields)).length);
    expect(text.endsWith('data: [DONE]\n\n')).toBe(true);
    expect(await metric('warmpath_engine_retries_total')).toBe(2);
    expect(await metric('warmpath_engine_continued_streams_total')).toBe(1);
  });

  it.each([false, true])(
    'in the middle of a prompt (stream: %s): the request is computed again, once',
    async (stream) => {
      crashAt('decode', { after: 4 });
      await start();
      // The first decode warms the context up; the prompt takes six more.
      const prompt = someTokens(360);
      let text: string;
      if (stream) {
        const body = { prompt, stream, temperature: 0, max_tokens: 8, ignore_eos: true };
        text = textOf(await new StreamedRequest(`${engine.url}/v1/completions`, body).rest());
      } else {
        text = textIn(await complete(prompt));
      }
      expect(await readdir(marks)).toHaveLength(1);
      expect(engine.restarts).toBe(1);
      expect(await metric('warmpath_engine_retries_total')).toBe(1);
      expect(text).toBe(textIn(await complete(prompt)));
    },
  );

  it('whose requests crash it every time gets them twice and no more, and serves the others', async () => {
    crashAt('token');
    await start();
    const poison = await post([...someTokens(20), 1_399, 300]);
    expect(poison).toMatchObject({ status: 500, body: { error: { code: 'WARMPATH_ENGINE_FAILED' } } });
    expect(JSON.stringify(poison.body)).toContain('crashed twice');
    expect((await complete(someTokens(20))).usage.completion_tokens).toBe(8);
    expect(crashes).toHaveLength(2);
    // Sent again and again, it never reaches a worker.
    for (let time = 0; time < 20; time++) {
      const again = await post([...someTokens(20), 1_399, 300]);
      expect(again.status).toBe(500);
      expect(JSON.stringify(again.body)).toContain('refused for 10 minutes');
    }
    expect(crashes).toHaveLength(2);
  });

  it('and whose requests come beside others costs none of these their answer', async () => {
    crashAt('token');
    await start();
    const innocent = [1, 2, 3].map((id) => someTokens(60, id));
    const alone = [];
    for (const prompt of innocent) {
      alone.push(textIn(await complete(prompt, { max_tokens: 120 })));
    }
    const answers = innocent.map((prompt) => complete(prompt, { max_tokens: 120 }));
    const poison = await Promise.all([1, 2].map((id) => post([...someTokens(20, id), 1_399, 300])));
    expect(poison.map(({ status }) => status)).toEqual([500, 500]);
    expect((await Promise.all(answers)).map(textIn)).toEqual(alone);
    // Twice with all, then each poison once alone.
    expect(crashes.length).toBeLessThanOrEqual(4);
    expect((await complete(someTokens(20))).usage.completion_tokens).toBe(8);
  });

  it('that cannot be started again is given up, with the reason', async () => {
    await start();
    crashAt('context', { times: 100 });
    process.kill(engine.workerPid!, 'SIGKILL');
    const { status, body } = await post(someTokens(20));
    expect([status, body]).toMatchObject([500, { error: { code: 'WARMPATH_ENGINE_FAILED' } }]);
    expect(JSON.stringify(body)).toContain('could not be started again 5 times');
    const error = await engine.failed;
    expect(error).toMatchObject({ code: 'WARMPATH_ENGINE_FAILED' });
    expect(error.message).toContain('cannot create a context');
    expect(crashes).toHaveLength(6);
    expect((await fetch(`${engine.url}/health`)).status).toBe(503);
  });

  it('while the client has left: the request is not computed again', async () => {
    crashAt('decode', { after: 2 });
    await start();
    const crashed = nextCrash();
    const outgoing = sendRequest(`${engine.url}/v1/completions`, { method: 'POST', agent: false });
    outgoing.on('error', () => undefined);
    outgoing.end(JSON.stringify({ prompt: someTokens(500), max_tokens: 8 }));
    await crashed;
    outgoing.destroy();
    await complete(someTokens(20));
    expect(await metric('warmpath_engine_retries_total')).toBe(0);
  });

  it('while it is being shut down is not started again', async () => {
    await start();
    const closing = engine.close();
    process.kill(engine.workerPid!, 'SIGKILL');
    await closing;
    expect(crashes).toEqual([]);
    await expect(post([300])).rejects.toThrow();
  });

  it('by a defect of its own loop is replaced, and the request that met it is computed again', async () => {
    crashAt('commit');
    await start();
    expect((await complete(someTokens(100))).usage.completion_tokens).toBe(8);
    expect(crashes[0]!.message).toContain('broken for a test');
    expect(engine.restarts).toBe(1);
  });

  it('without memory for a computation stays, and the request is computed again with what is cached', async () => {
    // Refused at the binding: llama_decode answers -2 when it cannot allocate.
    crashAt('refused', { after: 3 });
    await start();
    const answer = await complete(someTokens(200));
    expect(answer.usage.completion_tokens).toBe(8);
    expect(answer.usage.prompt_tokens_details.cached_tokens).toBe(128);
    expect(await metric('warmpath_engine_retries_total')).toBe(1);
    expect(engine.restarts).toBe(0);
  });

  it('without memory for another context tries again later', async () => {
    // Refused at the binding: llama_init_from_model answers null. The first process gets its context.
    await start();
    crashAt('context');
    process.kill(engine.workerPid!, 'SIGKILL');
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
      await engine.close();
      crashAt(place, { after: 1 });
      vi.stubEnv('CRASH_SIGNAL', 'SIGKILL');
      await start({ hostTier: 2 ** 24, verifyCache: true });
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
    await engine.close();
    const crashMarks = await mkdtemp(join(marks, 'crashes-'));
    crashAt('write', { after: 2 });
    vi.stubEnv('CRASH_MARKS', crashMarks);
    vi.stubEnv('CRASH_SIGNAL', 'SIGKILL');
    // Room for two documents on the host, so that the third pushes the first onto the disk.
    await start({ hostTier: 600_000, diskTier: disk, verifyCache: true });
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
