import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { estimateTokens, WarmpathError } from '@warmpath/core';
import {
  CONVERSATION_STRATEGIES,
  drawConversations,
  EVALUATION_STRATEGIES,
  type EvaluationQuestions,
  type EvaluationStrategy,
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
const ALMANAC_CONVERSATIONS = 50;
/**
 * With all documents again in every turn, prompts have at most some 1,700 tokens: the demo model was trained with up to
 * 2,048, and what it answers wrongly beyond them would hide what is asked here.
 */
const ALMANAC_TURNS = 4;
const ALMANAC_TOP_K = 3;
const TOP_K = 5;

/** Words that the demo model was trained with; other models understand them as well. */
const ALMANAC_PROMPT = 'Answer from the documents.';
const SYSTEM_PROMPT = 'Answer the question using only the provided documents. Answer in as few words as possible.';
/** Added where the data have questions without an answer. */
const REFUSAL_PROMPT = `If the documents do not hold the answer, say: ${REFUSAL}.`;

/** Questions, and what they are asked with. */
export interface QuestionSource extends EvaluationQuestions {
  readonly strategies: readonly EvaluationStrategy[];
  readonly systemPrompt: string;
  /** Passages of each. */
  readonly topK: number;
  /** Fingerprints of all that the questions were read from, for a run that goes on later. */
  readonly prints: Readonly<Record<string, string>>;
}

export interface QuestionOptions {
  /** Left out: what suits the data set. */
  readonly topK?: number;
  readonly limit?: number;
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
  if (found === undefined && data === ALMANAC) {
    return options.shiftPrices === undefined ? almanacConversations(options) : almanacQuestions(options);
  }
  if (found === 'file' && options.shiftPrices !== undefined) {
    throw new WarmpathError('WARMPATH_USAGE', {
      path: '--shift-prices',
      detail: 'questions outside of conversations were expected: behind its own conversation, no order is in the cache',
    });
  }
  const topK = options.topK ?? TOP_K;
  if (found === 'file') {
    const read = await readConversationQuestions(data, { ...options, topK });
    const prints = { tasks: await hashOf(data) };
    return { ...read, strategies: CONVERSATION_STRATEGIES, systemPrompt: systemPromptOf(read), topK, prints };
  }
  const read = await readQuestions(data, { ...options, topK });
  const prints = {
    corpus: await hashOf(join(data, 'corpus.jsonl')),
    queries: await hashOf(join(data, 'queries.jsonl')),
  };
  return { ...read, strategies: strategiesFor(read, options), systemPrompt: systemPromptOf(read), topK, prints };
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
  const { topK = TOP_K, limit } = options;
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
    prints: { almanac: hashOfQuestions(questions) },
  };
}

function hashOfQuestions(questions: EvaluationQuestions['questions']): string {
  return `sha256:${createHash('sha256').update(JSON.stringify(questions)).digest('hex')}`;
}

async function almanacConversations({ topK = ALMANAC_TOP_K, limit, seed }: QuestionOptions): Promise<QuestionSource> {
  const { entries, questions } = await readAlmanac();
  const sourced = questions.map(({ text, answer, entry }) => ({ text, answer, source: entry }));
  const drawn = drawConversations(sourced, entries, {
    seed,
    conversations: ALMANAC_CONVERSATIONS,
    turns: ALMANAC_TURNS,
    topK,
  });
  return {
    questions: drawn.slice(0, limit),
    withoutAnswer: 0,
    strategies: CONVERSATION_STRATEGIES,
    systemPrompt: ALMANAC_PROMPT,
    topK,
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
