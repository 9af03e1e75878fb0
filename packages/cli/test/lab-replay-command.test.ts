import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runCli } from './run-cli.js';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-replay-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

/** Requests whose documents come back in another order every time. */
const request = (number: number) => {
  const documents = ['a', 'b', 'c', 'd'].map((id) => ({ id: `${id}${Math.floor(number / 6) % 5}`, tokens: 300 }));
  const turned = number % documents.length;
  return {
    session: `s${number % 3}`,
    documents: [...documents.slice(turned), ...documents.slice(0, turned)],
    query_tokens: 20,
  };
};
const LOG = Array.from({ length: 60 }, (_, number) => `${JSON.stringify(request(number))}\n`).join('');

describe('warmpath lab replay', () => {
  it('prints one JSON object: traffic, every policy on every cache, bounds, finding', async () => {
    const file = join(folder, 'log.jsonl');
    await writeFile(file, LOG);
    const options = ['--caches', '500,radix:20000,slots:2:9000', '--policies', 'retrieval,exact', '--json'];
    const { code, stdout, stderr } = await runCli(['lab', 'replay', file, ...options]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    const report = JSON.parse(stdout);
    expect(Object.keys(report)).toEqual([
      'log',
      'arrivals',
      'queue',
      'traffic',
      'results',
      'bounds',
      'savings',
      'finding',
      'assumptions',
      'skipped',
    ]);
    expect(report).toMatchObject({ log: file, arrivals: 'sequential', skipped: { count: 0, first: [] } });
    expect(report.traffic).toMatchObject({ requests: 60, documents: 240, distinctDocuments: 20, duplicates: 0 });
    const rows = report.results.map((each: Record<string, unknown>) => [
      each['engine'],
      each['policy'],
      each['capacityTokens'],
    ]);
    expect(rows).toEqual([
      ['vLLM', 'retrieval', 8_000],
      ['vLLM', 'exact', 8_000],
      ['SGLang', 'retrieval', 20_000],
      ['SGLang', 'exact', 20_000],
      ['llama-server', 'retrieval', null],
      ['llama-server', 'exact', null],
    ]);
    expect(report.bounds).toHaveLength(3);
    expect(report.savings[0].uncachedTokens).toBeGreaterThan(0.3);
    expect(report.finding).toContain(`${(100 * report.savings[0].uncachedTokens).toFixed(1)} % fewer tokens on vLLM`);
  });

  it('says it for a person, from standard input', async () => {
    const { code, stdout } = await runCli(['lab', 'replay', '-', '--caches', 'radix'], { input: LOG });
    expect(code).toBe(0);
    expect(stdout).toContain('60 requests, 240 documents, 20 of them different');
    expect(stdout).toMatch(/SGLang with unlimited room\n +policy .*\n +retrieval .*\n +exact .*\n +foresight /);
    expect(stdout).toMatch(/bounds: best order of each request alone \d+\.\d %, seen before/);
    expect(stdout).toContain('had been in the same session before');
    expect(stdout).toMatch(/instead of retrieval order, you would prefill \d+\.\d % fewer tokens/);
    expect(stdout).toContain('All requests go to one engine');
  });

  it('lets requests come at the times of the log, unless told not to', async () => {
    const timed = (everyMs: number) =>
      Array.from(
        { length: 60 },
        (_, number) => `${JSON.stringify({ ...request(number), timestamp: number * everyMs })}\n`,
      ).join('');
    const run = async (everyMs: number, ...options: string[]) => {
      const args = ['lab', 'replay', '-', '--caches', 'radix', '--policies', 'retrieval,exact', '--json', ...options];
      return JSON.parse((await runCli(args, { input: timed(everyMs) })).stdout);
    };
    const calm = await run(10_000);
    expect(calm).toMatchObject({ arrivals: 'recorded', traffic: { spanMs: 590_000 } });
    const sequential = await run(10_000, '--sequential');
    expect(sequential.arrivals).toBe('sequential');
    // Nobody waits: the same figures.
    expect(calm.results[0].ttftMs.mean).toBeCloseTo(sequential.results[0].ttftMs.mean, 6);
    expect(calm.results[0].uncachedTokens).toEqual(sequential.results[0].uncachedTokens);
    expect(calm.utilisation).toBeLessThan(0.02);
    const rushed = await run(20);
    expect(rushed.results[0].ttftMs.mean).toBeGreaterThan(5 * calm.results[0].ttftMs.mean);
    expect(rushed.finding).toContain('overloaded');
    const spread = await run(20, '--replicas', '16');
    expect(spread.results[0].ttftMs.mean).toBeLessThan(rushed.results[0].ttftMs.mean / 5);
    expect(spread.assumptions[0]).toContain('16 engines');
  });

  it('names the line that is wrong, or leaves it out when asked to and says so', async () => {
    const input = `${LOG}{"documents": [\n{"documents": [{"id": 3}]}\n`;
    const strict = await runCli(['lab', 'replay', '-', '--json'], { input });
    expect(strict.code).toBe(1);
    expect(JSON.parse(strict.stdout).error).toMatchObject({ code: 'WARMPATH_INVALID_JSON', param: 'line 61' });
    const options = ['lab', 'replay', '-', '--skip-invalid', '--caches', 'radix'];
    const lenient = await runCli([...options, '--json'], { input });
    expect(JSON.parse(lenient.stdout)).toMatchObject({
      traffic: { requests: 60 },
      skipped: {
        count: 2,
        first: [
          { line: 61, code: 'WARMPATH_INVALID_JSON' },
          { line: 62, code: 'WARMPATH_INVALID_REQUEST', message: expect.stringContaining('documents[0].id') },
        ],
      },
    });
    expect((await runCli(options, { input })).stdout).toContain('2 lines were left out:\n    line 61');
  });

  it.each([
    ['an empty log', ['-'], 1, 'no request'],
    ['a log that is not there', ['no/such/log.jsonl'], 2, 'cannot read no/such/log.jsonl'],
    ['a cache that is none', ['-', '--caches', 'radix,huge'], 1, 'A cache is one of'],
    ['a policy that is none', ['-', '--policies', 'exakt'], 1, 'did you mean `exact`'],
    ['a machine that is none', ['-', '--latency', 'abacus'], 2, 'rtx-4090'],
  ])('refuses %s', async (_, args, exitCode, message) => {
    const { code, stdout, stderr } = await runCli(['lab', 'replay', ...args]);
    expect({ code, stdout }).toEqual({ code: exitCode, stdout: '' });
    expect(stderr).toContain(message);
  });

  it('keeps what is done when it is interrupted, even while the log is silent', async () => {
    const main = join(import.meta.dirname, '../dist/main.js');
    const child = spawn(process.execPath, [main, 'lab', 'replay', '-', '--caches', 'radix:5000', '--json']);
    let stdout = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      stdout += text;
    });
    // Far more than pipes and buffers hold: when it is taken, most of it was read. Standard input stays open.
    await new Promise((resolve) => child.stdin.write(LOG.repeat(100), resolve));
    child.kill('SIGINT');
    const [code] = await once(child, 'close');
    expect(code).toBe(130);
    const { traffic, results } = JSON.parse(stdout);
    expect(traffic.requests).toBeGreaterThan(1_000);
    expect(results[0].requests).toBe(traffic.requests);
  });
});
