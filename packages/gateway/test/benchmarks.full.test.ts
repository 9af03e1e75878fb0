import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, it, onTestFinished } from 'vitest';

// The benchmarks run in minutes or hours; here they show that they still work.

const run = promisify(execFile);
const BENCH = join(import.meta.dirname, '../bench');

function resultFile(): string {
  const folder = mkdtempSync(join(tmpdir(), 'warmpath-bench-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  return join(folder, 'figures.json');
}

it('a short soak: every answer is for its own question, every fault is told, nothing is left behind', async () => {
  const json = resultFile();
  // It exits with 1 where anything is wrong.
  await run(process.execPath, [join(BENCH, 'soak.js'), '--requests', '500', '--json', json]);
  const { played, failed, problems } = JSON.parse(readFileSync(json, 'utf8'));
  expect({ failed, problems }).toEqual({ failed: 0, problems: [] });
  for (const play of ['whole', 'stream', 'reset', 'garbled', 'refused', 'left in a stream']) {
    expect(played[play], play).toBeGreaterThan(0);
  }
});

it('the benchmark measures what it was asked for, keeps the rest of the file, and judges the bars', async () => {
  const json = resultFile();
  const machine = `${cpus().length} x ${cpus()[0]!.model}`;
  const before = { run: 'before', systems: {} };
  const runs = [{ date: 'before', machine, node: process.version, versions: {} }];
  writeFileSync(json, JSON.stringify({ runs, groups: { 'prompt/1': before, 'small/32': before } }));
  const options = ['--quick', '--systems', 'direct,fastify,warmpath', '--cells', 'small/32,small/stream/32'];
  const { stdout } = await run(process.execPath, [join(BENCH, 'gateway.js'), ...options, '--json', json]);
  expect(stdout).toMatch(/CPU a request, small body .* times fastify \+ undici +(met|MISSED)/);
  expect(stdout).toMatch(/32 +Warmpath .* 0 of 64/);
  const figures = JSON.parse(readFileSync(json, 'utf8'));
  expect(figures.runs).toHaveLength(2);
  expect(Object.keys(figures.groups).sort()).toEqual(['idle', 'prompt/1', 'small/32', 'small/stream/32']);
  expect(figures.groups['prompt/1']).toEqual(before);
  for (const name of ['small/32', 'small/stream/32']) {
    const { systems } = figures.groups[name];
    expect(Object.keys(systems).sort()).toEqual(['direct', 'fastify', 'warmpath']);
    for (const { requests } of Object.values<{ requests: number[] }>(systems)) {
      expect(requests).toHaveLength(1);
      expect(requests[0]).toBeGreaterThan(0);
    }
  }
  const unknown = run(process.execPath, [join(BENCH, 'gateway.js'), '--cells', 'tiny']);
  await expect(unknown).rejects.toThrow('--cells: tiny is none of small/1, ');
});
