/**
 * RAGBoost's distance of two contexts (Eq. 1): 1 less the shared documents over the longer length, plus `alpha` times
 * how far the shared ones stand apart on average. 1 if nothing is shared. No document may stand twice in a context.
 * Cost: O(|a| + |b|).
 */
export function contextDistance(a: readonly number[], b: readonly number[], alpha: number): number {
  const places = new Map(a.map((document, place) => [document, place]));
  let shared = 0;
  let apart = 0;
  for (const [place, document] of b.entries()) {
    const other = places.get(document);
    if (other === undefined) continue;
    shared++;
    apart += Math.abs(place - other);
  }
  if (shared === 0) return 1;
  return 1 - shared / Math.max(a.length, b.length) + (alpha * apart) / shared;
}

/** Two clusters that become one: items are `0..count-1`, the cluster of merge `m` is `count + m`. */
export type Merge = readonly [one: number, other: number];

/**
 * Hierarchical clustering by average linkage: all `count - 1` merges, parts before wholes. Follows chains of nearest
 * neighbours, which finds the same tree as merging the closest pair each time. Cost: O(count²) time, 8 bytes x count²
 * memory.
 */
export function averageLinkage(count: number, distance: (one: number, other: number) => number): readonly Merge[] {
  const distances = new Float64Array(count * count);
  for (let one = 0; one < count; one++) {
    for (let other = 0; other < one; other++) {
      const value = distance(one, other);
      distances[one * count + other] = value;
      distances[other * count + one] = value;
    }
  }
  // A cluster lives in the row of one of its items.
  const cluster = Int32Array.from({ length: count }, (_, item) => item);
  const sizes = new Int32Array(count).fill(1);
  const merges: Merge[] = [];
  const chain: number[] = [];
  let firstAlive = 0;
  while (merges.length < count - 1) {
    while (sizes[firstAlive] === 0) firstAlive++;
    if (chain.length === 0) chain.push(firstAlive);
    const row = chain.at(-1)!;
    const nearest = nearestRow(distances, sizes, { row, preferred: chain.at(-2) });
    if (nearest !== chain.at(-2)) {
      chain.push(nearest);
      continue;
    }
    chain.length -= 2;
    merges.push([cluster[nearest]!, cluster[row]!]);
    join(distances, sizes, { into: nearest, from: row });
    cluster[nearest] = count + merges.length - 1;
  }
  return merges;
}

/** The row before in the chain wins a tie, or the chain would go round in circles. */
function nearestRow(
  distances: Float64Array,
  sizes: Int32Array,
  { row, preferred }: { row: number; preferred: number | undefined },
): number {
  const count = sizes.length;
  let nearest = preferred ?? -1;
  let least = preferred === undefined ? Number.POSITIVE_INFINITY : distances[row * count + preferred]!;
  for (let other = 0; other < count; other++) {
    if (other === row || sizes[other] === 0 || distances[row * count + other]! >= least) continue;
    nearest = other;
    least = distances[row * count + other]!;
  }
  return nearest;
}

function join(distances: Float64Array, sizes: Int32Array, { into, from }: { into: number; from: number }): void {
  const count = sizes.length;
  const size = sizes[into]! + sizes[from]!;
  for (let other = 0; other < count; other++) {
    if (sizes[other] === 0 || other === into || other === from) continue;
    const sum = distances[into * count + other]! * sizes[into]! + distances[from * count + other]! * sizes[from]!;
    distances[into * count + other] = sum / size;
    distances[other * count + into] = sum / size;
  }
  sizes[into] = size;
  sizes[from] = 0;
}
