import { createHash } from 'node:crypto';
import { WarmpathError } from '@warmpath/core';
import type { RelayedRequest } from './relay.js';

/** Crashes after which a request runs alone. */
const CRASHES_OF_SUSPECT = 2;

/** Crashes after which a stream is given up that has got further before each of them. */
const MAX_CRASHES = 3;

/** How long a request is refused that crashed the engine, and most of them that are remembered. */
const REFUSED_MS = 600_000;
const MAX_REFUSED = 256;

/** A request, from its arrival at the front to its end. */
export class QueuedRequest {
  readonly sent: RelayedRequest;
  /** Whether it may be what crashes an engine. */
  readonly isComputed: boolean;
  /** Crashes in which a worker had it. */
  crashes = 0;
  /** Tokens that its client had at the last of them. */
  #tokens = 0;

  constructor(sent: RelayedRequest) {
    this.sent = sent;
    this.isComputed = sent.method === 'POST';
  }

  get isSuspect(): boolean {
    return this.isComputed && this.crashes >= CRASHES_OF_SUSPECT;
  }

  /** Its worker has crashed. @returns Whether its client got more since the crash before. */
  noteCrash(): boolean {
    const tokens = this.sent.answer?.tokens.length ?? 0;
    const hasGrown = tokens > this.#tokens;
    this.crashes++;
    this.#tokens = tokens;
    return hasGrown;
  }
}

/** The requests that one worker has. */
interface Crew {
  readonly members: Set<QueuedRequest>;
  /** How many there were when it crashed. */
  lost?: number;
}

/**
 * Which request may go to the worker, so that one that crashes it does so a few times and no more, and none that stood
 * beside it is refused. After its first crash a request is computed again with all others. One that was there in two
 * runs alone from then on: everything else waits. Only one that was alone in a crash is refused, and for some minutes
 * whoever sends the same again.
 */
export class RequestLine {
  readonly #clock: () => number;
  readonly #crews = new WeakMap<object, Crew>();
  /** Requests that a worker has, or is about to get. */
  readonly #admitted = new Set<QueuedRequest>();
  /** Requests that run alone, now or later, in the order of their crashes. */
  readonly #suspects = new Set<QueuedRequest>();
  /** Until when requests are refused, by their hashes, oldest first. */
  readonly #refused = new Map<string, number>();
  #waiting: (() => void)[] = [];

  /** @param clock Milliseconds since some moment. */
  constructor(clock: () => number) {
    this.#clock = clock;
  }

  /**
   * Hashes the body only when a request was refused lately.
   *
   * @throws WARMPATH_ENGINE_FAILED when the same request has crashed the engine.
   */
  check(request: QueuedRequest): void {
    if (this.#refused.size === 0 || !request.isComputed) {
      return;
    }
    const until = this.#refused.get(hashOf(request.sent));
    if (until !== undefined && this.#clock() < until) {
      const detail = `The engine crashed when it computed this request alone; it is refused for ${REFUSED_MS / 60_000} minutes.`;
      throw new WarmpathError('WARMPATH_ENGINE_FAILED', { detail });
    }
  }

  /** @returns Whether the worker may have the request now; else {@link wait}, and ask again. */
  enter(request: QueuedRequest, worker: object): boolean {
    if (request.isComputed) {
      const isFree = request.isSuspect ? this.#isNext(request) : this.#suspects.size === 0;
      if (!isFree) {
        return false;
      }
      this.#admitted.add(request);
    }
    this.#crewOf(worker).members.add(request);
    return true;
  }

  /** Until a request has left. */
  wait(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /** The worker does not have the request any more. */
  leave(request: QueuedRequest, worker: object): void {
    this.#crewOf(worker).members.delete(request);
    if (this.#admitted.delete(request)) {
      this.#wakeAll();
    }
  }

  /** The request has left for good. */
  end(request: QueuedRequest): void {
    if (this.#suspects.delete(request)) {
      this.#wakeAll();
    }
  }

  /**
   * A worker has crashed while it had the request. Call it before `leave`.
   *
   * @returns Whether the request is refused.
   */
  crashed(request: QueuedRequest, worker: object): boolean {
    const crew = this.#crewOf(worker);
    crew.lost ??= [...crew.members].filter(({ isComputed }) => isComputed).length;
    const hasGrown = request.noteCrash();
    const most = hasGrown ? MAX_CRASHES : CRASHES_OF_SUSPECT;
    if (!request.isComputed || crew.lost > 1 || request.crashes < most) {
      if (request.isSuspect) {
        this.#suspects.add(request);
      }
      return !request.isComputed && request.crashes >= CRASHES_OF_SUSPECT;
    }
    this.#refuse(request);
    return true;
  }

  /** A suspect runs when nothing else does, and no other is before it. */
  #isNext(request: QueuedRequest): boolean {
    const [first] = this.#suspects;
    return this.#admitted.size === 0 && first === request;
  }

  #refuse({ sent }: QueuedRequest): void {
    this.#refused.set(hashOf(sent), this.#clock() + REFUSED_MS);
    if (this.#refused.size > MAX_REFUSED) {
      this.#refused.delete(this.#refused.keys().next().value!);
    }
  }

  #crewOf(worker: object): Crew {
    let crew = this.#crews.get(worker);
    if (crew === undefined) {
      crew = { members: new Set() };
      this.#crews.set(worker, crew);
    }
    return crew;
  }

  #wakeAll(): void {
    const waiting = this.#waiting;
    if (waiting.length > 0) {
      this.#waiting = [];
      for (const wake of waiting) {
        wake();
      }
    }
  }
}

function hashOf({ path, body }: RelayedRequest): string {
  return createHash('sha256')
    .update(`${path}\n`)
    .update(body ?? '')
    .digest('base64');
}
