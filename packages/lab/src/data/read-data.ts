import { readFile } from 'node:fs/promises';
import { describeJsonError, fileErrorReason, WarmpathError } from '@warmpath/core';
import { interleave } from '../workloads/interleave.js';
import { readTrace } from '../workloads/read-trace.js';
import type { Workload, WorkloadRequest } from '../workloads/workload.js';
import { beirContextRequests, beirRequests, readRecall } from './beir.js';
import { type DataFormat, locateData } from './formats.js';
import { LoggedRequests } from './logged-requests.js';
import { mooncakeRequests } from './mooncake.js';
import { mtragContextRequests, mtragConversations } from './mtrag.js';
import { nqOpenRequests } from './nq-open.js';
import { readRequestLog } from './request-log.js';
import { collectWorkload } from './requests.js';

/** Passages that are retrieved for a question unless it is said how many. */
const DEFAULT_TOP_K = 5;

/** How data are read. */
export interface ReadDataOptions {
  /** Default: told by the data themselves (`locateData`). */
  readonly format?: DataFormat;
  /** Passages a question: those retrieved (default 5), or the first ones of those that the data bring (default all). */
  readonly topK?: number;
  /** Folder whose `corpus.jsonl` NQ-open is searched in. Default: its own records. */
  readonly corpus?: string;
  /** Records of NQ-open that are read, the first ones. Default all. */
  readonly records?: number;
  /** Conversations that go on at the same time. Default 1. */
  readonly sessions?: number;
}

/** A data set as a workload. */
export interface DataSet {
  readonly format: DataFormat;
  readonly workload: Workload;
  /** Share of the judged passages that stand in the requests, for a BEIR folder with judgements. */
  readonly recall?: number;
}

/**
 * Reads a data set: see `DATA_FORMATS` for the layouts. Texts count the tokens that core estimates for them as rendered
 * documents.
 *
 * Errors: `WARMPATH_USAGE` for what cannot be read, `WARMPATH_INVALID_JSON` and `WARMPATH_INVALID_REQUEST` with file,
 * line and path. Files are streamed; passages (at most 200,000) and requests (at most a million) are held.
 */
export async function readData(path: string, options: ReadDataOptions = {}): Promise<DataSet> {
  const located = await locateData(path, options.format);
  const { format } = located;
  const workload = await READERS[format](located.path, options);
  const isBeir = format === 'beir' || format === 'beir-contexts';
  const recall = isBeir ? await readRecall(located.path, workload.requests) : undefined;
  return { format, workload, ...(recall !== undefined && { recall }) };
}

type Reader = (path: string, options: ReadDataOptions) => Promise<Workload>;

const READERS: Readonly<Record<DataFormat, Reader>> = {
  beir: (path, { topK = DEFAULT_TOP_K }) => collectWorkload(path, beirRequests(path, topK)),
  'beir-contexts': (path, { topK }) => collectWorkload(path, beirContextRequests(path, topK)),
  mtrag: async (path, { topK = DEFAULT_TOP_K, sessions = 1 }) =>
    collectWorkload(path, interleave(await mtragConversations(path, topK), sessions)),
  'mtrag-contexts': (path, { topK }) => collectWorkload(path, mtragContextRequests(path, topK)),
  'nq-open': (path, { topK = DEFAULT_TOP_K, ...options }) => collectWorkload(path, nqOpenRequests(path, topK, options)),
  mooncake: (path) => collectWorkload(path, mooncakeRequests(path), 0),
  log: (path) => collectWorkload(path, logRequests(path)),
  trace: async (path) => readTrace(path, await readJson(path)),
};

async function* logRequests(file: string): AsyncGenerator<WorkloadRequest> {
  const requests = new LoggedRequests();
  for await (const logged of readRequestLog(file)) yield requests.next(logged);
}

async function readJson(file: string): Promise<unknown> {
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (cause) {
    throw new WarmpathError('WARMPATH_USAGE', {
      path: 'data',
      detail: `cannot read ${file}: ${fileErrorReason(cause)}`,
      cause,
    });
  }
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new WarmpathError('WARMPATH_INVALID_JSON', {
      path: 'data',
      detail: `${file}: ${describeJsonError(text)}`,
      cause,
    });
  }
}
