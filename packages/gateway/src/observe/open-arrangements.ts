import { randomUUID } from 'node:crypto';
import type { Arrangement } from '@warmpath/core';
import type { TenantModel } from './served-histories.js';

/** An arrangement whose client has not said what became of it. */
export interface OpenArrangement {
  readonly arrangement: Arrangement;
  readonly state: TenantModel;
}

/**
 * Arrangements that clients took away to write their own prompts, by the name under which they may report back. Bounded: the
 * oldest goes first, and then counts as served, which is what it was taken for. All O(1).
 */
export class OpenArrangements {
  readonly #capacity: number;
  readonly #open = new Map<string, OpenArrangement>();

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  get size(): number {
    return this.#open.size;
  }

  /** Remembers one and names it. The name cannot be guessed. */
  open(arrangement: OpenArrangement): string {
    if (this.#open.size >= this.#capacity) this.#open.delete(this.#open.keys().next().value!);
    const id = randomUUID();
    this.#open.set(id, arrangement);
    return id;
  }

  /** Takes one out; `undefined` if this tenant has none of that name (any more). */
  take(id: string, tenant: string): OpenArrangement | undefined {
    const found = this.#open.get(id);
    if (found === undefined || found.state.tenant !== tenant) return undefined;
    this.#open.delete(id);
    return found;
  }
}
