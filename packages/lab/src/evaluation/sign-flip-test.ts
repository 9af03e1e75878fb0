/** Larger sums than this are not enumerated: the table of the test grows with them. */
const MAX_SUM = 1_000_000;

/**
 * Fisher's exact randomisation test of paired whole-number differences, two-sided: how often signs drawn by chance give
 * a sum at least as far from 0 as the one found, over all sign patterns. For differences of -1, 0 and 1 it is McNemar's
 * exact test; with one difference a conversation, questions of a conversation need not be independent of each other. 1
 * where nothing differs. Differences must be whole numbers with a sum of magnitudes of at most 1,000,000. O(differences
 * × sum of magnitudes).
 */
export function signFlipTest(differences: readonly number[]): number {
  const sizes = differences.map(Math.abs).filter((size) => size > 0);
  const reach = sizes.reduce((sum, size) => sum + size, 0);
  if (!sizes.every(Number.isInteger) || reach > MAX_SUM)
    throw new RangeError('whole numbers of a small sum were expected');
  if (reach === 0) return 1;
  const found = Math.abs(differences.reduce((sum, difference) => sum + difference, 0));
  // chances[i]: that the signs so far give the sum i - reach.
  let chances = new Float64Array(2 * reach + 1);
  chances[reach] = 1;
  for (const size of sizes) {
    const next = new Float64Array(chances.length);
    for (const [i, chance] of chances.entries()) {
      if (chance === 0) continue;
      next[i - size]! += chance / 2;
      next[i + size]! += chance / 2;
    }
    chances = next;
  }
  let p = 0;
  for (const [i, chance] of chances.entries()) if (Math.abs(i - reach) >= found) p += chance;
  return Math.min(1, p);
}
