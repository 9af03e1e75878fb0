import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { WarmpathError } from '@warmpath/core';
import { readQueries } from './beir.js';
import { isObject } from './json-fields.js';
import { readLines } from './lines.js';

/**
 * Layouts of data that can be run:
 *
 * - `beir`: a BEIR folder, BM25 finds the passages; `beir-contexts`: the same, each query brings its own
 *   (`metadata.context`);
 * - `mtrag`: conversations of MTRAG, BM25 finds the passages of every turn; `mtrag-contexts`: each task with its own;
 * - `nq-open`: questions with answers; `mooncake`: recorded prefixes; `log`: a log of requests; `trace`: document ids
 *   as JSON.
 */
export const DATA_FORMATS = [
  'beir',
  'beir-contexts',
  'mtrag',
  'mtrag-contexts',
  'nq-open',
  'mooncake',
  'log',
  'trace',
] as const;

export type DataFormat = (typeof DATA_FORMATS)[number];

/** Where the data are and how they are laid out. */
export interface LocatedData {
  /** The folder of a BEIR data set, and the file of any other. */
  readonly path: string;
  readonly format: DataFormat;
}

/**
 * Finds out what a path holds: a folder with `corpus.jsonl` and `queries.jsonl` is BEIR, one with a single `.jsonl`
 * file stands for that file, and a file is known by the fields of its first line. Error: `WARMPATH_USAGE` at `data`
 * if it cannot be read, `WARMPATH_INVALID_REQUEST` if no layout fits.
 */
export async function locateData(path: string, forced?: DataFormat): Promise<LocatedData> {
  const names = await namesIn(path);
  if (names === undefined) return { path, format: forced ?? (await formatOfFile(path)) };
  if (names.includes('corpus.jsonl') && names.includes('queries.jsonl')) {
    return { path, format: forced ?? (await formatOfBeir(path)) };
  }
  const files = names.filter((name) => name.endsWith('.jsonl'));
  if (files.length !== 1) {
    throw unknownLayout(path, 'a folder has corpus.jsonl and queries.jsonl, or a single .jsonl file');
  }
  const file = join(path, files[0]!);
  return { path: file, format: forced ?? (await formatOfFile(file)) };
}

/** Names in a folder; undefined for a file. */
async function namesIn(path: string): Promise<readonly string[] | undefined> {
  try {
    return (await stat(path)).isDirectory() ? (await readdir(path)).sort() : undefined;
  } catch (cause) {
    throw new WarmpathError('WARMPATH_USAGE', { path: 'data', detail: `cannot read ${path}`, cause });
  }
}

async function formatOfBeir(folder: string): Promise<DataFormat> {
  for await (const { context } of readQueries(folder)) return context === undefined ? 'beir' : 'beir-contexts';
  return 'beir';
}

async function formatOfFile(file: string): Promise<DataFormat> {
  for await (const { text } of readLines(file)) {
    // A trace may be written over many lines, so its first one need not be JSON.
    const fields = parse(text);
    if (!isObject(fields)) return 'trace';
    if ('hash_ids' in fields) return 'mooncake';
    if ('conversation_id' in fields) return 'mtrag';
    if ('documents' in fields) return 'log';
    if ('question' in fields) return 'nq-open';
    if ('requests' in fields) return 'trace';
    throw unknownLayout(file, `its first line has the fields ${Object.keys(fields).slice(0, 8).join(', ')}`);
  }
  throw unknownLayout(file, 'it is empty');
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function unknownLayout(path: string, why: string): WarmpathError {
  const detail = `${path} has no layout that is known: ${why}. Known are ${DATA_FORMATS.join(', ')}.`;
  return new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'data', detail });
}
