import { readFile } from 'node:fs/promises';
import { WarmpathError } from '@warmpath/core';
import { describeJsonError, fileErrorReason } from '@warmpath/core/internal';
import { readTrace } from '../workloads/read-trace.js';
import { interleave } from '../workloads/trace.js';
import type { Workload, WorkloadRequest } from '../workloads/workload.js';
import { beirContextRequests, beirRequests, readRecall } from './beir.js';
import { type DataFormat, locateData } from './formats.js';
import { invalid, JsonFields } from './json-fields.js';
import { readLines } from './lines.js';
import { LoggedRequests } from './logged-requests.js';
import { mtragContextRequests, mtragConversations } from './mtrag.js';
import { indexedPassage, Retriever, readCorpus } from './passages.js';
import { readRequestLog } from './request-log.js';
import { collectWorkload, singleRequest } from './requests.js';

/** Tokens that one hash id stands for. */
const BLOCK_TOKENS = 512;

/** A context window that no engine exceeds bounds the blocks of a request. */
const MAX_BLOCKS = 2 ** 15;

/**
 * A Mooncake trace: `{timestamp, input_length, output_length, hash_ids}` a line, in milliseconds and tokens; equal ids
 * stand for equal blocks of 512 tokens behind equal blocks, the last one partly filled. A request is a recorded prefix
 * with no documents: it tells caches apart, and there is nothing to reorder. Errors with line and path, also for a
 * length that does not fit the ids.
 */
async function* mooncakeRequests(file: string): AsyncGenerator<WorkloadRequest> {
  let first: number | undefined;
  for await (const line of readLines(file)) {
    const fields = JsonFields.ofLine(line);
    const timestamp = fields.count('timestamp');
    first ??= timestamp;
    const ids = fields.list('hash_ids');
    if (ids.length > MAX_BLOCKS) throw invalid(fields.pathOf('hash_ids'), `at most ${MAX_BLOCKS} blocks are read`);
    const last = fields.count('input_length') - BLOCK_TOKENS * (ids.length - 1);
    if (ids.length === 0 || last < 1 || last > BLOCK_TOKENS) {
      throw invalid(
        fields.pathOf('input_length'),
        `${ids.length} blocks of ${BLOCK_TOKENS} tokens do not have that length`,
      );
    }
    yield {
      documents: [],
      history: ids.map((id, place) => ({
        key: `block ${String(id)}`,
        tokens: place === ids.length - 1 ? last : BLOCK_TOKENS,
      })),
      question: { key: 'nothing', tokens: 0 },
      answer: { key: `answer ${line.number}`, tokens: fields.count('output_length') },
      arrivalMs: Math.max(0, timestamp - first),
    };
  }
}

interface QuestionRecord {
  readonly question: string;
  readonly answers: readonly string[];
}

/** Reads the first records of NQ-open: `{question, answer: [text, …]}` a line. Errors with line and path. */
async function* readRecords(file: string, records: number): AsyncGenerator<QuestionRecord> {
  let read = 0;
  for await (const line of readLines(file)) {
    if (read++ === records) return;
    const fields = JsonFields.ofLine(line);
    yield { question: fields.text('question'), answers: fields.texts('answer') };
  }
}

/**
 * NQ-open has no passages, so they come from elsewhere: from the corpus of a BEIR folder or, without one, from the
 * records themselves, each question with its answers a passage (as CacheWeaver does, Table 6). BM25 finds `topK`.
 */
async function* nqOpenRequests(
  file: string,
  topK: number,
  { corpus: corpusFolder, records = Number.POSITIVE_INFINITY }: { readonly corpus?: string; readonly records?: number },
): AsyncGenerator<WorkloadRequest> {
  const passages = corpusFolder === undefined ? await recordPassages(file, records) : await readCorpus(corpusFolder);
  const retriever = new Retriever(passages);
  let number = 0;
  for await (const { question } of readRecords(file, records)) {
    const found = retriever.search(question, topK);
    yield singleRequest(
      String(number++),
      question,
      found.map(({ document }) => document),
    );
  }
}

async function recordPassages(file: string, records: number) {
  const passages = [];
  for await (const { question, answers } of readRecords(file, records)) {
    passages.push(indexedPassage({ id: `record_${passages.length}`, title: question, content: answers.join('; ') }));
  }
  return passages;
}

/** Passages that are retrieved for a question unless it is said how many. */
const DEFAULT_TOP_K = 5;

/** How data are read. */
export interface ReadDataOptions {
  /** Default: found in the data themselves (`locateData`). */
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
