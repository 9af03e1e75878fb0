import { watch } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { repeatableCommand } from '../src/lab/report-file.js';
import { runCli, startCli } from './run-cli.js';

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
        {
          policy: 'exact',
          ...settings,
          ...result,
          difference: { cachedDocumentShare: share, cachedTokenShare: share, ttftMs: share },
        },
      ],
      bounds: { seenBefore: expect.any(Number), oracle: expect.any(Number) },
    });
  });

  it('prints the published figures as a table', async () => {
    const { code, stdout } = await runCli(['lab', 'run', 'headline', '--policies', 'greedy,exact', '--seeds', '42']);
    expect(code).toBe(0);
    expect(stdout).toContain('headline: 200 requests, adjacent Jaccard 0.520, 1 seed, cache unlimited');
    expect(stdout).toMatch(/greedy +69\.70 % /);
    expect(stdout).toMatch(/exact +69\.90 % +\+0\.20 % /);
    expect(stdout).toContain('minus greedy');
    for (const line of stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(100);
    expect(stdout).toContain('seen before 80.60 %');
  });

  it('finds what the best orders of all requests together would reuse, if asked', async () => {
    const options = ['--policies', 'exact', '--seeds', '42'];
    const { stdout } = await runCli(['lab', 'run', 'k-3', ...options, '--offline', '--json']);
    const { bounds } = JSON.parse(stdout);
    expect(bounds).toMatchObject({ offline: { value: expect.closeTo(0.5333, 4) } });
    const { stdout: table } = await runCli(['lab', 'run', 'k-3', ...options, '--offline', '20']);
    expect(table).toContain('best orders of all requests together, no cache limit: 53.33 %');
    const { code, stderr } = await runCli(['lab', 'run', 'k-3', '--offline', '--warm-up', '5']);
    expect(code).toBe(2);
    expect(stderr).toContain('--warm-up');
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

describe('warmpath lab run --resume', () => {
  const command = (state: string, seeds: string, ...others: string[]) => {
    const options = ['--policies', 'retrieval,exact', '--seeds', seeds, ...others, '--json'];
    return ['lab', 'run', 'geospatial', ...options, ...(state === '' ? [] : ['--resume', state])];
  };

  /** Without the one figure that is measured with a real clock. */
  const figures = (stdout: string) => JSON.parse(stdout, (key, value) => (key === 'arrangeUs' ? undefined : value));

  it('goes on where it was interrupted, to the same figures as in one go', async () => {
    const state = join(folder, 'interrupted.jsonl');
    const running = startCli(command(state, '1..1000'));
    await linesIn(state, 3);
    running.process.kill('SIGINT');
    const stopped = await running.ended;
    expect(stopped.code).toBe(130);
    const { seeds } = figures(stopped.stdout).results[0];
    expect(seeds.length).toBeGreaterThanOrEqual(2);
    expect(seeds.length).toBeLessThan(1000);
    const last = String(seeds.length + 2);
    const resumed = await runCli(command(state, `1..${last}`));
    expect(resumed.code).toBe(0);
    expect(figures(resumed.stdout)).toEqual(figures((await runCli(command('', `1..${last}`))).stdout));
    // What was done was not done again.
    expect(await readFile(state, 'utf8').then((text) => text.trim().split('\n'))).toHaveLength(1 + Number(last));
  });

  it('refuses what a run of other settings left, and fewer seeds than are done', async () => {
    const state = join(folder, 'other.jsonl');
    expect((await runCli(command(state, '1..2'))).code).toBe(0);
    // Where results go is no setting.
    expect((await runCli(command(state, '1..2').filter((word) => word !== '--json'))).code).toBe(0);
    const other = await runCli(command(state, '1..2', '--queue', '8'));
    expect(other.code).toBe(2);
    expect(other.stdout).toContain('queue 0, not 8');
    const fewer = await runCli(command(state, '1'));
    expect(fewer.code).toBe(2);
    expect(fewer.stdout).toContain('seed 2 is done');
  });
});

describe('--report', () => {
  it('writes a page of the same figures, and changes nothing else', async () => {
    const page = join(folder, 'run.html');
    const args = ['lab', 'run', 'mixed', '--policies', 'retrieval,exact', '--seeds', '1..2', '--json'];
    const { code, stdout } = await runCli([...args, '--report', page]);
    expect(code).toBe(0);
    const html = await readFile(page, 'utf8');
    const report = JSON.parse(stdout);
    for (const { policy, cachedDocumentShare } of report.results) {
      expect(html).toContain(`${policy}</th><td>${(100 * cachedDocumentShare.mean).toFixed(2)}</td>`);
    }
    expect(html.replaceAll(/<\/?span>/g, '')).toContain(
      '<code>warmpath lab run mixed --policies retrieval,exact --seeds 1..2</code>',
    );
  });

  it('writes a page of a replayed log', async () => {
    const page = join(folder, 'replay.html');
    const log = await file('log.jsonl', '{"documents": ["a", "b"]}\n{"documents": ["b", "a"]}\n');
    const { stdout } = await runCli(['lab', 'replay', log, '--json', '--report', page]);
    expect(await readFile(page, 'utf8')).toContain(`<p class="finding">${JSON.parse(stdout).finding}</p>`);
  });

  it('says what it cannot write', async () => {
    const page = join(folder, 'no', 'such.html');
    const { code, stderr } = await runCli(['lab', 'run', 'mixed', '--seeds', '1', '--report', page]);
    expect(code).toBe(2);
    expect(stderr).toContain('--report: cannot write');
  });

  it('gives a command to repeat that a shell understands, without secrets and without places of results', () => {
    const argv = [
      'lab',
      'run',
      '--trace',
      "it's a file.json",
      '--report',
      'x.html',
      '--json',
      '--resume=s',
      '--seeds',
      '1',
    ];
    expect(repeatableCommand(argv)).toBe("warmpath lab run --trace 'it'\\''s a file.json' --seeds 1");
    expect(repeatableCommand(['--engine', 'http://me:secret@host:8000/v1'])).toBe(
      'warmpath --engine http://host:8000/v1',
    );
  });
});

/** Resolves when a file has so many whole lines. */
async function linesIn(file: string, count: number): Promise<void> {
  const changes = watch(folder);
  try {
    await new Promise<void>((resolve, reject) => {
      const look = () => {
        readFile(file, 'utf8').then(
          (text) => {
            if (text.split('\n').length > count) resolve();
          },
          (error: NodeJS.ErrnoException) => {
            if (error.code !== 'ENOENT') reject(error);
          },
        );
      };
      changes.on('change', look);
      look();
    });
  } finally {
    changes.close();
  }
}

describe('warmpath lab run --data', () => {
  const lines = (...values: unknown[]) => values.map((value) => JSON.stringify(value)).join('\n');

  it('runs a BEIR folder with what BM25 finds, and says how much of the judged that is', async () => {
    const data = join(folder, 'beir');
    await mkdir(join(data, 'qrels'), { recursive: true });
    await file('beir/corpus.jsonl', lines({ _id: 'a', text: 'clock tower' }, { _id: 'b', text: 'tower bridge' }));
    await file('beir/queries.jsonl', lines({ _id: '1', text: 'tower' }, { _id: '2', text: 'bridge of the tower' }));
    await file('beir/qrels/test.tsv', 'query-id\tcorpus-id\tscore\n1\ta\t1\n2\tb\t1\n1\tc\t1\n1\td\t1\n');
    const json = await runCli(['lab', 'run', '--data', data, '--policies', 'exact', '--cache', 'radix', '--json']);
    expect(JSON.parse(json.stdout)).toMatchObject({
      workload: data,
      requests: 2,
      recall: 0.5,
      results: [{ cachedDocumentShare: { mean: 0.5, se: 0 } }],
    });
    const { stdout } = await runCli(['lab', 'run', '--data', data, '--top-k', '1']);
    expect(stdout).toContain('of the passages judged relevant, 50.0 % were retrieved');
  });

  it('puts conversations together as asked', async () => {
    const task = (id: string) => ({
      conversation_id: id,
      input: ['clock', 'the clock again'].flatMap((text) => [
        { speaker: 'user', text },
        { speaker: 'agent', text: 'Yes.' },
      ]),
      contexts: [{ document_id: 'clock', text: 'The clock of the tower.' }],
    });
    const asked = { ...task('x'), input: task('x').input.slice(0, 3) };
    const tasks = await file('tasks.jsonl', lines(asked, { ...asked, conversation_id: 'y' }));
    const uncached = async (layout: string) => {
      const options = ['--sessions', '2', '--conversations', layout, '--cache', 'off', '--policies', 'exact', '--json'];
      const { stdout } = await runCli(['lab', 'run', '--data', tasks, ...options]);
      return JSON.parse(stdout).results[0].uncachedTokens.mean;
    };
    expect(await uncached('appended')).toBeGreaterThan(await uncached('deduplicated'));
  });

  it.each([
    ['options of --data without it', ['mixed', '--top-k', '3'], 2, 'go with --data'],
    ['data beside a workload', ['mixed', '--data', 'x'], 2, 'either a workload or --trace or --data'],
    ['data that are not there', ['--data', 'no/such/folder'], 2, 'cannot read'],
    ['a layout that is none', ['--data', 'x', '--format', 'csv'], 2, 'beir'],
  ])('refuses %s', async (_, args, exitCode, message) => {
    const { code, stdout, stderr } = await runCli(['lab', 'run', ...args]);
    expect({ code, stdout }).toEqual({ code: exitCode, stdout: '' });
    expect(stderr).toContain(message);
  });

  it('says in which file and line the data are wrong', async () => {
    const log = await file('wrong.jsonl', '{"documents": ["a"]}\n{"documents": [3]}');
    const { code, stderr } = await runCli(['lab', 'run', '--data', log]);
    expect(code).toBe(1);
    expect(stderr).toContain('line 2: documents[0]');
  });
});

describe('warmpath lab run with a server', () => {
  const figures = {
    tbtMs: { p50: expect.any(Number), p99: expect.any(Number) },
    endToEndMs: { p50: expect.any(Number), p99: expect.any(Number), mean: expect.any(Number) },
    waitMs: { mean: expect.any(Number) },
    throughput: { requestsPerSecond: expect.any(Number), tokensPerSecond: expect.any(Number) },
    batch: { mean: expect.any(Number), max: expect.any(Number) },
    imbalance: expect.any(Number),
    utilisation: expect.any(Number),
  };
  const run = (...args: string[]) => runCli(['lab', 'run', 'mixed', '--policies', 'exact', '--seeds', '1', ...args]);

  it('adds what it did to the report, and says how it was built', async () => {
    const built = ['--max-batch', '8', '--chunk-tokens', '1024', '--replicas', '2', '--answer-tokens', '20'];
    const chosen = ['--router', 'cache-aware', '--scheduler', 'cache-aware', '--retrieval-ms', '10', '--leader-first'];
    const { code, stdout } = await run('--load', '1.2', ...built, ...chosen, '--no-step-sharing', '--json');
    expect(code).toBe(0);
    const report = JSON.parse(stdout);
    expect(report.server).toEqual({
      clients: { kind: 'poisson', load: 1.2 },
      replicas: 2,
      router: 'cache-aware',
      scheduler: 'cache-aware',
      maxBatch: 8,
      chunkTokens: 1024,
      sharesInStep: false,
      leaderFirst: true,
      answerTokens: 20,
      retrievalMs: 10,
    });
    expect(report.results[0]).toEqual({
      policy: 'exact',
      queue: 0,
      cache: 'unlimited',
      load: 1.2,
      seeds: [1],
      ...result,
      server: figures,
    });
    expect(report.results[0].server.batch.max).toBe(8);
    expect(report.results[0].server.tbtMs.p50).toBeGreaterThan(16);
  });

  it('takes a closed loop, sessions, and recorded times', async () => {
    const closed = await run('--clients', '4', '--think-ms', '200');
    expect(closed.stdout).toContain('4 clients, up to 0 waiting requests known');
    expect(closed.stdout).toContain('between tokens p50');
    const sessions = [
      'lab',
      'run',
      'sessions',
      '--policies',
      'exact',
      '--seeds',
      '1',
      '--turn-by-turn',
      '--load',
      '0.8',
    ];
    expect((await runCli(sessions)).stdout).toContain('sessions at load 0.8');
    expect((await run('--recorded')).stderr).toContain('requests[0].arrivalMs');
  });

  it.each([
    ['a server without clients', ['--max-batch', '8'], 'a server needs clients'],
    ['two kinds of clients', ['--load', '1', '--clients', '3'], 'exclude each other'],
    ['time to think for nobody', ['--load', '1', '--think-ms', '3'], '--think-ms goes with'],
    ['a router that is none', ['--load', '1', '--router', 'dice'], 'round-robin'],
    ['a load that is none', ['--load', '-1'], 'above 0'],
  ])('refuses %s', async (_, args, message) => {
    const { code, stderr } = await run(...args);
    expect(code).toBe(2);
    expect(stderr).toContain(message);
  });

  it('reads a measured profile, and says what is wrong with one', async () => {
    const grid = {
      cachedTokens: [0, 1_000],
      newTokens: [0, 2_000],
      prefillMs: [
        [5, 205],
        [5, 205],
      ],
    };
    const profile = await file('profile.json', JSON.stringify({ engine: 'mine', ...grid }));
    const { stdout } = await run('--latency', profile, '--cache', 'off', '--json');
    // Every prompt has 1,052 tokens.
    expect(JSON.parse(stdout).results[0].ttftMs.p50).toBeCloseTo(5 + 0.1 * 1_052, 6);
    const wrong = await file('wrong-profile.json', JSON.stringify({ ...grid, newTokens: [0, '2'] }));
    expect((await run('--latency', wrong)).stderr).toContain('newTokens[1]');
    const none = await run('--latency', 'abacus');
    expect(none.code).toBe(2);
    expect(none.stderr).toContain('rtx-4060-ti');
  });
});
