import { afterEach, describe, expect, it } from 'vitest';
import type { TreeReport } from '../../src/cache/tree-report.js';
import { someTokens, TestEngine } from '../support/engine.js';

interface Report {
  cells: { total: number; used: number; cached: number };
  sequences: { free: number; running: number };
  prompt_tokens: { device: number; host: number; disk: number; computed: number };
  tiers: Record<string, Record<string, number>>;
  tree: Omit<TreeReport, 'tiers' | 'paths'>;
  paths: TreeReport['paths'];
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
      tree: { salts: 0, nodes: 0, leaves: 0, pinned: 0, deepest: 0, nodes_by_depth: [] },
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
    expect(before.tree).toMatchObject({ salts: 1, leaves: 3, pinned: 0, deepest: 3 });
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
    const whole = await report('?paths=100&depth=256');
    expect(whole.paths).toHaveLength(20);
    const { paths, tree } = await report('?paths=3&depth=4&sort=tokens');
    expect(paths.map(({ tokens }) => tokens)).toEqual([219, 218, 217]);
    expect(paths[0]!.nodes).toHaveLength(4);
    expect(paths[0]!.nodes_left_out).toBe(whole.tree.deepest - 4);
    expect(tree.nodes_by_depth).toHaveLength(4);
    expect(tree.nodes_by_depth.reduce((sum, count) => sum + count)).toBe(whole.tree.nodes);
    expect((await report('?paths=0')).paths).toEqual([]);
    expect((await report()).paths).toHaveLength(10);
  });

  it.each(['paths=101', 'paths=-1', 'paths=many', 'depth=0', 'sort=text'])('refuses %s', async (query) => {
    engine = await TestEngine.start();
    const response = await fetch(`${engine.server.url}/kv?${query}`);
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ error: { param: query.split('=')[0] } });
  });
});
