import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runCli } from './run-cli.js';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-lab-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

async function file(name: string, content: string): Promise<string> {
  const path = join(folder, name);
  await writeFile(path, content);
  return path;
}

const share = { mean: expect.any(Number), se: expect.any(Number) };
const result = {
  cachedDocumentShare: share,
  cachedTokenShare: share,
  uncachedTokens: { mean: expect.any(Number), p50: expect.any(Number) },
  ttftMs: { p50: expect.any(Number), p95: expect.any(Number), p99: expect.any(Number), mean: expect.any(Number) },
  arrangeUs: { p50: expect.any(Number), p99: expect.any(Number) },
};

describe('warmpath lab run', () => {
  it('prints one JSON report, with exactly the documented fields', async () => {
    const options = ['--policies', 'retrieval,exact', '--seeds', '1..2,7', '--queue', '4', '--cache', '330', '--json'];
    const { code, stdout, stderr } = await runCli(['lab', 'run', 'mixed', ...options]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    const settings = { queue: 4, cache: '330', seeds: [1, 2, 7] };
    expect(JSON.parse(stdout)).toEqual({
      workload: 'mixed',
      requests: 200,
      jaccard: expect.any(Number),
      results: [
        { policy: 'retrieval', ...settings, ...result },
        { policy: 'exact', ...settings, ...result },
      ],
      bounds: { seenBefore: expect.any(Number), oracle: expect.any(Number) },
    });
  });

  it('prints the published figures as a table', async () => {
    const { code, stdout } = await runCli(['lab', 'run', 'headline', '--policies', 'greedy,exact', '--seeds', '42']);
    expect(code).toBe(0);
    expect(stdout).toContain('headline: 200 requests, adjacent Jaccard 0.520, 1 seed, cache unlimited');
    expect(stdout).toMatch(/greedy +0\.6970 /);
    expect(stdout).toMatch(/exact +0\.6990 /);
    expect(stdout).toContain('seen before at any position 0.8060');
  });

  it('runs a trace, once whatever the seeds', async () => {
    const trace = await file('trace.json', JSON.stringify({ requests: [[1, 2], [2, 1], ['a']] }));
    const { stdout } = await runCli(['lab', 'run', '--trace', trace, '--policies', 'retrieval,exact', '--json']);
    const report = JSON.parse(stdout);
    expect(report).toMatchObject({ workload: trace, requests: 3, jaccard: 0.5 });
    const shares = report.results.map((each: typeof result) => each.cachedDocumentShare);
    expect(shares).toEqual([
      { mean: 0, se: 0 },
      { mean: 1 / 3, se: 0 },
    ]);
    expect(report.results[0].seeds).toHaveLength(1);
  });

  it.each([
    ['a workload that is none', ['headlin'], 1, 'did you mean `headline`'],
    ['a policy that is none', ['mixed', '--policies', 'exakt'], 1, 'did you mean `exact`'],
    ['a cache that is none', ['mixed', '--cache', 'huge'], 1, 'A cache is one of'],
    ['seeds that are none', ['mixed', '--seeds', '3..1'], 2, '1..10'],
    ['too many seeds', ['mixed', '--seeds', '1..5000'], 2, 'at most 1000'],
    ['a look-ahead out of range', ['mixed', '--queue', '65'], 2, 'from 0 to 64'],
    ['neither workload nor trace', [], 2, 'either a workload or --trace'],
    ['both', ['mixed', '--trace', 'x.json'], 2, 'either a workload or --trace'],
    ['a trace that is not there', ['--trace', 'no/such/file.json'], 2, 'cannot read'],
  ])('refuses %s', async (_, args, exitCode, message) => {
    const { code, stdout, stderr } = await runCli(['lab', 'run', ...args]);
    expect({ code, stdout }).toEqual({ code: exitCode, stdout: '' });
    expect(stderr).toContain(message);
  });

  it('says where a trace is wrong', async () => {
    const broken = await file('broken.json', '{"requests": [');
    expect((await runCli(['lab', 'run', '--trace', broken])).stderr).toContain('WARMPATH_INVALID_JSON');
    const wrong = await file('wrong.json', '{"requests": [[1], [2, null]]}');
    expect((await runCli(['lab', 'run', '--trace', wrong])).stderr).toContain('requests[1][1]');
  });
});

describe('warmpath lab reproduce', () => {
  it("prints the paper's figures beside ours, and the differences", async () => {
    const { code, stdout } = await runCli(['lab', 'reproduce', 'ragcache++']);
    expect(code).toBe(0);
    expect(stdout).toMatch(/APC\+Retrieval +59\.6 +59\.4 +-0\.2/);
    expect(stdout).toContain("artefact of the code's rule");
  });

  it('prints the same as JSON', async () => {
    const { stdout } = await runCli(['lab', 'reproduce', 'ragcache++', '--json']);
    const { paper, tables } = JSON.parse(stdout);
    expect(paper).toBe('ragcache++');
    expect(tables[0].rows[1].figures[0]).toEqual({ name: 'p50 ms', paper: 59.6, ours: expect.closeTo(59.4, 1) });
  });

  it('refuses a paper that it does not have', async () => {
    expect((await runCli(['lab', 'reproduce', 'other'])).code).toBe(2);
  });
});
