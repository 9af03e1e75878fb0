import { randomSource, zipf } from './random-source.js';

const TOPICS = 60;
const TOPIC_SIZE = 40;
const COMMON_SIZE = 300;
const COMMON_PER_CONTEXT = 2;

/** Contexts of `k` documents each, drawn independently with popularity Zipf(1) from `documents` documents. */
export function zipfContexts({ count, k, documents, seed }) {
  const random = randomSource(seed);
  const pick = zipf(documents, 1, random);
  return Array.from({ length: count }, () => {
    const chosen = new Set();
    while (chosen.size < k) chosen.add(`document-${pick()}`);
    return [...chosen];
  });
}

/**
 * Contexts about 60 topics of 40 documents: two documents from a common pool of 300, the others of one topic, shuffled.
 * Topics are asked for with popularity Zipf(1), documents of a topic with Zipf(0.7), those of the pool evenly.
 */
export function topicContexts({ count, k, seed }) {
  const random = randomSource(seed);
  const pickTopic = zipf(TOPICS, 1, random);
  const pickInTopic = zipf(TOPIC_SIZE, 0.7, random);
  const pickCommon = zipf(COMMON_SIZE, 0, random);
  return Array.from({ length: count }, () => {
    const topic = pickTopic();
    const chosen = new Set();
    while (chosen.size < k - COMMON_PER_CONTEXT) chosen.add(`topic-${topic}/document-${pickInTopic()}`);
    while (chosen.size < k) chosen.add(`common/document-${pickCommon()}`);
    return shuffled([...chosen], random);
  });
}

function shuffled(items, random) {
  for (let last = items.length - 1; last > 0; last--) {
    const other = Math.floor(random() * (last + 1));
    [items[last], items[other]] = [items[other], items[last]];
  }
  return items;
}
