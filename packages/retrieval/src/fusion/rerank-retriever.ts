import {
  checkSearch,
  MAX_CANDIDATES,
  type Query,
  type SearchOptions,
  type Stage,
  type StagedRetriever,
} from '../staged-retriever.js';
import { InnerSearch, toleratedFailure } from './inner-search.js';
import type { RerankEndpoint } from './rerank-endpoint.js';

export interface RerankOptions {
  /** Whose candidates are ranked anew. */
  readonly retriever: StagedRetriever;
  readonly endpoint: RerankEndpoint;
}

/**
 * Ranks the final candidates of a search anew. The stages of the search come first; if the endpoint fails or is late,
 * the last of them is the final one, with a warning.
 */
export class RerankRetriever implements StagedRetriever {
  readonly #retriever: StagedRetriever;
  readonly #endpoint: RerankEndpoint;

  constructor({ retriever, endpoint }: RerankOptions) {
    this.#retriever = retriever;
    this.#endpoint = endpoint;
  }

  async *search(query: Query, options: SearchOptions): AsyncGenerator<Stage, void> {
    checkSearch(options);
    const { k, signal } = options;
    const depth = Math.min(MAX_CANDIDATES, Math.max(k, this.#endpoint.candidates));
    const inner = new InnerSearch(this.#retriever, query, { ...options, k: depth });
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

  async #rerankedStage(text: string, last: Stage, k: number, signal: AbortSignal): Promise<Stage> {
    const index = last.index + 1;
    const { warnings = [] } = last;
    try {
      const candidates = await this.#endpoint.rank(text, last.candidates, k, signal);
      return { candidates, index, final: true, ...(warnings.length > 0 && { warnings }) };
    } catch (error) {
      const warning = toleratedFailure(error, 'rerank', signal);
      return { candidates: last.candidates.slice(0, k), index, final: true, warnings: [...warnings, warning] };
    }
  }
}
