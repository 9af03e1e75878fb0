import { randomUUID } from 'node:crypto';
import { WarmpathError } from '@warmpath/core';
import type { Tier } from '@warmpath/core/internal';
import type { PrefixCache } from '../cache/prefix-cache.js';
import type { RadixNode } from '../cache/radix-node.js';
import type { TokensByTier } from '../cache/tokens-by-tier.js';

/** Most prompts that are pinned at the same time. */
const MAX_PINS = 1_024;

/** The part of the host tier that pinned prompts may take. */
const PINNED_SHARE = 0.5;

/** A prompt that is kept until a time. */
export interface Pin {
  readonly id: string;
  /** Tokens of the prompt that are kept. */
  readonly tokens: number;
  /** Milliseconds since 1970. */
  readonly expiresMs: number;
}

interface HeldPin extends Pin {
  readonly node: RadixNode;
  readonly salt: string | undefined;
}

export interface CacheManagementOptions {
  readonly cache: PrefixCache;
  /** Milliseconds since 1970. */
  readonly clock: () => number;
  /** Has the loop take a turn, if it sleeps. */
  readonly wake: () => void;
}

/**
 * What operators ask of the cache: to drop what it holds, and to keep a prompt for some time. What changes the cache
 * waits for the end of the step that is computed.
 */
export class CacheManagement {
  readonly #options: CacheManagementOptions;
  readonly #pins = new Map<string, HeldPin>();
  #waiting: (() => void)[] = [];
  #isClosed = false;

  constructor(options: CacheManagementOptions) {
    this.#options = options;
  }

  /** Prompts that are pinned. */
  get pins(): number {
    return this.#pins.size;
  }

  /**
   * Drops what is cached and no running request needs, pinned prompts included; with a salt, only its prompts.
   *
   * @returns Tokens that were dropped from each tier. @throws WARMPATH_SHUTTING_DOWN
   */
  flush(tiers: readonly Tier[], salt?: string): Promise<TokensByTier> {
    return this.#between(() => {
      for (const pin of this.#pins.values()) {
        if (salt === undefined || pin.salt === salt) {
          this.#end(pin);
        }
      }
      return this.#options.cache.flush(tiers, salt);
    });
  }

  /**
   * Keeps what is cached of a prompt in host memory or on the disk.
   *
   * @throws WARMPATH_INVALID_REQUEST without a host tier, or when nothing of the prompt is cached; WARMPATH_OVERLOADED
   *   when pinned prompts would take more than half of the host tier; WARMPATH_SHUTTING_DOWN.
   */
  pin(tokens: readonly number[], salt: string | undefined, lifetimeMs: number): Promise<Pin> {
    return this.#between(() => {
      const { host } = this.#options.cache.stats;
      if (host === undefined) {
        throw new WarmpathError('WARMPATH_INVALID_REQUEST', { detail: 'There is no host tier to keep prompts in.' });
      }
      if (this.#pins.size >= MAX_PINS) {
        throw new WarmpathError('WARMPATH_OVERLOADED', { detail: `${MAX_PINS} prompts are pinned already.` });
      }
      const node = this.#options.cache.keep(tokens, salt);
      if (node === undefined) {
        throw new WarmpathError('WARMPATH_INVALID_REQUEST', { detail: 'Nothing of this prompt is cached.' });
      }
      if (this.#pinnedBytes(node) > PINNED_SHARE * host.capacityBytes) {
        this.#options.cache.unkeep(node);
        throw new WarmpathError('WARMPATH_OVERLOADED', { detail: 'Pinned prompts may take half of the host tier.' });
      }
      const end = Math.min(node.end, tokens.length);
      const pin = { id: randomUUID(), tokens: end, expiresMs: this.#options.clock() + lifetimeMs, node, salt };
      this.#pins.set(pin.id, pin);
      return pin;
    });
  }

  /** Ends a pin before its time. @returns Whether there was one. Throws WARMPATH_SHUTTING_DOWN. */
  unpin(id: string): Promise<boolean> {
    return this.#between(() => {
      const pin = this.#pins.get(id);
      if (pin !== undefined) {
        this.#end(pin);
      }
      return pin !== undefined;
    });
  }

  /** Does what waits, and ends the pins whose time is over. Call it between two decodes. */
  step(): void {
    for (const work of this.#waiting.splice(0)) {
      work();
    }
    const nowMs = this.#options.clock();
    for (const pin of this.#pins.values()) {
      if (pin.expiresMs <= nowMs) {
        this.#end(pin);
      }
    }
  }

  /** Refuses what waits and what comes. */
  close(): void {
    this.#isClosed = true;
    this.step();
  }

  #end(pin: HeldPin): void {
    this.#pins.delete(pin.id);
    this.#options.cache.unkeep(pin.node);
  }

  /** Bytes in host memory of all pinned prompts together with another. */
  #pinnedBytes(another: RadixNode): number {
    const nodes = new Set(
      [another, ...[...this.#pins.values()].map(({ node }) => node)].flatMap((node) => node.path()),
    );
    return [...nodes].reduce((sum, { copy }) => sum + (copy?.state.length ?? 0), 0);
  }

  #between<T>(work: () => T): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#waiting.push(() => {
        try {
          if (this.#isClosed) {
            throw new WarmpathError('WARMPATH_SHUTTING_DOWN');
          }
          resolve(work());
        } catch (error) {
          reject(error as Error);
        }
      });
      if (this.#isClosed) {
        this.step();
      }
      this.#options.wake();
    });
  }
}
