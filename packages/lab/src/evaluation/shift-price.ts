import type { BootstrapMean } from './paired-statistics.js';

/**
 * A strategy: the documents arranged where a place that a document moves costs so many tokens (`shiftPrice`), with the
 * hint that states the retrieval order.
 */
export type PricedStrategy = `price-${number}`;

const PREFIX = 'price-';

/** The strategy of a price. */
export function pricedStrategy(price: number): PricedStrategy {
  return `${PREFIX}${price}`;
}

/** The price of a strategy; `undefined` for one that has none. */
export function shiftPriceOf(strategy: string): number | undefined {
  return strategy.startsWith(PREFIX) ? Number(strategy.slice(PREFIX.length)) : undefined;
}

/** Parts of a document's tokens that a place may cost; from a quarter on, hardly any document is worth moving. */
const LADDER = [0, 1 / 16, 1 / 8, 1 / 4];

/** Prices to try where documents have so many tokens: from none to one at which hardly a document moves. */
export function priceLadder(meanTokens: number): readonly number[] {
  return [...new Set(LADDER.map((part) => Number((part * meanTokens).toPrecision(2))))];
}

/** What came of one price, against retrieval order. */
export interface PricedAnswers {
  readonly price: number;
  /** All questions, and those of which documents moved: the others were asked as in retrieval order. */
  readonly questions: number;
  readonly moved: number;
  /** Places that documents stood away from their retrieval ranks, a question. */
  readonly placesMoved: number;
  /** Token F1 less that of retrieval order, question by question. */
  readonly f1: BootstrapMean;
  /** Prompt tokens that were not in the cache, less those of retrieval order, in parts of these; `null` if unknown. */
  readonly computed: number | null;
}

/** Quality against the price, and the price that follows. */
export interface ShiftPriceFit {
  /** Token F1 that may be lost. */
  readonly tolerance: number;
  /** Cheapest first. */
  readonly prices: readonly (PricedAnswers & {
    /** The largest loss of token F1 that is not ruled out. */
    readonly mayLose: number;
    /** Whether that is within the tolerance. */
    readonly keepsAnswers: boolean;
  })[];
  /** The lowest price that keeps the answers; `null` where none is shown to. */
  readonly suggested: number | null;
}

/** Chance of a loss outside the interval, on its side. */
const OUTSIDE = 0.025;

/**
 * The lowest price that is shown to keep the answers: a larger loss of token F1 than `tolerance` is ruled out. Prices
 * are tried from the highest, next to retrieval order, downwards, and the first that fails ends it: so that many prices
 * make no price look good by chance. O(prices log prices).
 */
export function fitShiftPrice(answers: readonly PricedAnswers[], tolerance: number): ShiftPriceFit {
  const prices = answers
    .map((each) => {
      const mayLose = mayBeLost(each);
      return { ...each, mayLose, keepsAnswers: mayLose <= tolerance };
    })
    .sort((a, b) => a.price - b.price);
  let suggested: number | null = null;
  for (const { price, keepsAnswers } of prices.toReversed()) {
    if (!keepsAnswers) break;
    suggested = price;
  }
  return { tolerance, prices, suggested };
}

/**
 * The end of the 95 % interval, or what may be lost without a sign of it, if that is more: where none of `moved`
 * questions got worse, one in 3.7 / moved of them still may (Clopper and Pearson's limit at 0).
 */
function mayBeLost({ questions, moved, f1 }: PricedAnswers): number {
  const unseen = moved === 0 ? 0 : (moved / questions) * (1 - OUTSIDE ** (1 / moved));
  return Math.max(-f1.low, unseen);
}
