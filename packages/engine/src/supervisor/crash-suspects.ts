import { hash } from 'node:crypto';
import { WarmpathError } from '@warmpath/core';
import type { RelayedRequest } from './relay.js';

/** Most requests that are remembered; the oldest is forgotten first. */
const MAX_SUSPECTS = 1024;

/** Crashes after which a request is not computed any more. */
const MOST_CRASHES = 2;

/**
 * Remembers the requests that were under way when a worker crashed. One that was there twice is refused for good, in
 * the same words: it would end workers for as long as it is sent. To keep others out of it, those that are sent again
 * after a crash go one after the other, and one that gets its answer is forgotten.
 */
export class CrashSuspects {
  /** Crashes by hash, oldest first. */
  readonly #crashes = new Map<string, number>();
  #turn: Promise<void> = Promise.resolve();

  /** @throws WARMPATH_ENGINE_FAILED for a request that was under way in two crashes. */
  check(request: RelayedRequest): void {
    if (this.#crashes.size > 0 && (this.#crashes.get(keyOf(request)) ?? 0) >= MOST_CRASHES) {
      const detail = 'The engine crashed twice while it computed this request, which is not computed again.';
      throw new WarmpathError('WARMPATH_ENGINE_FAILED', { detail });
    }
  }

  /** A worker has crashed with this request. Says whether it is the second, which belongs to the first. */
  accuse(request: RelayedRequest): boolean {
    const key = keyOf(request);
    const crashes = (this.#crashes.get(key) ?? 0) + 1;
    this.#crashes.delete(key);
    this.#crashes.set(key, crashes);
    if (this.#crashes.size > MAX_SUSPECTS) {
      this.#crashes.delete(this.#crashes.keys().next().value!);
    }
    return crashes === MOST_CRASHES;
  }

  /** The request has its answer. */
  acquit(request: RelayedRequest): void {
    if (this.#crashes.size > 0) {
      this.#crashes.delete(keyOf(request));
    }
  }

  /** Settles when no request is under way that is sent again after a crash; the next waits until `end` is called. */
  async turn(): Promise<() => void> {
    const before = this.#turn;
    let end: () => void = () => undefined;
    this.#turn = new Promise((resolve) => {
      end = resolve;
    });
    await before;
    return end;
  }
}

function keyOf({ path, body }: RelayedRequest): string {
  return `${path} ${body === null ? '' : hash('sha256', body)}`;
}
