/** Sets of retrieval ranks as bit masks, for up to 30 documents. */

export function lowestRank(set: number): number {
  return 31 - Math.clz32(set & -set);
}

export function rankCount(set: number): number {
  let count = 0;
  for (let left = set; left !== 0; left &= left - 1) count++;
  return count;
}

/** Ascending. */
export function ranksIn(set: number): number[] {
  const ranks: number[] = [];
  for (let left = set; left !== 0; left &= left - 1) ranks.push(lowestRank(left));
  return ranks;
}

export function setOf(ranks: readonly number[]): number {
  return ranks.reduce((set, rank) => set | (1 << rank), 0);
}
