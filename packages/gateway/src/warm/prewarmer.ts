import { observe, WarmpathError } from '@warmpath/core';
import { type PrewarmPath, planPrewarm, type ServedRequest } from '@warmpath/core/internal';
import { ResponseSniffer } from '../answer/response-sniffer.js';
import type { GatewayConfig } from '../config/schema.js';
import type { EnginePrewarmer, ServedPrompt } from '../engines/engine.js';
import type { ActivityWatcher, Upstream, UpstreamCall } from '../engines/upstream.js';
import type { TenantModel } from '../memory/served-histories.js';
import type { Metrics } from '../observe/metrics.js';
import type { CacheSalts } from '../prompt/cache-salts.js';
import type { PromptRenderer } from '../prompt/render.js';

/** Requests remembered for planning, of all tenants and models together. */
const MAX_REMEMBERED_REQUESTS = 1_000;

const MINUTE_MS = 60_000;
/** Milliseconds without a request after which the engine counts as idle. */
const IDLE_MS = 100;

interface Remembered {
  /** The history has its own bound and may go first. */
  readonly state: WeakRef<TenantModel>;
  readonly served: ServedRequest;
  readonly bytes: number;
}

/** What the prewarmer works with. */
export interface PrewarmerParts {
  readonly upstream: Upstream;
  readonly renderer: PromptRenderer;
  readonly cacheSalts: CacheSalts | undefined;
  readonly metrics: Metrics;
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
}

/**
 * Prefills extensions of the path that was served last, while the engine is idle: those that core's `planPrewarm`
 * chooses, one at a time, for the tenant of that request. Spends at most `tokensPerMinute`. The next request aborts the
 * prefill.
 */
export class Prewarmer implements ActivityWatcher, EnginePrewarmer {
  readonly #settings: GatewayConfig['prewarm'];
  readonly #maxBytes: number;
  readonly #parts: PrewarmerParts;
  #remembered: Remembered[] = [];
  #rememberedBytes = 0;
  #last: ServedPrompt | undefined;
  #isIdle = true;
  #timer: NodeJS.Timeout | undefined;
  #call: UpstreamCall | undefined;
  #isClosed = false;
  #budget: number;
  #budgetAt: number;

  /** @param maxBytes Of remembered prompts. */
  constructor(settings: GatewayConfig['prewarm'], maxBytes: number, parts: PrewarmerParts) {
    this.#maxBytes = maxBytes;
    this.#settings = settings;
    this.#parts = parts;
    this.#budget = settings.tokensPerMinute;
    this.#budgetAt = parts.now();
    parts.upstream.watch(this);
  }

  /** Bytes of remembered prompts. */
  get bytes(): number {
    return this.#rememberedBytes;
  }

  /** Records an answered request. A prompt larger than `maxBytes` is not remembered. */
  served(prompt: ServedPrompt): void {
    if (prompt.bytes > this.#maxBytes) return;
    const { state, served, bytes } = prompt;
    this.#last = prompt;
    this.#remembered.push({ state: new WeakRef(state), served, bytes });
    this.#rememberedBytes += bytes;
    while (this.#remembered.length > MAX_REMEMBERED_REQUESTS || this.#rememberedBytes > this.#maxBytes) {
      this.#rememberedBytes -= this.#remembered.shift()!.bytes;
    }
    if (this.#isIdle) this.#wait();
  }

  busy(): void {
    this.#isIdle = false;
    clearTimeout(this.#timer);
    this.#call?.abort(
      new WarmpathError('WARMPATH_CLIENT_CLOSED', { detail: 'Someone asked the engine for something.' }),
    );
  }

  idle(): void {
    this.#isIdle = true;
    this.#wait();
  }

  /** Stops for ever. */
  close(): void {
    this.#isClosed = true;
    this.busy();
  }

  #wait(): void {
    clearTimeout(this.#timer);
    if (this.#last !== undefined && !this.#isClosed) this.#timer = setTimeout(() => this.#step(), IDLE_MS).unref();
  }

  /** Prefills the best remaining path. */
  #step(): void {
    const last = this.#last;
    if (!this.#isIdle || this.#call !== undefined || last === undefined) return;
    let path: PrewarmPath | undefined;
    try {
      path = this.#plan(last);
      if (path !== undefined) this.#prefill(last, path);
    } catch {
      this.#parts.metrics.error('WARMPATH_INTERNAL', 'gateway');
    }
    if (path !== undefined) return;
    // No path pays, or the budget is spent: wait for the next request.
    this.#last = undefined;
    this.#parts.metrics.prewarmed('nothing');
  }

  #plan({ state }: ServedPrompt): PrewarmPath | undefined {
    const own = this.#remembered.filter((each) => each.state.deref() === state).map(({ served }) => served);
    return planPrewarm(own, state.history, { maxTokens: this.#available(), maxPaths: 1 })[0];
  }

  /** Tokens that may be spent now: at most those of one minute. */
  #available(): number {
    const { tokensPerMinute } = this.#settings;
    const now = this.#parts.now();
    this.#budget += ((now - this.#budgetAt) * tokensPerMinute) / MINUTE_MS;
    this.#budget = Math.min(this.#budget, tokensPerMinute);
    this.#budgetAt = now;
    return Math.max(0, this.#budget);
  }

  #prefill(last: ServedPrompt, path: PrewarmPath): void {
    const { upstream, renderer, cacheSalts, now } = this.#parts;
    const { parsed, state, headers } = last;
    const sniffer = new ResponseSniffer(now);
    const body = renderer.prefill(parsed, path.documents, state);
    // An aborted prefill is paid in full.
    this.#budget -= path.newTokens;
    let status = 0;
    let isOver = false;
    const ended = (): void => {
      isOver = true;
      this.#call = undefined;
    };
    const call = upstream.start(
      {
        method: 'POST',
        path: parsed.api.path,
        headers,
        body: cacheSalts?.salted(body, state.tenant) ?? body,
      },
      {
        onHead: (answered, answerHeaders) => {
          status = answered;
          sniffer.head(answered, answerHeaders);
        },
        onData: (chunk) => {
          sniffer.data(chunk);
          return true;
        },
        onEnd: () => {
          sniffer.end();
          ended();
          if (status === 200) this.#learn(state, path, sniffer);
          else this.#giveUp('failed');
        },
        onError: ({ code }) => {
          ended();
          if (code === 'WARMPATH_CLIENT_CLOSED') this.#parts.metrics.prewarmed('aborted');
          else this.#giveUp('failed');
        },
      },
      { isBackground: true },
    );
    // The call may have failed already.
    if (!isOver) this.#call = call;
  }

  #learn(state: TenantModel, path: PrewarmPath, { usage }: ResponseSniffer): void {
    const { metrics, now } = this.#parts;
    observe({ kind: 'prewarmed', path, now: now() }, state.history);
    const computed = usage === undefined ? path.newTokens : usage.promptTokens - (usage.cachedTokens ?? 0);
    // The engine may have computed more than was planned.
    this.#budget -= Math.max(0, computed - path.newTokens);
    metrics.prewarmed('done', computed);
    this.#step();
  }

  #giveUp(outcome: string): void {
    this.#last = undefined;
    this.#parts.metrics.prewarmed(outcome);
  }
}
