import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isFull } from '../../../test/suite.js';

const MAIN = join(import.meta.dirname, '../dist/main.js');

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-papers-'));
});
afterAll(() => rm(folder, { recursive: true }));

/** Runs the built command to its end. */
async function runPapers(args: readonly string[]) {
  return await promisify(execFile)(process.execPath, [MAIN, ...args], { maxBuffer: 2 ** 26 }).then(
    ({ stdout, stderr }) => ({ code: 0, stdout, stderr }),
    ({ code, stdout, stderr }: { code: number; stdout: string; stderr: string }) => ({ code, stdout, stderr }),
  );
}

describe('npm run papers', () => {
  it('draws the workloads of RAGCache with the seeds and requests asked for', async () => {
    const ragCache = ['ragcache', 'table-3', '--requests', '40', '--json', '--seeds'];
    const figuresOf = async (seeds: string) =>
      JSON.parse((await runPapers([...ragCache, seeds])).stdout).tables[0].rows;
    const [one, two, both] = [await figuresOf('1'), await figuresOf('2'), await figuresOf('1,2')];
    const [first, second, mean] = [one, two, both].map((rows) => rows[0].figures[0].ours as number);
    expect(first).not.toBe(second);
    expect(mean).toBeCloseTo((first! + second!) / 2, 6);
  });

  it.runIf(isFull)("prints the paper's figures beside ours, and the differences", async () => {
    const { code, stdout } = await runPapers(['ragcache++']);
    expect(code).toBe(0);
    expect(stdout).toMatch(/\| APC\+Retrieval +\| +59\.6 \| +59\.4 \| +-0\.2 \|/);
    expect(stdout).toContain("artefact of the code's rule");
  });

  it('prints the same as JSON', async () => {
    const { stdout } = await runPapers(['ragcache++', 'table-1', '--json']);
    const { paper, tables } = JSON.parse(stdout);
    expect(paper).toBe('ragcache++');
    expect(tables[0].model).toContain('vLLM: blocks of 16 tokens');
    expect(tables[0].rows[1].figures[0]).toEqual({ name: 'p50 ms', paper: 59.6, ours: expect.closeTo(59.4, 1) });
  });

  it('prints one table', async () => {
    const { stdout } = await runPapers(['ragcache++', 'table-10', '--json']);
    expect(JSON.parse(stdout).tables.map(({ title }: { title: string }) => title.slice(0, 8))).toEqual(['Table 10']);
    const wrong = await runPapers(['ragcache++', 'table-11']);
    expect(wrong.code).toBe(2);
    expect(wrong.stderr).toContain('did you mean `table-1');
  });

  it('has the row of NQ-Open where the data are', async () => {
    const data = join(folder, 'data', 'nq-open');
    await mkdir(data, { recursive: true });
    const records = ['where is the harbour', 'where is the old harbour', 'who built the harbour'];
    const lines = records.map((question) => JSON.stringify({ question, answer: ['here'] }));
    await writeFile(join(data, 'NQ-open.dev.jsonl'), Array(20).fill(lines.join('\n')).join('\n'));
    const table = ['cacheweaver', 'table-6', '--json'];
    const rowsOf = async (args: readonly string[]) =>
      JSON.parse((await runPapers([...table, ...args])).stdout).tables[0].rows.length;
    expect(await rowsOf([])).toBe(2);
    expect(await rowsOf(['--data', join(folder, 'data')])).toBe(3);
    const { code, stderr } = await runPapers([...table, '--data', folder]);
    expect(code).toBe(2);
    expect(stderr).toContain('NQ-open.dev.jsonl');
  });

  it("writes a page of a paper's tables", async () => {
    const page = join(folder, 'paper.html');
    expect((await runPapers(['ragcache++', 'table-1', '--report', page])).code).toBe(0);
    expect(await readFile(page, 'utf8')).toContain('APC+Retrieval</th><td>59.6</td><td>59.4</td>');
  });

  const refused: [what: string, args: string[]][] = [
    ['no paper', []],
    ['a paper that it does not have', ['other']],
    ['an option that it does not have', ['ragcache', '--sed', '1']],
    ['seeds that are none', ['ragcache', 'table-3', '--seeds', 'few']],
    ['a page of the summary', ['summary', '--report', 'page.html']],
    ['a table to go on with', ['ragcache', 'table-3', '--resume', 'lines.json']],
    ['a quick table', ['ragcache', 'table-3', '--quick']],
    ['a table of the summary', ['summary', 'table-3']],
    ['no requests', ['ragcache', 'table-3', '--requests', '0']],
  ];
  it.each(isFull ? refused : refused.slice(0, 3))('refuses %s, and says what it takes', async (_, args) => {
    const { code, stderr } = await runPapers(args);
    expect(code).toBe(2);
    expect(stderr).toContain('ragcache++: table-1, table-9');
  });
});
