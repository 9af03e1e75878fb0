import { reproduceRagCachePlusPlus } from './ragcache-plus-plus.js';
import type { ReproducedTable } from './reproduction.js';

const REPRODUCTIONS = {
  'ragcache++': reproduceRagCachePlusPlus,
} as const satisfies Record<string, () => ReproducedTable[]>;

/** A paper whose tables can be reproduced. */
export type PaperName = keyof typeof REPRODUCTIONS;

export const PAPERS = Object.keys(REPRODUCTIONS) as readonly PaperName[];

/** The tables of a paper beside ours. Cost: seconds. */
export function reproduce(paper: PaperName): ReproducedTable[] {
  return REPRODUCTIONS[paper]();
}
