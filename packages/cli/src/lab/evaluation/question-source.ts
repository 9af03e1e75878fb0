import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { estimateTokens, WarmpathError } from '@warmpath/core';
import {
  CONVERSATION_STRATEGIES,
  DEFAULT_TOP_K,
  drawConversations,
  EVALUATION_STRATEGIES,
  type EvaluationQuestions,
  type EvaluationStrategy,
  type PassageRanks,
  pricedStrategy,
  priceLadder,
  REFUSAL,
  Retriever,
  readConversationQuestions,
  readQuestions,
} from '@warmpath/lab';
import { readAlmanac } from '../../demo/almanac.js';

/** The data set that comes along: conversations about the fictional almanac. */
export const ALMANAC = 'almanac';
const ALMANAC_QUESTIONS = 200;
/**
 * With all documents again in every turn, prompts have at most some 1,700 tokens: the demo model was trained with up to
 * 2,048, and what it answers wrongly beyond them would hide what is asked here.
 */
const ALMANAC_TURNS = 4;
const ALMANAC_TOP_K = 3;

/** Words that the demo model was trained with; other models understand them as well. */
const ALMANAC_PROMPT = 'Answer from the documents.';
const SYSTEM_PROMPT = 'Answer the question from the documents with a few words only, no sentence.';
/** Added where the data have questions without an answer. */
const REFUSAL_PROMPT = `If the documents do not hold the answer, say: ${REFUSAL}.`;

/** Questions, and what they are asked with. */
export interface QuestionSource extends EvaluationQuestions {
  readonly strategies: readonly EvaluationStrategy[];
  readonly systemPrompt: string;
  /** Passages of each. */
  readonly topK: number;
  /** Where they come from, and in which order. */
  readonly passages: string;
  /** Fingerprints of all that the questions were read from, for a run that goes on later. */
  readonly prints: Readonly<Record<string, string>>;
}

export interface QuestionOptions {
  /** Left out: what suits the data set. */
  readonly topK?: number;
  readonly limit?: number;
  readonly ranks?: PassageRanks;
  readonly rounds?: number;
  readonly turns?: number;
  readonly seed: number;
  /** Prices of moving documents to try, or `true` for those that suit the documents: questions then stand alone. */
  readonly shiftPrices?: readonly number[] | true;
}

/**
 * The questions of a BEIR folder, of a file of MTRAG's tasks, or, by its name, of the almanac. Errors: those of the
 * readers.
 */
export async function readQuestionSource(data: string, options: QuestionOptions): Promise<QuestionSource> {
  const found = await kindOf(data);
  const isAlmanac = found === undefined && data === ALMANAC;
  requireQuestions(options, { isFile: found === 'file', isAlmanac });
  if (isAlmanac) {
    return options.shiftPrices === undefined ? almanacConversations(options) : almanacQuestions(options);
  }
  if (found === 'file') {
    const topK = options.topK ?? DEFAULT_TOP_K;
    const read = await readConversationQuestions(data, { ...options, topK });
    const prints = { tasks: await hashOf(data) };
    const systemPrompt = systemPromptOf(read);
    return { ...read, strategies: CONVERSATION_STRATEGIES, systemPrompt, topK, passages: FOUND_BY_BM25, prints };
  }
  const read = await readQuestions(data, options);
  const prints = {
    corpus: await hashOf(join(data, 'corpus.jsonl')),
    queries: await hashOf(join(data, 'queries.jsonl')),
  };
  const longest = read.questions.reduce((most, { passages }) => Math.max(most, passages.length), DEFAULT_TOP_K);
  const topK = options.topK ?? longest;
  const strategies = (options.turns ?? 1) > 1 ? CONVERSATION_STRATEGIES : strategiesFor(read, options);
  return { ...read, strategies, systemPrompt: systemPromptOf(read), topK, passages: passagesOf(options), prints };
}

const FOUND_BY_BM25 = 'found by BM25, best first';

function passagesOf({ ranks = 'retrieved', turns = 1, seed }: QuestionOptions): string {
  if (turns > 1) return `${FOUND_BY_BM25}, in drawn conversations of ${turns} turns`;
  if (ranks === 'retrieved') return FOUND_BY_BM25;
  return ranks === 'random' ? `in random order (seed ${seed})` : `the right ones from place ${ranks} on`;
}

/** Error: `WARMPATH_USAGE` for an option that these data, or other options, leave without effect. */
function requireQuestions(
  { shiftPrices, ranks, rounds, turns }: QuestionOptions,
  { isFile, isAlmanac }: { readonly isFile: boolean; readonly isAlmanac: boolean },
): void {
  const areConversations = isFile || turns !== undefined;
  const options = [
    ['--shift-prices', shiftPrices, areConversations],
    ['--ranks', ranks, areConversations || isAlmanac],
    ['--rounds', rounds, areConversations || isAlmanac],
    ['--turns', turns, isFile],
  ] as const;
  const refused = options.find(([, value, isRefused]) => value !== undefined && isRefused);
  if (refused === undefined) return;
  throw new WarmpathError('WARMPATH_USAGE', {
    path: refused[0],
    detail: isFile
      ? 'a BEIR folder was expected in --data: the turns of a file of conversations stay as they are'
      : 'questions of a BEIR folder outside of conversations were expected',
  });
}

/** Those of questions outside of conversations. */
function strategiesFor(
  { questions }: Pick<EvaluationQuestions, 'questions'>,
  { shiftPrices }: QuestionOptions,
): readonly EvaluationStrategy[] {
  if (shiftPrices === undefined) return EVALUATION_STRATEGIES;
  const lengths = questions.flatMap(({ passages }) => passages.map(({ content }) => estimateTokens(content)));
  const meanTokens = lengths.reduce((sum, length) => sum + length, 0) / Math.max(1, lengths.length);
  const prices = shiftPrices === true ? priceLadder(meanTokens) : shiftPrices;
  return ['retrieval', ...[...prices].sort((a, b) => a - b).map(pricedStrategy)];
}

/** The questions of the almanac one by one, each with the entries that BM25 finds for it. */
async function almanacQuestions(options: QuestionOptions): Promise<QuestionSource> {
  const { topK = DEFAULT_TOP_K, limit } = options;
  const { entries, questions: all } = await readAlmanac();
  const retriever = new Retriever(entries);
  const questions = all.slice(0, limit).map(({ id, text, answer }) => ({
    id,
    text,
    gold: { answers: [answer] },
    passages: retriever.search(text, topK),
  }));
  return {
    questions,
    withoutAnswer: 0,
    strategies: strategiesFor({ questions }, options),
    systemPrompt: ALMANAC_PROMPT,
    topK,
    passages: FOUND_BY_BM25,
    prints: { almanac: hashOfQuestions(questions) },
  };
}

function hashOfQuestions(questions: EvaluationQuestions['questions']): string {
  return `sha256:${createHash('sha256').update(JSON.stringify(questions)).digest('hex')}`;
}

async function almanacConversations(options: QuestionOptions): Promise<QuestionSource> {
  const { topK = ALMANAC_TOP_K, turns = ALMANAC_TURNS, limit, seed } = options;
  const { entries, questions } = await readAlmanac();
  const sourced = questions.map(({ text, answer, entry }) => ({ text, gold: { answers: [answer] }, sources: [entry] }));
  const drawn = drawConversations(sourced, entries, {
    seed,
    conversations: Math.ceil(ALMANAC_QUESTIONS / turns),
    turns,
    topK,
  });
  return {
    questions: drawn.slice(0, limit),
    withoutAnswer: 0,
    strategies: CONVERSATION_STRATEGIES,
    systemPrompt: ALMANAC_PROMPT,
    topK,
    passages: FOUND_BY_BM25,
    prints: { almanac: hashOfQuestions(drawn) },
  };
}

function systemPromptOf({ questions }: EvaluationQuestions): string {
  const mayRefuse = questions.some(({ gold }) => gold.answers.length === 0);
  return mayRefuse ? `${SYSTEM_PROMPT} ${REFUSAL_PROMPT}` : SYSTEM_PROMPT;
}

/** What a path names; `undefined` for nothing. */
async function kindOf(path: string): Promise<'file' | 'folder' | undefined> {
  return stat(path).then(
    (found) => (found.isFile() ? 'file' : 'folder'),
    () => undefined,
  );
}

async function hashOf(file: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(file), hash);
  return `sha256:${hash.digest('hex')}`;
}
