import type { Arrangement, ArrangeRequest, OrderHint, Outcome } from './arrangement.js';
import type { Document } from './document.js';
import { type ErrorCode, WarmpathError } from './errors.js';
import { isShiftPrice, placesMoved } from './ordering/placement.js';
import { createPolicy } from './ordering/policies.js';
import {
  type Context,
  DEFAULT_POLICY,
  type Ordering,
  type OrderingPolicy,
  POLICY_NAMES,
  type PolicyName,
} from './ordering/policy.js';
import { retrievalOrder, withCachedPrefix } from './ordering/retrieval-order.js';
import { readPolicyName } from './prepare-request.js';
import { hintTokens, movedChains } from './render/hints.js';
import type { ServedHistory } from './residency/history.js';
import type { ResidencyView } from './residency/view.js';
import { type Deduplication, deduplicate, shortenDocuments, withFreeLabels } from './session/dedup.js';

/**
 * Tells the history what became of a request. The only way to change state. Cost: O(path).
 *
 * Report `dispatched` when the request goes to the engine, then `completed` or `failed`, each with the arrangement
 * object that `arrange` returned. Report `received` for a request that another gateway sent to the engine, and
 * `prewarmed` for a prefilled path of `planPrewarm`.
 */
export function observe(outcome: Outcome, history: ServedHistory): void {
  switch (outcome.kind) {
    case 'dispatched':
      history.dispatched(outcome.arrangement, outcome.now);
      return;
    case 'completed':
      history.completed(outcome.arrangement, outcome.now, outcome);
      return;
    case 'failed':
      history.failed(outcome.arrangement);
      return;
    case 'received':
      history.received(outcome.arrangement, outcome.now);
      return;
    case 'prewarmed':
      history.prewarmed(outcome.path, outcome.now);
  }
}

const POLICIES: ReadonlyMap<PolicyName, OrderingPolicy> = new Map(
  POLICY_NAMES.map((name) => [name, createPolicy(name)]),
);

const NONE: readonly never[] = [];

/**
 * Decides which documents a prompt holds in full and in which order, so that it starts with tokens that the engine
 * already holds. Pure: same request, view and now, same arrangement. `now` in milliseconds of the caller's clock.
 *
 * Loses no document and keeps within `maxShift` and `pin`. If the policy fails, the answer is retrieval order, and
 * `trace.fellBack` says why. Cost: that of the policy.
 *
 * @throws `WARMPATH_UNKNOWN_POLICY`, `WARMPATH_INVALID_MAX_SHIFT`, `WARMPATH_INVALID_SHIFT_PRICE`,
 * `WARMPATH_INVALID_PIN`
 */
export function arrange(request: ArrangeRequest, view: ResidencyView, now: number): Arrangement {
  const policy = policyOf(request);
  const kept = keptOf(request);
  const context = contextOf(request, kept);
  const { documents, preamble } = context;
  const { references } = kept;
  let ordering: Ordering;
  let fellBack: ErrorCode | undefined;
  try {
    ordering = priced(policy.arrange(context, view, now), context, view);
  } catch (error) {
    fellBack = WarmpathError.isInstance(error) ? error.code : 'WARMPATH_INTERNAL';
    ordering = fallBack(context, view, now);
  }
  const { order } = ordering;
  const arranged: Document[] = new Array(order.length);
  const moves: number[] = new Array(order.length);
  let moved = false;
  for (let place = 0; place < order.length; place++) {
    const rank = order[place]!;
    arranged[place] = documents[rank]!;
    moves[place] = rank - place;
    if (rank !== place) moved = true;
  }
  return {
    documents: arranged,
    order,
    references,
    hint: request.hints !== false && (moved || !isBehind(kept)) ? hintFor(kept, order) : undefined,
    locationHint: request.hints !== false && references.length > 0,
    preamble,
    predictedCachedTokens: ordering.cachedTokens,
    trace: {
      policy: policy.name,
      residency: view.state,
      moves,
      cachedDocuments: ordering.cachedDocuments,
      maxShift: context.maxShift,
      shiftPrice: context.shiftPrice ?? 0,
      pinned: context.pinned,
      warnings: request.warnings ?? NONE,
      cutShort: ordering.cutShort,
      fellBack,
    },
  };
}

/** What a policy is asked: the documents that are sent, and how far they may move. */
export function contextOf(request: ArrangeRequest, kept = keptOf(request)): Context {
  const { remaining } = kept;
  const { preamble, shown, waiting } = request;
  const documents = shown === undefined ? remaining : shortenDocuments(remaining, shown);
  return {
    documents,
    preamble,
    maxShift: checkMaxShift(request.maxShift),
    shiftPrice: checkShiftPrice(request.shiftPrice),
    pinned: ranksOf(request.pin, request.documents, documents),
    waiting,
    // With references before other documents, there is a hint whatever the order.
    hintTokens: request.hints !== false && isBehind(kept) ? (order) => hintTokens(documents, order) : undefined,
  };
}

/** The policy that a request names, or the default. Error: `WARMPATH_UNKNOWN_POLICY`. */
export function policyOf(request: ArrangeRequest): OrderingPolicy {
  const policy = request.policy ?? DEFAULT_POLICY;
  if (typeof policy !== 'string') return policy;
  return POLICIES.get(policy) ?? POLICIES.get(readPolicyName(policy))!;
}

function checkMaxShift(maxShift: number | undefined): number | undefined {
  if (maxShift !== undefined && !(Number.isSafeInteger(maxShift) && maxShift >= 0)) {
    throw new WarmpathError('WARMPATH_INVALID_MAX_SHIFT', { path: 'maxShift' });
  }
  return maxShift;
}

function checkShiftPrice(shiftPrice: number | undefined): number | undefined {
  if (shiftPrice !== undefined && !isShiftPrice(shiftPrice)) {
    throw new WarmpathError('WARMPATH_INVALID_SHIFT_PRICE', { path: 'shiftPrice' });
  }
  return shiftPrice;
}

/** A pinned document that stands elsewhere already has no place here; one that is unknown is an error. */
function ranksOf(
  pin: readonly string[] | undefined,
  supplied: readonly Document[],
  documents: readonly Document[],
): readonly number[] {
  if (pin === undefined || pin.length === 0) return NONE;
  const ranks = new Set<number>();
  for (let i = 0; i < pin.length; i++) {
    const rank = documents.findIndex((document) => document.id === pin[i]);
    if (rank >= 0) ranks.add(rank);
    else if (supplied.every(({ id }) => id !== pin[i]))
      throw new WarmpathError('WARMPATH_INVALID_PIN', { path: `pin[${i}]` });
  }
  return [...ranks].sort((a, b) => a - b);
}

/** Even a view that fails altogether costs the user no answer. */
function fallBack(context: Context, view: ResidencyView, now: number): Ordering {
  try {
    return POLICIES.get('retrieval')!.arrange(context, view, now);
  } catch {
    return { order: retrievalOrder(context.documents.length), cachedDocuments: 0, cachedTokens: 0 };
  }
}

/** The documents that are sent, and those that are referred to. */
function keptOf({ documents, visible, deduplicate: isWanted = true }: ArrangeRequest): Deduplication {
  if (visible !== undefined && isWanted) return deduplicate(documents, visible);
  const remaining = visible === undefined ? documents : withFreeLabels(documents, visible);
  return { remaining, ranks: NONE, references: NONE };
}

/** Whether the retrieval order has all references behind all other documents, which is how the model meets them. */
function isBehind({ remaining, references }: Deduplication): boolean {
  return references.length === 0 || references[0]!.rank >= remaining.length;
}

/**
 * An order is kept only if it saves more tokens than the hint takes that it needs, and than its moves cost; else the
 * documents stay.
 */
function priced(ordering: Ordering, context: Context, view: ResidencyView): Ordering {
  const { order, cachedTokens, laterTokens } = ordering;
  if (laterTokens === undefined || context.hintTokens === undefined) return ordering;
  const hint = context.hintTokens(order);
  if (hint === 0) return ordering;
  const price = hint + (context.shiftPrice ?? 0) * placesMoved(order);
  const unmoved = withCachedPrefix(retrievalOrder(order.length), context, view);
  return cachedTokens + laterTokens - price > unmoved.cachedTokens
    ? ordering
    : { ...unmoved, cutShort: ordering.cutShort };
}

function hintFor({ remaining, ranks, references }: Deduplication, order: readonly number[]): OrderHint {
  if (references.length === 0) {
    return {
      labels: movedChains(order)
        .flat()
        .map((rank) => remaining[rank]!.label),
    };
  }
  const labels: string[] = new Array(remaining.length + references.length);
  for (const [place, rank] of ranks.entries()) labels[rank] = remaining[place]!.label;
  for (const { document, rank } of references) labels[rank] = document.label;
  return { labels };
}
