import type { Context, Document, ResidencyView } from '../src/index.js';
import { laterWeight, reuseShare } from '../src/ordering/demand.js';
import { ConstraintRule } from '../src/ordering/placement.js';

/** A served request: ids by retrieval rank. */
export type Served = readonly string[];

interface Wish {
  readonly keys: ReadonlySet<string>;
  /** Tokens cached for it anyway. */
  readonly held: number;
  readonly weight: number;
}

/**
 * The estimate of `foresight` written down without masks, tables or dynamic programme: what an order is worth, and the
 * most that any order within the constraints is worth.
 */
export class NaiveForesight {
  readonly #context: Context;
  readonly #view: ResidencyView;
  readonly #waiting: readonly Wish[];
  readonly #expected: readonly Wish[];

  /** `served` as key lists by retrieval rank, oldest first, all behind the context's preamble. */
  constructor(context: Context, view: ResidencyView, served: readonly Served[]) {
    this.#context = context;
    this.#view = view;
    this.#waiting = (context.waiting ?? [])
      .map((request, place) => ({
        keys: keysOf(request),
        held: this.#bestTokens(request),
        weight: this.#certaintyOf(request, place),
      }))
      .filter(({ keys }) => context.documents.some(({ key }) => keys.has(key)));
    this.#expected = expectationsFrom(served).map(({ keep, weight }) => {
      const kept = context.documents.filter(({ key }, rank) => keep(key, rank));
      return { keys: keysOf(kept), held: this.#bestTokens(kept), weight };
    });
  }

  /**
   * Tokens now, and later by the estimate, of the best way to see this order as a cached path and what is added to it.
   */
  worth(order: readonly number[]): number {
    const documents = order.map((rank) => this.#context.documents[rank]!);
    const later = documents.map((document, place) => {
      const set = documents.slice(0, place + 1);
      return document.tokens * this.#reuseShare(set);
    });
    let best = 0;
    for (let cached = 0; cached <= this.#cachedDepth(documents); cached++) {
      const now = sum(documents.slice(0, cached).map(({ tokens }) => tokens));
      best = Math.max(best, now + laterWeight(this.#waiting.length > 0) * sum(later.slice(cached)));
    }
    return best;
  }

  /** Whether there is enough to plan by: somebody waits for some of it, or lengths deviate by 15 % of their mean. */
  isPlanned(): boolean {
    const lengths = this.#context.documents.map(({ tokens }) => tokens);
    const mean = sum(lengths) / lengths.length;
    return (
      this.#waiting.length > 0 ||
      sum(lengths.map((length) => (length - mean) ** 2)) / lengths.length >= (0.15 * mean) ** 2
    );
  }

  /** The most any order within the constraints is worth. O(k!). */
  most(): number {
    const rule = new ConstraintRule(this.#context.documents.length, this.#context);
    let most = 0;
    const extend = (prefix: readonly number[]): void => {
      if (prefix.length === this.#context.documents.length) most = Math.max(most, this.worth(prefix));
      for (const rank of this.#context.documents.keys()) {
        if (!prefix.includes(rank) && rule.allows(prefix, rank)) extend([...prefix, rank]);
      }
    };
    extend([]);
    return most;
  }

  #reuseShare(set: readonly Document[]): number {
    const { documents } = this.#context;
    const tokens = sum(set.map((document) => document.tokens));
    const meanLength = sum(documents.map((document) => document.tokens)) / documents.length;
    const demand = (wishes: readonly Wish[]): number =>
      sum(
        wishes
          .filter(({ keys }) => set.every(({ key }) => keys.has(key)))
          .map(({ held, weight }) => weight * Math.min(1, Math.max(0, tokens - held) / meanLength)),
      );
    return reuseShare(demand(this.#waiting), demand(this.#expected), this.#waiting.length > 0);
  }

  /** A waiting request may follow another one that waits. */
  #certaintyOf(request: readonly Document[], place: number): number {
    const sharedWith = (other: readonly Document[]) =>
      sum(request.filter(({ key }) => keysOf(other).has(key)).map(({ tokens }) => tokens));
    const others = (this.#context.waiting ?? []).filter((_, other) => other !== place);
    const most = Math.max(0, ...others.map(sharedWith));
    return most === 0 ? 1 : sharedWith(this.#context.documents) / (sharedWith(this.#context.documents) + most);
  }

  #bestTokens(documents: readonly Document[]): number {
    const { preamble } = this.#context;
    const { order } = this.#view.bestPath(documents, preamble, undefined);
    return sum(order.map((rank) => documents[rank]!.tokens));
  }

  #cachedDepth(documents: readonly Document[]): number {
    const above = this.#context.preamble === undefined ? [] : [this.#context.preamble.key];
    return Math.max(0, this.#view.tree.longestPrefix([...above, ...documents.map(({ key }) => key)]) - above.length);
  }
}

/** What a request that was served after `served` lets expect of coming ones, by key and retrieval rank. */
interface Expectation {
  keep(key: string, rank: number): boolean;
  readonly weight: number;
}

/** All that recent requests let expect. */
function expectationsFrom(served: readonly Served[]): readonly Expectation[] {
  return [...survivals(served), ...recents(served)];
}

/** Rank survival: of the 20 requests after one, how many keep exactly which of its first 8 ranks. */
function pairsOf(served: readonly Served[]): { ranks: string; weight: number }[] {
  const pairs: { ranks: string; weight: number }[] = [];
  for (const [later, request] of served.entries()) {
    for (const earlier of served.slice(Math.max(0, later - 20), later)) {
      const kept = [...earlier.slice(0, 8).keys()].filter((rank) => request.includes(earlier[rank]!));
      if (kept.length > 0) pairs.push({ ranks: kept.join(), weight: 0.995 ** (served.length - 1 - later) });
    }
  }
  return pairs;
}

function requestsOf(served: readonly Served[]): number {
  return sum(served.map((_, later) => 0.995 ** (served.length - 1 - later)));
}

function survivals(served: readonly Served[]): Expectation[] {
  const byRanks = new Map<string, number>();
  for (const { ranks, weight } of pairsOf(served)) byRanks.set(ranks, (byRanks.get(ranks) ?? 0) + weight);
  return [...byRanks]
    .map(([ranks, weight]) => ({ kept: new Set(ranks.split(',').map(Number)), weight: weight / requestsOf(served) }))
    .filter(({ weight }) => weight > 1e-4)
    .map(({ kept, weight }) => ({ keep: (_key: string, rank: number) => kept.has(rank), weight }));
}

/**
 * The last 100 requests, of which 20 come again with weight 0.3, or less where fewer than one of 20 shares a document.
 */
function recents(served: readonly Served[]): Expectation[] {
  const recurrence = sum(pairsOf(served).map(({ weight }) => weight)) / Math.max(1, requestsOf(served));
  const weight = 0.3 * (20 / 100) * Math.min(1, recurrence);
  return served.slice(-100).map((request) => ({ keep: (key) => request.includes(key), weight }));
}

function keysOf(documents: readonly Document[]): ReadonlySet<string> {
  return new Set(documents.map(({ key }) => key));
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
