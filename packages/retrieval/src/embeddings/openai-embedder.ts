import { createHash } from 'node:crypto';
import { WarmpathError } from '@warmpath/core';
import { JsonService, type JsonServiceOptions } from '../remote/json-service.js';
import type { Embedder, EmbeddingPurpose } from './embedder.js';

/** Where vectors are kept, by model and text. May be slow, may forget, must not fail. */
export interface EmbeddingCache {
  get(key: string): Float32Array | undefined | Promise<Float32Array | undefined>;
  set(key: string, vector: Float32Array): void | Promise<void>;
}

export interface OpenAiEmbedderOptions extends JsonServiceOptions {
  readonly model: string;
  /** Asked for as `dimensions`, and others are refused; that of the first answer by default. */
  readonly dimension?: number;
  /** Texts of one request; 64 by default. */
  readonly batchSize?: number;
  /** Put before each question, as some models want it (`query: `). */
  readonly queryPrefix?: string;
  /** Put before each passage (`passage: `). */
  readonly passagePrefix?: string;
  readonly cache?: EmbeddingCache;
}

/** UTF-16 units of one request at most, or one text. */
const MAX_BATCH_LENGTH = 500_000;

/**
 * Vectors from any OpenAI-compatible `/v1/embeddings`. Texts go in batches, a few at once, each text once; what the
 * cache has is not asked for. An answer counts only as a whole: as many vectors as texts, in one dimension, of numbers.
 */
export class OpenAiEmbedder implements Embedder {
  readonly name: string;
  readonly #service: JsonService;
  readonly #options: OpenAiEmbedderOptions;
  #dimension: number | undefined;

  constructor(options: OpenAiEmbedderOptions) {
    this.name = options.model;
    this.#service = new JsonService(options);
    this.#options = options;
    this.#dimension = options.dimension;
  }

  async embed(texts: readonly string[], purpose: EmbeddingPurpose, signal: AbortSignal): Promise<Float32Array[]> {
    signal.throwIfAborted();
    const { queryPrefix = '', passagePrefix = '', cache, concurrency = 4 } = this.#options;
    const prefix = purpose === 'query' ? queryPrefix : passagePrefix;
    const vectors = new Map<string, Float32Array>();
    const missing: string[] = [];
    for (const text of new Set(texts)) {
      if (text.trim() === '') vectors.set(text, new Float32Array(0));
      else {
        const cached = await cache?.get(this.#cacheKey(prefix + text));
        if (cached === undefined) missing.push(text);
        else vectors.set(text, cached);
      }
    }
    const batches = this.#batches(missing);
    const fill = async () => {
      for (let batch = batches.next(); !batch.done; batch = batches.next()) {
        const answer = await this.#ask(
          batch.value.map((text) => prefix + text.toWellFormed()),
          signal,
        );
        for (const [i, text] of batch.value.entries()) {
          vectors.set(text, answer[i]!);
          await cache?.set(this.#cacheKey(prefix + text), answer[i]!);
        }
      }
    };
    // One that fails ends the others, so that nothing is asked for in vain.
    try {
      await Promise.all(Array.from({ length: concurrency }, fill));
    } catch (error) {
      batches.return(undefined);
      throw error;
    }
    signal.throwIfAborted();
    return texts.map((text) => vectors.get(text)!);
  }

  async close(): Promise<void> {
    await this.#service.close();
  }

  *#batches(texts: readonly string[]): Generator<string[], undefined> {
    const { batchSize = 64 } = this.#options;
    let batch: string[] = [];
    let length = 0;
    for (const text of texts) {
      if (batch.length === batchSize || (batch.length > 0 && length + text.length > MAX_BATCH_LENGTH)) {
        yield batch;
        batch = [];
        length = 0;
      }
      batch.push(text);
      length += text.length;
    }
    if (batch.length > 0) yield batch;
  }

  async #ask(input: readonly string[], signal: AbortSignal): Promise<Float32Array[]> {
    const { model, dimension } = this.#options;
    const body = { model, input, ...(dimension !== undefined && { dimensions: dimension }) };
    const answer = await this.#service.post('/embeddings', body, signal);
    const data = (answer as { readonly data?: unknown } | null)?.data;
    if (!Array.isArray(data) || data.length !== input.length) {
      const count = Array.isArray(data) ? data.length : 'no';
      throw this.#invalid('data', `it holds ${count} vectors for ${input.length} texts.`);
    }
    const vectors = new Array<Float32Array | undefined>(input.length).fill(undefined);
    for (const [position, item] of data.entries()) {
      const { index = position, embedding } = (item ?? {}) as {
        readonly index?: unknown;
        readonly embedding?: unknown;
      };
      const path = `data[${position}]`;
      if (!Number.isInteger(index) || !(Number(index) in vectors) || vectors[Number(index)] !== undefined) {
        throw this.#invalid(`${path}.index`, `${index} names no text, or one that has a vector already.`);
      }
      vectors[Number(index)] = this.#readVector(embedding, `${path}.embedding`);
    }
    return vectors as Float32Array[];
  }

  #readVector(embedding: unknown, path: string): Float32Array {
    let vector: Float32Array;
    if (typeof embedding === 'string') {
      const bytes = Buffer.from(embedding, 'base64');
      vector = new Float32Array(bytes.length >> 2);
      for (let i = 0; i < vector.length; i++) vector[i] = bytes.readFloatLE(4 * i);
    } else if (Array.isArray(embedding)) {
      if (!embedding.every((value) => typeof value === 'number'))
        throw this.#invalid(path, 'it is not made of numbers.');
      vector = Float32Array.from(embedding as number[]);
    } else {
      throw this.#invalid(path, 'it is no vector.');
    }
    const expected = this.#dimension ?? vector.length;
    if (vector.length !== expected || vector.length === 0) {
      // The first answer may have been the wrong one: the next one says what is right.
      this.#dimension = this.#options.dimension;
      throw this.#invalid(path, `the vector has ${vector.length} dimensions where ${expected} are expected.`);
    }
    this.#dimension = expected;
    if (!vector.every(Number.isFinite)) throw this.#invalid(path, 'it holds values that are no finite numbers.');
    return vector;
  }

  #invalid(path: string, detail: string): WarmpathError {
    return new WarmpathError('WARMPATH_EMBEDDING_INVALID', {
      path: `${this.#service.name}/embeddings: ${path}`,
      detail,
    });
  }

  #cacheKey(text: string): string {
    return `${this.name}:${createHash('sha256').update(text).digest('hex')}`;
  }
}
