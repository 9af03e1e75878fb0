import { WarmpathError } from '@warmpath/core';
import type { SavableMemory } from '../cache/sequence-memory.js';
import type { StateIdentity } from '../store/stored-state.js';
import { NativeBatch } from './batch.js';
import type { LlamaBindings } from './bindings.js';
import { callBeside, ffi } from './ffi.js';
import { LLAMA_RELEASE, mismatch, NATIVE_PACKAGE_VERSION } from './library.js';
import type { NativeModel } from './model.js';
import { FIRST_SEQUENCE, SCRATCH_SEQUENCE, SEQUENCE_IDS, TWIN_OFFSET, TWINNED_SEQUENCE_IDS } from './sequence-ids.js';
import { isComplete, isResumable, type StateShape, savedRanges, sliceState, statePieces } from './sequence-state.js';
import { FLASH_ATTENTION_ENABLED, KV_TYPES, type KvType, type NativePointer, TILE_ROWS } from './structs.js';

/** Cells for the tokens that fill up a batch: no fewer than a tile, and what llama.cpp rounds to. */
const PADDING_CELLS = 256;

export interface ContextOptions {
  /** KV cells in all, shared by every sequence; llama.cpp rounds up to a multiple of 256. */
  readonly cells: number;
  /** Most tokens in one decode. */
  readonly batchTokens: number;
  /** Most tokens of one decode whose logits are wanted. */
  readonly outputs: number;
  readonly threads: number;
  /** Whether every small batch is filled up to a tile, in cells of its own, so that all are computed alike. */
  readonly isPadded?: boolean;
  /** How keys and values stand in the cells; f16 when left out. */
  readonly kvType?: KvType;
}

/**
 * One llama.cpp context: the KV cells and the compute graph. Nothing may touch it while a decode is in flight: only the
 * engine loop holds it and awaits every decode, and every method throws otherwise, before native code is reached.
 */
export class NativeContext implements SavableMemory {
  readonly #bindings: LlamaBindings;
  readonly #context: NativePointer;
  readonly #memory: NativePointer;
  readonly #vocabularySize: number;
  readonly #batch: NativeBatch;
  readonly #isPadded: boolean;
  readonly #usesGpu: boolean;
  readonly #shape: StateShape;
  readonly #pool: NativePointer | undefined;
  /** Views of llama.cpp's logits, by address: a copy for every token would keep the garbage collector busy. */
  readonly #logits = new Map<NativePointer, Float32Array>();
  #state: 'idle' | 'decoding' | 'freed' = 'idle';

  /** Milliseconds of the first decode, of one token, which read the weights into memory. */
  warmUpMs = 0;
  /** KV cells, as llama.cpp rounded them, without those of the padding. */
  readonly cells: number;
  /** The ids that requests and a prefix cache may use. */
  readonly sequences: readonly number[];
  /** What saved states depend on beside the model. */
  readonly stateIdentity: Omit<StateIdentity, 'model'>;

  private constructor(
    bindings: LlamaBindings,
    context: NativePointer,
    model: NativeModel,
    { batchTokens, outputs, threads, isPadded = false, kvType = 'f16' }: ContextOptions,
  ) {
    this.#bindings = bindings;
    this.#context = context;
    this.#memory = bindings.getMemory(context)!;
    this.#vocabularySize = model.vocabulary.size;
    this.#batch = new NativeBatch(batchTokens);
    this.#usesGpu = model.usesGpu;
    this.#isPadded = isPadded;
    // States are made for the sequences below n_seq_max alone.
    const sequences = model.slidingWindow > 0 ? TWINNED_SEQUENCE_IDS : SEQUENCE_IDS;
    this.sequences = model.isRecurrent ? sequences.slice(0, outputs) : sequences;
    const { isRecurrent, attentionBuffers: buffers } = model;
    this.#shape = { buffers, isRecurrent, window: isRecurrent ? 0 : model.slidingWindow };
    this.#pool = bindings.threadPools.create(threads);
    if (this.#pool !== undefined) bindings.attachThreadPool(context, this.#pool, this.#pool);
    const contextCells = bindings.contextCells(context);
    this.cells = contextCells - (isPadded ? PADDING_CELLS : 0);
    const isStretched = contextCells > model.originalContext;
    this.stateIdentity = {
      library: `llama.cpp ${LLAMA_RELEASE} (${NATIVE_PACKAGE_VERSION})`,
      cells: `${kvType}/${kvType}${isStretched ? ' long rope' : ''}`,
    };
  }

  /**
   * @throws WARMPATH_ENGINE_FAILED when the memory cannot be had.
   * @throws WARMPATH_NATIVE_MISMATCH when a first decode on the highest sequence id fails.
   */
  static async create(bindings: LlamaBindings, model: NativeModel, options: ContextOptions): Promise<NativeContext> {
    // A recurrent model has a state for each id below it, and the lowest is not used.
    const outputs = options.outputs + (model.isRecurrent ? FIRST_SEQUENCE : 0);
    const params = {
      ...bindings.contextDefaultParams(),
      n_ctx: options.cells + (options.isPadded === true ? PADDING_CELLS : 0),
      n_batch: options.batchTokens,
      n_ubatch: options.batchTokens,
      // Sizes the logits buffer, so it is the number of outputs of one decode: a unified buffer takes sequence ids up
      // to LLAMA_MAX_SEQ whatever stands here (src/llama-kv-cache.cpp). The first decode proves that it still does.
      n_seq_max: outputs,
      n_outputs_max: outputs,
      n_threads: options.threads,
      n_threads_batch: options.threads,
      kv_unified: true,
      // Without it, cells of other sequences in the buffer make prefill several times slower.
      flash_attn_type: FLASH_ATTENTION_ENABLED,
      type_k: KV_TYPES[options.kvType ?? 'f16'],
      type_v: KV_TYPES[options.kvType ?? 'f16'],
    };
    const pointer = await callBeside(bindings.initFromModel, model.pointer, params);
    if (pointer === null) {
      throw new WarmpathError('WARMPATH_ENGINE_FAILED', {
        detail: `llama.cpp cannot create a context of ${options.cells} tokens${options.kvType === 'q8_0' ? ' with keys and values as q8_0' : ''}; ask for fewer`,
      });
    }
    const context = new NativeContext(bindings, pointer, model, options);
    await context.#warmUp();
    return context;
  }

  /** The batch to fill for the next {@link decode}. */
  get batch(): NativeBatch {
    this.#requireIdle();
    return this.#batch;
  }

  /**
   * Computes the batch on a native thread.
   *
   * @returns llama_decode's code: 0 success, 1 no free cells, 2 aborted, negative an error.
   */
  async decode(): Promise<number> {
    this.#requireIdle();
    const padding = this.#isPadded ? TILE_ROWS - this.#batch.count : 0;
    for (let position = 0; position < padding; position++) this.#batch.add(0, position, SCRATCH_SEQUENCE, false);
    this.#state = 'decoding';
    try {
      const code = await callBeside(this.#bindings.decode, this.#context, this.#batch.struct());
      if (this.#usesGpu) {
        // llama_decode returns before a GPU has computed; asking for the logits would wait on this thread.
        await callBeside(this.#bindings.synchronize, this.#context);
      }
      this.#labelTwins();
      return code;
    } finally {
      this.#state = 'idle';
      if (padding > 0) this.remove(SCRATCH_SEQUENCE, 0, -1);
    }
  }

  /** Gives the cells of the last batch their second label. */
  #labelTwins(): void {
    if (this.#shape.window === 0) return;
    for (const [sequence, { from, to }] of this.#batch.ranges()) {
      this.#bindings.sequenceCopy(this.#memory, sequence, sequence + TWIN_OFFSET, from, to);
    }
  }

  /**
   * @returns The logits after the token at `index` of the last batch: llama.cpp's own, which may be changed, and which
   *   the next decode overwrites.
   */
  logits(index: number): Float32Array {
    this.#requireIdle();
    const pointer = this.#bindings.logitsAt(this.#context, index);
    if (pointer === null) {
      throw new WarmpathError('WARMPATH_ENGINE_FAILED', {
        detail: 'llama.cpp has no logits for a token it was asked for',
      });
    }
    let view = this.#logits.get(pointer);
    if (view === undefined) {
      view = new Float32Array(ffi().view(pointer, this.#vocabularySize * Float32Array.BYTES_PER_ELEMENT));
      this.#logits.set(pointer, view);
    }
    return view;
  }

  copy(source: number, target: number, from: number, to: number): void {
    this.#requireIdle();
    this.#bindings.sequenceCopy(this.#memory, source, target, from, to);
    if (this.#shape.window > 0) this.#bindings.sequenceCopy(this.#memory, source, target + TWIN_OFFSET, from, to);
  }

  remove(sequence: number, from: number, to: number): void {
    this.#requireIdle();
    const labels = this.#shape.window > 0 ? [sequence, sequence + TWIN_OFFSET] : [sequence];
    for (const label of labels) {
      if (!this.#bindings.sequenceRemove(this.#memory, label, from, to)) {
        throw new WarmpathError('WARMPATH_ENGINE_FAILED', { detail: 'llama.cpp cannot cut this sequence' });
      }
    }
  }

  save(sequence: number, from: number, to: number): Uint8Array | undefined {
    this.#requireIdle();
    const pieces = savedRanges(from, to, this.#shape).map((range) => this.#savePiece(sequence, range));
    if (!pieces.every((piece) => piece !== undefined)) return undefined;
    const state = pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces);
    return isComplete(state, { from, to }, this.#shape) ? state : undefined;
  }

  #savePiece(sequence: number, { from, to }: { readonly from: number; readonly to: number }): Uint8Array | undefined {
    this.#bindings.sequenceCopy(this.#memory, sequence, SCRATCH_SEQUENCE, from, to);
    const state = allocate(this.#bindings.sequenceStateBytes(this.#context, SCRATCH_SEQUENCE));
    const length =
      state === undefined ? -1 : this.#bindings.sequenceStateRead(this.#context, state, state.length, SCRATCH_SEQUENCE);
    this.remove(SCRATCH_SEQUENCE, 0, -1);
    return length === state?.length ? state : undefined;
  }

  restore(sequence: number, state: Uint8Array, from: number, to: number): boolean {
    this.#requireIdle();
    // Behind cells without a recurrent state a sequence has no last position.
    if (!this.#shape.isRecurrent && this.lastPosition(sequence) !== from - 1) {
      throw new Error(`Cells from position ${from} on do not continue a sequence`);
    }
    const isBack = statePieces(state, { from, to }, this.#shape)?.every((piece) => {
      const { bytes } = piece;
      const length = this.#bindings.sequenceStateWrite(this.#context, bytes, bytes.length, SCRATCH_SEQUENCE);
      if (length === bytes.length) this.copy(SCRATCH_SEQUENCE, sequence, piece.from, piece.to);
      this.remove(SCRATCH_SEQUENCE, 0, -1);
      return length === bytes.length;
    });
    if (isBack === false && !this.#shape.isRecurrent) this.remove(sequence, from, -1);
    return isBack === true;
  }

  slice(state: Uint8Array, from: number, to: number): Uint8Array {
    return sliceState(state, { from, to }, this.#shape);
  }

  isResumable(state: Uint8Array): boolean {
    return isResumable(state, this.#shape);
  }

  /** Highest position that the memory holds for a sequence, -1 when it is empty. */
  lastPosition(sequence: number): number {
    this.#requireIdle();
    return this.#bindings.sequenceLastPosition(this.#memory, sequence);
  }

  free(): void {
    this.#requireIdle();
    this.#state = 'freed';
    this.#logits.clear();
    this.#bindings.free(this.#context);
    if (this.#pool !== undefined) this.#bindings.threadPools.free(this.#pool);
    this.#batch.free();
  }

  /** The first decode reads the weights into memory, and proves that the highest sequence id works. */
  async #warmUp(): Promise<void> {
    this.#batch.clear();
    const highest = this.sequences.at(-1)!;
    this.#batch.add(0, 0, highest, true);
    const startedMs = performance.now();
    const code = await this.decode();
    this.warmUpMs = performance.now() - startedMs;
    if (code !== 0) {
      this.free();
      throw mismatch(`A first decode failed with code ${code}`);
    }
    this.remove(highest, 0, -1);
  }

  #requireIdle(): void {
    if (this.#state !== 'idle') throw new Error(`The native context was touched while ${this.#state}`);
  }
}

/** @returns `undefined` when there is no memory: then a state is not saved, and nothing else is lost. */
function allocate(bytes: number): Uint8Array | undefined {
  try {
    return new Uint8Array(bytes);
  } catch {
    return undefined;
  }
}
