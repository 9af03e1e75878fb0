import { type Command, Option } from 'commander';
import { addCommand, type CommandContext } from '../command-context.js';
import { WORKLOAD_NAMES, type WorkloadName } from '../demo/almanac.js';
import { type EngineSource, embeddedEngine, remoteEngine } from '../demo/cold-engine.js';
import { printComparison, printExactAnswers } from '../demo/print-report.js';
import { compare, compareGraded, type DemoReport } from '../demo/report.js';
import { type ComparisonSettings, runBoth } from '../demo/run-both.js';
import { almanacWorkload, documentationWorkload, PASSAGES_PER_QUESTION, type Workload } from '../demo/workload.js';
import { addEngineOptions, engineSettings } from '../engine-settings.js';
import { withInterruption } from '../interruption.js';
import { addEngineUrlOptions, type EngineUrlOptions, engineAddress, wholeNumber } from '../options.js';
import type { Terminal } from '../terminal.js';

interface DemoOptions extends EngineUrlOptions {
  readonly questions: number;
  readonly workload: WorkloadName;
  readonly almanac?: number;
  readonly repeat: number;
}

/** Tokens of an answer about the documentation: TTFT is what is measured, so a few are enough. */
const ANSWER_TOKENS = 8;
/** Tokens of an answer from the almanac: more than the longest right one. */
const ALMANAC_ANSWER_TOKENS = 32;
/** Almanac questions for the demo model; the whole book takes four times as long. */
const ALMANAC_QUESTIONS = 64;

/** Adds `warmpath demo`. */
export function addDemoCommand(program: Command, context: CommandContext): void {
  const command = addCommand(
    program,
    'demo',
    'ask the same questions in retrieval order and arranged, on a real engine, and compare',
  )
    .option('--questions <number>', 'questions about the documentation of fastify and undici', wholeNumber(1, 60), 60)
    .addOption(
      new Option(
        '--workload <name>',
        'focused: conversations on one subject; broad: tasks whose questions share little',
      )
        .choices(WORKLOAD_NAMES)
        .default('focused'),
    )
    .option(
      '--almanac <number>',
      `questions of the almanac (default: ${ALMANAC_QUESTIONS} with the demo model, else 0)`,
      wholeNumber(0, 256),
    )
    .option(
      '--repeat <number>',
      'runs of each order, each on a cold cache; their figures are pooled',
      wholeNumber(1, 100),
      1,
    );
  addEngineUrlOptions(command, 'run on this engine, any OpenAI-compatible one, instead of the embedded one');
  addEngineOptions(command).action((options: DemoOptions) =>
    withInterruption((signal) => demo(options, context, signal)),
  );
}

async function demo(options: DemoOptions, context: CommandContext, signal: AbortSignal): Promise<void> {
  const { terminal } = context;
  const source = engineSource(options, context);
  const workload = await documentationWorkload(options.workload, options.questions);
  introduce(terminal, source, workload);
  const settings = { source, repeat: options.repeat, terminal, signal };
  const { answers, engine } = await runBoth(workload.requests, {
    ...settings,
    task: 'questions',
    maxTokens: ANSWER_TOKENS,
  });
  const comparison = compare(answers);
  terminal.line(`  model       ${engine.model}${engine.notice === undefined ? '' : `: ${engine.notice}`}`);
  terminal.line();
  printComparison(terminal, comparison);
  const almanacQuestions = options.almanac ?? (engine.isDemoModel ? ALMANAC_QUESTIONS : 0);
  const almanac = almanacQuestions === 0 ? undefined : await askAlmanac(almanacQuestions, settings);
  const report: DemoReport = { engine: source.name, model: engine.model, ...comparison, ...(almanac && { almanac }) };
  terminal.data(report);
}

async function askAlmanac(count: number, settings: Omit<ComparisonSettings, 'task' | 'maxTokens'>) {
  const { terminal, repeat } = settings;
  const { requests, passages } = await almanacWorkload(count);
  terminal.line();
  terminal.line(`  The almanac: ${requests.length} questions about ${passages} entries of invented facts`);
  terminal.line();
  const { answers } = await runBoth(requests, { ...settings, task: 'almanac', maxTokens: ALMANAC_ANSWER_TOKENS });
  const asked = Array.from({ length: repeat }, () => requests).flat();
  const comparison = compareGraded(answers, asked);
  printComparison(terminal, comparison);
  printExactAnswers(terminal, comparison);
  return comparison;
}

function engineSource(options: DemoOptions, { environment, terminal }: CommandContext): EngineSource {
  if (options.engine === undefined) return embeddedEngine(engineSettings(options), terminal);
  return remoteEngine(engineAddress(options, environment), options.model);
}

function introduce(terminal: Terminal, source: EngineSource, { requests, passages, overlap }: Workload): void {
  const { bold } = terminal.style;
  terminal.line(
    bold(`${requests.length} questions, each with the same ${PASSAGES_PER_QUESTION} passages in both orders`),
  );
  terminal.line();
  terminal.line(
    `  documents   ${passages} passages of documentation (fastify, undici, in a checkout Warmpath), found by BM25`,
  );
  terminal.line(
    `  overlap     ${overlap.toFixed(2)} (Jaccard index) between the passages of one question and of the next`,
  );
  terminal.line(`  engine      ${source.name}; cold for each order: ${source.coldness}`);
}
