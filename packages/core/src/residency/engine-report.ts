import type { Insertion } from '../tree/knowledge-tree.js';

/** Predictions remembered. */
const MAX_PREDICTIONS = 16;
/** Predictions needed to judge a source. */
const MIN_PREDICTIONS = 4;
/** A prediction is wrong when less than this share of it was cached. */
const MISSED_SHARE = 0.5;
/** Tokens that an engine may leave out of a full hit, or a block: it counts whole ones, and computes the last token. */
export const BLOCK_SLACK_TOKENS = 64;
/** A document counts as missing only beyond this multiple of the cached tokens, because counts may be estimates. */
const ESTIMATE_SLACK = 1.25;

/** What the engine reported about a completed request. */
export interface EngineReport {
  readonly promptTokens?: number | undefined;
  readonly cachedTokens?: number | undefined;
  /** Tokens of a block, where the engine reuses whole blocks. */
  readonly blockTokens?: number | undefined;
  /** Tokens of the answer. They follow the prompt in the engine's cache. */
  readonly answerTokens?: number | undefined;
}

/** Tokens that the engine counted. */
type EngineCount = Pick<EngineReport, 'promptTokens' | 'blockTokens'> & { readonly cachedTokens: number };

/** Result of comparing a report with the prediction. */
interface Judgement {
  /** Access number of the last use of the first missing step; 0 if none is missing. */
  readonly missing: number;
  /** Index of that step. */
  readonly missingStep: number;
  /** Whether more was cached than all steps that were known. */
  readonly exceeded: boolean;
}

/** Which of the last 16 predictions were wrong. */
export class MissedPredictions {
  /** The latest in bit 0; 1 is wrong. */
  #missed = 0;
  #judged = 0;

  /** Whether most were wrong; false until there are 4. */
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
 * Compares predictions of the history with reports of the engine. Only nodes confirmed before the dispatch count: the
 * prompt of a request still running may not be cached yet.
 */
export class PredictionRecord {
  readonly #missed = new MissedPredictions();

  /** Whether most of the last 16 predictions were wrong; false until there are 4. */
  get mostlyMissed(): boolean {
    return this.#missed.areMost;
  }

  /**
   * Compares one prediction with a report. O(path).
   *
   * @param tokens of the steps of the path, as Warmpath counts them
   */
  judge(tokens: readonly number[], dispatch: Insertion, engine: EngineCount): Judgement {
    const scale = overestimate(tokens, engine.promptTokens);
    const slack = Math.max(BLOCK_SLACK_TOKENS, engine.blockTokens ?? 0);
    const reach = engine.cachedTokens * ESTIMATE_SLACK + slack;
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
    if (predicted > slack) this.#missed.add(engine.cachedTokens + slack < predicted * MISSED_SHARE);
    const known = tokens.slice(0, dispatch.known).reduce((sum, count) => sum + count, 0);
    return { missing, missingStep, exceeded: engine.cachedTokens > known * ESTIMATE_SLACK + slack };
  }

  clear(): void {
    this.#missed.clear();
  }
}

/** Factor that corrects our token counts, if the path has more tokens than the prompt by them. */
function overestimate(tokens: readonly number[], promptTokens: number | undefined): number {
  if (promptTokens === undefined) return 1;
  let total = 0;
  for (const count of tokens) total += count;
  return total > promptTokens ? promptTokens / total : 1;
}

/** Smallest factor by which one miss cuts the estimate. A single miss may mean a restart. */
const CUT_FACTOR = 0.8;

/** Growth for each new token, times the requests in a row without a miss. */
const GROWTH_PER_REQUEST = 0.003;

/**
 * Estimates how many tokens an engine holds that evicts by last use. A missing document lowers the estimate by at most
 * a fifth; requests without one raise it.
 */
export class CapacityEstimate {
  #tokens = Number.POSITIVE_INFINITY;
  /** Requests since the last miss. */
  #calm = 0;

  /** Infinite until a document was missing. */
  get tokens(): number {
    return this.#tokens;
  }

  /** A path was missing. Of `believed` tokens, `left` were used after it. */
  missed(believed: number, left: number): void {
    this.#calm = 0;
    this.#tokens = Math.max(left, CUT_FACTOR * (this.#tokens === Number.POSITIVE_INFINITY ? believed : this.#tokens));
  }

  /** The engine held tokens that were forgotten here. */
  exceeded(): void {
    this.#tokens /= CUT_FACTOR;
  }

  /** Nothing was missing, and the engine computed `newTokens`. */
  served(newTokens: number): void {
    this.#calm++;
    this.#tokens += GROWTH_PER_REQUEST * this.#calm * newTokens;
  }

  clear(): void {
    this.#tokens = Number.POSITIVE_INFINITY;
    this.#calm = 0;
  }
}
