import type { Arrangement } from '@warmpath/core';
import { leastReused, reusable } from '../dialects/dialects.js';
import type { TenantModel } from '../memory/served-histories.js';

/** Whether the engine caches prompts of this length: hosted APIs do so only from a minimum on. */
export function mayBeReused({ engine, model, counts }: TenantModel, estimatedTokens: () => number): boolean {
  const least = leastReused(engine.dialect, model);
  return least === 0 || counts.toEngineTokens(estimatedTokens()) >= least;
}

/**
 * Engine tokens of an arranged prompt that should be cached: by KV events if there are any, else an estimate, in the
 * engine's units of reuse.
 */
export function predictedTokens({ engine, model, history, counts }: TenantModel, arrangement: Arrangement): number {
  const { reuse } = engine.dialect;
  const unit = reuse.kind === 'prefix' && reuse.unit === 1 ? 1 : undefined;
  const estimated = () => reusable(engine.dialect, model, counts.toEngineTokens(arrangement.predictedCachedTokens));
  const known = engine.kvResidency?.events.cachedTokens(history, arrangement, unit);
  if (known === undefined) return estimated();
  // Prompts whose tokens are not known yet count as cached.
  const { events } = engine.kvResidency!;
  const isBelieved =
    engine.kvResidency!.isLearning(history) || events.followedSteps(history, arrangement) < believedSteps(arrangement);
  return isBelieved ? Math.max(known, estimated()) : known;
}

/** Path steps up to the last document that should be cached; 0 if none. */
function believedSteps({ preamble, trace: { cachedDocuments } }: Arrangement): number {
  if (cachedDocuments === 0) return 0;
  return (preamble === undefined ? 0 : 1 + (preamble.steps?.length ?? 0)) + cachedDocuments;
}
