import { WarmpathError } from './errors.js';

/** Result of one stage of a search. */
export interface SearchStage {
  /** Ids of the current top-k, best first. */
  readonly documents: readonly string[];
  /** Whether this is the last stage. */
  readonly isFinal: boolean;
}

/** What to do at the engine after a stage. Generations of a request are numbered from 0. */
export type SpeculationAction =
  /** The generation has the wrong documents: abort it. The KV that it computed stays cached. */
  | { readonly kind: 'end'; readonly generation: number }
  /** Start a generation on these documents. Hold its tokens back if it is speculative. */
  | {
      readonly kind: 'start';
      readonly generation: number;
      readonly documents: readonly string[];
      readonly isSpeculative: boolean;
    }
  /** The generation still has the right documents. */
  | { readonly kind: 'keep'; readonly generation: number }
  /** The search is over, and the generation had the right documents: release its tokens. */
  | { readonly kind: 'confirm'; readonly generation: number };

export interface SpeculativePipelineOptions {
  /**
   * A speculation only starts while fewer requests wait for prefill (`max_prefill_bs` of RAGCache). 0 never speculates.
   */
  readonly maxPending: number;
  /**
   * Whether candidates are the same as before: in the same `order` (default, as in RAGCache), or the same `set`, where
   * prompts are arranged anyway.
   */
  readonly agreement?: 'order' | 'set';
  /** Whether to speculate on the candidates of this stage, from 0. Default: always. */
  readonly isWorthTrying?: (stage: number) => boolean;
}

interface Generation {
  readonly number: number;
  readonly documents: readonly string[];
}

/**
 * Dynamic speculative pipelining for one request (RAGCache §5.3, Algorithm 2): generation starts on the candidates of a
 * stage and is aborted when they change. A state machine without clock or I/O: stages in, actions out. At most one
 * generation runs.
 *
 * Unlike Algorithm 2, it tries candidates again that were skipped because the engine was busy.
 */
export class SpeculativePipeline {
  readonly #maxPending: number;
  readonly #isSame: (a: readonly string[], b: readonly string[]) => boolean;
  readonly #isWorthTrying: (stage: number) => boolean;
  #stages = 0;
  #live: Generation | undefined;
  #started = 0;
  #isOver = false;

  /** Error: `WARMPATH_INVALID_REQUEST` for a bound that is no whole number of 0 or more. */
  constructor({ maxPending, agreement = 'order', isWorthTrying = () => true }: SpeculativePipelineOptions) {
    if (!Number.isSafeInteger(maxPending) || maxPending < 0) {
      const detail = 'A whole number of 0 or more was expected.';
      throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'maxPending', detail });
    }
    this.#maxPending = maxPending;
    this.#isSame = agreement === 'order' ? areEqual : haveSameMembers;
    this.#isWorthTrying = isWorthTrying;
  }

  /**
   * Takes the candidates of a stage. Carry the actions out in order. O(k).
   *
   * @param pending other requests that wait for prefill at the engine
   * @throws `WARMPATH_INVALID_REQUEST` after the last stage or `abort`
   */
  stage({ documents, isFinal }: SearchStage, pending: number): SpeculationAction[] {
    if (this.#isOver) {
      throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'stage', detail: 'The search is over already.' });
    }
    this.#isOver = isFinal;
    const stage = this.#stages++;
    const live = this.#live;
    if (live !== undefined && this.#isSame(live.documents, documents)) {
      return [{ kind: isFinal ? 'confirm' : 'keep', generation: live.number }];
    }
    const actions = this.#end();
    const hasRoom = documents.length > 0 && pending < this.#maxPending;
    if (!isFinal && !(hasRoom && this.#isWorthTrying(stage))) return actions;
    const generation = this.#started++;
    this.#live = { number: generation, documents: [...documents] };
    return [...actions, { kind: 'start', generation, documents, isSpeculative: !isFinal }];
  }

  /** Ends the request, for instance because its client left. */
  abort(): SpeculationAction[] {
    this.#isOver = true;
    return this.#end();
  }

  #end(): SpeculationAction[] {
    const live = this.#live;
    if (live === undefined) return [];
    this.#live = undefined;
    return [{ kind: 'end', generation: live.number }];
  }
}

function haveSameMembers(a: readonly string[], b: readonly string[]): boolean {
  const members = new Set(a);
  return members.size === new Set(b).size && b.every((id) => members.has(id));
}

function areEqual(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((id, place) => id === b[place]);
}

export interface SpeculationGateOptions {
  /** Share of all prompt tokens that may be prefilled in vain, 0 to 1. Default 0.1. */
  readonly wastedShare?: number;
}

/** A finished search, and the cost of its speculations. */
export interface FinishedSearch {
  /** For each stage but the last: whether its candidates were the final ones. */
  readonly agreed: readonly boolean[];
  /** Tokens of the prompt that was answered. */
  readonly promptTokens: number;
  /** Tokens prefilled for other documents, estimated. */
  readonly wastedTokens: number;
}

/** Stages that are counted apart; later ones count as the last of these. */
const MAX_STAGES = 64;
/** Searches after which an observation counts half. */
const HALF_LIFE_SEARCHES = 200;
/** Prior: right as often as wrong, with the weight of two searches. */
const PRIOR_SEARCHES = 2;
/** Least chance of being right for a speculation. */
const MIN_CHANCE = 0.5;
/** Searches whose share of the budget can be saved. */
const MAX_SAVED_SEARCHES = 32;

/**
 * Decides for one collection whether to speculate on a stage. It learns from each search at which stage candidates are
 * usually final, and keeps wasted prefill within a budget. Memory: 1 KB. Operations are O(stages).
 */
export class SpeculationGate {
  readonly #wastedShare: number;
  /** By stage, with decay: searches that had it, and those whose candidates were final there. */
  readonly #seen = new Float64Array(MAX_STAGES);
  readonly #agreed = new Float64Array(MAX_STAGES);
  /** Tokens that may be wasted now. Negative after an expensive mistake. */
  #budget = Number.NaN;
  #meanPrompt = 0;

  /** Error: `WARMPATH_INVALID_REQUEST` for a share outside of 0 to 1. */
  constructor({ wastedShare = 0.1 }: SpeculationGateOptions = {}) {
    if (!(wastedShare >= 0 && wastedShare <= 1)) {
      const detail = 'A number from 0 to 1 was expected.';
      throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'wastedShare', detail });
    }
    this.#wastedShare = wastedShare;
  }

  /** Chance that the candidates of a stage, from 0, are final. 0 to 1. */
  chance(stage: number): number {
    const place = placeOf(stage);
    return (this.#agreed[place]! + PRIOR_SEARCHES / 2) / (this.#seen[place]! + PRIOR_SEARCHES);
  }

  /**
   * Whether to speculate on the candidates of a stage. Stages that stay within the share by themselves always may. Less
   * certain ones use the saved budget, and need a higher chance as it shrinks.
   */
  mayStart(stage: number): boolean {
    if (this.#wastedShare === 0 || this.#budget <= 0) return false;
    const saved = Number.isNaN(this.#budget) ? 0 : this.#budget / this.#mostSaved;
    const sure = Math.max(MIN_CHANCE, 1 - this.#wastedShare);
    return this.chance(stage) >= sure - Math.min(1, saved) * (sure - MIN_CHANCE);
  }

  /** Learns from a finished search. Do not report aborted ones. */
  observe({ agreed, promptTokens, wastedTokens }: FinishedSearch): void {
    const keep = 0.5 ** (1 / HALF_LIFE_SEARCHES);
    for (const [stage, isFinal] of agreed.entries()) {
      const place = placeOf(stage);
      this.#seen[place] = keep * this.#seen[place]! + 1;
      this.#agreed[place] = keep * this.#agreed[place]! + Number(isFinal);
    }
    const isFirst = Number.isNaN(this.#budget);
    this.#meanPrompt = isFirst ? promptTokens : keep * this.#meanPrompt + (1 - keep) * promptTokens;
    const earned = (isFirst ? 0 : this.#budget) + this.#wastedShare * promptTokens;
    this.#budget = Math.min(this.#mostSaved, earned) - wastedTokens;
  }

  get #mostSaved(): number {
    return MAX_SAVED_SEARCHES * this.#wastedShare * this.#meanPrompt;
  }
}

function placeOf(stage: number): number {
  return Math.min(stage, MAX_STAGES - 1);
}
