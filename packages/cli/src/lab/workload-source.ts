import { createHash } from 'node:crypto';
import { WarmpathError } from '@warmpath/core';
import {
  createWorkload,
  DATA_FORMATS,
  type DataFormat,
  type LengthsName,
  type ReadDataOptions,
  readData,
  WORKLOAD_CATALOGUE,
  type Workload,
} from '@warmpath/lab';
import { type Command, Option } from 'commander';
import { wholeNumber } from '../options.js';

/** The options that say which requests to run. */
export interface WorkloadOptions {
  readonly trace?: string;
  readonly data?: string;
  readonly format?: DataFormat;
  readonly topK?: number;
  readonly corpus?: string;
  readonly sessions?: number;
  readonly lengths: LengthsName;
}

/** Where an experiment's requests come from. */
export interface WorkloadSource {
  readonly workload: string;
  /** The workload's name, or a hash of the requests that a file holds, whatever it is called. */
  readonly identity: string;
  readonly create: (seed: number) => Workload;
  /** Whether another seed makes another workload. */
  readonly isSeeded: boolean;
  /** Share of the judged passages that stand in the requests, where a data set has judgements. */
  readonly recall?: number;
}

/** Passages that are retrieved for one question at most. */
const MAX_TOP_K = 1_000;
const MAX_SESSIONS = 10_000;

/** Adds the options that say which requests to run, in place of a workload of the catalogue. */
export function addWorkloadOptions(command: Command): Command {
  return command
    .option('--trace <file>', 'a trace: JSON, {"requests": [[document id, …], …], "tokens"?: {id: number}}')
    .option('--data <path>', 'a data set: folder or file; its layout is detected')
    .addOption(new Option('--format <layout>', 'the layout of --data').choices(DATA_FORMATS))
    .option(
      '--top-k <number>',
      'passages a question: retrieved (5), or the first of its own',
      wholeNumber(1, MAX_TOP_K),
    )
    .option('--corpus <folder>', 'BEIR folder to search for the questions of NQ-open (its own records)')
    .option(
      '--sessions <number>',
      'conversations of --data that run at the same time (1)',
      wholeNumber(1, MAX_SESSIONS),
    );
}

/**
 * The requests that name or options ask for. Errors: `WARMPATH_USAGE` unless there is exactly one source, or for an
 * option of `--data` without it; those of `createWorkload` and `readData`.
 */
export async function workloadSource(name: string | undefined, options: WorkloadOptions): Promise<WorkloadSource> {
  const { trace, data, format, topK, corpus, sessions, lengths } = options;
  if ([name, trace, data].filter((source) => source !== undefined).length !== 1) {
    throw usage('either a workload or --trace or --data was expected');
  }
  const reading: ReadDataOptions = {
    ...(format !== undefined && { format }),
    ...(topK !== undefined && { topK }),
    ...(corpus !== undefined && { corpus }),
    ...(sessions !== undefined && { sessions }),
  };
  if (data === undefined && Object.keys(reading).length > 0) {
    throw usage('--format, --top-k, --corpus and --sessions go with --data');
  }
  if (trace !== undefined) return fileSource(trace, { format: 'trace' });
  if (data !== undefined) return fileSource(data, reading);
  const create = (seed: number) => createWorkload(name!, { seed, lengths });
  const isRecorded = WORKLOAD_CATALOGUE.some((entry) => entry.name === name && entry.isRecorded === true);
  return { workload: name!, identity: name!, create, isSeeded: !isRecorded || lengths === 'unequal' };
}

async function fileSource(path: string, reading: ReadDataOptions): Promise<WorkloadSource> {
  const { workload, recall } = await readData(path, reading);
  return {
    workload: path,
    identity: identityOf(workload),
    create: () => workload,
    isSeeded: false,
    ...(recall !== undefined && { recall }),
  };
}

/** A hash of all that a run depends on. O(total documents). */
function identityOf({ preamble, requests }: Workload): string {
  const hash = createHash('sha256').update(JSON.stringify(preamble));
  for (const { documents, ...rest } of requests) {
    hash.update(JSON.stringify([documents.map(({ key, tokens }) => [key, tokens]), rest]));
  }
  return `sha256:${hash.digest('hex')}`;
}

function usage(detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_USAGE', { detail });
}
