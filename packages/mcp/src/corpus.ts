import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { WarmpathError } from '@warmpath/core';
import { DEFAULT_DOCUMENT_LIMITS, describeJsonError, isBlank, readRawDocument } from '@warmpath/core/internal';
import MiniSearch from 'minisearch';

/** A document that can be found. */
export interface CorpusDocument {
  readonly id: string;
  readonly title: string | undefined;
  readonly content: string;
}

/**
 * Documents that a server holds, and their BM25 index (MiniSearch, with its own parameters). In memory, never changing.
 */
export class Corpus {
  readonly #documents: ReadonlyMap<string, CorpusDocument>;
  readonly #index: MiniSearch<CorpusDocument>;

  /** Error: `WARMPATH_INVALID_DOCUMENT` for an id that two of them have. Cost: O(total length). */
  constructor(documents: readonly CorpusDocument[]) {
    this.#documents = new Map(documents.map((document) => [document.id, document]));
    if (this.#documents.size < documents.length) {
      throw new WarmpathError('WARMPATH_INVALID_DOCUMENT', { path: 'documents', detail: 'Two documents have one id.' });
    }
    this.#index = new MiniSearch<CorpusDocument>({ fields: ['title', 'content'], idField: 'id' });
    this.#index.addAll(documents);
  }

  get size(): number {
    return this.#documents.size;
  }

  /** The `k` best documents, best first; fewer when fewer share a word with the question. */
  search(question: string, k: number): readonly CorpusDocument[] {
    const found = this.#index.search(question).slice(0, k);
    return found.map(({ id }) => this.#documents.get(id as string)!);
  }
}

/**
 * Reads documents from a file of JSON lines, each in a form that core reads; without an id, the number of the line is
 * one. Errors: `WARMPATH_INVALID_JSON`, `WARMPATH_INVALID_DOCUMENT`, `WARMPATH_EMPTY_DOCUMENT`,
 * `WARMPATH_DOCUMENT_TOO_LARGE`, each with the line; what reading the file throws.
 */
export async function readCorpus(file: string): Promise<Corpus> {
  const documents: CorpusDocument[] = [];
  let number = 0;
  for await (const line of createInterface({
    input: createReadStream(file, 'utf8'),
    crlfDelay: Number.POSITIVE_INFINITY,
  })) {
    number++;
    if (line.trim() !== '') documents.push(readLine(line, `${file}:${number}`, String(number)));
  }
  return new Corpus(documents);
}

function readLine(line: string, path: string, number: string): CorpusDocument {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch (cause) {
    throw new WarmpathError('WARMPATH_INVALID_JSON', { path, detail: describeJsonError(line), cause });
  }
  const raw = readRawDocument(value);
  const id = raw?.id.value ?? number;
  const title = raw?.title.value ?? undefined;
  const text = raw?.content.value;
  if (text === null) throw new WarmpathError('WARMPATH_EMPTY_DOCUMENT', { path });
  if (typeof text !== 'string' || typeof id !== 'string' || (title !== undefined && typeof title !== 'string')) {
    throw new WarmpathError('WARMPATH_INVALID_DOCUMENT', { path });
  }
  if (isBlank(text)) throw new WarmpathError('WARMPATH_EMPTY_DOCUMENT', { path });
  if (text.length > DEFAULT_DOCUMENT_LIMITS.maxContentLength)
    throw new WarmpathError('WARMPATH_DOCUMENT_TOO_LARGE', { path });
  return { id, title, content: text };
}
