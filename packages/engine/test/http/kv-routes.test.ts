import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { reportTree } from '../../src/cache/tree-report.js';
import { verifyCaches } from '../cache/hierarchy-check.js';
import { someTokens, TestEngine, textOf } from '../support/engine.js';

verifyCaches();

interface Report {
  cells: { total: number; used: number; cached: number };
  sequences: { free: number; running: number };
  prompt_tokens: { device: number; host: number; disk: number; computed: number };
  tiers: Record<string, Record<string, number>>;
  tree: Omit<ReturnType<typeof reportTree>, 'tiers' | 'paths'>;
  paths: ReturnType<typeof reportTree>['paths'];
}

describe('GET /kv', () => {
  let engine: TestEngine;
  afterEach(() => engine.close());
  const report = async (query = ''): Promise<Report> => JSON.parse(await engine.get(`/kv${query}`)) as Report;

  it('shows an empty cache', async () => {
    engine = await TestEngine.start({ hostTier: 0 });
    expect(await report()).toEqual({
      reuse: 'prefix',
      cells: { total: 8192, used: 0, cached: 0 },
      sequences: { free: 255, running: 0 },
      prompt_tokens: { device: 0, host: 0, disk: 0, computed: 0 },
      tiers: { device: { nodes: 0, tokens: 0, evicted_tokens: 0 } },
      tree: { salts: 0, nodes: 0, leaves: 0, pinned: 0 },
      paths: [],
    });
  });

  it('shows documents, where they lie and how often they were used, and nothing of what they say', async () => {
    engine = await TestEngine.start({ contextTokens: 512, hostTier: 2 ** 26 });
    const [first, second] = [someTokens(200, 1), [...someTokens(150, 1), ...someTokens(40, 2)]];
    await engine.complete(first, { segments: [150] });
    await engine.complete(second, { segments: [150] });
    await engine.complete(first, { segments: [150] });
    await engine.complete(someTokens(30, 3), { cache_salt: 'a secret of a tenant' });
    const before = await report();
    expect(before.tree).toMatchObject({ salts: 1, leaves: 3, pinned: 0 });
    // What no request needs has left the cells.
    expect(before.tiers['device']).toMatchObject({ tokens: 0 });
    expect(before.tiers['host']).toMatchObject({ tokens: 270 });
    expect(before.cells).toEqual({ total: 512, used: 0, cached: 0 });
    expect(before.prompt_tokens).toEqual({ device: 0, host: 150 + 199, disk: 0, computed: 200 + 40 + 1 + 30 });
    const [hottest] = before.paths;
    expect(hottest).toMatchObject({ tokens: 200, uses: 2, salted: false, nodes_left_out: 0 });
    expect(hottest!.nodes).toEqual([
      { tokens: 150, uses: 3, pins: 0, children: 2, tiers: ['host'] },
      { tokens: 49, uses: 2, pins: 0, children: 1, tiers: ['host'] },
      // The last token of a prompt is computed every time, so the node ended before it.
      { tokens: 1, uses: 2, pins: 0, children: 0, tiers: ['host'] },
    ]);
    expect(before.paths.filter(({ salted }) => salted)).toMatchObject([{ tokens: 30, uses: 1 }]);
    expect(await engine.get('/kv')).not.toContain('secret');

    const { failures, capacity_bytes } = before.tiers['host']!;
    expect([failures, capacity_bytes]).toEqual([0, 2 ** 26]);
  });

  it('stays within what its query asks for', async () => {
    engine = await TestEngine.start();
    const segments = Array.from({ length: 40 }, (_, index) => 5 * (index + 1));
    for (let offset = 0; offset < 20; offset++) {
      await engine.complete(someTokens(200 + offset, offset), { segments });
    }
    const { paths } = await report('?paths=100');
    expect(paths).toHaveLength(20);
    expect(paths[0]).toMatchObject({ tokens: 219, nodes_left_out: 41 - 32 });
    expect(paths[0]!.nodes).toHaveLength(32);
    expect((await report('?paths=0')).paths).toEqual([]);
    expect((await report()).paths).toHaveLength(10);
  });

  it.each(['paths=101', 'paths=-1', 'paths=many'])('refuses %s', async (query) => {
    engine = await TestEngine.start();
    const response = await fetch(`${engine.server.url}/kv?${query}`);
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ error: { param: query.split('=')[0] } });
  });
});

describe('what operators ask of the cache', () => {
  let engine: TestEngine;
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'warmpath-manage-'));
  });
  afterEach(async () => {
    await engine.close();
    await rm(folder, { recursive: true });
  });
  const post = async (path: string, body: object): Promise<Record<string, unknown>> => {
    const answer = await engine.call(path, body);
    expect(answer.status, JSON.stringify(answer.body)).toBe(200);
    return answer.body as Record<string, unknown>;
  };
  const cachedOf = async (prompt: number[], salt?: string): Promise<unknown> =>
    (await post('/kv/lookup', { prompt, ...(salt !== undefined && { cache_salt: salt }) }))['cached_tokens_by_tier'];
  const files = async (): Promise<number> => (await readdir(folder)).filter((name) => name.endsWith('.kv')).length;
  const startWithTiers = async (hostTier: number): Promise<void> => {
    engine = await TestEngine.start({
      contextTokens: 512,
      hostTier,
      diskTier: folder,
    });
  };
  const [NOTHING, one, other] = [{ device: 0, host: 0, disk: 0 }, someTokens(200, 1), someTokens(120, 2)];

  it('looks up what a prompt would find, and computes nothing', async () => {
    await startWithTiers(2 ** 22);
    await engine.complete(one, { segments: [150] });
    expect(await post('/kv/lookup', { prompt: [...one.slice(0, 180), ...other] })).toEqual({
      prompt_tokens: 300,
      cached_tokens: 180,
      cached_tokens_by_tier: { device: 0, host: 180, disk: 0 },
    });
    expect(await cachedOf(one, 'a tenant')).toEqual(NOTHING);
    const messages = [{ role: 'user', content: 'How heavy is Velka?' }];
    expect(await post('/kv/lookup', { messages })).toMatchObject({ cached_tokens: 0 });
    await engine.chat('How heavy is Velka?');
    const { prompt_tokens, cached_tokens } = await post('/kv/lookup', { messages });
    expect(cached_tokens).toBe(prompt_tokens);
    expect(JSON.parse(await engine.get('/kv')).prompt_tokens.computed).toBe(200 + Number(prompt_tokens));
  });

  it('drops what is cached, of one salt or all, in one tier or all', async () => {
    // The host holds one of the prompts.
    await startWithTiers(300_000);
    await engine.complete(one, { cache_salt: 'a tenant' });
    await engine.complete(other, {});
    await engine.complete(someTokens(200, 3), { cache_salt: 'a tenant' });
    expect(await cachedOf(one, 'a tenant')).toEqual({ device: 0, host: 0, disk: 200 });
    expect(await files()).toBeGreaterThan(0);
    expect(await post('/kv/flush', { cache_salt: 'a tenant', tiers: ['host'] })).toEqual({
      dropped_tokens: { device: 0, host: 200, disk: 0 },
    });
    expect(await cachedOf(one, 'a tenant')).toEqual({ device: 0, host: 0, disk: 200 });
    expect(await post('/kv/flush', { cache_salt: 'a tenant' })).toEqual({
      dropped_tokens: { device: 0, host: 0, disk: 200 },
    });
    expect(await cachedOf(one, 'a tenant')).toEqual(NOTHING);
    expect(await cachedOf(other)).not.toEqual(NOTHING);
    await post('/kv/flush', {});
    expect(await cachedOf(other)).toEqual(NOTHING);
    await expect.poll(files).toBe(0);
    expect(JSON.parse(await engine.get('/kv'))).toMatchObject({ tree: { nodes: 0, salts: 0 }, cells: { used: 0 } });
    expect((await engine.complete(one, { cache_salt: 'a tenant' })).usage.prompt_tokens_details.cached_tokens).toBe(0);
  });

  it('does not drop what a running request stands on', async () => {
    await startWithTiers(2 ** 22);
    const alone = await engine.complete(one, { max_tokens: 200, ignore_eos: true });
    const stream = engine.stream('/v1/completions', { prompt: one, max_tokens: 200, ignore_eos: true });
    const first = await stream.next();
    await post('/kv/flush', {});
    expect(textOf([first!, ...(await stream.rest())])).toBe(alone.choices[0]!.text);
    await post('/kv/flush', {});
    expect(JSON.parse(await engine.get('/kv'))).toMatchObject({ tree: { nodes: 0 }, cells: { used: 0 } });
  });

  it.each([
    ['/kv/flush', { tiers: ['tape'] }, 'tiers[0]'],
    ['/kv/flush', { salt: 'misspelt' }, 'body'],
    ['/kv/lookup', { prompt: { no: 'prompt' } }, 'prompt'],
  ])('refuses %s %j', async (path, body, param) => {
    engine = await TestEngine.start({ contextTokens: 512 });
    expect(await engine.call(path, body)).toMatchObject({ status: 400, body: { error: { param } } });
  });
});
