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
  /** Put before each question, as some models want it (`query: `). */
  readonly queryPrefix?: string | undefined;
  /** Put before each passage (`passage: `). Vectors of another prefix count as those of another model. */
  readonly passagePrefix?: string | undefined;
  /** Milliseconds for one request of vectors of passages, new tries included; 30,000 by default. */
  readonly timeoutMs?: number | undefined;
  /** Milliseconds that a search waits for the question's vector before it goes by words alone; 2,000 by default. */
  readonly questionTimeoutMs?: number | undefined;
}

const PASSAGES_TIMEOUT_MS = 30_000;
const QUESTION_TIMEOUT_MS = 2_000;

/**
 * An endpoint asked in two ways: a passage is worth a long wait and new tries, while someone waits for the answer to a
 * question, and words find something, too. Where it is down, questions do not wait for it.
 */
export class EmbeddingEndpoint implements Embedder {
  /** The model, with the prefix of passages where there is one: what vectors must have in common to be compared. */
  readonly name: string;
  /** As configured. */
  readonly dimension: number | undefined;
  readonly #ways: Readonly<Record<EmbeddingPurpose, OpenAiEmbedder>>;
  readonly #questions: CircuitBreaker;

  /** `now`: the monotonic clock, in milliseconds. Error: WARMPATH_CONFIG_INVALID where the URL is none. */
  constructor(settings: EmbeddingSettings, now?: () => number) {
    const { url, model, apiKey, dimensions, queryPrefix = '', passagePrefix = '' } = settings;
    const { timeoutMs = PASSAGES_TIMEOUT_MS, questionTimeoutMs = QUESTION_TIMEOUT_MS } = settings;
    this.#questions = new CircuitBreaker(now);
    const options = {
      url,
      model,
      queryPrefix,
      passagePrefix,
      ...(apiKey !== undefined && { apiKey }),
      ...(dimensions !== undefined && { dimension: dimensions }),
    };
    this.name = passagePrefix === '' ? model : `${model} with ${JSON.stringify(passagePrefix)} before passages`;
    this.dimension = dimensions;
    this.#ways = {
      passage: new OpenAiEmbedder({ ...options, timeoutMs }),
      query: new OpenAiEmbedder({ ...options, timeoutMs: questionTimeoutMs, retries: 0 }),
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
