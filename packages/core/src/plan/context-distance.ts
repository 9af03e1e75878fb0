/**
 * RAGBoost's distance of two contexts (Eq. 1): 1 less the shared documents over the longer length, plus `alpha` times
 * how far the shared ones stand apart on average. 1 if nothing is shared. No document may stand twice in a context.
 * Cost: O(|a| + |b|).
 */
export function contextDistance(a: readonly number[], b: readonly number[], alpha: number): number {
  const places = new Map(a.map((document, place) => [document, place]));
  let shared = 0;
  let apart = 0;
  for (const [place, document] of b.entries()) {
    const other = places.get(document);
    if (other === undefined) continue;
    shared++;
    apart += Math.abs(place - other);
  }
  if (shared === 0) return 1;
  return 1 - shared / Math.max(a.length, b.length) + (alpha * apart) / shared;
}
