import { WarmpathError } from '@warmpath/core';
import { refusalStatus } from '../remote/json-service.js';
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

/** Failures one after the other from which on an endpoint counts as down. */
const MOST_FAILURES = 3;
/** Milliseconds for which it is left alone then; doubled as often as it fails again, up to the longest. */
const FIRST_REST_MS = 5_000;
const LONGEST_REST_MS = 60_000;
/** Doublings that lead there. */
const MOST_RESTS = 4;

/**
 * An endpoint asked in two ways: a passage is worth a long wait and new tries, while someone waits for the answer to a
 * question, and words find something, too. Where questions fail one after the other, the next ones do not wait for the
 * same failure: for some seconds they hear of it at once, then one of them tries again.
 */
export class EmbeddingEndpoint implements Embedder {
  readonly name: string;
  /** As configured. */
  readonly dimension: number | undefined;
  readonly #ways: Readonly<Record<EmbeddingPurpose, OpenAiEmbedder>>;
  readonly #now: () => number;
  /** Of questions, one after the other. */
  #failures = 0;
  #rests = 0;
  #lastFailure: WarmpathError | undefined;
  /** When it may be asked again. */
  #restsUntil = 0;

  /** `now`: the monotonic clock, in milliseconds. Error: WARMPATH_CONFIG_INVALID where the URL is none. */
  constructor({ url, model, apiKey, dimensions }: EmbeddingSettings, now: () => number = () => performance.now()) {
    this.#now = now;
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
    if (purpose === 'passage') return this.#ways.passage.embed(texts, purpose, signal);
    const isTrial = this.#lastFailure !== undefined;
    if (isTrial && this.#now() < this.#restsUntil) throw this.#lastFailure!;
    // Whoever comes while this one tries does not try, too.
    if (isTrial) this.#restsUntil = this.#now() + LONGEST_REST_MS;
    try {
      const vectors = await this.#ways.query.embed(texts, purpose, signal);
      this.#isWell();
      return vectors;
    } catch (error) {
      if (signal.aborted) {
        // The next one tries.
        if (isTrial) this.#restsUntil = 0;
      } else if (!isOfEndpoint(error)) this.#isWell();
      else if (isTrial) this.#rest(error);
      // Those that were asked before it rested say nothing new.
      else if (this.#lastFailure === undefined && ++this.#failures === MOST_FAILURES) this.#rest(error);
      throw error;
    }
  }

  async close(): Promise<void> {
    await Promise.all(Object.values(this.#ways).map((way) => way.close()));
  }

  #isWell(): void {
    this.#failures = 0;
    this.#rests = 0;
    this.#lastFailure = undefined;
  }

  #rest(failure: WarmpathError): void {
    this.#failures = 0;
    this.#lastFailure = failure;
    this.#restsUntil = this.#now() + Math.min(LONGEST_REST_MS, FIRST_REST_MS * 2 ** this.#rests);
    this.#rests = Math.min(this.#rests + 1, MOST_RESTS);
  }
}

/** Statuses that are not about the text of a question: every other one gets the same. */
const OF_ENDPOINT = new Set([401, 403, 404, 429, 502, 503, 504]);

/** Whether the next question would fail, too: the endpoint is not there, late or broken, whatever it is asked. */
function isOfEndpoint(error: unknown): error is WarmpathError {
  if (!WarmpathError.isInstance(error)) return false;
  const status = refusalStatus(error);
  return status === undefined ? error.status >= 500 : OF_ENDPOINT.has(status);
}
