import { setImmediate as nextTurn } from 'node:timers/promises';
import { WarmpathError } from '@warmpath/core';
import {
  CACHE_SPECIFICATIONS,
  CONVERSATION_LAYOUTS,
  type ConversationLayout,
  Experiment,
  type ExperimentSettings,
  experimentPage,
  experimentSeries,
  type LabPolicyName,
  LENGTHS_NAMES,
  loadOfflineSolver,
  MAX_QUEUE,
  readCache,
  type SeedFigures,
  WORKLOAD_CATALOGUE,
} from '@warmpath/lab';
import { type Command, Option } from 'commander';
import { addCommand, type CommandContext } from '../../command-context.js';
import { Journal, type JournalSettings } from '../../files/journal.js';
import { withInterruption } from '../../interruption.js';
import { latencyOption, type NamedLatency, readLatency } from '../../lab/latency.js';
import { policiesOption, seedsOption } from '../../lab/options.js';
import { printExperiment, printRecall } from '../../lab/print-report.js';
import { addReportOption, type ReportOption, writeReport } from '../../lab/report-file.js';
import { addServerOptions, type ServerOptions, serverSettings } from '../../lab/server-options.js';
import {
  addWorkloadOptions,
  type WorkloadOptions,
  type WorkloadSource,
  workloadSource,
} from '../../lab/workload-source.js';
import { wholeNumber } from '../../options.js';
import { startProgress } from '../../progress.js';
import type { Terminal } from '../../terminal.js';
import { packageVersion } from '../../version.js';

interface RunOptions extends WorkloadOptions, ServerOptions, ReportOption {
  readonly policies: readonly LabPolicyName[];
  readonly seeds: readonly number[];
  readonly queue: number;
  readonly cache: string;
  readonly latency: string;
  readonly warmUp: number;
  readonly conversations: ConversationLayout;
  readonly resume?: string;
  readonly json?: boolean;
  readonly offline?: number;
}

/** Adds `warmpath lab run`. */
export function addRunCommand(lab: Command, context: CommandContext): void {
  const command = addCommand(lab, 'run', 'compare ordering policies on a workload').argument(
    '[workload]',
    'name of a workload; see below',
  );
  addWorkloadOptions(command)
    .addOption(policiesOption('retrieval,exact,foresight'))
    .addOption(seedsOption('seeds: 42, or 1..10, or 1,5,7', '1..10'))
    .option(
      '--queue <number>',
      'coming requests to look at: a policy gets those that could be waiting',
      wholeNumber(0, MAX_QUEUE),
      0,
    )
    .option('--cache <cache>', `the engine's cache: ${CACHE_SPECIFICATIONS}`, 'unlimited')
    .addOption(
      new Option('--lengths <name>', 'tokens of a document: 200, or 64 to 512').choices(LENGTHS_NAMES).default('equal'),
    )
    .addOption(
      new Option('--conversations <layout>', 'where the earlier turns of a conversation stand in the prompt')
        .choices(CONVERSATION_LAYOUTS)
        .default('documents-first'),
    )
    .addOption(latencyOption())
    .option('--warm-up <number>', 'requests at the start that are served but not counted', wholeNumber(0), 0)
    .option('--resume <file>', 'write every finished seed to this file, and continue from the seeds in it')
    .addOption(
      new Option(
        '--offline [seconds]',
        'also find what the best orders of all requests together would reuse, in at most these seconds a seed (default: 10)',
      )
        .argParser(wholeNumber(1, 3_600))
        .preset('10')
        .conflicts('warmUp'),
    );
  addServerOptions(command);
  addReportOption(command)
    .addHelpText('after', `\nWorkloads:\n${catalogueHelp()}`)
    .action((name: string | undefined, options: RunOptions) =>
      withInterruption((signal) => run(name, options, { ...context, signal })),
    );
}

async function run(
  name: string | undefined,
  options: RunOptions,
  { terminal, argv, signal }: CommandContext & { readonly signal: AbortSignal },
): Promise<void> {
  const source = await workloadSource(name, options);
  const latency = await readLatency(options.latency);
  const settings = { ...experimentSettings(source, options, latency), ...(await offlineSetting(options)) };
  const journal =
    options.resume === undefined
      ? undefined
      : await Journal.open<SeedFigures>(options.resume, journalSettings(source, options, latency));
  let experiment: Experiment;
  try {
    experiment = continued(settings, journal);
    await stepThrough(experiment, settings.seeds.length, { journal, terminal, signal });
  } finally {
    await journal?.close();
  }
  if (experiment.done.length > 0) {
    const report = experiment.report();
    const page = () => experimentPage(report, experimentSeries(experiment.done, options.policies));
    await writeReport(page, options, argv);
    printExperiment(report, terminal);
    printRecall(source.recall, terminal);
    terminal.data(source.recall === undefined ? report : { ...report, recall: source.recall });
  }
  // The seeds that were done are printed; what happened is still an interruption.
  signal.throwIfAborted();
}

function experimentSettings(
  { workload, create, isSeeded }: WorkloadSource,
  options: RunOptions,
  { model }: NamedLatency,
): ExperimentSettings {
  const server = serverSettings(options);
  return {
    workload,
    create,
    policies: options.policies,
    // A trace is what it is: another seed would only count it twice.
    seeds: isSeeded ? options.seeds : options.seeds.slice(0, 1),
    queue: options.queue,
    cache: { name: options.cache, create: readCache(options.cache) },
    ...(server !== undefined && { server }),
    latency: model,
    warmUp: options.warmUp,
    conversations: options.conversations,
    clock: () => performance.now(),
  };
}

/** The solver is large, and loaded only if it is asked for. */
async function offlineSetting({ offline: seconds }: RunOptions): Promise<Pick<ExperimentSettings, 'offline'>> {
  if (seconds === undefined) return {};
  const solve = await loadOfflineSolver();
  return { offline: (workload) => solve(workload, { seconds }) };
}

/** All that figures depend on but the seeds, so that more of them can be asked for later. */
function journalSettings(
  { identity }: WorkloadSource,
  options: RunOptions,
  { name, profile }: NamedLatency,
): JournalSettings {
  const {
    seeds: _seeds,
    trace: _trace,
    data: _data,
    latency: _latency,
    resume: _resume,
    report: _report,
    json: _json,
    ...others
  } = options;
  return { command: 'lab run', version: packageVersion(), workload: identity, ...others, latency: profile ?? name };
}

/** The experiment, with the seeds that the journal holds as done. */
function continued(settings: ExperimentSettings, journal: Journal<SeedFigures> | undefined): Experiment {
  if (journal === undefined) return new Experiment(settings);
  try {
    return new Experiment(settings, journal.before);
  } catch (cause) {
    const detail = `${journal.file} does not fit: ${(cause as Error).message}`;
    throw new WarmpathError('WARMPATH_USAGE', { path: '--resume', detail, cause });
  }
}

interface StepSurroundings {
  readonly journal: Journal<SeedFigures> | undefined;
  readonly terminal: Terminal;
  readonly signal: AbortSignal;
}

async function stepThrough(experiment: Experiment, seeds: number, surroundings: StepSurroundings): Promise<void> {
  const { journal, terminal, signal } = surroundings;
  const progress = startProgress(terminal, 'seeds', seeds, experiment.done.length);
  try {
    while (!signal.aborted) {
      const figures = experiment.step();
      if (figures === undefined) break;
      await journal?.append(figures);
      progress.advance();
      // Lets a signal in.
      await nextTurn();
    }
  } finally {
    progress.stop();
  }
}

/** `1..10`, `42`, or a list of such. */
function catalogueHelp(): string {
  const width = Math.max(...WORKLOAD_CATALOGUE.map(({ name }) => name.length));
  return WORKLOAD_CATALOGUE.map(({ name, description }) => `  ${name.padEnd(width)}  ${description}`).join('\n');
}
