import type { Arrangement, ArrangeRequest, OrderHint, Outcome } from './arrangement.js';
import type { Document } from './document.js';
import { type ErrorCode, WarmpathError } from './errors.js';
import { placesMoved, readMaxShift, readShiftPrice, retrievalOrder, withCachedPrefix } from './ordering/placement.js';
import { createPolicy } from './ordering/policies.js';
import {
  type Context,
  DEFAULT_POLICY,
  type Ordering,
  type OrderingPolicy,
  POLICY_NAMES,
  type PolicyName,
} from './ordering/policy.js';
import { readPolicyName } from './prepare-request.js';
import { hintTokens, movedChains } from './render/layout.js';
import type { ServedHistory } from './residency/history.js';
import type { ResidencyView } from './residency/view.js';
import { type Deduplication, deduplicate, shortenDocuments, withFreeLabels } from './session/dedup.js';

/**
 * Records in the history what happened to a request. The only way to change state. Cost: O(path).
 *
 * Report `dispatched` when the request is sent to the engine, then `completed` or `failed`, each with the arrangement
 * object that `arrange` returned. Report `received` for a request that another gateway sent to the engine, and
 * `prefilled` for a path that it prefilled without a request.
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
    case 'prefilled':
      history.prefilled(outcome.path, outcome.now);
  }
}

const POLICIES: ReadonlyMap<PolicyName, OrderingPolicy> = new Map(
  POLICY_NAMES.map((name) => [name, createPolicy(name)]),
);

const NONE: readonly never[] = [];

/**
 * Decides which documents a prompt holds in full and in which order, so that it starts with tokens that the engine has
 * cached. Pure: the same request, view and `now` (milliseconds of the caller's clock) give the same arrangement.
 *
 * Loses no document, and respects `maxShift` and `pin`. If the policy throws, the result is retrieval order with the
 * reason in `trace.fellBack`. Cost: that of the policy.
 *
 * @throws `WARMPATH_UNKNOWN_POLICY`, `WARMPATH_INVALID_MAX_SHIFT`, `WARMPATH_INVALID_SHIFT_PRICE`,
 * `WARMPATH_INVALID_PIN`
 */
export function arrange(request: ArrangeRequest, view: ResidencyView, now: number): Arrangement {
  const policy = policyOf(request);
  const deduplicated = deduplicatedOf(request);
  const context = contextOf(request, deduplicated);
  const { documents, preamble } = context;
  const { references } = deduplicated;
  let ordering: Ordering;
  let fellBack: ErrorCode | undefined;
  try {
    ordering = orUnmoved(policy.arrange(context, view, now), context, view);
  } catch (error) {
    fellBack = WarmpathError.isInstance(error) ? error.code : 'WARMPATH_INTERNAL';
    ordering = fallBack(context, view, now);
  }
  const { order } = ordering;
  const moves = order.map((rank, place) => rank - place);
  const hasMoved = moves.some((places) => places !== 0);
  return {
    documents: order.map((rank) => documents[rank]!),
    order,
    references,
    hint:
      request.hints !== false && (hasMoved || !areReferencesLast(deduplicated))
        ? hintFor(deduplicated, order)
        : undefined,
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

/** The input of a policy: the documents to send, and how far they may move. */
export function contextOf(request: ArrangeRequest, deduplicated = deduplicatedOf(request)): Context {
  const { remaining } = deduplicated;
  const { preamble, shown, waiting } = request;
  const documents = shown === undefined ? remaining : shortenDocuments(remaining, shown);
  return {
    documents,
    preamble,
    maxShift: readMaxShift(request.maxShift),
    shiftPrice: readShiftPrice(request.shiftPrice),
    pinned: pinnedRanks(request.pin, request.documents, documents),
    waiting,
    // Where a reference precedes a document, the prompt has a hint in any order.
    hintTokens:
      request.hints !== false && areReferencesLast(deduplicated) ? (order) => hintTokens(documents, order) : undefined,
  };
}

/** The policy of a request, or the default. Error: `WARMPATH_UNKNOWN_POLICY`. */
export function policyOf(request: ArrangeRequest): OrderingPolicy {
  const policy = request.policy ?? DEFAULT_POLICY;
  if (typeof policy !== 'string') return policy;
  return POLICIES.get(policy) ?? POLICIES.get(readPolicyName(policy))!;
}

/** Ranks of the pinned documents. One that became a reference has none; an unknown id is an error. */
function pinnedRanks(
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

/** Retrieval order, even if the view throws. */
function fallBack(context: Context, view: ResidencyView, now: number): Ordering {
  try {
    return POLICIES.get('retrieval')!.arrange(context, view, now);
  } catch {
    return { order: retrievalOrder(context.documents.length), cachedDocuments: 0, cachedTokens: 0 };
  }
}

/** The documents to send, and those that become references. */
function deduplicatedOf({ documents, visible, deduplicate: isWanted = true }: ArrangeRequest): Deduplication {
  if (visible !== undefined && isWanted) return deduplicate(documents, visible);
  const remaining = visible === undefined ? documents : withFreeLabels(documents, visible);
  return { remaining, ranks: NONE, references: NONE };
}

/** Whether all references come last in retrieval order, as the model assumes without a hint. */
function areReferencesLast({ remaining, references }: Deduplication): boolean {
  return references.length === 0 || references[0]!.rank >= remaining.length;
}

/** The order, if it saves more tokens than its hint and its moves cost; else retrieval order. */
function orUnmoved(ordering: Ordering, context: Context, view: ResidencyView): Ordering {
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
