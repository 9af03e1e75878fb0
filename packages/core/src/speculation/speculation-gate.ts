import { WarmpathError } from '../errors.js';

export interface SpeculationGateOptions {
  /**
   * Part of all prompt tokens that may be prefilled in vain, from 0 to 1. Default 0.1: a search whose candidates change
   * often then costs the engine at most a tenth more.
   */
  readonly wastedShare?: number;
}

/** A search that is over, and what its speculations cost. */
export interface FinishedSearch {
  /** For each stage but the final one: whether its candidates were those of the final one. */
  readonly agreed: readonly boolean[];
  /** Tokens of the prompt that was answered. */
  readonly promptTokens: number;
  /** Tokens that were prefilled for other documents, an estimate. */
  readonly wastedTokens: number;
}

/** Stages that are distinguished; later ones count as the last of these. */
const MOST_STAGES = 64;
/** Searches after which an observation counts half. */
const HALF_LIFE = 200;
/** What is believed before anything was seen: as likely right as wrong, as firmly as after two searches. */
const PRIOR = 2;
/** Below this it is more likely that a generation is thrown away than that it is used. */
const LEAST_CHANCE = 0.5;
/** Searches whose part of the budget may be saved up. */
const SAVED_SEARCHES = 32;

/**
 * Decides for one collection whether a generation on a stage's candidates pays: learns at which stage candidates are
 * usually final, and keeps what is prefilled in vain within a budget. It learns from every search, whether or not
 * anything was speculated on. Memory: 1 KB. Every operation O(stages).
 */
export class SpeculationGate {
  readonly #wastedShare: number;
  /** Per stage, with forgetting: searches that had it, and those whose candidates were final there. */
  readonly #seen = new Float64Array(MOST_STAGES);
  readonly #agreed = new Float64Array(MOST_STAGES);
  /** Tokens that may be wasted now. Negative once a speculation has cost more than there was. */
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

  /** How likely the candidates of a stage, counted from 0, are those of the final one. From 0 to 1. */
  chance(stage: number): number {
    const place = placeOf(stage);
    return (this.#agreed[place]! + PRIOR / 2) / (this.#seen[place]! + PRIOR);
  }

  /**
   * Whether to start a generation on the candidates of a stage. What is so likely right that it stays within the share
   * by itself may always; what is less likely spends what was saved, and may the less of that is left. So a budget that
   * is short goes to the stages that are worth most.
   */
  mayStart(stage: number): boolean {
    if (this.#wastedShare === 0 || this.#budget <= 0) return false;
    const saved = Number.isNaN(this.#budget) ? 0 : this.#budget / this.#mostSaved;
    const sure = Math.max(LEAST_CHANCE, 1 - this.#wastedShare);
    return this.chance(stage) >= sure - Math.min(1, saved) * (sure - LEAST_CHANCE);
  }

  /** Learns from a search. Searches that were given up teach nothing. */
  observe({ agreed, promptTokens, wastedTokens }: FinishedSearch): void {
    const keep = 0.5 ** (1 / HALF_LIFE);
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
    return SAVED_SEARCHES * this.#wastedShare * this.#meanPrompt;
  }
}

function placeOf(stage: number): number {
  return Math.min(stage, MOST_STAGES - 1);
}
