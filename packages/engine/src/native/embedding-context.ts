import { WarmpathError } from '@warmpath/core';
import { NativeBatch } from './batch.js';
import type { LlamaBindings } from './bindings.js';
import { callBeside, ffi } from './ffi.js';
import type { NativeModel } from './model.js';
import type { NativePointer } from './structs.js';

/** Most tokens of one text: all of them are computed in one batch, because they are pooled. */
const MAX_TOKENS = 2048;

/** A context of its own beside the engine's, which turns texts into vectors. One text is computed at a time. */
export class EmbeddingContext {
  readonly #bindings: LlamaBindings;
  readonly #model: NativeModel;
  readonly #context: NativePointer;
  readonly #batch: NativeBatch;
  #last: Promise<unknown> = Promise.resolve();

  private constructor(bindings: LlamaBindings, model: NativeModel, context: NativePointer, maxTokens: number) {
    this.#bindings = bindings;
    this.#model = model;
    this.#context = context;
    this.#batch = new NativeBatch(maxTokens);
  }

  /** @throws WARMPATH_ENGINE_FAILED when the memory cannot be had. */
  static async create(bindings: LlamaBindings, model: NativeModel, threads: number): Promise<EmbeddingContext> {
    const tokens = Math.min(model.trainedContext, MAX_TOKENS);
    const context = await callBeside(bindings.initFromModel, model.pointer, {
      ...bindings.contextDefaultParams(),
      n_ctx: tokens,
      n_batch: tokens,
      n_ubatch: tokens,
      n_threads: threads,
      n_threads_batch: threads,
      pooling_type: model.poolingType,
      embeddings: true,
    });
    if (context === null) {
      throw new WarmpathError('WARMPATH_ENGINE_FAILED', { detail: 'llama.cpp cannot create a context for embeddings' });
    }
    return new EmbeddingContext(bindings, model, context, tokens);
  }

  /** Most tokens of one text. */
  get maxTokens(): number {
    return this.#batch.capacity;
  }

  /** Numbers of a vector. */
  get width(): number {
    return this.#model.width;
  }

  /** @returns The vector of a text, of length 1. */
  embed(tokens: readonly number[]): Promise<Float32Array> {
    const turn = this.#last.then(() => this.#compute(tokens));
    this.#last = turn.catch(() => undefined);
    return turn;
  }

  async free(): Promise<void> {
    await this.#last;
    this.#bindings.free(this.#context);
    this.#batch.free();
  }

  async #compute(tokens: readonly number[]): Promise<Float32Array> {
    this.#batch.clear();
    for (const [position, token] of tokens.entries()) this.#batch.add(token, position, 0, true);
    this.#bindings.sequenceRemove(this.#bindings.getMemory(this.#context), 0, 0, -1);
    const code = await callBeside(this.#bindings.decode, this.#context, this.#batch.struct());
    const pointer = code === 0 ? this.#bindings.sequenceEmbedding(this.#context, 0) : null;
    if (pointer === null) {
      throw new WarmpathError('WARMPATH_ENGINE_FAILED', { detail: `llama.cpp made no embedding (code ${code})` });
    }
    const bytes = this.width * Float32Array.BYTES_PER_ELEMENT;
    return normalised(new Float32Array(ffi().view(pointer, bytes)).slice());
  }
}

/** The same direction with a length of 1. */
export function normalised(vector: Float32Array): Float32Array {
  const length = Math.hypot(...vector);
  return length === 0 ? vector : vector.map((value) => value / length);
}
