import type { Document } from '../document.js';
import type { Preamble } from '../preamble.js';
import {
  BEST_PATH_MAX_OPERATIONS,
  CountedBudget,
  OPERATIONS_A_LOOK_UP,
  type OperationBudget,
} from '../tree/best-path.js';
import type { ServedPath } from '../tree/knowledge-tree.js';
import type { CachedPath, PlacementRule } from '../tree/view.js';
import { BLOCK_SLACK_TOKENS, CapacityEstimate, type EngineReport, MissedPredictions } from './engine-report.js';
import { type HeldPrompt, type HeldSpan, MIN_LOADED_SHARE, type PromptSlots, type SlotUse } from './prompt-slots.js';
import type { SlotsView } from './view.js';

/** Starts that are compared for one request. */
const MAX_STARTS = 64;
/** Part of the operations for finding starts. The rest is for comparing them. */
const STARTS_PART = 1 / 2;
/** Weight of the newest value in the moving average of the tokens behind the documents. */
const NEWEST_WEIGHT = 0.2;
/** Share of a saved prompt from which on it is loaded whatever the error of counts. */
const CLEARLY_LOADED_SHARE = 0.4;
/** Tokens behind the documents before the first report. */
const INITIAL_TAIL_TOKENS = 32;

/** A running request. */
interface Dispatch {
  readonly use: SlotUse;
  readonly question: string;
}

/**
 * The slots of one engine, as a history models them. Requests run on `PromptSlots` when they are dispatched and
 * completed; reports correct the model. Of the text behind the documents only the length is known, so no two prompts
 * share it.
 */
export class SlotResidency implements SlotsView {
  readonly leastKept = MIN_LOADED_SHARE;
  readonly #prompts: PromptSlots;
  /** The first span of every prompt of this history. It has no tokens. */
  readonly #root: HeldSpan;
  readonly #dispatches = new WeakMap<object, Dispatch>();
  readonly #capacity = new CapacityEstimate();
  readonly #missed = new MissedPredictions();
  #tail = INITIAL_TAIL_TOKENS;
  #number = 0;

  /** @param name separates the prompts of this history from those of others */
  constructor(prompts: PromptSlots, name: string) {
    this.#prompts = prompts;
    this.#root = { key: `history ${name}`, tokens: 0 };
  }

  get mostlyMissed(): boolean {
    return this.#missed.areMost;
  }

  predict(documents: readonly Document[], preamble: Preamble | undefined, budget: OperationBudget): number {
    const spans: HeldSpan[] = this.#before(preamble);
    for (const { key, tokens } of documents) spans.push({ key, tokens });
    spans.push({ key: '', tokens: this.#tail });
    return this.#prompts.predict(spans, budget).cachedTokens;
  }

  starts(
    documents: readonly Document[],
    preamble: Preamble | undefined,
    rule: PlacementRule | undefined,
    budget: OperationBudget,
  ): readonly (readonly number[])[] {
    const count = documents.length;
    const found: Start[] = [];
    if (!budget.take(OPERATIONS_A_LOOK_UP * count)) return [];
    const before = this.#before(preamble);
    const ranks = new Map(documents.map(({ key }, rank) => [key, rank]));
    /** Number of the start that extends start `n` by rank `r`, by `n * count + r`. */
    const known = new Map<number, number>();
    const usedIn = new Int32Array(count);
    let number = 0;
    for (const prompt of this.#prompts.prompts()) {
      number++;
      if (!startsWith(prompt, before, budget)) continue;
      const order: number[] = [];
      let start = 0;
      let tokens = 0;
      for (let place = before.length; place < prompt.length && budget.take(2 * OPERATIONS_A_LOOK_UP); place++) {
        const span = prompt[place]!;
        const rank = ranks.get(span.key);
        if (rank === undefined || usedIn[rank] === number) break;
        if (rule !== undefined && !(budget.take(count) && rule.allows(order, rank))) break;
        order.push(rank);
        usedIn[rank] = number;
        tokens += span.tokens;
        // The start of a longer start is a choice too: the rest may cost more than it saves.
        const name = start * count + rank;
        const same = known.get(name);
        if (same !== undefined) {
          start = same;
          continue;
        }
        known.set(name, known.size + 1);
        start = known.size;
        if (!budget.take(count)) break;
        found.push({ order: order.slice(), tokens });
      }
      if (budget.isExceeded) break;
    }
    return found
      .sort(compare)
      .slice(0, MAX_STARTS)
      .map(({ order }) => order);
  }

  /** The start that saves most, less its price. The other documents follow in retrieval order. */
  bestPath(
    documents: readonly Document[],
    preamble: Preamble | undefined,
    rule: PlacementRule | undefined,
    maxOperations: number = BEST_PATH_MAX_OPERATIONS,
  ): CachedPath {
    const budget = new CountedBudget(maxOperations);
    let best = { order: [] as readonly number[], tokens: this.predict(documents, preamble, budget) };
    let most = best.tokens;
    for (const order of budget.share(STARTS_PART, (part) => this.starts(documents, preamble, rule, part))) {
      if (!budget.take(OPERATIONS_A_LOOK_UP * documents.length)) break;
      const taken = new Set(order);
      const rest = documents.filter((_, rank) => !taken.has(rank));
      const tokens = this.predict([...order.map((rank) => documents[rank]!), ...rest], preamble, budget);
      if (budget.isExceeded || (rule?.priceOf !== undefined && !budget.take(documents.length))) break;
      const worth = tokens - (rule?.priceOf?.(order) ?? 0);
      const isSooner = worth === most && order.every((rank, place) => rank === place);
      if (worth > most || (isSooner && order.length > best.order.length)) {
        best = { order, tokens };
        most = worth;
      }
    }
    return { ...best, operations: budget.taken, isComplete: !budget.isCutShort };
  }

  /**
   * A request is sent to the engine and takes a slot. If all are busy, the longest running request is assumed to be
   * done.
   */
  dispatched(request: object, path: ServedPath): void {
    const question = `question ${++this.#number}`;
    const prompt = [...this.#spansOf(path), { key: question, tokens: this.#tail }];
    let use = this.#prompts.begin(prompt);
    if (use === undefined) {
      this.#prompts.releaseLongestRunning();
      use = this.#prompts.begin(prompt)!;
    }
    use.hold(prompt);
    this.#dispatches.set(request, { use, question });
  }

  /** The engine has answered: the slot holds prompt and answer. Its report is compared with the prediction. */
  completed(request: object, path: ServedPath, report: EngineReport): void {
    const dispatch = this.#dispatches.get(request);
    if (dispatch === undefined) return;
    this.#dispatches.delete(request);
    const { use, question } = dispatch;
    const { promptTokens, cachedTokens, answerTokens = 0 } = report;
    const spans = this.#spansOf(path);
    const counted = spans.reduce((sum, { tokens }) => sum + tokens, 0);
    const tail = promptTokens === undefined ? this.#tail : Math.max(1, promptTokens - counted);
    if (promptTokens !== undefined) this.#tail += NEWEST_WEIGHT * (tail - this.#tail);
    if (cachedTokens !== undefined) this.#judge(use, cachedTokens, promptTokens);
    // The KV of the last answer token is never computed.
    use.hold([...spans, { key: question, tokens: tail + Math.max(0, answerTokens - 1) }]);
    use.release();
  }

  /** The prompt was not prefilled. */
  failed(request: object): void {
    const use = this.#dispatches.get(request)?.use;
    this.#dispatches.delete(request);
    use?.hold([]);
    use?.release();
  }

  clear(): void {
    this.#prompts.clear();
    this.#capacity.clear();
    this.#missed.clear();
  }

  #judge({ cachedTokens: predicted, isLoaded, kept }: SlotUse, cachedTokens: number, promptTokens = 0): void {
    const isMissed = 2 * (cachedTokens + BLOCK_SLACK_TOKENS) < predicted;
    if (predicted > BLOCK_SLACK_TOKENS) this.#missed.add(isMissed);
    // Near its thresholds the engine decides by single tokens, and counts may be estimates.
    if (isMissed && isLoaded && kept > CLEARLY_LOADED_SHARE) this.#capacity.missed(this.#prompts.tokens, 0);
    else if (cachedTokens > 2 * predicted + BLOCK_SLACK_TOKENS) this.#capacity.exceeded();
    else this.#capacity.served(Math.max(0, promptTokens - cachedTokens));
    this.#prompts.pruneToTokens(this.#capacity.tokens);
  }

  #spansOf({ keys, tokens }: ServedPath): HeldSpan[] {
    return [this.#root, ...keys.map((key, place) => ({ key, tokens: tokens[place]! }))];
  }

  #before(preamble: Preamble | undefined): HeldSpan[] {
    if (preamble === undefined) return [this.#root];
    const { steps = [] } = preamble;
    const tokens = preamble.tokens - steps.reduce((sum, step) => sum + step.tokens, 0);
    return this.#spansOf({
      keys: [...steps.map(({ key }) => key), preamble.key],
      tokens: [...steps.map((step) => step.tokens), tokens],
    });
  }
}

interface Start {
  readonly order: readonly number[];
  readonly tokens: number;
}

/** Most tokens first; among equals, the first in order of ranks, then the longest. */
function compare({ order: a, tokens }: Start, { order: b, tokens: others }: Start): number {
  if (tokens !== others) return others - tokens;
  for (let i = 0; i < a.length && i < b.length; i++) if (a[i] !== b[i]) return a[i]! - b[i]!;
  return b.length - a.length;
}

/** Whether a prompt begins with these spans, within the budget. */
function startsWith(prompt: HeldPrompt, spans: readonly HeldSpan[], budget: OperationBudget): boolean {
  for (let place = 0; place < spans.length; place++) {
    if (!budget.take(1) || prompt[place]?.key !== spans[place]!.key) return false;
  }
  return true;
}
