import { join } from 'node:path';
import { type Document, estimateTokens, renderDocument, WarmpathError } from '@warmpath/core';
import { labDocument } from '../workloads/workload.js';
import { invalid, JsonFields } from './json-fields.js';
import { readLines } from './lines.js';
import type { Passage } from './retriever.js';

/** Passages of one corpus: an index over them stands in memory, some kilobytes a passage. */
const MAX_PASSAGES = 200_000;

/** A passage and the document that the simulator serves for it. */
export interface IndexedPassage extends Passage {
  readonly document: Document;
}

/** The passage as a document without text: identity, and the length that it has when rendered. O(length). */
export function indexedPassage(passage: Passage): IndexedPassage {
  const { id, title, content } = passage;
  const rendered = renderDocument({ label: id, title: title === '' ? undefined : title, content }, 'xml');
  return { ...passage, document: labDocument(id, estimateTokens(rendered)) };
}

/**
 * Reads the `corpus.jsonl` of a BEIR folder: `{_id, title?, text}` a line. Error: `WARMPATH_INVALID_REQUEST` with line
 * and path, for an id that is taken too; those of `readLines`. At most 200,000 passages.
 */
export async function readCorpus(folder: string): Promise<readonly IndexedPassage[]> {
  const passages = new Map<string, IndexedPassage>();
  for await (const line of readLines(join(folder, 'corpus.jsonl'))) {
    const fields = JsonFields.ofLine(line, 'corpus.jsonl');
    const id = fields.text('_id');
    if (passages.has(id)) throw invalid(fields.pathOf('_id'), `the id ${JSON.stringify(id)} is taken already`);
    if (passages.size === MAX_PASSAGES) throw tooManyPassages();
    passages.set(id, indexedPassage({ id, title: fields.optionalText('title') ?? '', content: fields.text('text') }));
  }
  return [...passages.values()];
}

/** A corpus larger than what can be indexed. */
function tooManyPassages(): WarmpathError {
  const detail = `At most ${MAX_PASSAGES} passages are indexed.`;
  return new WarmpathError('WARMPATH_TOO_MANY_DOCUMENTS', { path: 'data', detail });
}
