import type { CaptureState } from '@warmpath/dashboard';

/** A body as its client sent it. */
export interface CapturedBody {
  readonly id: string;
  readonly path: string;
  readonly body: Buffer;
}

/** Bytes of what is remembered beside a body. */
const ENTRY_BYTES = 256;

/**
 * Bodies of prompts that the operator wants to look at: those of the next requests, as many as were asked for, in
 * memory only and within a budget of bytes. The oldest go first.
 */
export class CapturedBodies {
  readonly #maxBytes: number;
  readonly #bodies = new Map<string, CapturedBody>();
  #bytes = 0;
  /** Requests that are still to be captured. */
  remaining = 0;
  #tooLarge = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Captures the next requests, so many, and forgets what was captured before. */
  begin(requests: number): void {
    this.#bodies.clear();
    this.#bytes = 0;
    this.#tooLarge = 0;
    this.remaining = requests;
  }

  add(given: CapturedBody): void {
    this.remaining--;
    const bytes = given.body.length + ENTRY_BYTES;
    if (bytes > this.#maxBytes) {
      this.#tooLarge++;
      return;
    }
    this.#forget(given.id);
    // A part of a larger buffer would keep all of it.
    this.#bodies.set(given.id, { ...given, body: Buffer.from(given.body) });
    this.#bytes += bytes;
    while (this.#bytes > this.#maxBytes) this.#forget(this.#bodies.keys().next().value!);
  }

  find(id: string): CapturedBody | undefined {
    return this.#bodies.get(id);
  }

  /** What is known, the oldest first. O(bodies). */
  get state(): CaptureState {
    const captured = Array.from(this.#bodies.values(), ({ id, body }) => ({ id, bytes: body.length }));
    return { object: 'capture', remaining: this.remaining, captured, tooLarge: this.#tooLarge };
  }

  #forget(id: string): void {
    const known = this.#bodies.get(id);
    if (known === undefined) return;
    this.#bodies.delete(id);
    this.#bytes -= known.body.length + ENTRY_BYTES;
  }
}
