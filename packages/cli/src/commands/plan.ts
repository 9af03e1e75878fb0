import { createReadStream, createWriteStream, type ReadStream } from 'node:fs';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { type BatchPlan, planBatch, WarmpathError } from '@warmpath/core';
import { fileErrorReason } from '@warmpath/core/internal';
import { readRequestLog } from '@warmpath/lab';
import type { Command } from 'commander';
import { addCommand, type CommandContext } from '../command-context.js';
import { readingProgress } from '../files/read-input.js';
import { wholeNumber } from '../options.js';
import { percent, type Terminal } from '../terminal.js';

const FORMAT_HELP = `
Input, one request a line:
  {"documents": [{"id", "tokens"?} or "id", …], "timestamp"?, "session"?, "query_tokens"?}
Output, one request a line, in the order in which to send them:
  {"index", "documents": [ids in prompt order], "sharedDocuments"}
  "index" counts the requests of the input from 0; "sharedDocuments" says how many of the documents, from the start, earlier
  lines leave in the prefix cache. Plans for fewest tokens if every document has a count, and for fewest documents if not.`;

const READ_STEP = 1000;
/** Lines that go to the file in one piece. */
const WRITE_STEP = 1000;

interface PlanCommandOptions {
  readonly output?: string;
  readonly capacity?: number;
}

/** Adds `warmpath plan`. */
export function addPlanCommand(program: Command, { terminal, stdin }: CommandContext): void {
  addCommand(program, 'plan', 'order a batch: the documents of each request, and the requests')
    .argument('<file>', 'log of requests, JSON lines; - for standard input')
    .option('-o, --output <file>', 'where the plan goes, JSON lines; standard output if left out or -')
    .option(
      '--capacity <tokens>',
      'what the prefix cache holds; documents, if their tokens are not known',
      wholeNumber(0),
    )
    .addHelpText('after', FORMAT_HELP)
    .action(async (file: string, options: PlanCommandOptions) => {
      const { output = '-' } = options;
      const log = await readBatch(file, file === '-' ? stdin : createReadStream(file), terminal);
      terminal.status(`planning ${log.contexts.length} requests${expected(log.contexts.length)}`);
      const start = performance.now();
      const plan = planBatch(log.contexts, planOptions(log, options));
      const ms = performance.now() - start;
      terminal.status('');
      if (output === '-') await terminal.pour(lines(plan.steps));
      else await writePlan(plan, output);
      const { documents, trieNodes, reuse } = plan;
      const rssMiB = process.resourceUsage().maxRSS / 1024;
      const summary = { contexts: log.contexts.length, documents, trieNodes, reuse, ms, rssMiB };
      const found = `${summary.contexts} requests, ${documents} documents: ${trieNodes} to prefill`;
      const took = `reuse ${percent(reuse)}, planned in ${Math.round(ms)} ms`;
      if (output === '-') {
        terminal.note(found);
        terminal.note(took);
        return;
      }
      terminal.data(summary);
      terminal.line(found);
      terminal.line(`${took}, ${output} written`);
    });
}

/** Milliseconds that a request takes of planning, at most, and from how many seconds on that is worth saying. */
const PLANNING_MS = 0.05;
const WORTH_SAYING_S = 2;

/** Planning cannot be looked into while it runs. */
function expected(requests: number): string {
  const seconds = Math.ceil((requests * PLANNING_MS) / 1_000);
  return seconds < WORTH_SAYING_S ? '' : `: up to ${seconds} s`;
}

/** A log of requests, as far as planning needs it. */
interface Batch {
  /** Document ids of every request, in retrieval order. */
  readonly contexts: readonly (readonly string[])[];
  /** Tokens of a document by its id, as first stated. */
  readonly tokens: ReadonlyMap<string, number>;
}

async function readBatch(file: string, input: NodeJS.ReadStream | ReadStream, terminal: Terminal): Promise<Batch> {
  const contexts: string[][] = [];
  const tokens = new Map<string, number>();
  const reading = readingProgress(file, input);
  for await (const { documents } of readRequestLog(file, { input })) {
    for (const document of documents) {
      if (document.tokens !== undefined && !tokens.has(document.id)) tokens.set(document.id, document.tokens);
    }
    contexts.push(documents.map(({ id }) => id));
    if (contexts.length % READ_STEP === 0) terminal.status(`${contexts.length} requests read${reading()}`);
  }
  return { contexts, tokens };
}

/** Tokens count only if all are known: a guess for some of the documents would decide over the others. */
function planOptions({ contexts, tokens }: Batch, { capacity }: PlanCommandOptions) {
  const known = tokens.size > 0 && contexts.every((context) => context.every((id) => tokens.has(id)));
  return {
    ...(capacity === undefined ? {} : { capacity }),
    ...(known ? { tokens: (id: string) => tokens.get(id)! } : {}),
  };
}

async function writePlan({ steps }: BatchPlan, file: string): Promise<void> {
  try {
    await pipeline(Readable.from(lines(steps)), createWriteStream(file));
  } catch (cause) {
    throw new WarmpathError('WARMPATH_USAGE', {
      path: '--output',
      detail: `cannot write ${file}: ${fileErrorReason(cause)}`,
      cause,
    });
  }
}

function* lines(steps: BatchPlan['steps']): Generator<string> {
  for (let from = 0; from < steps.length; from += WRITE_STEP) {
    const piece = steps.slice(from, from + WRITE_STEP);
    yield piece.map((step) => `${JSON.stringify(step)}\n`).join('');
  }
}
