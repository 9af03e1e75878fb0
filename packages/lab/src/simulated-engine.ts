import {
  type Arrangement,
  arrange,
  type CostModel,
  type Document,
  fingerprint,
  type OrderingPolicy,
  observe,
  type PolicyName,
  PREWARM_WINDOW,
  type Preamble,
  type PrewarmOptions,
  planPrewarm,
  ServedHistory,
  WarmpathError,
} from '@warmpath/core';
import { type PrefixCacheModel, promptTokens, serveAtOnce } from './cache/prefix-cache.js';
import { VllmBlockCache } from './cache/vllm-blocks.js';
import { type ConversationLayout, Conversations } from './conversations.js';
import { RTX_4090 } from './latency.js';
import type { PromptSpan, WorkloadRequest } from './workloads/workload.js';

export interface SimulatedEngineOptions {
  /** The engine's cache; it is cleared first. Default: vLLM's blocks, unlimited. */
  readonly cache?: PrefixCacheModel;
  /** Whether the engine reports cached tokens, which correct the history. Default true. */
  readonly reportsCachedTokens?: boolean;
  /** Where the earlier turns of a conversation stand. Default `documents-first`. */
  readonly conversations?: ConversationLayout;
  /** Time to the first token. Default: the fit to the papers' RTX 4090. */
  readonly latency?: CostModel;
  /** Milliseconds of a monotonic clock, to time `arrange`. Default: none, and `arrangeMs` is 0. */
  readonly clock?: () => number;
}

/** What one request got from the cache. */
export interface ServedOutcome {
  /** Documents that were sent. */
  readonly documents: number;
  /** Documents that were not, because the conversation holds them already. */
  readonly repeatedDocuments: number;
  /** Leading documents that were reused whole, up to the cache's granularity. */
  readonly cachedDocuments: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  /** From the request's arrival to its first token: prefill, and the wait before it where arrivals are simulated. */
  readonly ttftMs: number;
  /** Time that `arrange` took. */
  readonly arrangeMs: number;
  /** Tokens prefilled ahead between this request and the next. Present where that was asked for. */
  readonly prewarmedTokens?: number;
}

/** Where and when a request is served. */
export interface Dispatch {
  /** Place in the workload, for errors. */
  readonly number: number;
  /** Documents of the requests known to come next. */
  readonly waiting: readonly (readonly Document[])[];
  /** Milliseconds of virtual time. */
  readonly now: number;
}

/** When an engine may prefill ahead: from `now`, as long as no path would begin at `until` or later. Milliseconds. */
export interface IdleTime {
  readonly now: number;
  readonly until: number;
}

/** One engine with its history: the real `arrange` and `observe` of the core around a simulated cache. */
export class SimulatedEngine {
  readonly #preamble: Preamble;
  readonly #policy: PolicyName | OrderingPolicy;
  readonly #cache: PrefixCacheModel;
  readonly #history: ServedHistory;
  readonly #conversations: Conversations;
  readonly #latency: CostModel;
  readonly #clock: () => number;
  readonly #reportsCachedTokens: boolean;
  /** The last requests served, and what stood between preamble and documents in the last. */
  readonly #served: Arrangement[] = [];
  #before: readonly PromptSpan[] = [];

  constructor(preamble: Preamble, policy: PolicyName | OrderingPolicy, options: SimulatedEngineOptions = {}) {
    this.#preamble = preamble;
    this.#policy = policy;
    this.#cache = options.cache ?? new VllmBlockCache();
    this.#cache.clear();
    this.#history = new ServedHistory({ evictsLeastRecent: this.#cache.evictsLeastRecent });
    this.#conversations = new Conversations(options.conversations);
    this.#latency = options.latency ?? RTX_4090;
    this.#clock = options.clock ?? (() => 0);
    this.#reportsCachedTokens = options.reportsCachedTokens ?? true;
  }

  /**
   * Arranges and prefills one request. Errors: whatever made the policy fall back to retrieval order (a comparison must
   * not hide that), and those of the cache. Cost: that of the policy and O(tokens / granularity).
   */
  serve(request: WorkloadRequest, { number, waiting, now }: Dispatch): ServedOutcome {
    const turn = this.#conversations.begin(request);
    const preamble = behind(this.#preamble, turn.before);
    const context = { documents: turn.documents, preamble, policy: this.#policy, hints: false };
    const started = this.#clock();
    // Behind a conversation of its own, a request shares nothing with those that wait.
    const question = turn.before.length === 0 ? { ...context, waiting } : context;
    const arrangement = arrange(question, this.#history, now);
    const arrangeMs = this.#clock() - started;
    const { fellBack } = arrangement.trace;
    if (fellBack !== undefined) throw new WarmpathError(fellBack, { path: `requests[${number}]` });
    const prompt = { spans: [this.#preamble, ...turn.before, ...arrangement.documents, ...turn.after] };
    const tokens = promptTokens(prompt);
    observe({ kind: 'dispatched', arrangement, now }, this.#history);
    const cachedTokens = serveAtOnce(this.#cache, prompt);
    const report = this.#reportsCachedTokens ? { cachedTokens, promptTokens: tokens } : {};
    observe({ kind: 'completed', arrangement, now, ...report }, this.#history);
    this.#conversations.end(request, turn, arrangement.documents);
    this.#served.push(arrangement);
    if (this.#served.length > PREWARM_WINDOW) this.#served.shift();
    this.#before = turn.before;
    const reuse = { cachedTokens, granularity: this.#cache.granularity };
    return {
      documents: turn.documents.length,
      repeatedDocuments: request.documents.length - turn.documents.length,
      cachedDocuments: countCached(preamble.tokens, arrangement.documents, reuse),
      promptTokens: tokens,
      cachedTokens,
      ttftMs: this.#latency.prefillMs(cachedTokens, tokens - cachedTokens),
      arrangeMs,
    };
  }

  /**
   * Prefills what `planPrewarm` finds worth it after the last request, one path after another. Returns the tokens computed
   * and when the engine is free again. Errors: those of the cache.
   */
  prewarm(options: PrewarmOptions, idle: IdleTime): { readonly tokens: number; readonly free: number } {
    let { now: free } = idle;
    let computed = 0;
    for (const path of planPrewarm(this.#served, this.#history, options)) {
      if (free >= idle.until) break;
      const prompt = { spans: [this.#preamble, ...this.#before, ...path.documents] };
      const cachedTokens = serveAtOnce(this.#cache, prompt);
      observe({ kind: 'prewarmed', path, now: free }, this.#history);
      const newTokens = promptTokens(prompt) - cachedTokens;
      computed += newTokens;
      free += this.#latency.prefillMs(cachedTokens, newTokens);
    }
    return { tokens: computed, free };
  }
}

/** Everything in front of the documents as one: what must match for any of their KV to be reused. */
function behind(preamble: PromptSpan, before: readonly PromptSpan[]): Preamble {
  if (before.length === 0) return preamble;
  const tokens = before.reduce((sum, span) => sum + span.tokens, preamble.tokens);
  return { key: fingerprint([preamble.key, ...before.map(({ key }) => key)]), tokens };
}

/** Documents whose end the cached tokens reach, but for the part of a last block that a cache of blocks cannot hold. */
function countCached(
  preambleTokens: number,
  documents: readonly Document[],
  reuse: { readonly cachedTokens: number; readonly granularity: number },
): number {
  let end = preambleTokens;
  let count = 0;
  for (const { tokens } of documents) {
    const start = end;
    end += tokens;
    if (reuse.cachedTokens <= start || end - reuse.cachedTokens >= reuse.granularity) break;
    count++;
  }
  return count;
}
