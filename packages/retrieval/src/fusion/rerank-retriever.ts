import { WarmpathError } from '@warmpath/core';
import { JsonService, type JsonServiceOptions } from '../remote/json-service.js';
import {
  checkSearch,
  MOST_CANDIDATES,
  type Query,
  type ScoredDocument,
  type SearchOptions,
  type Stage,
  type StagedRetriever,
} from '../staged-retriever.js';
import { InnerSearch, toleratedFailure } from './inner-search.js';

export interface RerankOptions extends JsonServiceOptions {
  /** Whose candidates are ranked anew. */
  readonly retriever: StagedRetriever;
  readonly model: string;
  /** Candidates that are ranked anew, `k` at least; 50 by default. */
  readonly candidates?: number;
  /** UTF-16 units of a passage that the model reads; 8,000 by default. */
  readonly passageLength?: number;
}

/** Milliseconds that a user waits for a better order by default. */
const TIMEOUT_MS = 2000;

/**
 * Ranks the final candidates of a search anew, through an endpoint as Cohere, Jina, vLLM and llama-server have it
 * (`POST /rerank`). The stages of the search come first; if the endpoint fails or is late, the last of them is the
 * final one, with a warning.
 */
export class RerankRetriever implements StagedRetriever {
  readonly #options: RerankOptions;
  readonly #service: JsonService;

  constructor(options: RerankOptions) {
    this.#options = options;
    this.#service = new JsonService({ retries: 0, timeoutMs: TIMEOUT_MS, ...options });
  }

  async *search(query: Query, options: SearchOptions): AsyncGenerator<Stage, void> {
    checkSearch(options);
    const { k, signal } = options;
    const depth = Math.min(MOST_CANDIDATES, Math.max(k, this.#options.candidates ?? 50));
    const inner = new InnerSearch(this.#options.retriever, query, depth, signal);
    try {
      let last: Stage = { candidates: [], index: -1, final: true };
      for await (const stage of inner.stages()) {
        last = stage;
        if (stage.final && stage.candidates.length < 2) {
          yield stage;
          return;
        }
        yield { ...stage, candidates: stage.candidates.slice(0, k), final: false };
        signal.throwIfAborted();
      }
      yield await this.#rerankedStage(query.text, last, k, signal);
    } finally {
      inner.end();
    }
  }

  async close(): Promise<void> {
    await this.#service.close();
  }

  async #rerankedStage(text: string, last: Stage, k: number, signal: AbortSignal): Promise<Stage> {
    const index = last.index + 1;
    const { warnings = [] } = last;
    try {
      const candidates = await this.#rerank(text, last.candidates, k, signal);
      return { candidates, index, final: true, ...(warnings.length > 0 && { warnings }) };
    } catch (error) {
      const warning = toleratedFailure(error, 'rerank', signal);
      return { candidates: last.candidates.slice(0, k), index, final: true, warnings: [...warnings, warning] };
    }
  }

  async #rerank(
    query: string,
    candidates: readonly ScoredDocument[],
    k: number,
    signal: AbortSignal,
  ): Promise<ScoredDocument[]> {
    const { model, passageLength = 8000 } = this.#options;
    const documents = candidates.map(({ title, content }) =>
      (title === undefined ? content : `${title}\n${content}`).slice(0, passageLength).toWellFormed(),
    );
    const body = { model, query: query.toWellFormed(), documents, top_n: Math.min(k, documents.length) };
    const answer = (await this.#service.post('/rerank', body, signal)) as { results?: unknown; data?: unknown } | null;
    const results = answer?.results ?? answer?.data;
    const scores = new Map<number, number>();
    for (const result of Array.isArray(results) ? results : []) {
      const { index, relevance_score: score } = (result ?? {}) as { index?: unknown; relevance_score?: unknown };
      if (Number.isInteger(index) && Number(index) in candidates && Number.isFinite(score)) {
        scores.set(Number(index), Number(score));
      }
    }
    if (scores.size < body.top_n) {
      const detail = `it ranks ${scores.size} of ${body.top_n} passages.`;
      throw new WarmpathError('WARMPATH_RETRIEVAL_ERROR', { path: `${this.#options.url}/rerank: results`, detail });
    }
    return [...scores]
      .sort(([a, scoreA], [b, scoreB]) => scoreB - scoreA || a - b)
      .slice(0, k)
      .map(([index, score]) => ({ ...candidates[index]!, score }));
  }
}
