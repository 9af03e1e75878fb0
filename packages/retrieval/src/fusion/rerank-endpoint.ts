import { WarmpathError } from '@warmpath/core';
import { CircuitBreaker } from '../remote/circuit-breaker.js';
import { JsonService } from '../remote/json-service.js';
import type { ScoredDocument } from '../staged-retriever.js';

/** Where the candidates of a search are ranked anew. */
export interface RerankSettings {
  /** Base URL of a reranking API, `/v1` or `/v2` included; `/rerank` is put behind it. */
  readonly url: string;
  readonly model: string;
  readonly apiKey?: string | undefined;
  /** Candidates that are ranked anew, `k` at least; 50 by default. */
  readonly candidates?: number | undefined;
}

/** Milliseconds that a user waits for a better order. */
const TIMEOUT_MS = 2000;
const DEFAULT_CANDIDATES = 50;
/** UTF-16 units of a passage that the model reads. */
const PASSAGE_LENGTH = 8000;

/**
 * A model that reads question and passage together, at an endpoint as Cohere, Jina, Voyage, vLLM and llama-server have
 * it (`POST /rerank`). It is asked once; where it is down, searches do not wait for it.
 */
export class RerankEndpoint {
  readonly candidates: number;
  readonly #model: string;
  readonly #service: JsonService;
  readonly #breaker: CircuitBreaker;

  /**
   * @param now The monotonic clock, in milliseconds.
   * @param timeoutMs For tests.
   * @throws WARMPATH_CONFIG_INVALID where the URL is none.
   */
  constructor(
    { url, model, apiKey, candidates = DEFAULT_CANDIDATES }: RerankSettings,
    { now, timeoutMs = TIMEOUT_MS }: { readonly now?: () => number; readonly timeoutMs?: number } = {},
  ) {
    this.candidates = candidates;
    this.#model = model;
    this.#service = new JsonService({ url, retries: 0, timeoutMs, ...(apiKey !== undefined && { apiKey }) });
    this.#breaker = new CircuitBreaker(now);
  }

  /**
   * The best `k` of these passages, best first, with the model's scores.
   * @throws WARMPATH_RETRIEVAL_UNREACHABLE, _TIMEOUT or _ERROR; the signal's reason.
   */
  rank(query: string, passages: readonly ScoredDocument[], k: number, signal: AbortSignal): Promise<ScoredDocument[]> {
    return this.#breaker.run(() => this.#rank(query, passages, k, signal), signal);
  }

  async close(): Promise<void> {
    await this.#service.close();
  }

  async #rank(
    query: string,
    passages: readonly ScoredDocument[],
    k: number,
    signal: AbortSignal,
  ): Promise<ScoredDocument[]> {
    const documents = passages.map(({ title, content }) =>
      (title === undefined ? content : `${title}\n${content}`).slice(0, PASSAGE_LENGTH).toWellFormed(),
    );
    const body = { model: this.#model, query: query.toWellFormed(), documents, top_n: Math.min(k, documents.length) };
    const answer = (await this.#service.post('/rerank', body, signal)) as { results?: unknown; data?: unknown } | null;
    const results = answer?.results ?? answer?.data;
    const scores = new Map<number, number>();
    for (const result of Array.isArray(results) ? results : []) {
      const { index, relevance_score: score } = (result ?? {}) as { index?: unknown; relevance_score?: unknown };
      if (Number.isInteger(index) && Number(index) in passages && Number.isFinite(score)) {
        scores.set(Number(index), Number(score));
      }
    }
    if (scores.size < body.top_n) {
      const detail = `it ranks ${scores.size} of ${body.top_n} passages.`;
      throw new WarmpathError('WARMPATH_RETRIEVAL_ERROR', { path: `${this.#service.name}/rerank: results`, detail });
    }
    return [...scores]
      .sort(([a, scoreA], [b, scoreB]) => scoreB - scoreA || a - b)
      .slice(0, k)
      .map(([index, score]) => ({ ...passages[index]!, score }));
  }
}
