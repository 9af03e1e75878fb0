import { type Query, textWithEarlier } from '../staged-retriever.js';

/** Models may treat a question and a passage differently. */
export type EmbeddingPurpose = 'query' | 'passage';

/** What turns texts into vectors. */
export interface Embedder {
  /** Names the model: vectors of one name can be compared with each other, and with no others. */
  readonly name: string;
  /**
   * One vector a text, in order. A text in which there is nothing to be found has a vector of zeros, or of length 0.
   * @throws the signal's reason; WARMPATH_EMBEDDING_INVALID and WARMPATH_RETRIEVAL_* where a server is asked.
   */
  embed(texts: readonly string[], purpose: EmbeddingPurpose, signal: AbortSignal): Promise<Float32Array[]>;
}

/** What a question is searched by: its own vector, or its text's; `undefined` where there is nothing to be found. */
export async function queryVector(
  query: Query,
  embedder: Embedder,
  signal: AbortSignal,
): Promise<Float32Array | undefined> {
  const found = query.vector ?? (await embedder.embed([textWithEarlier(query)], 'query', signal))[0]!;
  return found.every((value) => value === 0) ? undefined : found;
}
