import { type AlmanacQuestion, readAlmanac } from './almanac.js';
import type { Passage } from './chunk.js';
import { readCorpus } from './corpus.js';
import { readQuestions, type WorkloadName } from './questions.js';
import { Retriever } from './retriever.js';

/** Passages retrieved for a question. */
export const PASSAGES_PER_QUESTION = 5;

/** One question with what retrieval found for it. Both strategies are asked these very objects. */
export interface DemoRequest {
  readonly question: string;
  /** In retrieval order. */
  readonly documents: readonly Passage[];
  /** The one right answer, where there is one. */
  readonly answer: string | undefined;
}

/** Questions in the order in which they are asked, and what they are about. */
export interface Workload {
  readonly requests: readonly DemoRequest[];
  /** Passages that were searched. */
  readonly passages: number;
  /** Share of retrieved passages that an earlier question had retrieved too: the most that any order could reuse. */
  readonly repeatedShare: number;
}

/** The first `count` questions about the documentation of fastify and undici. */
export async function documentationWorkload(name: WorkloadName, count: number): Promise<Workload> {
  const passages = await readCorpus();
  const retriever = new Retriever(passages);
  const requests = (await readQuestions(name))
    .flatMap(({ topic, questions }) => questions.map((question) => ({ topic, question })))
    .slice(0, count)
    .map(({ topic, question }): DemoRequest => {
      // Conversational retrieval: a follow-up question is searched together with what the conversation is about.
      const documents = retriever.search(`${topic} ${question}`, PASSAGES_PER_QUESTION);
      return { question, documents, answer: undefined };
    });
  return { requests, passages: passages.length, repeatedShare: repeatedShare(requests) };
}

/** The first `count` questions of the almanac. */
export async function almanacWorkload(count: number): Promise<Workload> {
  const { entries, questions } = await readAlmanac();
  const retriever = new Retriever(entries);
  const requests = questions.slice(0, count).map(
    ({ text, answer }: AlmanacQuestion): DemoRequest => ({
      question: text,
      documents: retriever.search(text, PASSAGES_PER_QUESTION),
      answer,
    }),
  );
  return { requests, passages: entries.length, repeatedShare: repeatedShare(requests) };
}

function repeatedShare(requests: readonly DemoRequest[]): number {
  const seen = new Set<string>();
  let total = 0;
  let repeated = 0;
  for (const { documents } of requests) {
    total += documents.length;
    repeated += documents.filter(({ id }) => seen.has(id)).length;
    for (const { id } of documents) seen.add(id);
  }
  return total === 0 ? 0 : repeated / total;
}
