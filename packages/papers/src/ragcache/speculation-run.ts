import {
  type CostModel,
  type SpeculationAction,
  type SpeculationGate,
  SpeculativePipeline,
  type SpeculativePipelineOptions,
} from '@warmpath/core/internal';
import {
  type Admission,
  EventQueue,
  type HostCopyCost,
  type PrefixCacheModel,
  promptTokens,
  type Workload,
  type WorkloadRequest,
} from '@warmpath/lab';
import { A10G, hostCopyOf } from './testbed.js';

/** A request's search, as it goes. */
export interface Search {
  readonly arrivedMs: number;
  /** The stages, in order; the last is final. */
  readonly stages: readonly {
    readonly atMs: number;
    /** The request whose documents are the candidates. */
    readonly candidates: WorkloadRequest;
  }[];
}

/** What a request waited for. */
export interface SpeculationOutcome {
  readonly ttftMs: number;
  /**
   * From arrival until the documents of the answer were sent to the engine (§7.4): what of the search nothing can
   * overlap with.
   */
  readonly notOverlappedMs: number;
  /** Prompt tokens that were computed for other documents. */
  readonly wastedTokens: number;
}

export interface SpeculationRunOptions extends Pick<SpeculativePipelineOptions, 'agreement'> {
  readonly cache: PrefixCacheModel;
  /** Requests that may wait for prefill when a speculation starts; 0 for none. */
  readonly maxPending: number;
  /** Of a prefill; that of the paper's device by default. */
  readonly cost?: CostModel;
  /** Of bringing tokens back from the host; that of the paper's device and model by default. */
  readonly copyMs?: HostCopyCost;
  /** Decides whether a stage is worth trying, and learns from each search; by default each is. */
  readonly gate?: SpeculationGate;
}

/** A generation that was asked for. */
interface Generation {
  readonly request: number;
  readonly candidates: WorkloadRequest;
  readonly sentMs: number;
  /** Present while it is prefilled. */
  prefill: Prefill | undefined;
  isDone: boolean;
  /** Tokens that its prefill computes, once it has begun. */
  newTokens: number;
}

interface Prefill {
  readonly admission: Admission;
  readonly startedMs: number;
  /** Moves forward if the generation is ended. */
  endsMs: number;
  readonly newTokens: number;
  /** Prompt tokens that are computed when it ends. */
  computed: number;
}

/** Tokens of one iteration of chunked prefill, vLLM's default when the paper was written; the paper gives none. */
const CHUNK = 512;

interface RequestState {
  readonly pipeline: SpeculativePipeline;
  readonly generations: Generation[];
  /** The generation that answers, once the search is over. */
  answering: Generation | undefined;
  /** Ids of the candidates of each stage so far. */
  readonly stages: (readonly string[])[];
  wastedTokens: number;
}

type Event =
  | { readonly kind: 'stage'; readonly request: number; readonly stage: number }
  | { readonly kind: 'done'; readonly generation: Generation };

/**
 * Staged searches beside an engine that prefills one prompt at a time, first come first served, and ends a wrong one
 * after the current iteration (§5.3); documents that are computed by then stay in the cache.
 */
export class SpeculationRun {
  readonly #workload: Workload;
  readonly #searches: readonly Search[];
  readonly #options: SpeculationRunOptions;
  readonly #requests: readonly RequestState[];
  readonly #outcomes: SpeculationOutcome[] = [];
  readonly #events = new EventQueue<Event>();
  #queue: Generation[] = [];
  #isBusy = false;

  constructor(workload: Workload, searches: readonly Search[], options: SpeculationRunOptions) {
    const { maxPending, agreement = 'order', gate } = options;
    this.#workload = workload;
    this.#searches = searches;
    this.#options = options;
    this.#requests = searches.map(() => ({
      pipeline: new SpeculativePipeline({
        maxPending,
        agreement,
        ...(gate !== undefined && { isWorthTrying: (stage: number) => gate.mayStart(stage) }),
      }),
      generations: [],
      answering: undefined,
      stages: [],
      wastedTokens: 0,
    }));
  }

  run(): readonly SpeculationOutcome[] {
    for (const [request, { stages }] of this.#searches.entries()) {
      for (const [stage, { atMs }] of stages.entries()) this.#events.add(atMs, { kind: 'stage', request, stage });
    }
    while (this.#events.size > 0) {
      const now = this.#events.nextTime;
      const event = this.#events.take()!;
      if (event.kind === 'stage') this.#advance(event.request, event.stage, now);
      else this.#finish(event.generation, now);
      if (!this.#isBusy) this.#prefillNext(now);
    }
    return this.#outcomes;
  }

  #advance(request: number, stage: number, now: number): void {
    const { stages } = this.#searches[request]!;
    const { candidates } = stages[stage]!;
    const documents = candidates.documents.map(({ id }) => id);
    const isFinal = stage === stages.length - 1;
    const others = this.#queue.filter((generation) => generation.request !== request).length;
    const state = this.#requests[request]!;
    const actions = state.pipeline.stage({ documents, isFinal }, others);
    for (const action of actions) this.#carryOut(action, request, { candidates, now });
    state.stages.push(documents);
    if (isFinal) this.#learn(request, documents);
  }

  #carryOut(
    action: SpeculationAction,
    request: number,
    { candidates, now }: { readonly candidates: WorkloadRequest; readonly now: number },
  ): void {
    const state = this.#requests[request]!;
    if (action.kind === 'start') {
      const generation = { request, candidates, sentMs: now, prefill: undefined, isDone: false, newTokens: 0 };
      state.generations[action.generation] = generation;
      this.#queue.push(generation);
      if (!action.isSpeculative) state.answering = generation;
      return;
    }
    const generation = state.generations[action.generation]!;
    if (action.kind === 'end') this.#end(generation, now);
    if (action.kind !== 'confirm') return;
    state.answering = generation;
    if (generation.isDone) this.#answer(generation, now);
  }

  #learn(request: number, final: readonly string[]): void {
    const { stages, wastedTokens } = this.#requests[request]!;
    const { requests, preamble } = this.#workload;
    const { documents, question } = requests[request]!;
    const members = new Set(final);
    const agreed = stages.slice(0, -1).map((ids) => ids.length === final.length && ids.every((id) => members.has(id)));
    const total = promptTokens({ spans: [preamble, ...documents, question] });
    this.#options.gate?.observe({ agreed, promptTokens: total, wastedTokens });
  }

  /** A generation that waits goes at once, one that is prefilled after the iteration under way. */
  #end(generation: Generation, now: number): void {
    this.#queue = this.#queue.filter((waiting) => waiting !== generation);
    const { prefill } = generation;
    if (prefill === undefined) {
      if (generation.isDone) this.#requests[generation.request]!.wastedTokens += generation.newTokens;
      return;
    }
    const { admission, startedMs, endsMs, newTokens } = prefill;
    const perToken = (endsMs - startedMs) / newTokens;
    const tokens = Math.min(newTokens, CHUNK * Math.ceil((now - startedMs) / (CHUNK * perToken)));
    prefill.endsMs = startedMs + tokens * perToken;
    this.#requests[generation.request]!.wastedTokens += tokens;
    prefill.computed = admission.cachedTokens + tokens;
    this.#events.add(prefill.endsMs, { kind: 'done', generation });
  }

  #prefillNext(now: number): void {
    const generation = this.#queue.shift();
    if (generation === undefined) return;
    this.#isBusy = true;
    const { documents } = generation.candidates;
    const { question } = this.#workload.requests[generation.request]!;
    const prompt = { spans: [this.#workload.preamble, ...documents, question] };
    const { cache, cost = A10G, copyMs = hostCopyOf('mistral-7b') } = this.#options;
    const admission = cache.admit(prompt)!;
    const computed = promptTokens(prompt);
    const newTokens = computed - admission.cachedTokens;
    generation.newTokens = newTokens;
    const endsMs = now + copyMs(admission.hostTokens ?? 0) + cost.prefillMs(admission.cachedTokens, newTokens);
    generation.prefill = { admission, startedMs: now, endsMs, newTokens, computed };
    this.#events.add(endsMs, { kind: 'done', generation });
  }

  #finish(generation: Generation, now: number): void {
    const { prefill } = generation;
    // One that was ended has an earlier end than it was given at first.
    if (prefill === undefined || prefill.endsMs !== now) return;
    prefill.admission.enter(prefill.computed);
    prefill.admission.release();
    generation.prefill = undefined;
    generation.isDone = true;
    this.#isBusy = false;
    if (this.#requests[generation.request]!.answering === generation) this.#answer(generation, now);
  }

  #answer({ request, sentMs }: Generation, now: number): void {
    const { arrivedMs } = this.#searches[request]!;
    const { wastedTokens } = this.#requests[request]!;
    this.#outcomes[request] = { ttftMs: now - arrivedMs, notOverlappedMs: sentMs - arrivedMs, wastedTokens };
  }
}
