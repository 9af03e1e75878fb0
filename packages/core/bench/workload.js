import { prepareDocuments } from '../dist/index.js';
import { randomSource, zipf } from './random-source.js';

const TOPIC_SIZE = 40;
const COMMON_SIZE = 300;

/**
 * Requests as retrieval gives them: topics of 40 passages, popular topics and passages more often (Zipf), most
 * documents of one topic, some from a pool that all topics share, in an order that differs from request to request.
 * Yields contexts as arrays of document ids; about `contextsPerTopic` of them fall on a topic.
 */
export function* contexts({ count, k, topics, seed }) {
  const random = randomSource(seed);
  const pickTopic = zipf(topics, 0.8, random);
  const pickInTopic = zipf(TOPIC_SIZE, 0.7, random);
  const pickCommon = zipf(COMMON_SIZE, 1, random);
  const shared = k >= 10 ? 2 : 1;
  for (let i = 0; i < count; i++) {
    const topic = pickTopic();
    const chosen = new Set();
    while (chosen.size < k - shared) chosen.add(`topic-${topic}/passage-${pickInTopic()}`);
    while (chosen.size < k) chosen.add(`common/passage-${pickCommon()}`);
    yield shuffled([...chosen], random);
  }
}

function shuffled(items, random) {
  for (let last = items.length - 1; last > 0; last--) {
    const other = Math.floor(random() * (last + 1));
    [items[last], items[other]] = [items[other], items[last]];
  }
  return items;
}

/**
 * Prepared documents of a context, new objects and strings each time, as every request brings its own. 100 to 400
 * tokens each.
 */
export function documentsOf(context) {
  const input = context.map((id) => ({
    id,
    content: `Text of ${id}.`,
    tokens: 100 + ((id.length * 37 + id.charCodeAt(id.length - 1) * 101) % 300),
  }));
  return prepareDocuments(input).documents;
}
