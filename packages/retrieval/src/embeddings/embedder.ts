/** What turns texts into vectors. */
export interface Embedder {
  /** Names the model: vectors of one name can be compared with each other, and with no others. */
  readonly name: string;
  /**
   * One vector a text, in order. A text in which nothing was found may have a vector of zeros.
   * @throws the signal's reason; WARMPATH_EMBEDDING_INVALID and WARMPATH_RETRIEVAL_* where a server is asked.
   */
  embed(texts: readonly string[], signal: AbortSignal): Promise<Float32Array[]>;
}
