/**
 * RAGBoost's schedule (section 5.2): contexts grouped by the first element of their search paths, larger groups first,
 * and within a group longer paths first, then by path, then by index. Empty paths form a group of their own. Cost: O(n
 * log n) comparisons.
 */
export function schedulePaths(paths: readonly (readonly number[])[]): number[] {
  const groups = new Map<number, number[]>();
  for (const [index, path] of paths.entries()) {
    const first = path[0] ?? -1;
    const group = groups.get(first);
    if (group === undefined) groups.set(first, [index]);
    else group.push(index);
  }
  return [...groups.entries()]
    .sort(([firstOfOne, one], [firstOfOther, other]) => other.length - one.length || firstOfOne - firstOfOther)
    .flatMap(([, group]) => group.sort((one, other) => comparePaths(paths[one]!, paths[other]!) || one - other));
}

function comparePaths(one: readonly number[], other: readonly number[]): number {
  if (one.length !== other.length) return other.length - one.length;
  for (const [level, child] of one.entries()) if (child !== other[level]) return child - other[level]!;
  return 0;
}
