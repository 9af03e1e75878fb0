import { crc32 } from 'node:zlib';
import type { SavableMemory, SequenceId } from './sequence-memory.js';

/** A node's own cells in host memory. */
export interface HostCopy {
  readonly from: number;
  readonly to: number;
  readonly state: Uint8Array;
  /** CRC-32 of the state, taken when it was saved. */
  readonly checksum: number;
  /** Whether a sequence can go on behind its last cell. */
  readonly isResumable: boolean;
  /** Whether it was read from the disk and not used since. */
  isFresh?: boolean;
}

/** Positions `from` … `to - 1`. */
export interface Range {
  readonly from: number;
  readonly to: number;
}

export interface HostTierOptions {
  /** Where cells are saved from and restored to. */
  readonly memory: SavableMemory;
  /** Most bytes of all copies together. */
  readonly capacityBytes: number;
}

/** Figures of the host tier, counted from the start where they are not of now. */
export type HostTierStats = HostTier['stats'];

/**
 * Copies of nodes in host memory, within a budget in bytes. The tree decides which copy leaves. A copy is restored only
 * with the length, checksum and positions with which it was saved.
 */
export class HostTier {
  readonly #memory: SavableMemory;
  readonly #capacityBytes: number;
  /** `tokens`: those that have a copy now. `failures`: states that could not be saved, or were damaged. */
  readonly #counts = { usedBytes: 0, tokens: 0, savedTokens: 0, restoredTokens: 0, evictedTokens: 0, failures: 0 };

  constructor({ memory, capacityBytes }: HostTierOptions) {
    this.#memory = memory;
    this.#capacityBytes = capacityBytes;
  }

  get stats() {
    return { capacityBytes: this.#capacityBytes, ...this.#counts };
  }

  /** Bytes that could be added. */
  get freeBytes(): number {
    return this.#capacityBytes - this.#counts.usedBytes;
  }

  /**
   * Copies cells out of the device. The copy counts only once it is {@link add}ed.
   *
   * @returns `undefined` when the memory cannot give them, or they are larger than the whole tier.
   */
  save(sequence: SequenceId, from: number, to: number): HostCopy | undefined {
    if (this.#capacityBytes === 0) return undefined;
    const state = this.#memory.save(sequence, from, to);
    if (state === undefined) {
      this.#counts.failures++;
      return undefined;
    }
    if (state.length > this.#capacityBytes) return undefined;
    this.#counts.savedTokens += to - from;
    return this.#seal(state, from, to);
  }

  /**
   * The part of a file's state that a node holds, as a copy that counts only once it is {@link add}ed. Its checksum was
   * verified when it was read.
   *
   * @returns `undefined` when it is larger than the whole tier.
   */
  fromState(state: Uint8Array, { from, to }: Range, whole: Range): HostCopy | undefined {
    const isWhole = from === whole.from && to === whole.to;
    const part = isWhole ? state : this.#memory.slice(state, from, to);
    return part.length > this.#capacityBytes ? undefined : { ...this.#seal(part, from, to), isFresh: true };
  }

  /** Counts a copy. There must be room for it. */
  add(copy: HostCopy): void {
    this.#counts.usedBytes += copy.state.length;
    this.#counts.tokens += copy.to - copy.from;
  }

  /** Stops counting a copy. */
  drop(copy: HostCopy): void {
    this.#counts.usedBytes -= copy.state.length;
    this.#counts.tokens -= copy.to - copy.from;
  }

  /** Stops counting a copy that was evicted. */
  evict(copy: HostCopy): void {
    this.drop(copy);
    this.#counts.evictedTokens += copy.to - copy.from;
  }

  /**
   * Puts a copy's cells behind what a sequence holds, which must be the tokens that stood before them.
   *
   * @returns Whether they are on the device now; when not, nothing has changed there and the copy is worth nothing.
   */
  restore(copy: HostCopy, sequence: SequenceId): boolean {
    if (!this.#isSound(copy) || !this.#memory.restore(sequence, copy.state, copy.from, copy.to)) {
      this.#counts.failures++;
      return false;
    }
    this.#counts.restoredTokens += copy.to - copy.from;
    return true;
  }

  /**
   * Cuts a copy in two before a position; both count in its place.
   *
   * @returns `undefined` when the copy is damaged: a fresh checksum on its parts would hide that. It counts no more
   *   then.
   */
  split(copy: HostCopy, position: number): [upper: HostCopy, lower: HostCopy] | undefined {
    this.drop(copy);
    if (!this.#isSound(copy)) {
      this.#counts.failures++;
      return undefined;
    }
    const part = (from: number, to: number): HostCopy => this.#seal(this.#memory.slice(copy.state, from, to), from, to);
    const parts: [HostCopy, HostCopy] = [part(copy.from, position), part(position, copy.to)];
    for (const each of parts) this.add(each);
    return parts;
  }

  #isSound({ state, checksum }: HostCopy): boolean {
    return crc32(state) === checksum;
  }

  #seal(state: Uint8Array, from: number, to: number): HostCopy {
    return { from, to, state, checksum: crc32(state), isResumable: this.#memory.isResumable?.(state) ?? true };
  }
}
