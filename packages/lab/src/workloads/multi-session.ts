import { MersenneTwister } from './mersenne-twister.js';
import type { Trace } from './trace.js';
import { ZipfDistribution } from './zipf.js';

/** Size and skew of a multi-session trace. */
export interface MultiSessionOptions {
  readonly requests: number;
  readonly k: number;
  readonly topics: number;
  /** Passages of a topic. */
  readonly topicSize: number;
  /** Zipf exponent of the topics' popularity. */
  readonly exponent: number;
  /** Weight of a question's own noise beside a passage's popularity of 0 to 1: how little ranks repeat. */
  readonly noise: number;
}

/**
 * RAGBoost's multi-session RAG (§7.1): independent users, one question each, k = 15. The paper gives data sets and, for
 * each, the share of accesses that go to the most accessed fifth of the documents (§3.1: 79.2 %, 57.4 %, 49.6 %);
 * topics, noise and the number of questions are ours, so chosen that this share and the reuse of retrieval order come
 * out.
 */
export const RAGBOOST_SESSIONS = {
  multihoprag: { requests: 1_000, k: 15, topics: 20, topicSize: 80, exponent: 1.2, noise: 1.2 },
  narrativeqa: { requests: 1_000, k: 15, topics: 60, topicSize: 80, exponent: 0.6, noise: 2.4 },
  qasper: { requests: 1_000, k: 15, topics: 80, topicSize: 80, exponent: 0.3, noise: 2.5 },
} as const satisfies Record<string, MultiSessionOptions>;

/** Independent questions, each on one topic, for its best `k` passages by popularity and noise. */
export function multiSessionTrace(seed: number, options: MultiSessionOptions): Trace {
  const random = new MersenneTwister(seed);
  const { topicSize, noise } = options;
  const topics = new ZipfDistribution(options.topics, options.exponent);
  const popularity = Array.from({ length: options.topics * topicSize }, () => random.random());
  return Array.from({ length: options.requests }, (_, question) => {
    const first = topics.draw(random) * topicSize;
    const scored = Array.from({ length: topicSize }, (_, i) => ({
      document: first + i,
      score: popularity[first + i]! + noise * random.random(),
    }));
    scored.sort((a, b) => b.score - a.score || a.document - b.document);
    return { documents: scored.slice(0, options.k).map(({ document }) => document), question, session: question };
  });
}
