import { planBatch } from '@warmpath/core';
import { zipfTrace } from '@warmpath/lab';
import type { ReproducedTable } from './reproduction.js';

const COUNTS = [128, 512, 4_096] as const;

/** Seconds on an A6000, by contexts. */
const PUBLISHED: Readonly<Record<number, readonly [number, number, number]>> = {
  3: [0.64, 0.65, 1.51],
  15: [0.69, 0.69, 1.62],
};

/** Table 2 (c), the only one that measures: our planning on this machine beside theirs on a GPU. */
export function constructionTable(): ReproducedTable {
  return {
    title: 'Table 2 (c): seconds to build the context index',
    rows: [3, 15].flatMap((k) =>
      COUNTS.map((count, column) => {
        const contexts = zipfTrace(101, { documents: 350, requests: count, k, exponent: 1 }).map(({ documents }) =>
          documents.map(String),
        );
        return {
          label: `k = ${k}, ${count.toLocaleString('en-US')} contexts`,
          figures: [
            {
              name: 'context index s',
              paper: PUBLISHED[k]![column],
              ours: secondsOf(() => planBatch(contexts, { method: 'context-index' })),
              places: 2,
            },
            { name: 'combined plan s', paper: undefined, ours: secondsOf(() => planBatch(contexts)), places: 2 },
          ],
        };
      }),
    ),
    notes: [
      'Measured on this machine, one core, once: the figures move from run to run. The paper has an A6000.',
      'Of 4,096 contexts ours clusters the first 2,000 and inserts the others, for the distances of all pairs grow with the square.',
      'The paper gives 7.69 s for 12,000 contexts and 866 s for 100,000 (k = 15). The combined plan takes some three seconds for 100,000; packages/core has the benchmark.',
    ],
  };
}

function secondsOf(work: () => unknown): number {
  const start = performance.now();
  work();
  return (performance.now() - start) / 1_000;
}
