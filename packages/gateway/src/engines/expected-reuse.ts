import type { Arrangement } from '@warmpath/core';
import { leastReused, reusable } from '../dialects/dialects.js';
import type { TenantModel } from '../memory/served-histories.js';

/** Whether the engine reuses anything of prompts of so many estimated tokens: hosted APIs do from a length on only. */
export function mayBeReused({ engine, model, counts }: TenantModel, estimatedTokens: () => number): boolean {
  const least = leastReused(engine.dialect, model);
  return least === 0 || counts.toEngineTokens(estimatedTokens()) >= least;
}

/**
 * Tokens of an arranged prompt that the engine should reuse: as its events say, or an estimate in its own tokens, in
 * the steps in which it reuses them.
 */
export function predictedTokens({ engine, model, history, counts }: TenantModel, arrangement: Arrangement): number {
  const { reuse } = engine.dialect;
  const unit = reuse.kind === 'prefix' && reuse.unit === 1 ? 1 : undefined;
  const estimated = () => reusable(engine.dialect, model, counts.toEngineTokens(arrangement.predictedCachedTokens));
  const known = engine.kvResidency?.events.cachedTokens(history, arrangement, unit);
  if (known === undefined) return estimated();
  // What was served is believed where its tokens are not known: not yet, or not at all.
  const { events } = engine.kvResidency!;
  const isBelieved =
    engine.kvResidency!.isLearning(history) || events.followedSteps(history, arrangement) < believedSteps(arrangement);
  return isBelieved ? Math.max(known, estimated()) : known;
}

/** Steps of an arrangement's path up to the last document that is believed to be there; 0 where none is. */
function believedSteps({ preamble, trace: { cachedDocuments } }: Arrangement): number {
  if (cachedDocuments === 0) return 0;
  return (preamble === undefined ? 0 : 1 + (preamble.steps?.length ?? 0)) + cachedDocuments;
}
