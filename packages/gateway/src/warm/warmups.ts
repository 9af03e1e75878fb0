import { WarmpathError } from '@warmpath/core';
import type { Upstream, UpstreamCall, UpstreamRequest } from '../engines/upstream.js';
import type { PromptPrefix, WarmPrefixes } from '../memory/warm-prefixes.js';

/** `warming`: a prefill is under way, started now or by someone before. `warm`: there is nothing to do. */
type WarmupState = 'warming' | 'warm';

/** What became of the wish that a prefix be warm. */
export interface Warmup {
  readonly state: WarmupState;
  /** Whether the prefill under way was started for this wish. */
  readonly isOwn: boolean;
  /** Ends a prefill of one's own; says whether there was anything to end. */
  stop(): boolean;
}

/** Warm-ups at once. */
const MAX_UNDER_WAY = 4;

/**
 * Prefills of prompt prefixes while a retrieval is under way (RAGCache++ §3.6): the prefill of the system prompt and
 * the search overlap, which saves the shorter of the two on a cold prefix. One prefill per prefix at a time.
 */
export class Warmups {
  readonly #prefixes: WarmPrefixes;
  readonly #now: () => number;
  readonly #underWay = new Map<string, UpstreamCall>();

  constructor(prefixes: WarmPrefixes, now: () => number) {
    this.#prefixes = prefixes;
    this.#now = now;
  }

  /**
   * Starts a prefill of `prefix` unless it is warm or being warmed; `request` is what prefills it, `done` hears when it
   * did. Returns at once.
   * Error: `WARMPATH_OVERLOADED` when four are under way.
   */
  start(upstream: Upstream, prefix: PromptPrefix, request: () => UpstreamRequest, done: () => void): Warmup {
    if (this.#prefixes.isWarm(prefix, this.#now())) return notOwn('warm');
    const name = JSON.stringify([prefix.tenant, prefix.key]);
    if (this.#underWay.has(name)) return notOwn('warming');
    if (this.#underWay.size >= MAX_UNDER_WAY) {
      throw new WarmpathError('WARMPATH_OVERLOADED', { detail: `${MAX_UNDER_WAY} warm-ups are under way.` });
    }
    let status = 0;
    // It may fail before it has been written down.
    let isOver = false;
    const over = () => {
      isOver = true;
      this.#underWay.delete(name);
    };
    const call = upstream.start(request(), {
      onHead: (answered) => {
        status = answered;
      },
      onData: () => true,
      onEnd: () => {
        over();
        if (status !== 200) return;
        this.#prefixes.touch(prefix, this.#now());
        done();
      },
      // The next real request prefills the prefix itself; a failed warm-up costs nobody an answer.
      onError: over,
    });
    if (!isOver) this.#underWay.set(name, call);
    return {
      state: 'warming',
      isOwn: true,
      stop: () => {
        if (this.#underWay.get(name) !== call) return false;
        call.abort(new WarmpathError('WARMPATH_CLIENT_CLOSED', { detail: 'The prompt itself goes out.' }));
        return true;
      },
    };
  }

  /** Aborts what is under way. */
  close(): void {
    for (const call of [...this.#underWay.values()]) call.abort(new WarmpathError('WARMPATH_SHUTTING_DOWN'));
  }
}

function notOwn(state: WarmupState): Warmup {
  return { state, isOwn: false, stop: () => false };
}
