import { CircuitBreaker } from '../remote/circuit-breaker.js';
import type { Embedder, EmbeddingPurpose } from './embedder.js';
import { OpenAiEmbedder } from './openai-embedder.js';

/** Where the passages and questions of collections get their vectors. */
export interface EmbeddingSettings {
  /** Base URL of an OpenAI-compatible API, `/v1` included. */
  readonly url: string;
  readonly model: string;
  readonly apiKey?: string | undefined;
  /** For models that can shorten their vectors; the model's own dimension by default. */
  readonly dimensions?: number | undefined;
}

/** Milliseconds that a search waits for the question's vector before it answers from words alone. */
const QUESTION_TIMEOUT_MS = 2000;

/**
 * An endpoint asked in two ways: a passage is worth a long wait and new tries, while someone waits for the answer to a
 * question, and words find something, too. Where it is down, questions do not wait for it.
 */
export class EmbeddingEndpoint implements Embedder {
  readonly name: string;
  /** As configured. */
  readonly dimension: number | undefined;
  readonly #ways: Readonly<Record<EmbeddingPurpose, OpenAiEmbedder>>;
  readonly #questions: CircuitBreaker;

  /** `now`: the monotonic clock, in milliseconds. Error: WARMPATH_CONFIG_INVALID where the URL is none. */
  constructor({ url, model, apiKey, dimensions }: EmbeddingSettings, now?: () => number) {
    this.#questions = new CircuitBreaker(now);
    const options = {
      url,
      model,
      ...(apiKey !== undefined && { apiKey }),
      ...(dimensions !== undefined && { dimension: dimensions }),
    };
    this.name = model;
    this.dimension = dimensions;
    this.#ways = {
      passage: new OpenAiEmbedder(options),
      query: new OpenAiEmbedder({ ...options, timeoutMs: QUESTION_TIMEOUT_MS, retries: 0 }),
    };
  }

  async embed(texts: readonly string[], purpose: EmbeddingPurpose, signal: AbortSignal): Promise<Float32Array[]> {
    const ask = () => this.#ways[purpose].embed(texts, purpose, signal);
    return purpose === 'passage' ? ask() : this.#questions.run(ask, signal);
  }

  async close(): Promise<void> {
    await Promise.all(Object.values(this.#ways).map((way) => way.close()));
  }
}
