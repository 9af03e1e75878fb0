import {
  type Context,
  limitShift,
  type Ordering,
  type OrderingPolicy,
  POLICY_NAMES,
  type PolicyName,
  WarmpathError,
  withCachedPrefix,
} from '@warmpath/core';
import { createPolicy, createStatisticPolicy, fingerprint, nearestName } from '@warmpath/core/internal';

/**
 * The pipeline of the CP-Tree paper as one policy: the CA-Table ranks the documents by hotness, the CP-Tree is asked
 * for a cached prefix among them, the hottest document first at every step, and what is left follows by hotness.
 * `hotness` alone is the first half. The constraints are held at the end. O(k²) look-ups.
 */
function createHotnessTreePolicy(): OrderingPolicy {
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

/** 8! = 40,320 permutations take some milliseconds; 9! would take ten times that. */
const MAX_DOCUMENTS = 8;

/**
 * Tries every permutation within `maxShift` and `pinned`, in lexicographic order of ranks. Keeps the first of those
 * that save most tokens. It shares no code with the search of the core's `exact`, which must give the same answer.
 * O(k!).
 *
 * @throws WARMPATH_INVALID_REQUEST for more than 8 documents.
 */
function createOraclePolicy(): OrderingPolicy {
  return {
    name: 'oracle',
    arrange(context, view) {
      const count = context.documents.length;
      if (count > MAX_DOCUMENTS) {
        const detail = `\`oracle\` takes at most ${MAX_DOCUMENTS} documents; \`exact\` finds the same optimum`;
        throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'documents', detail });
      }
      let best: Ordering | undefined;
      for (const order of permutations(count)) {
        if (!isWithin(order, context)) continue;
        const ordering = withCachedPrefix(order, context, view);
        if (best === undefined || ordering.cachedTokens > best.cachedTokens) best = ordering;
      }
      // Retrieval order is the first permutation and within every limit, so there is always a best one.
      return { ...best!, laterTokens: 0 };
    },
  };
}

function isWithin(order: readonly number[], { maxShift, pinned }: Context): boolean {
  return (
    pinned.every((rank) => order[rank] === rank) &&
    (maxShift === undefined || order.every((rank, place) => Math.abs(rank - place) <= maxShift))
  );
}

/** All permutations of 0..count-1, in lexicographic order. */
function* permutations(count: number): Generator<readonly number[]> {
  const order = Array.from({ length: count }, (_, rank) => rank);
  for (;;) {
    yield order.slice();
    let pivot = count - 2;
    while (pivot >= 0 && order[pivot]! > order[pivot + 1]!) pivot--;
    if (pivot < 0) return;
    let successor = count - 1;
    while (order[successor]! < order[pivot]!) successor--;
    const moved = order[pivot]!;
    order[pivot] = order[successor]!;
    order[successor] = moved;
    const tail = order.splice(pivot + 1).reverse();
    order.push(...tail);
  }
}

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

/** Policies for comparison in experiments only; a gateway does not have them. */
const BASELINES = {
  random: () => createRandomPolicy(),
  /** Most recently seen documents first, documents never seen last (RAGCache++ §4.6, «APC + Recency»). */
  recency: () => createStatisticPolicy('recency', (hotness, key) => hotness.lastSeen(key)),
  /** Documents of most requests so far first: popularity without a window. */
  frequency: () => createStatisticPolicy('frequency', (hotness, key) => hotness.total(key)),
  'hotness-tree': createHotnessTreePolicy,
  oracle: createOraclePolicy,
} as const satisfies Record<string, () => OrderingPolicy>;

type BaselineName = keyof typeof BASELINES;

const BASELINE_NAMES = Object.keys(BASELINES) as readonly BaselineName[];

/** A policy of the core, or a baseline of experiments. */
export type LabPolicyName = PolicyName | BaselineName;

/** The ordering policies of experiments: those of the core, then the baselines. */
export const LAB_POLICY_NAMES: readonly LabPolicyName[] = [...POLICY_NAMES, ...BASELINE_NAMES];

/** The ordering policy of a name. Policies keep no state between calls and may be shared. */
export function createLabPolicy(name: LabPolicyName): OrderingPolicy {
  return isBaseline(name) ? BASELINES[name]() : createPolicy(name);
}

function isBaseline(name: LabPolicyName): name is BaselineName {
  return Object.hasOwn(BASELINES, name);
}

/**
 * Checks a policy's name from outside.
 *
 * @param path where the name stands in the caller's input
 * @throws WARMPATH_UNKNOWN_POLICY, which names the nearest known policy.
 */
export function readLabPolicyName(name: string, path = 'policy'): LabPolicyName {
  const known = LAB_POLICY_NAMES.find((candidate) => candidate === name);
  if (known !== undefined) return known;
  const nearest = nearestName(name, LAB_POLICY_NAMES);
  const advice = nearest === undefined ? '.' : `; did you mean \`${nearest}\`?`;
  const detail = `There is no ordering policy of that name${advice} Experiments also take ${BASELINE_NAMES.join(', ')}.`;
  throw new WarmpathError('WARMPATH_UNKNOWN_POLICY', { path, detail });
}
