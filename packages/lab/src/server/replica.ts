import type { PromptReuse, Scheduler } from '@warmpath/core/internal';
import type { Admission, CachedPrompt } from '../cache/prefix-cache.js';
import type { PreparedRequest, RouteQuestion, SimulatedEngine } from '../simulated-engine.js';
import type { PromptSpan, WorkloadRequest } from '../workloads/workload.js';
import type { ServerOutcome, TokenGap } from './outcome.js';
import type { CreateScheduler, QueuedRequest } from './schedulers.js';
import type { StepCost } from './step-cost.js';

/**
 * From so many shared tokens on, a request waits for the one that computes them (SGLang's in-batch rule for cache-aware
 * policies uses the same number).
 */
const LEADER_TOKENS = 32;

/** How one replica forms its steps. */
export interface BatchSettings {
  /** Requests that can run at a time. */
  readonly maxBatch: number;
  /** Tokens that a step computes at most, one for each that decodes among them. */
  readonly stepTokens: number;
  /** Whether a prompt may be computed over several steps. */
  readonly chunked: boolean;
  /** Whether a prompt can reuse what another one computes in the same step. */
  readonly sharesInStep: boolean;
  /** Whether a request waits while one under way computes tokens that it could reuse. */
  readonly leaderFirst: boolean;
  /** Waiting requests that a policy may know of. */
  readonly queue: number;
  /** Tokens of the answer to a request, at least 1. */
  readonly answerTokens: (request: WorkloadRequest, number: number) => number;
}

/** A request under way. */
interface RunningRequest {
  readonly queued: QueuedRequest;
  readonly prepared: PreparedRequest;
  readonly admission: Admission;
  readonly startedMs: number;
  readonly answerTokens: number;
  /** Prompt tokens that stand in memory, with those of the step under way. */
  computed: number;
  /** Tokens of the answer so far. */
  produced: number;
  firstTokenMs: number;
}

export interface ReplicaParts {
  readonly engine: SimulatedEngine;
  readonly cost: StepCost;
  readonly createScheduler: CreateScheduler;
  /** Requests of the run. */
  readonly capacity: number;
}

/**
 * One engine replica with continuous batching. A step gives every sequence that decodes its next token, goes on with
 * prompts begun, and starts waiting requests while batch, tokens and memory allow (vLLM V1's order). Whoever drives it
 * calls `beginStep` when it is idle and `endStep` when the time has passed.
 */
export class Replica {
  readonly #engine: SimulatedEngine;
  readonly #cost: StepCost;
  readonly #settings: BatchSettings;
  readonly #scheduler: Scheduler<QueuedRequest>;
  /** Taken from the queue but not started: no room, or a leader is awaited. They come first in the next step. */
  #postponed: QueuedRequest[] = [];
  #running: RunningRequest[] = [];
  #pendingTokens = 0;
  #stepTokens = 0;
  #isBusy = false;
  readonly gaps: TokenGap[] = [];
  steps = 0;
  busyMs = 0;
  sequences = 0;
  largestBatch = 0;

  constructor({ engine, cost, createScheduler, capacity }: ReplicaParts, settings: BatchSettings) {
    this.#engine = engine;
    this.#cost = cost;
    this.#settings = settings;
    this.#scheduler = createScheduler({ lookup: (queued, now) => this.#lookup(queued, now), capacity });
  }

  /** Whether a step is under way. */
  get isBusy(): boolean {
    return this.#isBusy;
  }

  /** Requests that wait or run. */
  get requests(): number {
    return this.#scheduler.size + this.#postponed.length + this.#running.length;
  }

  /** Prompt tokens still to compute, as far as is known. */
  get pendingTokens(): number {
    return this.#pendingTokens;
  }

  /** Prompt tokens that the history lets expect a request would compute here. */
  expectedTokens(question: RouteQuestion): number {
    return question.newTokens(this.#engine);
  }

  /** What this replica, and those with the same clients, can be asked about a request. */
  question(request: WorkloadRequest, number: number, now: number): RouteQuestion {
    return this.#engine.question(request, number, now);
  }

  push(queued: QueuedRequest): void {
    this.#scheduler.push(queued);
    this.#pendingTokens += queued.expectedTokens;
  }

  /** Forms the next step and returns its milliseconds; undefined if there is nothing to do. */
  beginStep(now: number): number | undefined {
    const cost = this.#cost;
    cost.reset();
    this.#stepTokens = this.#settings.stepTokens;
    for (const running of this.#running) this.#continue(running);
    this.#startWaiting(now);
    if (cost.isEmpty) return undefined;
    this.#isBusy = true;
    this.#record();
    return cost.ms;
  }

  /** Ends the step under way: tokens come out, and requests that are done are returned. */
  endStep(now: number): readonly ServerOutcome[] {
    const done: ServerOutcome[] = [];
    let kept = 0;
    this.#isBusy = false;
    for (const running of this.#running) {
      const { prepared, admission, answerTokens } = running;
      if (!this.#settings.sharesInStep) admission.enter(running.computed);
      if (running.computed === prepared.promptTokens) {
        if (running.produced === 0) running.firstTokenMs = now;
        running.produced++;
      }
      if (running.produced === answerTokens) done.push(this.#finish(running, now));
      else this.#running[kept++] = running;
    }
    this.#running.length = kept;
    return done;
  }

  /** Gives a request under way its part of the step. */
  #continue(running: RunningRequest): void {
    const left = running.prepared.promptTokens - running.computed;
    if (left === 0) {
      this.#stepTokens--;
      this.#cost.addDecode();
      return;
    }
    this.#compute(running, Math.min(left, this.#stepTokens));
  }

  #compute(running: RunningRequest, tokens: number): void {
    if (tokens === 0) return;
    this.#cost.addPrefill(running.computed, tokens);
    this.#stepTokens -= tokens;
    this.#pendingTokens -= tokens;
    running.computed += tokens;
    if (this.#settings.sharesInStep) running.admission.enter(running.computed);
  }

  #startWaiting(now: number): void {
    const { maxBatch } = this.#settings;
    const earlier = this.#postponed;
    const postponed: QueuedRequest[] = [];
    let taken = 0;
    while (this.#running.length < maxBatch && this.#stepTokens > 0 && postponed.length < maxBatch) {
      const queued = taken < earlier.length ? earlier[taken++] : this.#scheduler.next(now);
      if (queued === undefined) break;
      this.#postponed = [...postponed, ...earlier.slice(taken)];
      const verdict = this.#start(queued, now);
      if (verdict === 'started') continue;
      postponed.push(queued);
      if (verdict === 'no room') break;
    }
    this.#postponed = [...postponed, ...earlier.slice(taken)];
  }

  #start(queued: QueuedRequest, now: number): 'started' | 'no room' | 'follows' {
    const { request, number } = queued;
    const engine = this.#engine;
    const prepared = engine.prepare(request, { number, coming: this.#waiting(), now });
    if (this.#settings.leaderFirst && this.#followsLeader(prepared)) return 'follows';
    if (!this.#fitsStep(prepared)) return 'no room';
    const answerTokens = this.#settings.answerTokens(request, number);
    const admission = engine.start(prepared, now, answerSpan(queued, answerTokens));
    if (admission === undefined) return 'no room';
    const { cachedTokens, hostTokens = 0 } = admission;
    const running = {
      queued,
      prepared,
      admission,
      startedMs: now,
      answerTokens,
      computed: cachedTokens,
      produced: 0,
      firstTokenMs: 0,
    };
    this.#running.push(running);
    const newTokens = prepared.promptTokens - cachedTokens;
    this.#pendingTokens += newTokens - queued.expectedTokens;
    if (hostTokens > 0) this.#cost.addHostCopy(hostTokens);
    this.#compute(running, this.#settings.chunked ? Math.min(newTokens, this.#stepTokens) : newTokens);
    return 'started';
  }

  /**
   * Whether a step of whole prompts has tokens left for one more. One that no step has tokens for goes as the only one.
   */
  #fitsStep(prepared: PreparedRequest): boolean {
    const { chunked, stepTokens } = this.#settings;
    if (chunked || stepTokens === Number.POSITIVE_INFINITY) return true;
    const newTokens = prepared.promptTokens - this.#engine.reuse(prepared).cachedTokens;
    return newTokens <= this.#stepTokens || (newTokens > stepTokens && this.#cost.prefills === 0);
  }

  /** Whether a prompt under way computes tokens that this one could reuse once they are there. */
  #followsLeader(prepared: PreparedRequest): boolean {
    let shared = 0;
    for (const { prepared: other, computed } of this.#running) {
      const isPending = !this.#settings.sharesInStep || computed < other.promptTokens;
      if (isPending) shared = Math.max(shared, sharedTokens(other.prompt, prepared.prompt));
    }
    return shared >= LEADER_TOKENS && shared - this.#engine.reuse(prepared).cachedTokens >= LEADER_TOKENS;
  }

  /** The requests that really wait, those postponed first. */
  #waiting(): readonly WorkloadRequest[] {
    const { queue } = this.#settings;
    const waiting: WorkloadRequest[] = [];
    for (const { request } of this.#postponed) {
      if (waiting.length === queue) return waiting;
      waiting.push(request);
    }
    for (const { request } of this.#scheduler) {
      if (waiting.length === queue) return waiting;
      waiting.push(request);
    }
    return waiting;
  }

  #lookup({ request, number }: QueuedRequest, now: number): PromptReuse {
    const prepared = this.#engine.prepare(request, { number, coming: [], now });
    const { cachedTokens } = this.#engine.reuse(prepared);
    return { cachedTokens, computeTokens: prepared.promptTokens - cachedTokens };
  }

  #finish(running: RunningRequest, now: number): ServerOutcome {
    const { prepared, admission, answerTokens, startedMs, firstTokenMs } = running;
    const { arrivedMs, number } = running.queued;
    admission.enter(prepared.promptTokens + answerTokens - 1);
    this.#engine.finish(prepared, admission, now);
    const served = this.#engine.outcome(prepared, admission, firstTokenMs - arrivedMs);
    return { ...served, number, arrivedMs, startedMs, doneMs: now, answerTokens };
  }

  #record(): void {
    const { ms, sequences, decodes } = this.#cost;
    this.steps++;
    this.busyMs += ms;
    this.sequences += sequences;
    this.largestBatch = Math.max(this.largestBatch, sequences);
    if (decodes > 0) this.gaps.push({ ms, tokens: decodes });
  }
}

/** What stands in memory of an answer: all tokens but the last, which is never computed. */
function answerSpan({ request, number }: QueuedRequest, tokens: number): PromptSpan | undefined {
  return tokens < 2 ? undefined : { key: request.answer?.key ?? `answer ${number}`, tokens: tokens - 1 };
}

/** Tokens of the spans that two prompts have in common at their start. O(spans). */
function sharedTokens(a: CachedPrompt, b: CachedPrompt): number {
  let tokens = 0;
  for (const [place, span] of a.spans.entries()) {
    const other = b.spans[place];
    if (other === undefined || other.key !== span.key || other.tokens !== span.tokens) break;
    tokens += span.tokens;
  }
  return tokens;
}
