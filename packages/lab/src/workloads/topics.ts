import { MersenneTwister } from './mersenne-twister.js';
import type { Trace } from './trace.js';

const TOPICS = 60;
const TOPIC_SIZE = 40;
const FROM_TOPIC = 13;
const COMMON = 300;
const FROM_COMMON = 2;

/**
 * Requests of 15 documents for planning a batch: 13 of one topic's 40 and two of 300 that all topics share, shuffled.
 * Topics are equally likely, requests independent.
 */
export function topicsTrace(seed: number, requests = 1_000): Trace {
  const random = new MersenneTwister(seed);
  const common = Array.from({ length: COMMON }, (_, i) => TOPICS * TOPIC_SIZE + i);
  return Array.from({ length: requests }, (_, number) => {
    const topic = random.below(TOPICS);
    const inTopic = Array.from({ length: TOPIC_SIZE }, (_, i) => topic * TOPIC_SIZE + i);
    const documents = [...random.sample(inTopic, FROM_TOPIC), ...random.sample(common, FROM_COMMON)];
    random.shuffle(documents);
    return { documents, question: number };
  });
}
