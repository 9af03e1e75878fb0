/** A question, as it is searched for. */
export interface Query {
  readonly text: string;
  /** Where the caller has embedded it already. */
  readonly vector?: Float32Array;
}

/** A passage that a search found. */
export interface ScoredDocument {
  readonly id: string;
  readonly content: string;
  readonly title?: string;
  readonly metadata?: Readonly<Record<string, unknown>>;
  /** Higher is better. Comparable within one stage only. */
  readonly score: number;
}

/** One step of a search: the best candidates so far. */
export interface Stage {
  /** At most `k`, best first, each id once. */
  readonly candidates: readonly ScoredDocument[];
  /** 0, 1, 2 … */
  readonly index: number;
  /** True for the last stage, and only for it. */
  readonly final: boolean;
}

export interface SearchOptions {
  /** Candidates wanted, 1 to 1,000. */
  readonly k: number;
  /** Ends the search: the iteration throws the signal's reason. */
  readonly signal: AbortSignal;
}

/**
 * A search that may answer in stages, so that generation can start on early candidates (RAGCache, section 5.3). A
 * search without stages yields one, which is final.
 */
export interface StagedRetriever {
  search(query: Query, options: SearchOptions): AsyncIterable<Stage>;
}
