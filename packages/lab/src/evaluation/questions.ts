import { type BeirQuery, passagesOf, readJudgements, readQueries } from '../data/beir.js';
import { invalid } from '../data/json-fields.js';
import { mtragDialogues } from '../data/mtrag.js';
import { type Passage, Retriever, readCorpus } from '../data/passages.js';
import type { GoldAnswers } from '../data/requests.js';
import { MersenneTwister } from '../workloads/mersenne-twister.js';
import { drawConversations, type SourcedQuestion } from './drawn-conversations.js';
import type { EvaluationQuestion } from './evaluation-question.js';

/** The questions of a data set. */
export interface EvaluationQuestions {
  readonly questions: readonly EvaluationQuestion[];
  /** Queries that were passed over because the data state no answer to them. */
  readonly withoutAnswer: number;
}

/**
 * In which order the passages of a question count as retrieved: `retrieved` by BM25, `random`, or with the right ones
 * from this place on, the first being 1.
 */
export type PassageRanks = 'retrieved' | 'random' | number;

export interface ReadQuestionsOptions {
  /** Passages of a question, at most. Default: 5 that BM25 finds, or all that a query brings along. */
  readonly topK?: number | undefined;
  /** Questions, from the first. */
  readonly limit?: number | undefined;
  readonly seed: number;
  /** Default `retrieved`. */
  readonly ranks?: PassageRanks | undefined;
  /** How often each question is asked, every time with other random orders. Default 1. */
  readonly rounds?: number | undefined;
  /** Above 1: conversations of so many turns are drawn from the questions that have an answer. Default 1. */
  readonly turns?: number | undefined;
}

/** Passages that BM25 finds for a question, where nothing else is said. */
export const DEFAULT_TOP_K = 5;

/**
 * The first `limit` questions of a BEIR folder that state their answers. The passages of a question are those that its
 * query lists (`metadata.context`), by BM25, or else the `topK` best of the corpus. Where `ranks` is not `retrieved`,
 * the passages that `qrels/test.tsv` judges right are always among them. Passages without text are passed over. Errors:
 * `WARMPATH_INVALID_REQUEST` if no query states an answer, for an id that stands twice, and for a place of right
 * passages without judgements; those of the readers. Holds corpus and questions in memory.
 */
export async function readQuestions(folder: string, options: ReadQuestionsOptions): Promise<EvaluationQuestions> {
  const { topK, limit, ranks = 'retrieved', rounds = 1, turns = 1, seed } = options;
  const corpus = (await readCorpus(folder)).filter(({ content }) => content.trim() !== '');
  const byId = new Map<string, Passage>(corpus.map((passage) => [passage.id, passage]));
  const judgements = await readJudgements(folder);
  const { queries, withoutAnswer } = await readAnsweredQueries(folder, limit);
  const judged = queries.map((query) => ({
    query,
    right: [...(judgements.get(query.id) ?? [])].flatMap((id) => byId.get(id) ?? []),
  }));
  if (turns > 1) {
    const sourced = judged.flatMap(({ query, right }) => sourcedQuestion(query, right));
    const draw = { seed, turns, conversations: Math.floor(sourced.length / turns), topK: topK ?? DEFAULT_TOP_K };
    return { questions: drawConversations(sourced, corpus, draw), withoutAnswer };
  }
  const sources = { retriever: new Retriever<Passage>(corpus), byId, topK };
  const random = new MersenneTwister(seed);
  const asked = judged.map(({ query, right }) => {
    if (typeof ranks === 'number' && right.length === 0) {
      throw invalid('qrels/test.tsv', `query ${JSON.stringify(query.id)} has no passage that is judged right`);
    }
    const found = retrieve(query, sources);
    return { query, right, passages: ranks === 'retrieved' ? found : withRight(found, right) };
  });
  const questions = Array.from({ length: rounds }, (_, round) =>
    asked.map(({ query: { id, text, gold }, right, passages }): EvaluationQuestion => {
      const ranked = inRanks(passages, { ranks, right, random });
      const shuffled = ranked.map((_, rank) => rank);
      random.shuffle(shuffled);
      const name = round === 0 ? id : `${id}, round ${round + 1}`;
      return { id: name, unit: id, text, gold, passages: ranked, shuffled };
    }),
  );
  return { questions: questions.flat(), withoutAnswer };
}

type AnsweredQuery = BeirQuery & { readonly gold: GoldAnswers };

async function readAnsweredQueries(folder: string, limit = Number.POSITIVE_INFINITY) {
  const queries = new Map<string, AnsweredQuery>();
  let withoutAnswer = 0;
  for await (const { gold, ...query } of readQueries(folder)) {
    if (queries.size >= limit) break;
    if (gold === undefined) {
      withoutAnswer++;
      continue;
    }
    if (queries.has(query.id)) throw invalid('queries.jsonl', `the id ${JSON.stringify(query.id)} is taken already`);
    queries.set(query.id, { ...query, gold });
  }
  if (queries.size === 0) {
    throw invalid(
      'queries.jsonl',
      'no query states its answer: `metadata.answer`, `metadata.answers` or `metadata.ground_truth.answers` was expected',
    );
  }
  return { queries: [...queries.values()], withoutAnswer };
}

interface RetrievalSources {
  readonly retriever: Retriever;
  /** Passages with text. */
  readonly byId: ReadonlyMap<string, Passage>;
  readonly topK: number | undefined;
}

/** By BM25; what a query brings along and shares no word with it comes last. */
function retrieve({ text, context }: AnsweredQuery, { retriever, byId, topK }: RetrievalSources): readonly Passage[] {
  if (context === undefined) return retriever.search(text, topK ?? DEFAULT_TOP_K);
  const own = new Set(passagesOf(context, byId));
  const found = retriever.search(text, Number.POSITIVE_INFINITY).filter((passage) => own.has(passage));
  return [...new Set([...found, ...own])].slice(0, topK);
}

/** Right passages that were not found take the places of the last ones that are not right. */
function withRight(found: readonly Passage[], right: readonly Passage[]): readonly Passage[] {
  const missing = right.filter((passage) => !found.includes(passage));
  const others = found.filter((passage) => !right.includes(passage));
  const dropped = new Set(others.slice(Math.max(0, others.length - missing.length)));
  return [...found.filter((passage) => !dropped.has(passage)), ...missing];
}

function inRanks(
  passages: readonly Passage[],
  {
    ranks,
    right,
    random,
  }: { readonly ranks: PassageRanks; readonly right: readonly Passage[]; readonly random: MersenneTwister },
): readonly Passage[] {
  if (ranks === 'retrieved') return passages;
  if (ranks === 'random') {
    const shuffled = [...passages];
    random.shuffle(shuffled);
    return shuffled;
  }
  const others = passages.filter((passage) => !right.includes(passage));
  return others.toSpliced(ranks - 1, 0, ...right);
}

/** A question to draw conversations from, if it has an answer and a passage that holds it. */
function sourcedQuestion({ text, gold }: AnsweredQuery, right: readonly Passage[]): SourcedQuestion[] {
  if (gold.answers.length === 0 || right.length === 0) return [];
  return [{ text, gold, sources: right.map(({ id }) => id) }];
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
