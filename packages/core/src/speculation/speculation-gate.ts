import { WarmpathError } from '../errors.js';

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
