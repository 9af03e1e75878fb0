import { type PolicyName, WarmpathError } from '@warmpath/core';
import { DEFAULT_POLICY, readPolicyName } from '@warmpath/core/internal';
import { spawnEngine } from '@warmpath/engine';
import { dialectOfOwner } from '@warmpath/gateway';
import {
  type AnsweredQuestion,
  type EvaluationSettings,
  type EvaluationStrategy,
  evaluationPage,
  evaluationReport,
  MersenneTwister,
  type PassageRanks,
  shiftPriceOf,
} from '@warmpath/lab';
import { type Command, InvalidArgumentError } from 'commander';
import { addCommand, type CommandContext } from '../../command-context.js';
import { EngineClient, type ServedModel } from '../../engine-client.js';
import { announceStart } from '../../engine-settings.js';
import { Journal } from '../../files/journal.js';
import { withInterruption } from '../../interruption.js';
import { printEvaluation } from '../../lab/evaluation/print-evaluation.js';
import { ALMANAC, type QuestionSource, readQuestionSource } from '../../lab/evaluation/question-source.js';
import { runEvaluation, type StrategyLanes } from '../../lab/evaluation/run-evaluation.js';
import { type LaneSettings, StrategyLane } from '../../lab/evaluation/strategy-lane.js';
import { addReportOption, type ReportOption, writeReport } from '../../lab/report-file.js';
import { addEngineUrlOptions, type EngineUrlOptions, engineAddress, wholeNumber } from '../../options.js';
import { startProgress } from '../../progress.js';
import { packageVersion } from '../../version.js';

interface EvalOptions extends EngineUrlOptions, ReportOption {
  readonly data: string;
  readonly topK?: number;
  readonly limit?: number;
  readonly ranks?: PassageRanks;
  readonly rounds?: number;
  readonly turns?: number;
  readonly policy: PolicyName;
  readonly concurrency: number;
  readonly maxTokens: number;
  readonly system?: string;
  readonly seed: number;
  readonly resume?: string;
  /** The prices, or `true` for those that suit the documents. */
  readonly shiftPrices?: readonly number[] | true;
  readonly tolerance: number;
}

const FORMAT_HELP = `
The data set is a BEIR folder: corpus.jsonl and queries.jsonl. Right answers stand in a query's metadata, as "answer": "text",
as "answers": ["text", …], or as "ground_truth": {"answers": ["text", …]}; "is_impossible": true beside a list says that the
documents hold none. A query's "context": [id, …] brings its own passages; qrels/test.tsv says which are right. Instead of a folder, a file of MTRAG's tasks is read as conversations: every turn with an answer is a question,
behind the turns before it as the data answer them, with all documents again in retrieval order, or with those left out that the
conversation still shows, without and with a hint that says where they stand. ${ALMANAC} names conversations that come along:
200 questions about a fictional almanac, which the demo model can answer; \`warmpath lab eval --data ${ALMANAC}\` is all it takes.

With --shift-prices, questions are asked one by one in retrieval order and at several prices of moving a document
(\`arrange.shiftPrice\`, in tokens a place), and the lowest price is suggested that is shown to keep the answers.`;

const MAX_SEED = 2 ** 32 - 1;

/** Adds `warmpath lab eval`. */
export function addEvalCommand(lab: Command, context: CommandContext): void {
  const command = addCommand(
    lab,
    'eval',
    'measure whether the order of documents changes the answers of your engine',
  ).requiredOption(
    '--data <path>',
    `questions with their answers, and the passages to retrieve from; a file of conversations; or ${ALMANAC}`,
  );
  addEngineUrlOptions(command, 'the engine to ask, any OpenAI-compatible one; an embedded one is started if left out')
    .option(
      '--top-k <number>',
      `passages a question, found by BM25 (default: 5, or all that a query brings along; ${ALMANAC}: 3)`,
      wholeNumber(1, 1_000),
    )
    .option('--limit <number>', 'number of questions, from the first (default: all)', wholeNumber(1))
    .option(
      '--ranks <order>',
      'retrieval order: `retrieved` (best first), `random`, or the place of the right passages (default: retrieved)',
      readRanks,
    )
    .option('--rounds <number>', 'ask so many times, each with other random orders (default: 1)', wholeNumber(1, 100))
    .option('--turns <number>', 'draw conversations of so many turns from the questions', wholeNumber(2, 16))
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
      'of the bootstrap, of random orders, of what parts the strategies in the cache, and of drawn conversations',
      wholeNumber(0, MAX_SEED),
      42,
    )
    .option(
      '--shift-prices [list]',
      'try prices of moving documents, in tokens a place, such as 0,10,40 (default list: from the length of the documents)',
      readShiftPrices,
    )
    .option(
      '--tolerance <points>',
      'points of token F1 that the suggested price may lose, with --shift-prices',
      readTolerance,
      2,
    )
    .option('--resume <file>', 'write every answer to this file, and go on from those that it holds');
  addReportOption(command)
    .addHelpText('after', FORMAT_HELP)
    .action((options: EvalOptions) => withInterruption((signal) => evaluateOn(options, { ...context, signal })));
}

type EvalContext = CommandContext & { readonly signal: AbortSignal };

/**
 * On the engine that was named, or on an embedded one. That one computes every request in the same way whatever else it
 * does, so that prompts alone decide about answers.
 */
async function evaluateOn(options: EvalOptions, context: EvalContext): Promise<void> {
  if (options.engine !== undefined) return evaluate(options, context);
  const data = await readQuestionSource(options.data, options);
  const { signal } = context;
  const settings = { ...(options.model !== undefined && { model: options.model }), batchInvariant: true, port: 0 };
  const start = announceStart(context.terminal);
  const engine = await spawnEngine(settings, { onProgress: start.onProgress, signal }).finally(() => start.stop());
  try {
    await evaluate({ ...options, engine: engine.url, model: engine.model.name }, context, { data, name: 'embedded' });
  } finally {
    await engine.stop();
  }
}

interface EmbeddedRun {
  readonly data: QuestionSource;
  /** What the report calls the engine: its port is another one in each run. */
  readonly name: string;
}

async function evaluate(options: EvalOptions, context: EvalContext, embedded?: EmbeddedRun): Promise<void> {
  const { terminal, argv, environment, signal } = context;
  const data = embedded?.data ?? (await readQuestionSource(options.data, options));
  const client = new EngineClient(engineAddress(options, environment));
  try {
    const model = await modelOf(client, options.model, signal);
    const settings = evaluationSettings(options, { name: embedded?.name, model, source: data });
    const systemPrompt = options.system ?? data.systemPrompt;
    const { policy, maxTokens, concurrency } = options;
    const isSalted = dialectOfOwner(model.owned_by)?.salt !== undefined;
    const lanes = createLanes(settings, { client, model: model.id, policy, systemPrompt, isSalted, maxTokens });
    const journal = await openJournal(options, settings, { systemPrompt, prints: data.prints });
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
  { data, engine, policy, concurrency, seed, shiftPrices, tolerance: percentage }: EvalOptions,
  {
    name,
    model,
    source: { strategies, topK, passages },
  }: { readonly name: string | undefined; readonly model: ServedModel; readonly source: QuestionSource },
): EvaluationSettings {
  const { origin, pathname } = new URL(engine!);
  const contextTokens = model['max_model_len'];
  const tolerance = shiftPrices === undefined ? undefined : percentage / 100;
  return {
    data,
    engine: name ?? `${origin}${pathname.replace(/\/+$/, '')}`,
    model: model.id,
    strategies,
    policy,
    topK,
    passages,
    concurrency,
    seed,
    contextTokens: typeof contextTokens === 'number' ? contextTokens : null,
    ...(tolerance !== undefined && { tolerance }),
  };
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
  { resume, maxTokens }: EvalOptions,
  settings: EvaluationSettings,
  asked: { readonly systemPrompt: string; readonly prints: QuestionSource['prints'] },
): Promise<Journal<AnsweredQuestion> | undefined> {
  if (resume === undefined) return undefined;
  const { data: _name, strategies, tolerance: _tolerance, ...others } = settings;
  const prices = strategies.flatMap((strategy) => shiftPriceOf(strategy) ?? []);
  return Journal.open(resume, {
    command: 'lab eval',
    version: packageVersion(),
    ...others,
    ...(prices.length > 0 && { shiftPrices: prices.join() }),
    maxTokens,
    systemPrompt: asked.systemPrompt,
    ...asked.prints,
  });
}

/** The model that is asked for, or the first that the engine names. */
async function modelOf(client: EngineClient, name: string | undefined, signal: AbortSignal): Promise<ServedModel> {
  if (name !== undefined) {
    const models = await client.models(signal).catch((error: unknown) => {
      // An engine that lists no models may still have this one.
      if (WarmpathError.isInstance(error)) return [];
      throw error;
    });
    return models.find(({ id }) => id === name) ?? { id: name };
  }
  const models = await client.models(signal);
  if (models[0] !== undefined) return models[0];
  throw new WarmpathError('WARMPATH_MODEL_NOT_FOUND', { path: '--model', detail: 'the engine names no model' });
}

function noAnswers(code: string | undefined): WarmpathError {
  const detail = `no question was answered with all strategies${code === undefined ? '' : `; the last request failed with ${code}`}`;
  return new WarmpathError('WARMPATH_UPSTREAM_ERROR', { detail });
}

function readPolicyOption(text: string): PolicyName {
  return readPolicyName(text, '--policy');
}

/** Prices tried at a time, at most: each asks every question once more. */
const MAX_PRICES = 16;

function readShiftPrices(text: string): readonly number[] {
  const prices = [...new Set(text.split(',').map((each) => (each.trim() === '' ? Number.NaN : Number(each))))];
  if (prices.length <= MAX_PRICES && prices.every((price) => Number.isFinite(price) && price >= 0)) return prices;
  throw new InvalidArgumentError(`At most ${MAX_PRICES} numbers of 0 or more were expected, parted by commas.`);
}

function readRanks(text: string): PassageRanks {
  if (text === 'retrieved' || text === 'random') return text;
  const place = Number(text);
  if (Number.isInteger(place) && place >= 1) return place;
  throw new InvalidArgumentError('`retrieved`, `random` or a place from 1 on was expected.');
}

function readTolerance(text: string): number {
  const points = text.trim() === '' ? Number.NaN : Number(text);
  if (points >= 0 && points <= 100) return points;
  throw new InvalidArgumentError('A number of points from 0 to 100 was expected.');
}
