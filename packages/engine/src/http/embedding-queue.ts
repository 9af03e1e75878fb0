import { WarmpathError } from '@warmpath/core';
import type { EmbeddingContext } from '../native/embedding-context.js';
import type { EngineMetrics } from './metrics.js';

export interface EmbeddingQueueOptions {
  /** Makes the context, with the first request. */
  readonly open: () => Promise<EmbeddingContext>;
  /** Most requests that wait. */
  readonly queueLimit: number;
  readonly metrics: EngineMetrics;
}

/** The requests for embeddings. One text is computed at a time: the texts of all requests take turns. */
export class EmbeddingQueue {
  readonly #options: EmbeddingQueueOptions;
  #context: Promise<EmbeddingContext> | undefined;
  #requests = 0;

  constructor(options: EmbeddingQueueOptions) {
    this.#options = options;
  }

  get counts(): { readonly running: number; readonly waiting: number } {
    const running = Math.min(1, this.#requests);
    return { running, waiting: this.#requests - running };
  }

  /** @throws WARMPATH_ENGINE_FAILED when the memory cannot be had; the next request tries again. */
  context(): Promise<EmbeddingContext> {
    this.#context ??= this.#options.open().catch((error: unknown) => {
      this.#context = undefined;
      throw error;
    });
    return this.#context;
  }

  /**
   * Turns the texts of one request into vectors.
   *
   * @param isWanted Asked before each text; when not, nothing more is computed.
   * @throws WARMPATH_OVERLOADED, WARMPATH_CLIENT_CLOSED, WARMPATH_ENGINE_FAILED.
   */
  async embed(texts: readonly (readonly number[])[], isWanted: () => boolean): Promise<Float32Array[]> {
    const { queueLimit, metrics } = this.#options;
    const { running, waiting } = this.counts;
    if (running > 0 && waiting >= queueLimit) {
      throw new WarmpathError('WARMPATH_OVERLOADED', {
        detail: `${waiting} requests for embeddings are waiting already (\`--queue-limit\`).`,
      });
    }
    const startedMs = performance.now();
    let outcome: 'finished' | 'aborted' | 'failed' = 'failed';
    this.#requests++;
    try {
      const context = await this.context();
      const vectors: Float32Array[] = [];
      for (const tokens of texts) {
        if (!isWanted()) {
          outcome = 'aborted';
          throw new WarmpathError('WARMPATH_CLIENT_CLOSED');
        }
        vectors.push(await context.embed(tokens));
      }
      outcome = 'finished';
      return vectors;
    } finally {
      this.#requests--;
      const tokens = texts.reduce((sum, { length }) => sum + length, 0);
      metrics.onEmbeddings(outcome, tokens, performance.now() - startedMs);
    }
  }

  /** Frees the context, if there is one. */
  async close(): Promise<void> {
    await (await this.#context?.catch(() => undefined))?.free();
  }
}
