import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
import { arrangeAfter } from '../src/arrange-after.js';
import { runCli } from './run-cli.js';

const documents = ['a', 'b', 'c'].map((id) => ({ id, content: `The text of ${id}.` }));
const ids = (answer: unknown) => (answer as { documents: { id: string }[] }).documents.map(({ id }) => id);

describe('warmpath arrange', () => {
  it('keeps retrieval order without a history', async () => {
    const { code, stdout } = await runCli(['arrange', '--json'], { input: JSON.stringify({ documents }) });
    expect(code).toBe(0);
    expect(stdout.trimEnd()).not.toContain('\n');
    expect(JSON.parse(stdout)).toMatchObject({
      object: 'arrangement',
      order: [0, 1, 2],
      hint: null,
      predictedCachedTokens: 0,
    });
  });

  it('leads with what the history holds, and says so', async () => {
    const input = JSON.stringify({
      documents,
      history: [
        ['x', 'y'],
        ['c', 'a', 'z'],
      ],
    });
    const { stdout } = await runCli(['arrange', '-'], { input });
    const answer = JSON.parse(stdout) as { hint: { labels: string[] }; predictedCachedTokens: number; text: string };
    expect(ids(answer)).toEqual(['c', 'a', 'b']);
    expect(answer.hint.labels).toEqual(['b', 'c']);
    expect(answer.predictedCachedTokens).toBeGreaterThan(0);
    expect(answer.text.indexOf('id="c"')).toBeLessThan(answer.text.indexOf('id="a"'));
  });

  it('reads a file, and says which it cannot read', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'warmpath-arrange-'));
    try {
      const file = join(folder, 'request.json');
      await writeFile(file, JSON.stringify({ documents, policy: 'retrieval', history: [['b']] }));
      expect(ids(JSON.parse((await runCli(['arrange', file])).stdout))).toEqual(['a', 'b', 'c']);
      const missing = await runCli(['arrange', join(folder, 'none.json')]);
      expect(missing.code).toBe(2);
      expect(missing.stderr).toContain('none.json');
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });

  it.each([
    ['{"documents": [', 'WARMPATH_INVALID_JSON', null],
    ['{"documents": [{"id": "a", "content": 7}]}', 'WARMPATH_INVALID_DOCUMENT', 'documents[0].content'],
    ['{"documents": [], "policy": "exactt"}', 'WARMPATH_UNKNOWN_POLICY', 'policy'],
    ['{"documents": [], "maxShift": -1}', 'WARMPATH_INVALID_MAX_SHIFT', 'maxShift'],
    ['{"documents": [], "shiftPrice": "low"}', 'WARMPATH_INVALID_SHIFT_PRICE', 'shiftPrice'],
    ['{"documents": [], "hist": []}', 'WARMPATH_INVALID_REQUEST', 'hist'],
    ['{"documents": [], "history": [["a", 3]]}', 'WARMPATH_INVALID_REQUEST', 'history[0][1]'],
    ['{"documents": [], "history": "a"}', 'WARMPATH_INVALID_REQUEST', 'history'],
    ['[]', 'WARMPATH_INVALID_REQUEST', null],
  ])('refuses %s with %s', async (input, code, param) => {
    const result = await runCli(['arrange', '--json'], { input });
    expect(result.code).toBe(1);
    expect(JSON.parse(result.stdout)).toMatchObject({ error: { code, param } });
  });
});

describe('arrangeAfter', () => {
  it('loses no document, whatever the history', () => {
    const id = fc.constantFrom('a', 'b', 'c', 'd', 'e', 'f');
    const history = fc.array(fc.uniqueArray(id), { maxLength: 8 });
    fc.assert(
      fc.property(fc.uniqueArray(id), history, (wanted, served) => {
        const input = { documents: wanted.map((name) => ({ id: name, content: `Text of ${name}.` })), history: served };
        const answer = arrangeAfter(input);
        expect(answer.documents.map((document) => document.id).sort()).toEqual([...wanted].sort());
        expect(answer.documents.map(({ rank }) => wanted[rank])).toEqual(
          answer.documents.map((document) => document.id),
        );
      }),
      { seed: 2, numRuns: runs(200) },
    );
  });
});
