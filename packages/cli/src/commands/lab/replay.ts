import { setImmediate as nextTurn } from 'node:timers/promises';
import { type PolicyName, WarmpathError } from '@warmpath/core';
import {
  CACHE_SPECIFICATIONS,
  MAX_QUEUE,
  Replay,
  type ReplayReport,
  readCache,
  readRequestLog,
  replayPage,
} from '@warmpath/lab';
import type { Command } from 'commander';
import { addCommand, type CommandContext } from '../../command-context.js';
import { withInterruption } from '../../interruption.js';
import { latencyOption, readLatency } from '../../lab/latency.js';
import { policyNames } from '../../lab/options.js';
import { printReplay } from '../../lab/print-replay.js';
import { addReportOption, type ReportOption, writeReport } from '../../lab/report-file.js';
import { wholeNumber } from '../../options.js';

const FORMAT_HELP = `
The log has one request a line, in the order in which they came:
  {"documents": [{"id", "tokens"?} or "id", …], "timestamp"?, "session"?, "query_tokens"?}
  Only "documents", in retrieval order, is needed. "timestamp" is a number of milliseconds or an ISO 8601 date.

Memory does not grow with the log.`;

/** vLLM, SGLang and llama-server with room for 65,536 tokens, and the first two with room for a million. */
const DEFAULT_CACHES = '4096,65536,radix:65536,radix:1048576,slots:4:65536';

/** Requests between two looks at what the outside wants. */
const STEP = 64;
/** Bad lines that are shown of those that were left out. */
const SHOWN_LINES = 10;

interface ReplayOptions extends ReportOption {
  readonly policies: readonly PolicyName[];
  readonly caches: string;
  readonly queue: number;
  readonly warmUp: number;
  readonly preamble: number;
  readonly latency: string;
  readonly skipInvalid?: boolean;
}

/** Lines that were left out, and what was wrong with the first of them. */
interface SkippedLines {
  count: number;
  readonly first: { readonly line: number; readonly code: string; readonly message: string }[];
}

/** Adds `warmpath lab replay`. */
export function addReplayCommand(lab: Command, context: CommandContext): void {
  const command = addCommand(lab, 'replay', 'what would I save? your own log of requests, on any engine')
    .argument('<log>', 'log of requests, JSON lines; - for standard input')
    .option(
      '--policies <names>',
      'ordering policies, separated by commas',
      policyNames,
      policyNames('retrieval,exact,foresight'),
    )
    .option(
      '--caches <caches>',
      `engine caches, separated by commas, each one of ${CACHE_SPECIFICATIONS}`,
      DEFAULT_CACHES,
    )
    .option('--queue <number>', 'coming requests that a policy may know of', wholeNumber(0, MAX_QUEUE), 0)
    .option('--warm-up <number>', 'requests at the start that are served but not counted', wholeNumber(0), 0)
    .option('--preamble <tokens>', 'tokens in front of the documents, the same for all', wholeNumber(0, 1_000_000), 28)
    .addOption(latencyOption())
    .option('--skip-invalid', 'leave out lines that cannot be read, and say how many');
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
  const running = new Replay({
    log: file,
    policies: options.policies,
    caches: options.caches.split(',').map((name) => ({ name: name.trim(), create: readCache(name.trim()) })),
    queue: options.queue,
    warmUp: options.warmUp,
    preambleTokens: options.preamble,
    latency: await readLatency(options.latency),
    clock: () => performance.now(),
  });
  const skipped = await feed(running, file, options, context);
  running.finish();
  terminal.status('');
  if (running.requests === 0 && !signal.aborted) {
    throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: file, detail: 'The log has no request.' });
  }
  const report: ReplayReport & { readonly skipped: SkippedLines } = { ...running.report(), skipped };
  if (running.requests > 0) await writeReport(() => replayPage(report), options, argv);
  printReplay(report, terminal);
  printSkipped(skipped, context);
  terminal.data(report);
  // What was done is printed; what happened is still an interruption.
  signal.throwIfAborted();
}

async function feed(
  running: Replay,
  file: string,
  { skipInvalid = false }: ReplayOptions,
  { terminal, stdin, signal }: CommandContext & { readonly signal: AbortSignal },
): Promise<SkippedLines> {
  const skipped: SkippedLines = { count: 0, first: [] };
  const onInvalid = ({ code, message }: WarmpathError, line: number) => {
    skipped.count++;
    if (skipped.first.length < SHOWN_LINES) skipped.first.push({ line, code, message });
  };
  const reading = { signal, ...(file === '-' && { input: stdin }), ...(skipInvalid && { onInvalid }) };
  for await (const request of readRequestLog(file, reading)) {
    running.next(request);
    if (running.requests % STEP !== 0) continue;
    terminal.status(`  ${running.requests.toLocaleString('en-US')} requests replayed`);
    // Lets a signal in.
    await nextTurn();
  }
  return skipped;
}

function printSkipped({ count, first }: SkippedLines, { terminal }: CommandContext): void {
  if (count === 0) return;
  terminal.line();
  terminal.line(`  ${count.toLocaleString('en-US')} lines were left out:`);
  for (const { message } of first) terminal.line(`    ${message}`);
  if (count > first.length) terminal.line('    …');
}
