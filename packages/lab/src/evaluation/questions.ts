import { readQueries } from '../data/beir.js';
import { invalid } from '../data/json-fields.js';
import { mtragDialogues } from '../data/mtrag.js';
import { type Passage, Retriever, readCorpus } from '../data/passages.js';
import type { GoldAnswers } from '../data/requests.js';

/** A question with its right answers and the passages that retrieval found for it. */
export interface EvaluationQuestion {
  readonly id: string;
  readonly text: string;
  readonly gold: GoldAnswers;
  /** In retrieval order. */
  readonly passages: readonly Passage[];
  /** The conversation that it is a turn of. */
  readonly conversation?: { readonly id: string; readonly before: readonly AnsweredTurn[] };
  /** What sort of question it is, where that is known; figures are also given sort by sort. */
  readonly kind?: string;
}

/** An earlier turn of a conversation, with the answer of the data. */
export interface AnsweredTurn {
  readonly question: string;
  readonly answer: string;
  /** What retrieval found for it, in its order. */
  readonly passages: readonly Passage[];
}

/** The questions of a data set. */
export interface EvaluationQuestions {
  readonly questions: readonly EvaluationQuestion[];
  /** Queries that were passed over because the data state no answer to them. */
  readonly withoutAnswer: number;
}

/**
 * The first `limit` questions of a BEIR folder that state their answers, each with the `topK` passages that BM25 finds.
 * Errors: `WARMPATH_INVALID_REQUEST` if no query states one, naming where answers are looked for, and for an id that
 * stands twice; those of the readers. Passages without text are passed over, for there is nothing to read in them.
 * Holds corpus and questions in memory.
 */
export async function readQuestions(
  folder: string,
  { topK, limit = Number.POSITIVE_INFINITY }: { readonly topK: number; readonly limit?: number },
): Promise<EvaluationQuestions> {
  const retriever = new Retriever<Passage>((await readCorpus(folder)).filter(({ content }) => content.trim() !== ''));
  const questions = new Map<string, EvaluationQuestion>();
  let withoutAnswer = 0;
  for await (const { id, text, gold } of readQueries(folder)) {
    if (questions.size >= limit) break;
    if (gold === undefined) {
      withoutAnswer++;
      continue;
    }
    if (questions.has(id)) throw invalid('queries.jsonl', `the id ${JSON.stringify(id)} is taken already`);
    questions.set(id, { id, text, gold, passages: retriever.search(text, topK) });
  }
  if (questions.size === 0) {
    throw invalid(
      'queries.jsonl',
      'no query states its answer: `metadata.answer`, `metadata.answers` or `metadata.ground_truth.answers` was expected',
    );
  }
  return { questions: [...questions.values()], withoutAnswer };
}

/**
 * The first `limit` turns of MTRAG's conversations that have an answer in the data, each with the `topK` passages that
 * BM25 finds and with the turns before it, answered as the data answer them. Errors: those of `mtragDialogues`;
 * `WARMPATH_INVALID_REQUEST` if no turn has an answer.
 */
export async function readConversationQuestions(
  file: string,
  { topK, limit = Number.POSITIVE_INFINITY }: { readonly topK: number; readonly limit?: number },
): Promise<EvaluationQuestions> {
  const questions: EvaluationQuestion[] = [];
  let withoutAnswer = 0;
  for (const { id, turns } of await mtragDialogues(file, topK)) {
    for (const [place, { question, passages, answer }] of turns.entries()) {
      if (questions.length >= limit) break;
      if (answer === undefined || answer.trim() === '') {
        withoutAnswer++;
        continue;
      }
      const before = turns
        .slice(0, place)
        .map((turn) => ({ question: turn.question, answer: turn.answer ?? '', passages: turn.passages }));
      const gold = { answers: [answer] };
      questions.push({ id: `${id} ${place + 1}`, text: question, gold, passages, conversation: { id, before } });
    }
  }
  if (questions.length === 0) throw invalid(file, 'no turn has an answer: `targets` with a `text` was expected');
  return { questions, withoutAnswer };
}
