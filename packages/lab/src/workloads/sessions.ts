import { MersenneTwister } from './mersenne-twister.js';
import type { Trace } from './trace.js';
import { ZipfDistribution } from './zipf.js';

const SESSIONS = 8;
const TOPICS = 40;
const TOPIC_SIZE = 25;
/** Chance that a session turns to another topic before a request. */
const TURN = 0.1;
/** Weights of what one session prefers, and of the question's own noise, beside a document's popularity of 0 to 1. */
const TASTE = 0.5;
const NOISE = 0.8;

/** Size of a sessions trace. */
export interface SessionsOptions {
  readonly requests: number;
  readonly k: number;
}

interface Session {
  topic: number;
  taste: readonly number[];
}

/**
 * Eight conversations at once, each about one of 40 topics of 25 documents; topics have Zipf popularity. A request comes
 * from any of the sessions and retrieves the topic's best `k` by popularity, the session's taste and noise, so that ranks
 * repeat within a session more than between them. The workload in which a small cache is shared by many.
 */
export function sessionsTrace(seed: number, options: SessionsOptions): Trace {
  const random = new MersenneTwister(seed);
  const topics = new ZipfDistribution(TOPICS, 1);
  const popularity = Array.from({ length: TOPICS * TOPIC_SIZE }, () => random.random());
  const begin = (): Session => ({
    topic: topics.draw(random),
    taste: Array.from({ length: TOPIC_SIZE }, () => TASTE * random.random()),
  });
  const sessions = Array.from({ length: SESSIONS }, begin);
  return Array.from({ length: options.requests }, (_, question) => {
    const session = random.below(SESSIONS);
    if (random.random() < TURN) sessions[session] = begin();
    const { topic, taste } = sessions[session]!;
    const scored = taste.map((preference, i) => {
      const document = topic * TOPIC_SIZE + i;
      return { document, score: popularity[document]! + preference + NOISE * random.random() };
    });
    scored.sort((a, b) => b.score - a.score || a.document - b.document);
    return { documents: scored.slice(0, options.k).map(({ document }) => document), question, session };
  });
}
