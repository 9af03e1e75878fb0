import {
  type Arrangement,
  arrange,
  type Document,
  type OrderingPolicy,
  observe,
  type Preamble,
  ServedHistory,
  WarmpathError,
} from '@warmpath/core';
import { type CostModel, expectedCachedTokens, fingerprint, hintTokens, PromptSlots } from '@warmpath/core/internal';
import {
  type Admission,
  type CachedPrompt,
  type CachedPromptReuse,
  type PrefixCacheModel,
  promptTokens,
} from './cache/prefix-cache.js';
import { VllmBlockCache } from './cache/vllm-blocks.js';
import { type ConversationLayout, Conversations, type Turn } from './conversations.js';
import { RTX_4090 } from './latency.js';
import { createLabPolicy, type LabPolicyName, readLabPolicyName } from './ordering/lab-policies.js';
import type { PromptSpan, WorkloadRequest } from './workloads/workload.js';

/**
 * When the history learns of a request: as it is sent, so that requests in flight follow each other (what Warmpath
 * does), or when its answer is complete (RAGCache++'s trie, which is updated between batches).
 */
export const LEARNING_TIMES = ['dispatch', 'completion'] as const;

export type LearningTime = (typeof LEARNING_TIMES)[number];

export interface SimulatedEngineOptions {
  /** The engine's cache; it is cleared first. Default: vLLM's blocks, unlimited. */
  readonly cache?: PrefixCacheModel;
  /**
   * Whether a prompt states the retrieval order where it changed, behind the documents: these tokens are computed every
   * time. Default false.
   */
  readonly hints?: boolean;
  /** Whether the engine reports cached tokens, which correct the history. Default true. */
  readonly reportsCachedTokens?: boolean;
  /** Default `dispatch`. */
  readonly learnsAt?: LearningTime;
  /** Where the earlier turns of a conversation stand. Default `documents-first`. */
  readonly conversations?: ConversationLayout;
  /** Time to the first token. Default: the fit to the papers' RTX 4090. */
  readonly latency?: CostModel;
  /**
   * Gateways in front of the engine, each with a history of its own; requests go round between them by their place in
   * the workload. Default 1.
   */
  readonly gateways?: number;
  /** Milliseconds after which a gateway hears what another one sent. Default: never. */
  readonly heardAfterMs?: number;
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
  /** Tokens behind these that were reused at another place. Present where a cache did that. */
  readonly graftedTokens?: number;
  /** From the request's arrival to its first token: prefill, and the wait before it where arrivals are simulated. */
  readonly ttftMs: number;
  /** Time that `arrange` took. */
  readonly arrangeMs: number;
}

/** Where and when a request is served. */
export interface Dispatch {
  /** Place in the workload, for errors. */
  readonly number: number;
  /** The requests that come next, or wait already. The policy gets those that could be waiting now. */
  readonly coming: readonly WorkloadRequest[];
  /** Milliseconds of virtual time. */
  readonly now: number;
}

/** A request as it would be sent now. Nothing has changed yet: it can be dropped. */
export interface PreparedRequest {
  /** The history of the gateway that it came through. */
  readonly history: ServedHistory;
  readonly request: WorkloadRequest;
  readonly turn: Turn;
  readonly arrangement: Arrangement;
  readonly prompt: CachedPrompt;
  /** Tokens of the prompt. */
  readonly promptTokens: number;
  /** Time that `arrange` took. */
  readonly arrangeMs: number;
}

/** What a router may ask about one request. */
export interface RouteQuestion {
  /** Tokens of its prompt, without a hint. */
  readonly promptTokens: number;
  /** Of these, the ones that an engine would have to compute. */
  newTokens(engine: SimulatedEngine): number;
}

/**
 * One engine with its history: the real `arrange` and `observe` of the core around a simulated cache. A request is
 * prepared, started and finished; `serve` does it all at once.
 */
export class SimulatedEngine {
  readonly #preamble: Preamble;
  readonly #policy: OrderingPolicy;
  readonly #cache: PrefixCacheModel;
  /** One for each gateway in front. */
  readonly #histories: readonly ServedHistory[];
  readonly #heardAfterMs: number;
  /** What was sent and the other gateways have not received. */
  readonly #unheard: { readonly arrangement: Arrangement; readonly by: ServedHistory; readonly at: number }[] = [];
  readonly #conversations: Conversations;
  readonly #latency: CostModel;
  readonly #clock: () => number;
  readonly #reportsCachedTokens: boolean;
  readonly #hints: boolean;
  readonly #learnsAt: LearningTime;

  /**
   * @param conversations shared with other engines that serve the same clients; default its own.
   * @throws WARMPATH_UNKNOWN_POLICY for a name that is no policy's.
   */
  constructor(
    preamble: Preamble,
    policy: LabPolicyName | OrderingPolicy,
    options: SimulatedEngineOptions = {},
    conversations = new Conversations(options.conversations),
  ) {
    this.#preamble = preamble;
    this.#policy = typeof policy === 'string' ? createLabPolicy(readLabPolicyName(policy)) : policy;
    this.#cache = options.cache ?? new VllmBlockCache();
    this.#cache.clear();
    const { evictsLeastRecent, slots } = this.#cache;
    this.#histories = Array.from({ length: options.gateways ?? 1 }, () => {
      return new ServedHistory({
        evictsLeastRecent,
        ...(slots !== undefined && { slots: { prompts: new PromptSlots(slots), name: '' } }),
      });
    });
    this.#heardAfterMs = options.heardAfterMs ?? Number.POSITIVE_INFINITY;
    this.#hints = options.hints ?? false;
    this.#conversations = conversations;
    this.#latency = options.latency ?? RTX_4090;
    this.#clock = options.clock ?? (() => 0);
    this.#reportsCachedTokens = options.reportsCachedTokens ?? true;
    this.#learnsAt = options.learnsAt ?? 'dispatch';
  }

  /**
   * Arranges a request as the history suggests now. Errors: whatever made the policy fall back to retrieval order (a
   * comparison must not hide that). Cost: that of the policy.
   */
  prepare(request: WorkloadRequest, { number, coming, now }: Dispatch): PreparedRequest {
    const turn = this.#conversations.begin(request);
    const preamble = behind(this.#preamble, turn.before);
    const context = { documents: turn.documents, preamble, policy: this.#policy, hints: this.#hints };
    const waiting = turn.before.length === 0 ? this.#waitingBeside(request, coming) : [];
    const question = { ...context, waiting };
    const history = this.#histories[number % this.#histories.length]!;
    this.#hear(now);
    const started = this.#clock();
    const arrangement = arrange(question, history, now);
    const arrangeMs = this.#clock() - started;
    const { fellBack } = arrangement.trace;
    if (fellBack !== undefined) {
      const detail = `the policy \`${this.#policy.name}\` failed on ${turn.documents.length} documents`;
      throw new WarmpathError(fellBack, { path: `requests[${number}]`, detail });
    }
    const hint = hintSpans(arrangement, number);
    const first = 1 + turn.before.length;
    const prompt: CachedPrompt = {
      spans: [this.#preamble, ...turn.before, ...arrangement.documents, ...hint, ...turn.after],
      documents: [first, first + arrangement.documents.length],
    };
    return { request, history, turn, arrangement, prompt, promptTokens: promptTokens(prompt), arrangeMs };
  }

  /**
   * Returns a function that tells for an engine how many tokens of a request it would have to compute, by the best path
   * of its history, as the gateway's router does (`expectedCachedTokens`).
   */
  question(request: WorkloadRequest, number: number, now: number): RouteQuestion {
    const { before, documents, after } = this.#conversations.begin(request);
    const preamble = behind(this.#preamble, before);
    const reuse = expectedCachedTokens({ documents, preamble, policy: this.#policy, hints: this.#hints }, now);
    const tokens = [preamble, ...documents, ...after].reduce((sum, span) => sum + span.tokens, 0);
    return {
      promptTokens: tokens,
      newTokens: (engine) => {
        engine.#hear(now);
        return tokens - reuse(engine.#histories[number % engine.#histories.length]!);
      },
    };
  }

  /** Gateways hear what was sent by others, as far as it is time. */
  #hear(now: number): void {
    for (let next = this.#unheard[0]; next !== undefined && next.at <= now; next = this.#unheard[0]) {
      this.#unheard.shift();
      const { arrangement, by, at } = next;
      for (const other of this.#histories) if (other !== by) observe({ kind: 'received', arrangement, now: at }, other);
    }
  }

  /**
   * Documents of those among the coming requests that could be waiting beside `request`, and behind the same preamble:
   * of each other session the next one alone, for what is asked after that depends on its answer.
   */
  #waitingBeside(request: WorkloadRequest, coming: readonly WorkloadRequest[]): readonly (readonly Document[])[] {
    const sessions = new Set([request.session]);
    const waiting: (readonly Document[])[] = [];
    for (const other of coming) {
      if (other.session !== undefined && sessions.has(other.session)) continue;
      sessions.add(other.session);
      if (!this.#conversations.standsBefore(other)) waiting.push(other.documents);
    }
    return waiting;
  }

  /** What the engine would reuse of a prepared prompt now. */
  reuse({ prompt }: PreparedRequest): CachedPromptReuse {
    return this.#cache.reuse?.(prompt) ?? { cachedTokens: this.#cache.cachedTokens(prompt), hostTokens: 0 };
  }

  /**
   * Dispatches a prepared request; undefined if the engine has no room for it now. `answer` is what will be generated
   * behind it and kept. Errors: those of the cache.
   */
  start(prepared: PreparedRequest, now: number, answer?: PromptSpan): Admission | undefined {
    const { prompt, arrangement, history } = prepared;
    const admission = this.#cache.admit(answer === undefined ? prompt : { ...prompt, answer });
    if (admission === undefined) return undefined;
    if (this.#learnsAt === 'dispatch') observe({ kind: 'dispatched', arrangement, now }, history);
    if (this.#histories.length > 1 && this.#heardAfterMs !== Number.POSITIVE_INFINITY) {
      this.#unheard.push({ arrangement, by: history, at: now + this.#heardAfterMs });
    }
    return admission;
  }

  /** The answer is complete: the engine reports, and lets go of what the request used. */
  finish(
    { request, history, turn, arrangement, promptTokens }: PreparedRequest,
    admission: Admission,
    now: number,
  ): void {
    const { cachedTokens } = admission;
    const report = this.#reportsCachedTokens ? { cachedTokens, promptTokens } : {};
    observe({ kind: 'completed', arrangement, now, ...report }, history);
    admission.release();
    this.#conversations.end(request, turn, arrangement.documents);
  }

  /** What a request got, given its time to the first token. */
  outcome(prepared: PreparedRequest, { cachedTokens, graftedTokens = 0 }: Admission, ttftMs: number): ServedOutcome {
    const { request, turn, arrangement, promptTokens, arrangeMs } = prepared;
    const reuse = { cachedTokens, granularity: this.#cache.granularity };
    return {
      documents: turn.documents.length,
      repeatedDocuments: request.documents.length - turn.documents.length,
      cachedDocuments: countCached(arrangement.preamble!.tokens, arrangement.documents, reuse),
      promptTokens,
      cachedTokens,
      ...(graftedTokens > 0 && { graftedTokens }),
      ttftMs,
      arrangeMs,
    };
  }

  /**
   * Arranges and prefills one request while nothing else is under way. Errors: those of `prepare` and of the cache.
   * Cost: that of the policy and O(tokens / granularity).
   */
  serve(request: WorkloadRequest, dispatch: Dispatch): ServedOutcome {
    const prepared = this.prepare(request, dispatch);
    const admission = this.start(prepared, dispatch.now);
    if (admission === undefined) throw new WarmpathError('WARMPATH_CONTEXT_TOO_LONG');
    admission.enter(prepared.promptTokens);
    this.finish(prepared, admission, dispatch.now);
    const reused = admission.cachedTokens + (admission.graftedTokens ?? 0);
    const ttftMs = this.#latency.prefillMs(reused, prepared.promptTokens - reused);
    return this.outcome(prepared, admission, ttftMs);
  }
}

/** The hint of an arrangement, if it has one. No two are taken for the same. */
function hintSpans({ documents, order, hint }: Arrangement, number: number): readonly PromptSpan[] {
  if (hint === undefined) return [];
  const retrieved: Document[] = [];
  for (const [place, rank] of order.entries()) retrieved[rank] = documents[place]!;
  return [{ key: `hint ${number}`, tokens: hintTokens(retrieved, order) }];
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
