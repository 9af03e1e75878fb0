import { MersenneTwister } from './mersenne-twister.js';
import type { Trace } from './trace.js';
import { ZipfDistribution } from './zipf.js';

const TOPIC_SIZE = 25;

/** What decides which documents of its topic a session retrieves. */
export interface SessionHabits {
  /** Chance that a session turns to another topic before a request. */
  readonly turn: number;
  /** Weights of what one session prefers, and of the question's own noise, beside a document's popularity. */
  readonly taste: number;
  readonly noise: number;
  /** How popularity, taste and noise are distributed: evenly from 0 to 1, or normally with deviation 1. */
  readonly distribution: 'uniform' | 'normal';
}

/** Little taste and much noise: a topic's popular documents come back in changing company. */
export const CASUAL: SessionHabits = { turn: 0.1, taste: 0.5, noise: 0.8, distribution: 'uniform' };

/**
 * Fitted to the published figures of a workload that is described in words only (eight interleaved sessions, 40 topics
 * of 25 documents, Zipf topics, rank by popularity, taste and noise, 1,000 requests): see
 * docs/research/foresight.md. Inferred are all four.
 */
export const SETTLED: SessionHabits = { turn: 0.2, taste: 1, noise: 0.7, distribution: 'normal' };

/** Size of a sessions trace, and how its sessions behave. */
export interface SessionsOptions {
  readonly requests: number;
  readonly k: number;
  /** Default `CASUAL`. */
  readonly habits?: SessionHabits;
  /** Conversations at once. Default 8. */
  readonly sessions?: number;
  /** Topics of 25 documents each. Default 40. */
  readonly topics?: number;
}

interface Session {
  topic: number;
  taste: readonly number[];
}

/**
 * Eight conversations at once, or more, each about one of 40 topics of 25 documents, or more; topics have Zipf
 * popularity. A request comes from any of the sessions and retrieves the topic's best `k` by popularity, the session's
 * taste and noise, so that ranks repeat within a session more than between them. The workload in which a small cache is
 * shared by many.
 */
export function sessionsTrace(seed: number, options: SessionsOptions): Trace {
  const { turn, taste: tasteWeight, noise, distribution } = options.habits ?? CASUAL;
  const { sessions: count = 8, topics: topicCount = 40 } = options;
  const random = new MersenneTwister(seed);
  const draw = distribution === 'uniform' ? () => random.random() : () => drawNormal(random);
  const topics = new ZipfDistribution(topicCount, 1);
  const popularity = Array.from({ length: topicCount * TOPIC_SIZE }, draw);
  const begin = (): Session => ({
    topic: topics.draw(random),
    taste: Array.from({ length: TOPIC_SIZE }, () => tasteWeight * draw()),
  });
  const sessions = Array.from({ length: count }, begin);
  return Array.from({ length: options.requests }, (_, question) => {
    const session = random.below(count);
    if (random.random() < turn) sessions[session] = begin();
    const { topic, taste } = sessions[session]!;
    const scored = taste.map((preference, i) => {
      const document = topic * TOPIC_SIZE + i;
      return { document, score: popularity[document]! + preference + noise * draw() };
    });
    scored.sort((a, b) => b.score - a.score || a.document - b.document);
    return { documents: scored.slice(0, options.k).map(({ document }) => document), question, session };
  });
}

/** Nearly normal, mean 0 and deviation 1, by sums alone: the same to the last bit on every machine. */
function drawNormal(random: MersenneTwister): number {
  let sum = -6;
  for (let i = 0; i < 12; i++) sum += random.random();
  return sum;
}
