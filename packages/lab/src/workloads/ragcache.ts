import { MersenneTwister } from './mersenne-twister.js';
import type { Trace } from './trace.js';
import { labDocument, type PromptSpan, type Workload } from './workload.js';
import { ZipfDistribution } from './zipf.js';

/** A log-normal length in tokens, drawn again for every bearer and cut to the bounds. */
interface LogNormalLength {
  readonly median: number;
  /** Standard deviation of the logarithm. */
  readonly deviation: number;
  readonly least: number;
  readonly most: number;
}

/** One of RAGCache's request sets. */
export interface RagCacheDataset {
  /** Documents that requests are ever about. */
  readonly documents: number;
  /** Popularity of the i-th document: `i^-exponent`. */
  readonly exponent: number;
  /** Share of the documents, the most popular ones, to which {@link POPULAR_REQUESTS} of the requests go. */
  readonly popularDocuments: number;
  readonly question: LogNormalLength;
  readonly answer: LogNormalLength;
}

/**
 * RAGCache §3.2 and §7: MMLU sends 60 % of its requests to 3 % of the documents, which 5,000 documents of Zipf(0.986)
 * do, and answers with one token. Natural Questions is skewed less (Fig. 5; the paper gives no number): 60 % to 10 %,
 * Zipf(0.842); its answers have 6 tokens on average and at most 32 in 99 % (§7), a log-normal of median 4. The number
 * of documents and the lengths of questions (MMLU's come with four choices) are inferred.
 */
export const RAGCACHE_DATASETS = {
  mmlu: {
    documents: 5_000,
    exponent: 0.986,
    popularDocuments: 0.03,
    question: { median: 84, deviation: 0.6, least: 8, most: 1_024 },
    answer: { median: 1, deviation: 0, least: 1, most: 1 },
  },
  'natural-questions': {
    documents: 5_000,
    exponent: 0.842,
    popularDocuments: 0.1,
    question: { median: 11, deviation: 0.3, least: 4, most: 64 },
    answer: { median: 4, deviation: 0.89, least: 1, most: 128 },
  },
} as const satisfies Record<string, RagCacheDataset>;

/** Share of the requests by which the skew is stated. */
const POPULAR_REQUESTS = 0.6;

export type RagCacheDatasetName = keyof typeof RAGCACHE_DATASETS;

/**
 * Lengths of documents: mean 3,718 tokens (RAGCache §3.2, popular Wikipedia pages). The shape is inferred: log-normal,
 * as article lengths are, with deviation 0.8, cut at 8,192.
 */
const DOCUMENT_LENGTH: LogNormalLength = { median: 3_075, deviation: 0.8, least: 64, most: 8_192 };

/**
 * Documents that follow a given one in a retrieval: it has that many neighbours, the i-th with weight `1 / i`
 * (inferred).
 */
const NEIGHBOURS = 8;

const SYSTEM_PROMPT = 32;

/** Keeps the draws of lengths apart from those of the trace of the same seed. */
const LENGTHS_SEED = 2 ** 35;

export interface RagCacheOptions {
  readonly dataset: RagCacheDatasetName;
  /** Documents of a request. */
  readonly k: number;
  readonly requests: number;
  /**
   * Share of requests at which a popular document changes places with any other; 0 for none, as in the paper's shuffled
   * questions. Default 0.
   */
  readonly drift?: number;
  /** Longer documents are cut to so many tokens. Default 8,192. */
  readonly mostTokens?: number;
  /**
   * A smaller corpus of the same skew: the same share of its documents gets the same share of the requests. Fewer
   * requests then make the cache warm. Default: the dataset's documents.
   */
  readonly documents?: number;
  /**
   * All lengths but the answers' are this many times smaller, for models that are slower or caches that are smaller.
   * Default 1.
   */
  readonly shrink?: number;
}

/**
 * Who asks for which documents: the first by popularity, each further one among the neighbours of the one before it.
 * Documents are numbered by their popularity at the start.
 */
export function ragCacheTrace(seed: number, options: RagCacheOptions): Trace {
  const { k, requests, drift = 0 } = options;
  const { documents, exponent } = corpusOf(options);
  const random = new MersenneTwister(seed);
  const popularity = new ZipfDistribution(documents, exponent);
  const nearness = new ZipfDistribution(NEIGHBOURS, 1);
  const byRank = Array.from({ length: documents }, (_, rank) => rank);
  const draw = () => byRank[popularity.draw(random)]!;
  const neighbours = new Map<number, number[]>();
  const neighbourOf = (document: number) => {
    const known = neighbours.get(document) ?? Array.from({ length: NEIGHBOURS }, draw);
    neighbours.set(document, known);
    return known[nearness.draw(random)]!;
  };
  return Array.from({ length: requests }, (_, question) => {
    if (drift > 0 && random.random() < drift) swap(byRank, popularity.draw(random), random.below(documents));
    const chosen = [draw()];
    while (chosen.length < k) {
      const next = neighbourOf(chosen.at(-1)!);
      // A neighbour that stands there already says nothing: any other document takes its place.
      chosen.push(chosen.includes(next) ? drawOther(draw, chosen) : next);
    }
    return { documents: chosen, question };
  });
}

/**
 * RAGCache's workload of a dataset, with lengths: those of a document are the same in every request. O(requests × k).
 */
export function ragCacheWorkload(seed: number, options: RagCacheOptions): Workload {
  const { question, answer } = RAGCACHE_DATASETS[options.dataset];
  const { documents } = corpusOf(options);
  const { shrink = 1 } = options;
  const random = new MersenneTwister(LENGTHS_SEED + seed);
  const most = Math.min(options.mostTokens ?? DOCUMENT_LENGTH.most, DOCUMENT_LENGTH.most);
  const corpus = Array.from({ length: documents }, (_, number) =>
    labDocument(
      `page_${String(number).padStart(4, '0')}`,
      drawLength(random, shrunk({ ...DOCUMENT_LENGTH, most }, shrink)),
    ),
  );
  const span = (key: string, length: LogNormalLength): PromptSpan => ({ key, tokens: drawLength(random, length) });
  return {
    name: `ragcache-${options.dataset}`,
    preamble: { key: 'preamble', tokens: Math.ceil(SYSTEM_PROMPT / shrink) },
    requests: ragCacheTrace(seed, options).map((request) => ({
      documents: request.documents.map((number) => corpus[number]!),
      question: span(`question_${request.question}`, shrunk(question, shrink)),
      answer: span(`answer_${request.question}`, answer),
    })),
  };
}

function corpusOf({ dataset, documents }: RagCacheOptions): Pick<RagCacheDataset, 'documents' | 'exponent'> {
  const whole = RAGCACHE_DATASETS[dataset];
  if (documents === undefined || documents === whole.documents) return whole;
  return { documents, exponent: exponentOf(documents, Math.round(documents * whole.popularDocuments)) };
}

/**
 * The exponent with which {@link POPULAR_REQUESTS} of the draws fall on the `popular` first of `documents`; by
 * bisection.
 */
function exponentOf(documents: number, popular: number): number {
  const weight = (count: number, exponent: number) =>
    Array.from({ length: count }, (_, rank) => (rank + 1) ** -exponent).reduce((sum, each) => sum + each, 0);
  let [low, high] = [0, 4];
  while (high - low > 1e-9) {
    const middle = (low + high) / 2;
    if (weight(popular, middle) / weight(documents, middle) < POPULAR_REQUESTS) low = middle;
    else high = middle;
  }
  return low;
}

function shrunk({ median, deviation, least, most }: LogNormalLength, shrink: number): LogNormalLength {
  return { median: median / shrink, deviation, least: Math.ceil(least / shrink), most: Math.ceil(most / shrink) };
}

function drawLength(random: MersenneTwister, { median, deviation, least, most }: LogNormalLength): number {
  // Box–Muller; 1 - random() is never 0.
  const normal = Math.sqrt(-2 * Math.log(1 - random.random())) * Math.cos(2 * Math.PI * random.random());
  return Math.round(Math.min(most, Math.max(least, median * Math.exp(deviation * normal))));
}

function drawOther(draw: () => number, chosen: readonly number[]): number {
  let other = draw();
  while (chosen.includes(other)) other = draw();
  return other;
}

function swap(values: number[], a: number, b: number): void {
  [values[a], values[b]] = [values[b]!, values[a]!];
}
