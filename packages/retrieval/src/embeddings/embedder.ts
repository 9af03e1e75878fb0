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
