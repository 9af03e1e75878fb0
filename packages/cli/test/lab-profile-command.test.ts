import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { isFull } from '../../../test/suite.js';
import { type FakeEngine, type FakeEngineOptions, startFakeEngine } from './fake-engine.js';
import { runCli, startCli } from './run-cli.js';

let folder: string;
let engine: FakeEngine | undefined;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-profile-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));
afterEach(async () => {
  await engine?.close();
  engine = undefined;
});

const GRID = ['--cached', '0,200,400', '--new', '30,100'];

async function profile(options: FakeEngineOptions, args: readonly string[] = []) {
  engine = await startFakeEngine(options);
  const output = join(folder, `${Math.random()}.json`);
  const result = await runCli(['lab', 'profile', '--engine', engine.url, '-o', output, ...GRID, ...args]);
  const written = existsSync(output) ? JSON.parse(await readFile(output, 'utf8')) : undefined;
  return { ...result, output, written, prompts: engine.received.map(({ messages }) => messages.at(-1)!.content) };
}

describe('warmpath lab profile', () => {
  it.runIf(isFull)('writes what the embedded engine takes, in the form that `lab run` reads', async () => {
    const output = join(folder, 'embedded.json');
    const grid = ['--cached', '0,300', '--new', '40,200', '--repeats', '2'];
    const { code, stdout } = await runCli(['lab', 'profile', '-o', output, ...grid, '--json']);
    expect(code).toBe(0);
    const written = JSON.parse(await readFile(output, 'utf8'));
    expect(JSON.parse(stdout)).toEqual(written);
    expect(written).toMatchObject({ repeats: 2, reports: { promptTokens: true, cachedTokens: true } });
    const [none, cached] = written.cachedTokens;
    expect(none).toBeLessThan(30);
    expect(Math.abs(cached - 300)).toBeLessThan(60);
    expect(Math.abs(written.newTokens[1] - 200)).toBeLessThan(60);
    for (const row of written.prefillMs) for (const ms of row) expect(ms).toBeGreaterThan(0);

    const run = await runCli(['lab', 'run', 'mixed', '--seeds', '1', '--latency', output, '--json']);
    expect(JSON.parse(run.stdout).results[0].ttftMs.p50).toBeLessThanOrEqual(Math.max(...written.prefillMs.flat()));
  });

  it('fills the cache for every row anew, and sends nothing twice', async () => {
    const { written, prompts } = await profile({ blockSize: 16 }, ['--repeats', '3']);
    // Two to learn how long words are, then for each round six points and two rows to fill.
    expect(prompts).toHaveLength(2 + 3 * (6 + 2));
    expect(new Set(prompts).size).toBe(prompts.length);
    const openings = new Set(prompts.map((prompt) => prompt.split(' ')[0]));
    expect(openings.size).toBe(2 + 3 * (2 + 2));
    // The fake engine's tokens are words; blocks of 16 round down what is cached.
    expect(written.cachedTokens).toEqual([0, 192, 400].map((tokens) => expect.closeTo(tokens, -1.5)));
    for (const tokens of written.cachedTokens) expect(tokens % 16).toBe(0);
    expect(written.newTokens).toEqual([30, 100].map((tokens) => expect.closeTo(tokens, -1.5)));
    expect(written).toMatchObject({ model: 'fake-model', repeats: 3, droppedCachedTokens: [] });
  });

  it('leaves out the rows of an engine that caches nothing, and says so', async () => {
    const { code, written, stderr } = await profile({ caches: false }, ['--repeats', '1']);
    expect(code).toBe(0);
    expect(written).toMatchObject({ cachedTokens: [0], droppedCachedTokens: [200, 400] });
    expect(written.prefillMs).toHaveLength(1);
    expect(stderr).toContain('cached no more');
  });

  it('takes what was aimed at where cached tokens are not reported', async () => {
    const { written, stderr } = await profile({ reports: false }, ['--repeats', '1']);
    expect(written.cachedTokens).toEqual([0, 200, 400]);
    expect(stderr).toContain('reports no cached tokens');
  });

  /** Interrupts a measurement once it has sent so many requests. */
  async function stopAfter(requests: number, grid: readonly string[]) {
    engine = await startFakeEngine();
    const output = join(folder, `stopped-${requests}.json`);
    const running = startCli(['lab', 'profile', '--engine', engine.url, '-o', output, '--repeats', '100', ...grid]);
    await vi.waitFor(() => expect(engine!.received.length).toBeGreaterThanOrEqual(requests), 300_000);
    running.process.kill('SIGINT');
    const { code } = await running.ended;
    return { code, output };
  }

  it('stopped before the first round is done, leaves nothing', async () => {
    const steps = Array.from({ length: 31 }, (_, place) => 40 * (place + 1)).join(',');
    const { code, output } = await stopAfter(4, ['--cached', `0,${steps}`, '--new', steps]);
    expect({ code, isWritten: existsSync(output) }).toEqual({ code: 130, isWritten: false });
  });

  it('stopped later, keeps the rounds that are done', async () => {
    const { code, output } = await stopAfter(20, GRID);
    expect(code).toBe(130);
    const { repeats } = JSON.parse(await readFile(output, 'utf8'));
    expect(repeats).toBeGreaterThanOrEqual(2);
    expect(repeats).toBeLessThan(100);
  });

  it.each([
    ['an axis that does not grow', ['--new', '100,30'], 2, 'each larger'],
    ['rows without an empty one', ['--cached', '200,400'], 2, '0 first'],
    ['an engine that fails', [], 1, 'out of order'],
  ])('refuses %s', async (_, args, exitCode, message) => {
    const { code, stderr, written } = await profile({ failsWith: 500 }, args);
    expect({ code, written }).toEqual({ code: exitCode, written: undefined });
    expect(stderr).toContain(message);
  });
});
