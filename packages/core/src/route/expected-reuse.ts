import { contextOf, policyOf } from '../arrange.js';
import type { ArrangeRequest } from '../arrangement.js';
import { ConstraintRule, isFree } from '../ordering/placement.js';
import type { ResidencyView } from '../residency/view.js';

/** Policies whose order follows the cached path that saves most, or gives it up for more. */
const CACHE_AWARE: ReadonlySet<string> = new Set(['exact', 'foresight']);

/**
 * What each of several engines would reuse of a request if it were arranged for that engine, without arranging it:
 * tokens of the best path under its residency that the request's policy and constraints allow, before what the order's
 * hint costs. The answer is a function of an engine's view. Cost of an answer: that of the best path
 * (`tree/best-path.ts`); the documents' keys are hashed once for all engines.
 *
 * @throws what `arrange` throws for the same request
 */
export function expectedReuse(request: ArrangeRequest, now: number): (view: ResidencyView) => number {
  const policy = policyOf(request);
  const context = contextOf(request);
  const { documents, preamble } = context;
  if (!CACHE_AWARE.has(policy.name)) return (view) => policy.arrange(context, view, now).cachedTokens;
  const rule = isFree(context) ? undefined : new ConstraintRule(documents.length, context);
  return (view) => view.bestPath(documents, preamble, rule).tokens;
}
