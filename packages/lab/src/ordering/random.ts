import { type Context, fingerprint, limitShift, type OrderingPolicy, withCachedPrefix } from '@warmpath/core';

/**
 * Shuffles: every other policy should save more than this one. The permutation derives from the seed, the number of
 * requests observed so far and the documents' keys, so the same state gives the same answer and the next request
 * another. O(k).
 */
export function createRandomPolicy(seed = 0): OrderingPolicy {
  return {
    name: 'random',
    arrange(context, view) {
      const desired = Array.from(context.documents, (_, rank) => rank);
      shuffle(desired, seedOf(seed, view.requests, context));
      return withCachedPrefix(limitShift(desired, context), context, view);
    },
  };
}

function seedOf(seed: number, requests: number, context: Context): number {
  const keys = context.documents.map((document) => document.key);
  return Number.parseInt(fingerprint([String(seed), String(requests), ...keys]).slice(0, 8), 16);
}

/** Fisher-Yates with a Weyl sequence whose steps are hashed; good for a shuffle, no more. */
function shuffle(order: number[], seed: number): void {
  let state = seed | 0;
  for (let last = order.length - 1; last > 0; last--) {
    state = (state + 0x9e3779b9) | 0;
    let word = Math.imul(state ^ (state >>> 16), 0x21f0aaad);
    word = Math.imul(word ^ (word >>> 15), 0x735a2d97);
    word = (word ^ (word >>> 15)) >>> 0;
    const chosen = Math.floor((word / 2 ** 32) * (last + 1));
    const moved = order[last]!;
    order[last] = order[chosen]!;
    order[chosen] = moved;
  }
}
