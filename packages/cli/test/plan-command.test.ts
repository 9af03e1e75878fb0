import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { runCli } from './run-cli.js';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-plan-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

interface Line {
  readonly index: number;
  readonly documents: string[];
  readonly sharedDocuments: number;
}

async function plan(input: string, ...options: string[]) {
  const output = join(folder, 'out.jsonl');
  const result = await runCli(['plan', '-', '-o', output, ...options], { input });
  const text = await readFile(output, 'utf8').catch(() => '');
  const lines = text === '' ? [] : text.trimEnd().split('\n');
  return { ...result, lines: lines.map((line) => JSON.parse(line) as Line) };
}

const log = (...requests: unknown[]) => requests.map((request) => `${JSON.stringify(request)}\n`).join('');

describe('warmpath plan', () => {
  it('writes every request once, those that share documents one after the other', async () => {
    const input = log(
      { timestamp: 1, session: 's', documents: [{ id: 'a' }, { id: 'b' }, 'c'], query_tokens: 12 },
      { documents: ['x', 'y'] },
      { timestamp: '2026-01-01T00:00:00Z', documents: ['d', 'b', 'a'] },
      { documents: [] },
    );
    const { code, stdout, stderr, lines } = await plan(input, '--json');
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(JSON.parse(stdout)).toEqual({
      contexts: 4,
      documents: 8,
      trieNodes: 6,
      reuse: 0.25,
      ms: expect.any(Number),
      rssMiB: expect.any(Number),
    });
    expect(lines.map(({ index }) => index).sort()).toEqual([0, 1, 2, 3]);
    const second = lines.findIndex(({ sharedDocuments }) => sharedDocuments > 0);
    expect(lines[second]!.sharedDocuments).toBe(2);
    expect(lines[second]!.documents.slice(0, 2)).toEqual(lines[second - 1]!.documents.slice(0, 2));
    expect(lines.find(({ index }) => index === 2)!.documents.toSorted()).toEqual(['a', 'b', 'd']);
    expect(Object.keys(lines[0]!)).toEqual(['index', 'documents', 'sharedDocuments']);
  });

  it('reads a file, skips blank lines, and says what it did', async () => {
    const file = join(folder, 'in.jsonl');
    await writeFile(file, '{"documents":["a"]}\r\n\r\n{"documents":["a"]}');
    const { code, stdout } = await runCli(['plan', file, '--output', file]);
    expect(code).toBe(0);
    expect(stdout).toContain('2 requests, 2 documents: 1 to prefill');
    expect((await readFile(file, 'utf8')).trimEnd().split('\n')).toHaveLength(2);
  });

  it('plans for tokens if all are known, and for documents if one is missing', async () => {
    const long = { id: 'long', tokens: 1000 };
    const [a, b, x, y, z] = [...'abxyz'].map((id) => ({ id, tokens: 10 }));
    const first = (lines: Line[]) => lines.find(({ index }) => index === 0)!.documents[0];
    const known = await plan(log({ documents: [a, b, long] }, { documents: [a, b, x] }, { documents: [long, y, z] }));
    expect(first(known.lines)).toBe('long');
    const missing = await plan(
      log({ documents: [a, b, long] }, { documents: [a, b, 'x'] }, { documents: [long, y, z] }),
    );
    expect(first(missing.lines)).toBe('a');
  });

  it('takes a capacity, and refuses a method: batches are planned in one way', async () => {
    const input = log({ documents: ['b', 'a'] }, { documents: ['a', 'b'] });
    const method = await plan(input, '--method', 'retrieval');
    expect([method.code, method.stderr]).toEqual([2, expect.stringContaining("unknown option '--method'")]);
    const small = await plan(input, '--capacity', '1', '--json');
    expect(JSON.parse(small.stdout)).toMatchObject({ trieNodes: 2, reuse: 0.25 });
  });

  it.each([
    ['{"documents": ["a"]}\n{"documents": [', 'WARMPATH_INVALID_JSON', 'line 2'],
    ['\n\n[]', 'WARMPATH_INVALID_REQUEST', 'line 3'],
    ['{}', 'WARMPATH_INVALID_DOCUMENTS', 'line 1: documents'],
    ['{"documents": [7]}', 'WARMPATH_INVALID_REQUEST', 'line 1: documents[0]'],
    ['{"documents": ["a", {"id": 7}]}', 'WARMPATH_INVALID_REQUEST', 'line 1: documents[1].id'],
    ['{"documents": [{"id": "a", "tokens": -1}]}', 'WARMPATH_INVALID_REQUEST', 'line 1: documents[0].tokens'],
    ['{"documents": [], "query_tokens": "many"}', 'WARMPATH_INVALID_REQUEST', 'line 1: query_tokens'],
    ['{"documents": [], "timestamp": {}}', 'WARMPATH_INVALID_REQUEST', 'line 1: timestamp'],
    ['{"documents": [], "session": []}', 'WARMPATH_INVALID_REQUEST', 'line 1: session'],
  ])('refuses %j with %s at %s and writes nothing', async (input, code, param) => {
    const result = await plan(input, '--json');
    expect(result.code).toBe(1);
    expect(JSON.parse(result.stdout)).toMatchObject({ error: { code, param } });
    expect(result.lines).toEqual([]);
  });

  it('says which file it cannot read or write, each with its reason', async () => {
    const unreadable = await runCli(['plan', join(folder, 'none.jsonl'), '-o', join(folder, 'out.jsonl')]);
    expect(unreadable.code).toBe(2);
    expect(unreadable.stderr).toContain('none.jsonl');
    const unwritable = await plan('{"documents":[]}', '-o', join(folder, 'no', 'out.jsonl'));
    expect(unwritable.code).toBe(2);
    expect(unwritable.stderr).toContain('--output');
    expect(unreadable.stderr).toContain('no such file');
  });

  it('writes to standard output without -o, nothing else among it', async () => {
    const input = log({ documents: ['b', 'a'] }, { documents: ['a', 'b'] });
    const { code, stdout, stderr } = await runCli(['plan', '-'], { input });
    expect(code).toBe(0);
    expect(
      stdout
        .trimEnd()
        .split('\n')
        .map((line) => (JSON.parse(line) as Line).index),
    ).toEqual([0, 1]);
    expect(stderr).toContain('2 requests, 4 documents: 2 to prefill\nreuse 50.0 %');
    expect((await runCli(['plan', '-', '--json'], { input })).stdout).toBe(stdout);
  });
});
