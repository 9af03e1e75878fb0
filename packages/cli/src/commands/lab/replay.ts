import { createReadStream } from 'node:fs';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { WarmpathError } from '@warmpath/core';
import {
  CACHE_SPECIFICATIONS,
  describeCache,
  type LabPolicyName,
  type LoggedRequest,
  loadOfflineSolver,
  MAX_QUEUE,
  RecordedReplay,
  type RecordedReplaySettings,
  Replay,
  type ReplayReport,
  type ReplayResult,
  readCache,
  readRequestLog,
  replayPage,
} from '@warmpath/lab';
import { type Command, Option } from 'commander';
import { addCommand, type CommandContext } from '../../command-context.js';
import { readingProgress } from '../../files/read-input.js';
import { withInterruption } from '../../interruption.js';
import { latencyOption, readLatency } from '../../lab/latency.js';
import { policiesOption } from '../../lab/options.js';
import { addReportOption, type ReportOption, writeReport } from '../../lab/report-file.js';
import { wholeNumber } from '../../options.js';
import { startProgress } from '../../progress.js';
import { percent, type Terminal } from '../../terminal.js';

/**
 * Prints what a log would have saved, for a person: the traffic, every policy cache by cache beside its bounds, the
 * finding.
 */
export function printReplay(report: ReplayReport, terminal: Terminal): void {
  const { traffic, results, bounds, finding, assumptions } = report;
  const { bold, dim } = terminal.style;
  terminal.line(
    `${bold(report.log)}: ${count(traffic.requests)} requests, ${count(traffic.documents)} documents, ${count(traffic.distinctDocuments)} of them different`,
  );
  terminal.line(
    `  adjacent requests share ${percent(traffic.jaccard)} of their documents (Jaccard); of all tokens, ${percent(traffic.seenBefore)} were seen before at any position`,
  );
  if (traffic.repeatedInSession > 0) {
    terminal.line(`  ${percent(traffic.repeatedInSession)} of the documents had been in the same session before`);
  }
  for (const { cache, oracle } of bounds) {
    const rows = results.filter((result) => result.cache === cache);
    if (rows.length === 0) continue;
    terminal.line();
    terminal.line(`  ${bold(describeCache(rows[0]!))}`);
    const header = ['policy', 'tokens cached', 'uncached a request', 'TTFT p50', 'p95', 'p99', 'mean ms'];
    terminal.table([header, ...rows.map(cells)], '    ');
    terminal.line(
      dim(
        `    bounds: best order of each request alone ${percent(oracle)}, seen before ${percent(traffic.seenBefore)}`,
      ),
    );
    const { tooLong } = rows[0]!;
    if (tooLong > 0) terminal.line(`    ${count(tooLong)} requests do not fit this engine's memory and were left out`);
  }
  if (report.offline !== undefined) {
    const { low, high } = report.offline;
    const share = low === high ? percent(low) : `${percent(low)} to ${percent(high)}`;
    terminal.line();
    terminal.line(dim(`  best orders of all requests together, no cache limit: ${share} of the documents' tokens`));
  }
  terminal.line();
  terminal.line(bold(finding));
  for (const assumption of assumptions) terminal.line(dim(`  - ${assumption}`));
}

function cells({ policy, cachedTokenShare, uncachedTokens, ttftMs }: ReplayResult): readonly string[] {
  const times = [ttftMs.p50, ttftMs.p95, ttftMs.p99, ttftMs.mean].map((value) => value.toFixed(1));
  return [policy, percent(cachedTokenShare), uncachedTokens.mean.toFixed(0), ...times];
}

function count(value: number): string {
  return value.toLocaleString('en-US');
}

const FORMAT_HELP = `
The log has one request a line, in the order in which they came:
  {"documents": [{"id", "tokens"?} or "id", …], "timestamp"?, "session"?, "query_tokens"?}
  Only "documents", in retrieval order, is needed. "timestamp" is a number of milliseconds or an ISO 8601 date.

If the first request has a timestamp, requests come at these times to an engine that prefills one prompt at a time, and TTFT counts
the wait; at most 1,000,000 requests are held. Without, each comes when the one before is done, and memory does not grow with the log.`;

/** vLLM, SGLang and llama-server with room for 65,536 tokens, and the first two with room for a million. */
const DEFAULT_CACHES = '4096,65536,radix:65536,radix:1048576,slots:4:65536';

/** Requests between two looks at what the outside wants. */
const STEP = 64;
/** Bad lines that are shown of those that were left out. */
const SHOWN_LINES = 10;

interface ReplayOptions extends ReportOption {
  readonly policies: readonly LabPolicyName[];
  readonly caches: string;
  readonly queue: number;
  readonly warmUp: number;
  readonly preamble: number;
  readonly latency: string;
  readonly sequential?: boolean;
  readonly replicas?: number;
  readonly offline?: number;
  readonly skipInvalid?: boolean;
}

/** Lines that were left out, and what was wrong with the first of them. */
interface SkippedLines {
  count: number;
  readonly first: { readonly line: number; readonly code: string; readonly message: string }[];
}

/** Adds `warmpath lab replay`. */
export function addReplayCommand(lab: Command, context: CommandContext): void {
  const command = addCommand(lab, 'replay', 'replay your own log of requests and print what you would save')
    .argument('<log>', 'log of requests, JSON lines; - for standard input')
    .addOption(policiesOption('retrieval,exact,foresight'))
    .option(
      '--caches <caches>',
      `engine caches, separated by commas, each one of ${CACHE_SPECIFICATIONS}`,
      DEFAULT_CACHES,
    )
    .option(
      '--queue <number>',
      'coming requests to look at: a policy gets those that could be waiting',
      wholeNumber(0, MAX_QUEUE),
      0,
    )
    .option('--warm-up <number>', 'requests at the start that are served but not counted', wholeNumber(0), 0)
    .option('--preamble <tokens>', 'tokens in front of the documents, the same for all', wholeNumber(0, 1_000_000), 28)
    .addOption(latencyOption())
    .option('--sequential', 'one request after another; ignores timestamps')
    .option('--replicas <number>', 'engines that take requests with timestamps in turn (1)', wholeNumber(1, 1_024))
    .addOption(
      new Option(
        '--offline [seconds]',
        'also find what the best orders of all requests together would reuse, for at most 10,000 requests (default: 10)',
      )
        .argParser(wholeNumber(1, 3_600))
        .preset('10')
        .conflicts('warmUp'),
    )
    .option('--skip-invalid', 'leave out unreadable lines, and print how many');
  addReportOption(command)
    .addHelpText('after', FORMAT_HELP)
    .action((file: string, options: ReplayOptions) =>
      withInterruption((signal) => replay(file, options, { ...context, signal })),
    );
}

async function replay(
  file: string,
  options: ReplayOptions,
  context: CommandContext & { readonly signal: AbortSignal },
): Promise<void> {
  const { terminal, argv, signal } = context;
  const settings: RecordedReplaySettings = {
    log: file,
    policies: options.policies,
    caches: options.caches.split(',').map((name) => ({ name: name.trim(), create: readCache(name.trim()) })),
    queue: options.queue,
    warmUp: options.warmUp,
    preambleTokens: options.preamble,
    latency: await readLatency(options.latency),
    clock: () => performance.now(),
    ...(options.replicas !== undefined && { replicas: options.replicas }),
    ...(await offlineSetting(options)),
  };
  const isRecorded = (first: LoggedRequest) => first.timestampMs !== undefined && options.sequential !== true;
  const create = (first: LoggedRequest) => (isRecorded(first) ? new RecordedReplay(settings) : new Replay(settings));
  const { running, skipped } = await feed(create, file, { ...options, ...context });
  if (running instanceof Replay) running.finish();
  if (running instanceof RecordedReplay) await stepThrough(running, context);
  terminal.status('');
  if (running !== undefined) {
    const report: ReplayReport & { readonly skipped: SkippedLines } = { ...running.report(), skipped };
    if (report.results.length > 0) await writeReport(() => replayPage(report), options, argv);
    printReplay(report, terminal);
    printSkipped(skipped, context);
    terminal.data(report);
  }
  // What was done is printed; what happened is still an interruption.
  signal.throwIfAborted();
  if (running !== undefined) return;
  throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: file, detail: 'The log has no request.' });
}

/** The solver is large, and loaded only if it is asked for. */
async function offlineSetting({ offline: seconds }: ReplayOptions): Promise<Pick<RecordedReplaySettings, 'offline'>> {
  if (seconds === undefined) return {};
  const solve = await loadOfflineSolver();
  return { offline: (workload) => solve(workload, { seconds }) };
}

/** Reads the log into the replay that its first request asks for; undefined if it has none. */
async function feed(
  create: (first: LoggedRequest) => Replay | RecordedReplay,
  file: string,
  { skipInvalid = false, terminal, stdin, signal }: ReplayOptions & CommandContext & { readonly signal: AbortSignal },
): Promise<{ readonly running: Replay | RecordedReplay | undefined; readonly skipped: SkippedLines }> {
  const skipped: SkippedLines = { count: 0, first: [] };
  const onInvalid = ({ code, message }: WarmpathError, line: number) => {
    skipped.count++;
    if (skipped.first.length < SHOWN_LINES) skipped.first.push({ line, code, message });
  };
  const input = file === '-' ? stdin : createReadStream(file);
  const progress = readingProgress(file, input);
  const reading = { signal, input, ...(skipInvalid && { onInvalid }) };
  let running: Replay | RecordedReplay | undefined;
  for await (const request of readRequestLog(file, reading)) {
    running ??= create(request);
    running.next(request);
    if (running.requests % STEP !== 0) continue;
    terminal.status(`  ${running.requests.toLocaleString('en-US')} requests read${progress()}`);
    // Lets a signal in.
    await nextTurn();
  }
  return { running, skipped };
}

/** Each step is one policy on one cache over the whole log. */
async function stepThrough(
  running: RecordedReplay,
  { terminal, signal }: CommandContext & { readonly signal: AbortSignal },
): Promise<void> {
  const progress = startProgress(terminal, 'policies on caches', running.steps);
  try {
    while (!signal.aborted && running.step()) {
      progress.advance();
      await nextTurn();
    }
  } finally {
    progress.stop();
  }
}

function printSkipped({ count, first }: SkippedLines, { terminal }: CommandContext): void {
  if (count === 0) return;
  terminal.line();
  terminal.line(`  ${count.toLocaleString('en-US')} lines were left out:`);
  for (const { message } of first) terminal.line(`    ${message}`);
  if (count > first.length) terminal.line('    …');
}
