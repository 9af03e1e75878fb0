import { MersenneTwister } from './mersenne-twister.js';
import { interleave, type Trace, type TraceRequest } from './trace.js';
import { ZipfDistribution } from './zipf.js';

const TOPIC_SIZE = 50;

/** Size and overlap of conversations. */
export interface MultiTurnOptions {
  readonly conversations: number;
  /** Conversations that go on at the same time, turn by turn. */
  readonly atOnce: number;
  /** Turns of a conversation, evenly between these (both included). */
  readonly turns: { readonly least: number; readonly most: number };
  readonly k: number;
  /** Chance that a document of a later turn is one that the conversation has had. */
  readonly repeated: number;
  readonly topics: number;
  /** Zipf exponent of the topics' popularity. */
  readonly exponent: number;
}

/**
 * RAGBoost's multi-turn RAG (§7.1), one conversation after another. From the paper: 40 % of the documents of a turn
 * have been in the session before (§3.1). Ours, for the paper is silent: 100 conversations of 4 to 10 turns (MTRAG's
 * are about that long), k = 5, topics.
 */
export const RAGBOOST_TURNS = {
  conversations: 100,
  atOnce: 1,
  turns: { least: 4, most: 10 },
  k: 5,
  repeated: 0.4,
  topics: 40,
  exponent: 1,
} as const satisfies MultiTurnOptions;

/**
 * Conversations about one topic each. Every document of a later turn is, by chance, one that the conversation has had
 * or a new one of its topic, the popular ones first; ranks are shuffled, for retrievers return what repeats «with
 * slightly different rankings».
 */
export function multiTurnTrace(seed: number, options: MultiTurnOptions): Trace {
  const random = new MersenneTwister(seed);
  const topics = new ZipfDistribution(options.topics, options.exponent);
  let question = 0;
  const conversations = Array.from({ length: options.conversations }, (_, session) => {
    const topic = topics.draw(random) * TOPIC_SIZE;
    const had: number[] = [];
    const turns = random.randint(options.turns.least, options.turns.most);
    return Array.from({ length: turns }, (): TraceRequest => {
      const documents = turnDocuments(random, { topic, had, options });
      for (const document of documents) if (!had.includes(document)) had.push(document);
      return { documents, question: question++, session };
    });
  });
  return interleave(conversations, options.atOnce);
}

interface TurnSurroundings {
  /** First document of the conversation's topic. */
  readonly topic: number;
  /** Documents that the conversation has had. */
  readonly had: readonly number[];
  readonly options: MultiTurnOptions;
}

const POPULARITY = new ZipfDistribution(TOPIC_SIZE, 1);

function turnDocuments(random: MersenneTwister, { topic, had, options }: TurnSurroundings): number[] {
  const documents: number[] = [];
  for (let place = 0; place < options.k; place++) {
    const again = had.filter((document) => !documents.includes(document));
    const known = new Set([...had, ...documents]);
    const isAgain = again.length > 0 && (random.random() < options.repeated || known.size >= TOPIC_SIZE);
    documents.push(isAgain ? random.choice(again) : newDocument(random, topic, known));
  }
  random.shuffle(documents);
  return documents;
}

/** A document of the topic that is none of those. */
function newDocument(random: MersenneTwister, topic: number, known: ReadonlySet<number>): number {
  for (;;) {
    const document = topic + POPULARITY.draw(random);
    if (!known.has(document)) return document;
  }
}
