import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { DEFAULT_POLICY, type PolicyName, readPolicyName, WarmpathError } from '@warmpath/core';
import {
  type AnsweredQuestion,
  CONVERSATION_STRATEGIES,
  EVALUATION_STRATEGIES,
  type EvaluationQuestions,
  type EvaluationSettings,
  type EvaluationStrategy,
  evaluationPage,
  evaluationReport,
  MersenneTwister,
  REFUSAL,
  readConversationQuestions,
  readQuestions,
} from '@warmpath/lab';
import type { Command } from 'commander';
import { addCommand, type CommandContext } from '../../command-context.js';
import { EngineClient } from '../../engine-client.js';
import { Journal } from '../../files/journal.js';
import { withInterruption } from '../../interruption.js';
import { printEvaluation } from '../../lab/evaluation/print-evaluation.js';
import { runEvaluation, type StrategyLanes } from '../../lab/evaluation/run-evaluation.js';
import { type LaneSettings, StrategyLane } from '../../lab/evaluation/strategy-lane.js';
import { addReportOption, type ReportOption, writeReport } from '../../lab/report-file.js';
import { addEngineUrlOptions, type EngineUrlOptions, engineAddress, wholeNumber } from '../../options.js';
import { startProgress } from '../../progress.js';
import { packageVersion } from '../../version.js';

interface EvalOptions extends EngineUrlOptions, ReportOption {
  readonly data: string;
  readonly topK: number;
  readonly limit?: number;
  readonly policy: PolicyName;
  readonly concurrency: number;
  readonly maxTokens: number;
  readonly system?: string;
  readonly seed: number;
  readonly resume?: string;
}

const FORMAT_HELP = `
The data set is a BEIR folder: corpus.jsonl and queries.jsonl. Right answers stand in a query's metadata, as "answer": "text",
as "answers": ["text", …], or as "ground_truth": {"answers": ["text", …]}; "is_impossible": true beside a list says that the
documents hold none. Instead of a folder, a file of MTRAG's tasks is read as conversations: every turn with an answer is a question,
behind the turns before it as the data answer them, with all documents again in retrieval order, or with those left out that the
conversation still shows, without and with a hint that says where they stand.`;

const SYSTEM_PROMPT = 'Answer the question using only the provided documents. Answer in as few words as possible.';
/** Added where the data have questions without an answer. */
const REFUSAL_PROMPT = `If the documents do not hold the answer, say: ${REFUSAL}.`;

const MAX_SEED = 2 ** 32 - 1;

/** Adds `warmpath lab eval`. */
export function addEvalCommand(lab: Command, context: CommandContext): void {
  const command = addCommand(
    lab,
    'eval',
    'does the order of documents change the answers? on your engine, with your data',
  )
    .requiredOption(
      '--data <path>',
      'questions with their answers, and the passages to retrieve from; or a file of conversations',
    )
    .option('--model <name>', "the engine's model (default: the first that it names)");
  addEngineUrlOptions(command, 'the engine to ask, any OpenAI-compatible one')
    .option('--top-k <number>', 'passages a question, found by BM25', wholeNumber(1, 1_000), 5)
    .option('--limit <number>', 'the first so many questions (default: all)', wholeNumber(1))
    .option(
      '--policy <name>',
      'ordering policy of the strategies but the first',
      readPolicyOption,
      DEFAULT_POLICY as PolicyName,
    )
    .option(
      '--concurrency <number>',
      'requests at a time; above 1, times to the first token count the wait',
      wholeNumber(1, 256),
      1,
    )
    .option('--max-tokens <number>', 'tokens of an answer', wholeNumber(1), 32)
    .option('--system <text>', 'the system prompt, in place of the built-in one')
    .option(
      '--seed <number>',
      'of the bootstrap, and of the marks that part the strategies',
      wholeNumber(0, MAX_SEED),
      42,
    )
    .option(
      '--resume <file>',
      'write every answered question to this file, without any text, and go on from those that it holds',
    );
  addReportOption(command)
    .addHelpText('after', FORMAT_HELP)
    .action((options: EvalOptions) => withInterruption((signal) => evaluate(options, { ...context, signal })));
}

async function evaluate(
  options: EvalOptions,
  context: CommandContext & { readonly signal: AbortSignal },
): Promise<void> {
  const { terminal, argv, environment, signal } = context;
  if (options.engine === undefined) throw new WarmpathError('WARMPATH_USAGE', { detail: '--engine is missing' });
  const { topK, limit, concurrency } = options;
  const bounds = { topK, ...(limit !== undefined && { limit }) };
  const isConversations = await isFile(options.data);
  const data = await (isConversations ? readConversationQuestions : readQuestions)(options.data, bounds);
  const client = new EngineClient(engineAddress(options, environment));
  try {
    const model = options.model ?? (await firstModel(client, signal));
    const strategies = isConversations ? CONVERSATION_STRATEGIES : EVALUATION_STRATEGIES;
    const settings = evaluationSettings(options, model, strategies);
    const systemPrompt = options.system ?? defaultSystemPrompt(data);
    const lanes = createLanes(settings, {
      client,
      model,
      policy: options.policy,
      systemPrompt,
      maxTokens: options.maxTokens,
    });
    const journal = await openJournal(options, settings, systemPrompt);
    const outcomes = await runEvaluation({
      questions: data.questions,
      lanes,
      concurrency,
      journal,
      startProgress: (total, before) => startProgress(terminal, 'answers', total, before),
      signal,
    }).finally(() => journal?.close());
    const report = evaluationReport(settings, outcomes);
    if (report !== undefined) {
      await writeReport(() => evaluationPage(report), options, argv);
      if (data.withoutAnswer > 0) terminal.note(`${data.withoutAnswer} queries state no answer and were passed over`);
      printEvaluation(report, terminal);
      terminal.data(report);
    }
    // What was done is printed; what happened is still an interruption.
    signal.throwIfAborted();
    if (report === undefined) throw noAnswers(outcomes.failed.at(-1)?.code);
  } finally {
    await client.close();
  }
}

function evaluationSettings(
  { data, engine, policy, topK, concurrency, seed }: EvalOptions,
  model: string,
  strategies: readonly EvaluationStrategy[],
): EvaluationSettings {
  const { origin, pathname } = new URL(engine!);
  return {
    data,
    engine: `${origin}${pathname.replace(/\/+$/, '')}`,
    model,
    strategies,
    policy,
    topK,
    concurrency,
    seed,
  };
}

function defaultSystemPrompt({ questions }: EvaluationQuestions): string {
  const mayRefuse = questions.some(({ gold }) => gold.answers.length === 0);
  return mayRefuse ? `${SYSTEM_PROMPT} ${REFUSAL_PROMPT}` : SYSTEM_PROMPT;
}

/** Each strategy behind a mark of its own, of the same length, drawn from the seed. */
function createLanes({ seed, strategies }: EvaluationSettings, settings: LaneSettings): StrategyLanes {
  const random = new MersenneTwister(seed);
  const lane = (strategy: EvaluationStrategy) => {
    const mark = Array.from({ length: 12 }, () => random.below(16).toString(16)).join('');
    return [strategy, new StrategyLane(strategy, mark, settings)] as const;
  };
  return new Map(strategies.map(lane));
}

async function openJournal(
  { data, resume, maxTokens }: EvalOptions,
  settings: EvaluationSettings,
  systemPrompt: string,
): Promise<Journal<AnsweredQuestion> | undefined> {
  if (resume === undefined) return undefined;
  const { data: _name, strategies: _strategies, ...others } = settings;
  return Journal.open(resume, {
    command: 'lab eval',
    version: packageVersion(),
    ...others,
    maxTokens,
    systemPrompt,
    ...((await isFile(data))
      ? { tasks: await hashOf(data) }
      : { corpus: await hashOf(join(data, 'corpus.jsonl')), queries: await hashOf(join(data, 'queries.jsonl')) }),
  });
}

/** Whether a path names a file; one that is not there is left to those who read it. */
async function isFile(path: string): Promise<boolean> {
  return stat(path).then(
    (found) => found.isFile(),
    () => false,
  );
}

async function hashOf(file: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(file), hash);
  return `sha256:${hash.digest('hex')}`;
}

async function firstModel(client: EngineClient, signal: AbortSignal): Promise<string> {
  const [first] = await client.models(signal);
  if (first !== undefined) return first.id;
  throw new WarmpathError('WARMPATH_MODEL_NOT_FOUND', { path: '--model', detail: 'the engine names no model' });
}

function noAnswers(code: string | undefined): WarmpathError {
  const detail = `no question was answered with all strategies${code === undefined ? '' : `; the last request failed with ${code}`}`;
  return new WarmpathError('WARMPATH_UPSTREAM_ERROR', { detail });
}

function readPolicyOption(text: string): PolicyName {
  return readPolicyName(text, '--policy');
}
