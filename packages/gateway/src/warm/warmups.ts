import { WarmpathError } from '@warmpath/core';
import type { Upstream, UpstreamCall, UpstreamRequest } from '../engines/upstream.js';
import type { PromptPrefix, WarmPrefixes } from '../memory/warm-prefixes.js';

/** `warming`: a prefill is under way. `warm`: the engine has the prefix. */
type WarmupState = 'warming' | 'warm';

/** The result of a request to warm a prefix. */
export interface Warmup {
  readonly state: WarmupState;
  /** Whether this request started the prefill. */
  readonly isOwn: boolean;
  /** Ends the prefill if this request started it. @returns Whether it was under way. */
  stop(): boolean;
}

/** Warm-ups under way at once. */
const MAX_UNDER_WAY = 4;

/**
 * Prefills prompt prefixes during a retrieval (RAGCache++ §3.6): on a cold prefix, prefill and search overlap. One
 * prefill per prefix at a time.
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
   * Starts a prefill of `prefix` unless it is warm or being warmed. Returns at once.
   *
   * @param request Makes the request that prefills it.
   * @param done Called when it is prefilled.
   * @throws WarmpathError `WARMPATH_OVERLOADED` beyond `MAX_UNDER_WAY`.
   */
  start(upstream: Upstream, prefix: PromptPrefix, request: () => UpstreamRequest, done: () => void): Warmup {
    if (this.#prefixes.isWarm(prefix, this.#now())) return notOwn('warm');
    const name = JSON.stringify([prefix.tenant, prefix.key]);
    if (this.#underWay.has(name)) return notOwn('warming');
    if (this.#underWay.size >= MAX_UNDER_WAY) {
      throw new WarmpathError('WARMPATH_OVERLOADED', { detail: `${MAX_UNDER_WAY} warm-ups are under way.` });
    }
    let status = 0;
    // The call may fail before it is recorded.
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
      // The next prompt prefills the prefix itself.
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

  /** Aborts all warm-ups. */
  close(): void {
    for (const call of [...this.#underWay.values()]) call.abort(new WarmpathError('WARMPATH_SHUTTING_DOWN'));
  }
}

function notOwn(state: WarmupState): Warmup {
  return { state, isOwn: false, stop: () => false };
}
