import { SURVIVAL_RANKS } from '../residency/recent-requests.js';
import type { ResidencyView } from '../residency/view.js';
import { BEST_PATH_MAX_OPERATIONS } from '../tree/best-path.js';
import type { CachedPaths } from './cached-paths.js';
import type { Context } from './policy.js';
import { MAX_WAITING, WaitingRequests } from './waiting-requests.js';

/** Recent requests of which the overlap is looked at. */
const MAX_RECENT = 128;

/** Sets that a demand can hold. */
export const DEMAND_ROOM = MAX_WAITING + MAX_RECENT + (1 << SURVIVAL_RANKS);

/** Weight of the recent requests in the horizon beside rank survival; tuned, see docs/research/foresight.md. */
const RECENT_WEIGHT = 0.3;

/** Sets that fewer requests keep than this are not worth their time. */
const LEAST_EXPECTED = 1e-4;

/**
 * What coming requests will want of a context: for each of them the set of documents it shares with the context (a bit
 * mask by retrieval rank), the tokens it will find cached anyway, and how sure it is. The waiting requests stand first,
 * then the likely ones: sets learned from rank survival, and the overlaps with recent requests.
 *
 * A waiting request may follow another waiting one instead of this context, the sooner the more it shares with that
 * one: it weighs `shared / (shared + most tokens shared with another)`, 1 if with none.
 *
 * Flat arrays that are reused: one instance serves call after call and must not be re-entered.
 */
export class Demand {
  /** Sets wanted, of which the first `waiting` by requests that are known. */
  count = 0;
  waiting = 0;
  readonly sets = new Int32Array(DEMAND_ROOM);
  readonly weights = new Float64Array(DEMAND_ROOM);
  /** Tokens that the request will find cached without us. */
  readonly held = new Float64Array(DEMAND_ROOM);
  readonly #overlaps = new Int32Array(MAX_RECENT);
  readonly #requests = new WaitingRequests();

  /**
   * Collects the sets. False if the waiting requests' best paths together take more than `maxOperations`, or one of
   * them more than `maxForOne`: then only the first requests are in it, as many as fit. O(waiting² × k + window × k +
   * 256) beside those paths.
   */
  collect(
    context: Context,
    view: ResidencyView,
    maxOperations: number = BEST_PATH_MAX_OPERATIONS,
    maxForOne = maxOperations,
  ): boolean {
    this.count = 0;
    const knowsAll = this.#collectWaiting(context, view, maxOperations, maxForOne);
    this.waiting = this.count;
    // What stands before a later turn is one conversation's own: no other request will come behind it.
    if (context.preamble?.steps === undefined) this.#collectLikely(context, view);
    return knowsAll;
  }

  /** Fills in `held` for the likely sets, whose other documents nobody knows. O(sets) look-ups in `paths`. */
  weigh(paths: CachedPaths): void {
    for (let i = this.waiting; i < this.count; i++) this.held[i] = paths.longestWithin(this.sets[i]!);
  }

  #collectWaiting(context: Context, view: ResidencyView, maxOperations: number, maxForOne: number): boolean {
    const { documents, waiting, preamble } = context;
    if (waiting === undefined) return true;
    let operationsLeft = maxOperations;
    const requests = this.#requests;
    requests.read(documents, waiting);
    for (let i = 0; i < requests.count; i++) {
      const set = requests.sharedSet(i);
      if (set === 0) continue;
      const request = waiting[i]!;
      const path = view.bestPath(request, preamble, undefined, Math.min(operationsLeft, maxForOne));
      operationsLeft -= path.operations;
      if (!path.isComplete) return false;
      let held = 0;
      for (const rank of path.order) held += request[rank]!.tokens;
      this.held[this.count] = held;
      const elsewhere = requests.mostShared(i);
      this.#add(set, elsewhere === 0 ? 1 : 1 - elsewhere / (elsewhere + tokensIn(set, documents)));
    }
    return true;
  }

  #collectLikely(context: Context, view: ResidencyView): void {
    const { documents, preamble } = context;
    const { recent } = view;
    const ranks = 2 ** documents.length - 1;
    for (let kept = 1; kept < 1 << SURVIVAL_RANKS; kept++) {
      const expected = recent.survival(kept);
      // Learned from longer contexts too, of which this one has the first ranks.
      if (expected > LEAST_EXPECTED && (kept & ranks) !== 0) this.#add(kept & ranks, expected);
    }
    // Where documents do not come back soon, what came along with them long ago says nothing (it cost .003 of
    // true-zero).
    const weight = RECENT_WEIGHT * recent.horizonShare * Math.min(1, recent.recurrence);
    if (weight === 0) return;
    const found = recent.overlaps(documents, preamble, this.#overlaps);
    for (let i = 0; i < found; i++) this.#add(this.#overlaps[i]!, weight);
  }

  #add(set: number, weight: number): void {
    this.sets[this.count] = set;
    this.weights[this.count++] = weight;
  }
}

function tokensIn(set: number, documents: Context['documents']): number {
  let tokens = 0;
  for (let left = set; left !== 0; left &= left - 1) tokens += documents[31 - Math.clz32(left & -left)]!.tokens;
  return tokens;
}
