import { ffi } from './ffi.js';
import type { BatchStruct, NativePointer } from './structs.js';

/**
 * The token batch of one decode, in native memory that lives as long as this object, so that an asynchronous call
 * never reads memory that the garbage collector may move. Every token belongs to exactly one sequence.
 */
export class NativeBatch {
  readonly capacity: number;
  readonly #allocations: NativePointer[] = [];
  readonly #tokens: Int32Array;
  readonly #positions: Int32Array;
  readonly #sequences: Int32Array;
  readonly #outputs: Int8Array;
  readonly #struct: BatchStruct;
  #count = 0;

  /** @param capacity Most tokens in one batch. */
  constructor(capacity: number) {
    this.capacity = capacity;
    const token = this.#allocate(capacity * Int32Array.BYTES_PER_ELEMENT);
    const pos = this.#allocate(capacity * Int32Array.BYTES_PER_ELEMENT);
    const counts = this.#allocate(capacity * Int32Array.BYTES_PER_ELEMENT);
    const sequences = this.#allocate(capacity * Int32Array.BYTES_PER_ELEMENT);
    const sequencePointers = this.#allocate(capacity * BigUint64Array.BYTES_PER_ELEMENT);
    const logits = this.#allocate(capacity);
    this.#tokens = new Int32Array(token.view);
    this.#positions = new Int32Array(pos.view);
    this.#sequences = new Int32Array(sequences.view);
    this.#outputs = new Int8Array(logits.view);
    new Int32Array(counts.view).fill(1);
    // llama_batch wants an array of sequence ids per token: token i's array is the one element at sequences[i].
    const pointers = new BigUint64Array(sequencePointers.view);
    for (let index = 0; index < capacity; index++) {
      pointers[index] = sequences.address + BigInt(index * Int32Array.BYTES_PER_ELEMENT);
    }
    this.#struct = {
      n_tokens: 0,
      token: token.address,
      embd: null,
      pos: pos.address,
      n_seq_id: counts.address,
      seq_id: sequencePointers.address,
      logits: logits.address,
    };
  }

  /** Tokens added since the last {@link clear}. */
  get count(): number {
    return this.#count;
  }

  clear(): void {
    this.#count = 0;
  }

  /**
   * @param output Whether the logits after this token are wanted.
   * @returns The token's index in the batch, which names its logits.
   */
  add(token: number, position: number, sequence: number, output: boolean): number {
    const index = this.#count;
    if (index >= this.capacity) throw new RangeError(`A batch holds ${this.capacity} tokens`);
    this.#tokens[index] = token;
    this.#positions[index] = position;
    this.#sequences[index] = sequence;
    this.#outputs[index] = output ? 1 : 0;
    this.#count = index + 1;
    return index;
  }

  /** The positions that each sequence has in it, from the first to behind the last. O(tokens). */
  ranges(): Map<number, { from: number; to: number }> {
    const ranges = new Map<number, { from: number; to: number }>();
    for (let index = 0; index < this.#count; index++) {
      const position = this.#positions[index]!;
      const { from = position, to = position } = ranges.get(this.#sequences[index]!) ?? {};
      ranges.set(this.#sequences[index]!, { from: Math.min(from, position), to: Math.max(to, position + 1) });
    }
    return ranges;
  }

  /** The argument for `llama_decode`. */
  struct(): BatchStruct {
    return { ...this.#struct, n_tokens: this.#count };
  }

  free(): void {
    for (const pointer of this.#allocations.splice(0)) ffi().free(pointer);
  }

  #allocate(bytes: number): { address: NativePointer; view: ArrayBuffer } {
    const pointer = ffi().alloc('uint8', bytes) as NativePointer;
    this.#allocations.push(pointer);
    return { address: ffi().address(pointer), view: ffi().view(pointer, bytes) };
  }
}
