import type { ChildProcess } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { spawnEngine } from '@warmpath/engine';
import { MersenneTwister } from '@warmpath/lab';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { freePort } from '../../../test/free-port.js';
import { isFull } from '../../../test/suite.js';
import { findLlamaServer, startLlamaServer } from '../../engine/bench/llama-server.js';
import { modelPath } from '../../engine/bench/random-model/src/model-path.js';
import { type FakeEngine, type FakeEngineOptions, startFakeEngine } from './fake-engine.js';
import { runCli } from './run-cli.js';

let folder: string;
let engine: FakeEngine | undefined;
let child: ChildProcess | undefined;

const QUESTIONS = 40;

/** Questions about ten subjects that share passages, as a BEIR folder. */
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-calibrate-'));
  const random = new MersenneTwister(5);
  const words = (count: number) => Array.from({ length: count }, () => `word${random.below(400)}`).join(' ');
  const lines = (values: readonly object[]) => values.map((value) => `${JSON.stringify(value)}\n`).join('');
  const subjects = Array.from({ length: 10 }, (_, i) => `subject${i}`);
  const corpus = Array.from({ length: 30 }, (_, i) => ({
    _id: `d${i}`,
    title: '',
    text: `${subjects[i % 10]} ${subjects[(3 * i + 1) % 10]} ${words(20 + random.below(60))}`,
  }));
  const queries = Array.from({ length: QUESTIONS }, (_, i) => {
    const [one, other] = [random.below(10), random.below(10)];
    return { _id: `q${i}`, text: `${subjects[one]} or ${subjects[other]}?`, metadata: { answer: 'yes' } };
  });
  await writeFile(join(folder, 'corpus.jsonl'), lines(corpus));
  await writeFile(join(folder, 'queries.jsonl'), lines(queries));
});
afterAll(() => rm(folder, { recursive: true, force: true }));
afterEach(async () => {
  await engine?.close();
  engine = undefined;
  child?.kill('SIGKILL');
  child = undefined;
});

interface Calibrated {
  readonly dialect: string;
  readonly cache: string;
  readonly room?: { readonly deviceTokens: number; readonly hostTokens: number };
  readonly agreesWithin: number;
  readonly agrees: boolean;
  readonly misses: readonly string[];
  readonly results: readonly {
    readonly policy: string;
    readonly agrees: boolean;
    readonly engine: { readonly cachedShare: number; readonly promptTokens: number };
    readonly model: { readonly cachedShare: number; readonly promptTokens: number };
  }[];
}

async function calibrated(url: string, args: readonly string[] = []) {
  const { code, stdout, stderr } = await runCli([
    ...['lab', 'calibrate', '--engine', url, '--data', folder, '--json'],
    ...args,
  ]);
  return { code, stderr, report: JSON.parse(stdout) as Calibrated & { error?: { code: string; message: string } } };
}

describe('warmpath lab calibrate', () => {
  const fake = async (options: FakeEngineOptions, args: readonly string[] = []) => {
    engine = await startFakeEngine(options);
    return calibrated(engine.url, args);
  };

  it('plays the same questions on both, and the shares are near', async () => {
    const { code, report } = await fake({ owner: 'sglang' });
    expect(code).toBe(0);
    expect(report).toMatchObject({ dialect: 'sglang', cache: 'radix', requests: QUESTIONS });
    expect(report.results.map(({ policy }) => policy)).toEqual(['retrieval', 'exact', 'foresight']);
    // The fake engine's tokens are words, those of the model are estimated.
    for (const { policy, engine, model } of report.results) {
      expect(Math.abs(engine.cachedShare - model.cachedShare), policy).toBeLessThan(0.1);
    }
    expect(report.results[1]!.engine.cachedShare).toBeGreaterThan(report.results[0]!.engine.cachedShare);
    // One more is asked for the tokens of the chat template.
    expect(engine!.received).toHaveLength(3 * QUESTIONS + 1);
  });

  it('models a vLLM with the blocks that it states, and counts its chat template', async () => {
    const labels =
      'block_size="32",enable_prefix_caching="True",num_gpu_blocks="100000",user_specified_block_size="True"';
    const metrics = `# HELP vllm:cache_config_info\nvllm:cache_config_info{${labels}} 1.0\n`;
    const { report } = await fake({ owner: 'vllm', blockSize: 32, headerWords: 12, metrics });
    expect(report).toMatchObject({ dialect: 'vllm', cache: '99999x32' });
    for (const { policy, engine, model } of report.results) {
      expect(model.promptTokens / engine.promptTokens, policy).toBeCloseTo(1, 1);
      expect(Math.abs(engine.cachedShare - model.cachedShare), policy).toBeLessThan(0.1);
    }
  });

  it.each([
    ['no metrics', undefined],
    ['no such metric', 'vllm:num_requests_waiting 0\n'],
    ['no blocks', 'vllm:cache_config_info{block_size="32",num_gpu_blocks="None"} 1.0\n'],
    ['no size of a block', 'vllm:cache_config_info{num_gpu_blocks="512"} 1.0\n'],
  ])('takes the room of a vLLM with %s for unlimited', async (_, metrics) => {
    const limit = ['--limit', '2', '--policies', 'retrieval'];
    const { report } = await fake({ owner: 'vllm', ...(metrics !== undefined && { metrics }) }, limit);
    expect(report.cache).toBe('unlimited');
  });

  it('says which rows miss the bar, on the terminal too', async () => {
    const { report } = await fake({ owner: 'sglang' }, ['--cache', 'off']);
    expect(report).toMatchObject({ agreesWithin: 0.02, agrees: false, misses: ['retrieval', 'exact', 'foresight'] });
    expect(report.results.every(({ agrees }) => !agrees)).toBe(true);
    const args = ['lab', 'calibrate', '--engine', engine!.url, '--data', folder, '--cache', 'off', '--limit', '8'];
    const { stdout } = await runCli(args);
    expect(stdout).toContain('within 2.0 %');
    expect(stdout.match(/ NO /g)).toHaveLength(3);
    expect(stdout).toContain('further than 2.0 % apart for retrieval, exact, foresight');
  });

  it.each([
    [{ total_slots: 3 }, 'slots:3'],
    [{ total_slots: 'many' }, 'slots'],
    [{}, 'slots'],
    [undefined, 'slots'],
  ])('models a llama-server whose properties are %j as `%s`', async (props, cache) => {
    const limit = ['--limit', '2', '--policies', 'retrieval'];
    const { report } = await fake({ owner: 'llamacpp', ...(props !== undefined && { props }) }, limit);
    expect(report).toMatchObject({ dialect: 'llama-server', cache });
  });

  it('takes the cache that is named, and says where an engine reports nothing', async () => {
    const limit = ['--limit', '2', '--policies', 'retrieval'];
    expect((await fake({}, ['--cache', '4096', ...limit])).report.cache).toBe('4096');
    await engine!.close();
    const silent = await fake({ reports: false, owner: 'vllm' }, limit);
    expect(silent.code).not.toBe(0);
    expect(silent.report.error!.message).toContain('--enable-prompt-tokens-details');
  });

  it.runIf(isFull)('takes the size of an embedded engine for the model', async () => {
    const embedded = await spawnEngine({ port: 0, contextTokens: 4_096, hostTier: 0 });
    try {
      const { report } = await calibrated(embedded.url, ['--limit', '16', '--policies', 'retrieval,exact']);
      expect(report).toMatchObject({ dialect: 'embedded', room: { deviceTokens: 4_096, hostTokens: 0 } });
      const [, tokens] = /^radix:(\d+):pgdsf$/.exec(report.cache)!;
      expect(Number(tokens)).toBe(4_096);
      expect(report.results.map(({ agrees }) => agrees)).toEqual(
        report.results.map(({ engine, model }) => Math.abs(engine.cachedShare - model.cachedShare) <= 0.02),
      );
    } finally {
      await embedded.stop();
    }
  });

  const server = findLlamaServer();

  // A peer that is built, not installed: without it there is nothing to compare with.
  if (server !== undefined) {
    it('agrees with a real llama-server within .02', async () => {
      const started = startLlamaServer(server, { model: await modelPath('random:1m'), port: await freePort() });
      child = started.child;
      const { report } = await calibrated(await started.url);
      expect(report).toMatchObject({ dialect: 'llama-server', cache: expect.stringMatching(/^slots:\d+$/) as string });
      for (const { policy, engine, model } of report.results) {
        expect(Math.abs(engine.cachedShare - model.cachedShare), policy).toBeLessThan(0.02);
      }
    });
  }
});
