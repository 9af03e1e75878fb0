/** What a {@link ReplayBuffer} may hold; the oldest batches go when either is exceeded. */
export interface ReplayBufferLimits {
  /** Most batches. */
  readonly steps: number;
  /** Most bytes of all batches together; the newest one stays however large it is. */
  readonly bytes: number;
}

/** The last batches, as they were sent, by sequence number. Every operation is O(1), dropped batches not counted. */
export class ReplayBuffer {
  readonly #limits: ReplayBufferLimits;
  readonly #payloads = new Map<number, Uint8Array>();
  #next = 0;
  #bytes = 0;

  constructor(limits: ReplayBufferLimits) {
    this.#limits = limits;
  }

  /** The sequence number that the next batch gets. */
  get next(): number {
    return this.#next;
  }

  /** The oldest sequence number that is there, or the next one when nothing is. */
  get oldest(): number {
    return this.#next - this.#payloads.size;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Appends a batch and drops the oldest ones beyond the limits. */
  push(payload: Uint8Array): void {
    this.#payloads.set(this.#next++, payload);
    this.#bytes += payload.length;
    while (this.#payloads.size > 1 && (this.#payloads.size > this.#limits.steps || this.#bytes > this.#limits.bytes)) {
      const { oldest } = this;
      this.#bytes -= this.#payloads.get(oldest)!.length;
      this.#payloads.delete(oldest);
    }
  }

  /** @returns A batch, or `undefined` when it was dropped or is still to come. */
  get(sequence: number): Uint8Array | undefined {
    return this.#payloads.get(sequence);
  }
}
