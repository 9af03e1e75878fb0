import { type DocumentInput, prepareDocuments, type Warning } from '@warmpath/core';

/** A caller's documents, each once, and where each stood. */
export interface Sources {
  /** With ids, in retrieval order. */
  readonly documents: readonly DocumentInput[];
  /** `positions[rank]` is the position of that document in the caller's list. */
  readonly positions: readonly number[];
  readonly warnings: readonly Warning[];
}

/**
 * Names every document and drops repetitions, as core does, while keeping count of where each came from: whatever
 * arranges them later finds nothing left to mend, so that ranks can be taken back to the caller's own objects.
 * Errors: those of `prepareDocuments`. Cost: O(length of the documents).
 */
export function readSources(documents: readonly DocumentInput[]): Sources {
  // Whatever is no document, or no list, is left for `prepareDocuments` to name.
  const numbered = Array.isArray(documents) ? documents.map(withPosition) : documents;
  const prepared = prepareDocuments(numbered);
  return {
    documents: prepared.documents.map(({ id, title, content }) => ({
      id,
      ...(title !== undefined && { title }),
      content,
    })),
    positions: prepared.documents.map(({ metadata }) => metadata!['position'] as number),
    warnings: prepared.warnings,
  };
}

function withPosition(document: DocumentInput, position: number): DocumentInput {
  if (typeof document !== 'object' || document === null) return document;
  return { ...document, metadata: { position } };
}
