/**
 * A bound on the tokens that a group of sets can find in a cache that forgets nothing: whatever the orders, each set
 * but the first finds no more than it shares with one served before it, so all together find no more than the edges of
 * the heaviest spanning tree of what pairs share. Never below the optimum, and never above the tokens seen before at
 * any position. Cost: O(sets² + shared pairs), by Prim's algorithm over an inverted index.
 */
export function mostShared(sets: readonly (readonly number[])[], weights: readonly number[]): number {
  const holders = new Map<number, number[]>();
  for (const [number, set] of sets.entries()) {
    for (const document of set) {
      const list = holders.get(document);
      if (list === undefined) holders.set(document, [number]);
      else list.push(number);
    }
  }
  const best = new Float64Array(sets.length);
  const shared = new Float64Array(sets.length);
  const isIn = new Uint8Array(sets.length);
  let total = 0;
  let next = 0;
  for (let added = 0; added < sets.length; added++) {
    isIn[next] = 1;
    total += best[next]!;
    for (const document of sets[next]!)
      for (const other of holders.get(document)!) shared[other]! += weights[document]!;
    let heaviest = -1;
    for (let other = 0; other < sets.length; other++) {
      if (shared[other]! > best[other]!) best[other] = shared[other]!;
      shared[other] = 0;
      if (isIn[other] === 0 && (heaviest < 0 || best[other]! > best[heaviest]!)) heaviest = other;
    }
    next = heaviest;
  }
  const documents = [...holders].reduce((sum, [document, { length }]) => sum + weights[document]! * (length - 1), 0);
  return Math.min(total, documents);
}
