import { type BatchEstimate, TILE_ROWS } from '../native/tile-padding.js';

/** Latest steps without a prompt that count, for each number of streams. */
const QUIET_STEPS = 15;
/** Fewer of them say nothing: one may have been disturbed. */
const MIN_QUIET_STEPS = 3;
/** After so many steps with prompts, a further prompt has what is quiet measured anew: some steps, which are short. */
const QUIET_LASTS_STEPS = 64;
/** Share of the allowed gap that is aimed at: steps of one size do not all take the same time. */
const AIM = 0.85;
/**
 * A step may take so many times what it would take without the prompt, if the gap allows as much: a prompt goes on at a
 * third of the speed at least, however much longer the streams have become since it came.
 */
const MIN_GAP = 1.5;
/** What a single step may take now and then; a reader hardly notices. */
const BURST_MS = 200;
/**
 * A burst may also take so many times what the gap allows on average. With less, streams would catch up in a step or
 * two, and every second step would be a burst; and a tile, which is computed several times faster a token, would seldom
 * have room.
 */
const MIN_BURST = 2.4;
/** So many steps behind a burst, streams have caught up, however little longer than without prompts a step may take. */
const MAX_CATCHING_UP = 64;

/** A step that was computed. */
export interface ComputedStep {
  /** Sequences that generate: a token each. */
  readonly generating: number;
  readonly promptTokens: number;
  readonly estimate: BatchEstimate;
}

/** A step that is to be filled. */
export interface OpenStep {
  /** The prompt of which tokens are computed first. */
  readonly prompt: object;
  readonly generating: number;
  /** Most prompt tokens that there are, or that have room; one at least. */
  readonly most: number;
  /** What the step is estimated to take with so many prompt tokens, or none. */
  readonly estimate: (promptTokens: number) => BatchEstimate;
}

/**
 * How many prompt tokens may be computed beside running streams, so that these get their next token in time: no later
 * than `gap` times what a step took before the prompt came, on average: one step may take longer, and those behind
 * it hold no prompt until the streams have caught up. So short prompts do not wait, and long ones go on in chunks large
 * enough to be computed fast. What a step took without a prompt is measured, as the median of some quiet steps with as
 * many streams; where there are none, or only old ones, the next steps are quiet. It holds for the whole prompt,
 * although the streams become longer. What a step with a prompt takes is estimated from what it attends to, and
 * corrected by the steps before it.
 */
export class ChunkLimit {
  readonly #gap: number;
  readonly #burstMs: number;
  readonly #speed = new StepSpeed();
  readonly #quiet = new Map<number, { readonly durationsMs: number[]; lastStep: number }>();
  #steps = 0;
  /** What was quiet, beside so many streams, when a prompt came. */
  #reference: { readonly prompt: object; readonly generating: number; readonly quietMs: number } | undefined;

  /** What a step may take on average, and what the last one might. */
  #allowedMs = 0;
  #mostMs = 0;
  /** How much of a burst its streams have not caught up with. */
  #owedMs = 0;

  /**
   * @param gap How many times longer than without prompts a step may take; 0 for no limit.
   * @param burstMs What a single step may take now and then; 0 for none.
   */
  constructor(gap: number, burstMs = BURST_MS) {
    this.#gap = gap;
    // With less than that, streams could not catch up.
    this.#burstMs = AIM * gap > 1 ? burstMs : 0;
  }

  /** A step was computed. O(1). */
  observe({ generating, promptTokens, estimate }: ComputedStep, durationMs: number): void {
    this.#steps++;
    this.#speed.observe(estimate, durationMs);
    if (promptTokens === 0) {
      const caughtUpMs = Math.max(this.#allowedMs - durationMs, this.#mostMs / MAX_CATCHING_UP);
      this.#owedMs = Math.max(0, this.#owedMs - caughtUpMs);
    } else {
      // What a step takes longer than it was to take is nothing to catch up with: something else disturbed it.
      this.#owedMs = Math.max(0, Math.min(durationMs, this.#mostMs) - this.#allowedMs);
    }
    if (generating === 0 || promptTokens > 0) {
      return;
    }
    const known = this.#quiet.get(generating);
    const quiet = known !== undefined && this.#isFresh(known.lastStep) ? known : { durationsMs: [], lastStep: 0 };
    quiet.durationsMs.push(durationMs);
    quiet.lastStep = this.#steps;
    if (quiet.durationsMs.length > QUIET_STEPS) {
      quiet.durationsMs.shift();
    }
    this.#quiet.set(generating, quiet);
  }

  /** What a step takes, learned from those of its kind; `undefined` before the first. */
  expectedMs(estimate: BatchEstimate): number | undefined {
    return this.#speed.knows(estimate) ? this.#speed.ms(estimate) : undefined;
  }

  /**
   * Prompt tokens for the next step: none while it is not known what is quiet, or behind a burst, and else one at
   * least, so that no prompt waits for ever. O(tokens of a tile + tiles).
   */
  tokens({ prompt, generating, most, estimate }: OpenStep): number {
    if (this.#gap === 0) {
      return most;
    }
    const quietMs = this.#quietMs(prompt, generating);
    if (quietMs === undefined) {
      return 0;
    }
    const gap = AIM * this.#gap;
    const allowedMs = Math.max(gap * quietMs, Math.min(gap, MIN_GAP) * this.#speed.ms(estimate(0)));
    this.#allowedMs = allowedMs;
    this.#mostMs = this.#burstMs === 0 ? allowedMs : Math.max(this.#burstMs, MIN_BURST * allowedMs);
    if (this.#owedMs > 0) {
      return 0;
    }
    let tokens = 1;
    for (const candidate of candidates(generating, most)) {
      if (this.#speed.ms(estimate(candidate)) <= this.#mostMs) {
        tokens = candidate;
      }
    }
    return tokens;
  }

  #quietMs(prompt: object, generating: number): number | undefined {
    if (this.#reference?.prompt !== prompt || this.#reference.generating !== generating) {
      const quietMs = this.#measuredMs(generating);
      this.#reference = quietMs === undefined ? undefined : { prompt, generating, quietMs };
    }
    return this.#reference?.quietMs;
  }

  #measuredMs(generating: number): number | undefined {
    const quiet = this.#quiet.get(generating);
    if (quiet === undefined || quiet.durationsMs.length < MIN_QUIET_STEPS || !this.#isFresh(quiet.lastStep)) {
      return undefined;
    }
    const sorted = [...quiet.durationsMs].sort((a, b) => a - b);
    return sorted[sorted.length >> 1];
  }

  #isFresh(step: number): boolean {
    return this.#steps - step < QUIET_LASTS_STEPS;
  }
}

/**
 * Sizes of a chunk worth considering, ascending: any that leaves the step below a tile, then those that fill whole
 * tiles, or all there is.
 */
function* candidates(generating: number, most: number): Generator<number> {
  for (let tokens = 1; tokens <= most && generating + tokens < TILE_ROWS; tokens++) {
    yield tokens;
  }
  const filling = TILE_ROWS - (generating % TILE_ROWS);
  for (let tokens = filling; tokens < most; tokens += TILE_ROWS) {
    yield tokens;
  }
  yield most;
}

/** How much the latest step weighs. */
const WEIGHT = 0.4;
/** A step that takes many times what is known was disturbed by something else, and counts as this many times it. */
const MAX_TIMES_SLOWER = 2;
/** Milliseconds of a nanosecond: what an estimate says of itself before any step was seen. */
const UNKNOWN = 1e-6;

/**
 * How fast this machine computes, against what was estimated: learned apart for steps in tiles and steps row by row.
 */
class StepSpeed {
  #tiled: number | undefined;
  #byRow: number | undefined;

  /** A step was computed. O(1). */
  observe({ nanoseconds, isTiled }: BatchEstimate, durationMs: number): void {
    const known = isTiled ? this.#tiled : this.#byRow;
    const seen = durationMs / nanoseconds;
    const next = known === undefined ? seen : known + WEIGHT * (Math.min(seen, MAX_TIMES_SLOWER * known) - known);
    if (isTiled) {
      this.#tiled = next;
    } else {
      this.#byRow = next;
    }
  }

  /** Whether a step of this kind was seen. */
  knows({ isTiled }: BatchEstimate): boolean {
    return (isTiled ? this.#tiled : this.#byRow) !== undefined;
  }

  /** Milliseconds that a step will take; a kind of which none was seen is taken for as fast as the other. */
  ms({ nanoseconds, isTiled }: BatchEstimate): number {
    const msPerNanosecond = isTiled ? (this.#tiled ?? this.#byRow) : (this.#byRow ?? this.#tiled);
    return nanoseconds * (msPerNanosecond ?? UNKNOWN);
  }
}
