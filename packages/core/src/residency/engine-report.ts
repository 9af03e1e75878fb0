import type { Insertion } from '../tree/knowledge-tree.js';

/** Predictions remembered. */
const MAX_PREDICTIONS = 16;
/** Fewer judged predictions than this say nothing about the source. */
const MIN_PREDICTIONS = 4;
/** A prediction is missed when less than this share of it was cached. */
const MISSED_SHARE = 0.5;
/**
 * Tokens that an engine may leave out of a full hit: it counts whole blocks (16 tokens in vLLM, up to some dozens
 * elsewhere) and always recomputes the last token.
 */
export const BLOCK_SLACK_TOKENS = 64;
/**
 * A document counts as certainly missing only beyond this multiple of the cached tokens, because our counts may be
 * estimates.
 */
const ESTIMATE_SLACK = 1.25;

/** What the engine reported about a completed request, as far as it did. */
export interface EngineReport {
  readonly promptTokens?: number | undefined;
  readonly cachedTokens?: number | undefined;
  /** Tokens of the answer, which stand behind the prompt in the engine's memory. */
  readonly answerTokens?: number | undefined;
  /**
   * Milliseconds to the first token, where nothing else was under way at the engine: it is asked where no cached tokens
   * are reported.
   */
  readonly ttftMs?: number | undefined;
}

/** What the engine counted. */
interface EngineCount {
  readonly cachedTokens: number;
  readonly promptTokens: number | undefined;
}

/** What a report says about the history. */
interface Judgement {
  readonly missing: number;
  /** The number of that step. */
  readonly missingStep: number;
  readonly exceeded: boolean;
}

/** Which of the last 16 judged predictions were missed. */
export class MissedPredictions {
  /** The latest in bit 0; 1 = missed. */
  #missed = 0;
  #judged = 0;

  /** Whether most were; false until there are 4. */
  get areMost(): boolean {
    if (this.#judged < MIN_PREDICTIONS) return false;
    let missed = 0;
    for (let bits = this.#missed; bits !== 0; bits >>>= 1) missed += bits & 1;
    return missed * 2 > this.#judged;
  }

  add(missed: boolean): void {
    this.#missed = ((this.#missed << 1) | (missed ? 1 : 0)) & (2 ** MAX_PREDICTIONS - 1);
    this.#judged = Math.min(MAX_PREDICTIONS, this.#judged + 1);
  }

  clear(): void {
    this.#missed = 0;
    this.#judged = 0;
  }
}

/**
 * Compares what the history predicted with what the engine reports. Only nodes that completed requests had confirmed
 * before the dispatch count: that a path still in flight was not cached yet proves nothing.
 */
export class PredictionRecord {
  readonly #missed = new MissedPredictions();

  /** Whether most of the last 16 judged predictions were missed; false until there are 4. */
  get mostlyMissed(): boolean {
    return this.#missed.areMost;
  }

  /** Tokens at the start of the path that completed requests had confirmed before the dispatch. O(path). */
  static confirmedTokens(tokens: readonly number[], { depth, confirmedAt }: Insertion): number {
    let confirmed = 0;
    for (let step = 0; step < depth && confirmedAt[step] !== 0; step++) confirmed += tokens[step]!;
    return confirmed;
  }

  /**
   * Judges one prediction. `tokens` of the path's steps, by the counts of Warmpath. Returns the access number of the
   * last use of the first step of which some was certainly missing, or 0 if none was, and which step that is;
   * `exceeded` says that certainly more was cached than all steps that were known. O(path).
   */
  judge(tokens: readonly number[], dispatch: Insertion, engine: EngineCount): Judgement {
    const scale = overestimate(tokens, engine.promptTokens);
    const reach = engine.cachedTokens * ESTIMATE_SLACK + BLOCK_SLACK_TOKENS;
    let predicted = 0;
    let missing = 0;
    let missingStep = 0;
    for (let depth = 0; depth < dispatch.depth; depth++) {
      const confirmedAt = dispatch.confirmedAt[depth]!;
      if (confirmedAt === 0) break;
      predicted += tokens[depth]! * scale;
      if (missing === 0 && predicted > reach) {
        missing = confirmedAt;
        missingStep = depth;
      }
    }
    if (predicted > BLOCK_SLACK_TOKENS)
      this.#missed.add(engine.cachedTokens + BLOCK_SLACK_TOKENS < predicted * MISSED_SHARE);
    const known = tokens.slice(0, dispatch.known).reduce((sum, count) => sum + count, 0);
    return { missing, missingStep, exceeded: engine.cachedTokens > known * ESTIMATE_SLACK + BLOCK_SLACK_TOKENS };
  }

  clear(): void {
    this.#missed.clear();
  }
}

/**
 * The whole path cannot have more tokens than the prompt: if it does by our counts, they are too high by that factor.
 */
function overestimate(tokens: readonly number[], promptTokens: number | undefined): number {
  if (promptTokens === undefined) return 1;
  let total = 0;
  for (const count of tokens) total += count;
  return total > promptTokens ? promptTokens / total : 1;
}

/** Least part of the estimate that one miss leaves: a single miss may mean a restart. */
const CUT_FACTOR = 0.8;

/** Growth a new token, times the requests in a row without a miss. */
const GROWTH_PER_REQUEST = 0.003;

/**
 * Estimates how many tokens of recently used paths an engine holds, for engines that evict what is least recent. Cut
 * when an expected document was missing, grown while nothing is. One miss cuts it by a fifth at most, so that a
 * restarted engine is not believed to be small for long.
 */
export class CapacityEstimate {
  #tokens = Number.POSITIVE_INFINITY;
  /** Requests since the last miss. */
  #calm = 0;

  /** Infinite until something was missing. */
  get tokens(): number {
    return this.#tokens;
  }

  /** A path was gone; of `believed` tokens, `left` were used after it. */
  missed(believed: number, left: number): void {
    this.#calm = 0;
    this.#tokens = Math.max(left, CUT_FACTOR * (this.#tokens === Number.POSITIVE_INFINITY ? believed : this.#tokens));
  }

  /** The engine held what had been forgotten here. */
  exceeded(): void {
    this.#tokens /= CUT_FACTOR;
  }

  /** Nothing was missing that should have been there, and the engine computed `newTokens`. */
  served(newTokens: number): void {
    this.#calm++;
    this.#tokens += GROWTH_PER_REQUEST * this.#calm * newTokens;
  }

  clear(): void {
    this.#tokens = Number.POSITIVE_INFINITY;
    this.#calm = 0;
  }
}
