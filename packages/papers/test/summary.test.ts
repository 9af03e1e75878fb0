import { expect, test } from 'vitest';
import { PAPERS, tablesOf } from '../src/papers.js';
import { DEVIATES, NO_EVIDENCE } from '../src/summary.js';

test('every reason is about a table that there is', () => {
  const tables = new Set(PAPERS.flatMap((paper) => tablesOf(paper).map((table) => `${paper} ${table}`)));
  for (const name of [...Object.keys(DEVIATES), ...Object.keys(NO_EVIDENCE)]) expect(tables).toContain(name);
});
