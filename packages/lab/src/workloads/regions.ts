/** Documents of one region in the RAGCache++ corpora. */
export const REGION_SIZE = 10;

/** The documents of a region, ascending: region r holds 10r to 10r + 9. */
export function regionDocuments(region: number): number[] {
  return Array.from({ length: REGION_SIZE }, (_, i) => region * REGION_SIZE + i);
}

/** What is left of `documents` without `taken`, in the same order. */
export function without(documents: readonly number[], taken: readonly number[]): number[] {
  return documents.filter((document) => !taken.includes(document));
}
