import type { ServedOutcome } from './simulated-engine.js';
import { mean } from './statistics.js';

/** Mean over the requests with documents of the share of their documents that was reused. O(n). */
export function documentShare(outcomes: readonly ServedOutcome[]): number {
  const counted = outcomes.filter(({ documents }) => documents > 0);
  return mean(counted.map(({ cachedDocuments, documents }) => cachedDocuments / documents));
}

/** Reused tokens over all prompt tokens; 0 for none. O(n). */
export function tokenShare(outcomes: readonly ServedOutcome[]): number {
  const total = outcomes.reduce((sum, { promptTokens }) => sum + promptTokens, 0);
  return total === 0 ? 0 : outcomes.reduce((sum, { cachedTokens }) => sum + cachedTokens, 0) / total;
}
