import { Retriever } from '@warmpath/lab';
import { type AlmanacQuestion, readAlmanac, readQuestions, type WorkloadName } from './almanac.js';
import type { Passage } from './chunk.js';
import { readCorpus } from './corpus.js';

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
  /**
   * Mean Jaccard index of the passages of consecutive requests: how much there is to reuse. The main trace of
   * RAGCache++ and CacheWeaver has 0.52, their workload with real retrieval 0.17.
   */
  readonly overlap: number;
}

/** The first `count` questions about the documentation of fastify and undici. */
export async function documentationWorkload(name: WorkloadName, count: number): Promise<Workload> {
  const passages = await readCorpus();
  const retriever = new Retriever(passages);
  const requests = (await readQuestions(name))
    .flatMap(({ topic, questions }) =>
      questions.map((question, i): DemoRequest => {
        // Conversational retrieval: a follow-up question alone says too little about what is meant.
        const query = [topic, questions[i - 1] ?? '', question].join(' ');
        return { question, documents: retriever.search(query, PASSAGES_PER_QUESTION), answer: undefined };
      }),
    )
    .slice(0, count);
  return { requests, passages: passages.length, overlap: meanOverlap(requests) };
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
  return { requests, passages: entries.length, overlap: meanOverlap(requests) };
}

function meanOverlap(requests: readonly DemoRequest[]): number {
  if (requests.length < 2) return 0;
  let sum = 0;
  for (let i = 1; i < requests.length; i++) {
    const before = new Set(requests[i - 1]!.documents.map(({ id }) => id));
    const shared = requests[i]!.documents.filter(({ id }) => before.has(id)).length;
    sum += shared / (before.size + requests[i]!.documents.length - shared);
  }
  return sum / (requests.length - 1);
}
