/** The identity: 0, 1, 2, … O(count). */
export function retrievalOrder(count: number): number[] {
  const order: number[] = new Array(count);
  for (let rank = 0; rank < count; rank++) order[rank] = rank;
  return order;
}

/**
 * `prefix`, then all other ranks below `count` in retrieval order. O(count × prefix) without allocation beside the
 * answer.
 */
export function followedByRetrievalOrder(prefix: readonly number[], count: number): readonly number[] {
  const order: number[] = new Array(count);
  const length = prefix.length;
  for (let place = 0; place < length; place++) order[place] = prefix[place]!;
  let place = length;
  for (let rank = 0; place < count; rank++) {
    if (!prefix.includes(rank)) order[place++] = rank;
  }
  return order;
}
