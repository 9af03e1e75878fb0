import { createPolicy, limitShift, type OrderingPolicy, withCachedPrefix } from '@warmpath/core';

/**
 * The pipeline of the CP-Tree paper as one policy: the CA-Table ranks the documents by hotness, the CP-Tree is asked
 * for a cached prefix among them, the hottest document first at every step, and what is left follows by hotness.
 * `hotness` alone is the first half. The constraints are held at the end. O(k²) look-ups.
 */
export function createHotnessTreePolicy(): OrderingPolicy {
  const hotness = createPolicy('hotness');
  const greedy = createPolicy('greedy');
  return {
    name: 'hotness-tree',
    arrange(context, view, now) {
      const free = { ...context, maxShift: undefined, pinned: [] };
      const ranked = hotness.arrange(free, view, now).order;
      const documents = ranked.map((rank) => context.documents[rank]!);
      const { order } = greedy.arrange({ ...free, documents }, view, now);
      const desired = order.map((place) => ranked[place]!);
      return withCachedPrefix(limitShift(desired, context), context, view);
    },
  };
}
