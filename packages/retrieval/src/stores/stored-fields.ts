import type { ScoredDocument, SearchOptions } from '../staged-retriever.js';
import { matchesWhere } from '../where.js';

/** How a database compares vectors. `l2`: by their distance. */
export type Metric = 'cosine' | 'dot' | 'l2';

/** Where a database's records have what makes a passage. Names of fields, in `metadata` too. */
export interface StoredFields {
  /** The record's own id by default. */
  readonly id?: string;
  /** `content` by default. */
  readonly content?: string;
  /** `title` by default. */
  readonly title?: string;
  /** A field that holds an object; all that is left by default. */
  readonly metadata?: string;
}

/** A passage from a record; `undefined` where the record has no text. O(fields). */
export function documentFrom(
  recordId: unknown,
  record: Readonly<Record<string, unknown>>,
  score: number,
  fields: StoredFields,
): ScoredDocument | undefined {
  const {
    id: idField,
    content: contentField = 'content',
    title: titleField = 'title',
    metadata: metadataField,
  } = fields;
  const { [contentField]: content, [titleField]: title, ...others } = record;
  const rest: Record<string, unknown> = others;
  if (typeof content !== 'string' || !Number.isFinite(score)) return undefined;
  const id = idField === undefined ? recordId : record[idField];
  if (idField !== undefined) delete rest[idField];
  const metadata = metadataField === undefined ? rest : record[metadataField];
  return {
    id: String(id),
    content,
    ...(typeof title === 'string' && { title }),
    ...(typeof metadata === 'object' &&
      metadata !== null &&
      Object.keys(metadata).length > 0 && { metadata: metadata as Record<string, unknown> }),
    score,
  };
}

/** Best first, each id once, at most `k`, as `where` says: what a stage holds, whatever the database sent. */
export function rankedDocuments(
  found: readonly (ScoredDocument | undefined)[],
  { k, where = {} }: Pick<SearchOptions, 'k' | 'where'>,
): ScoredDocument[] {
  const unique = new Map<string, ScoredDocument>();
  for (const document of found) {
    if (document === undefined || unique.has(document.id) || !matchesWhere(where, document.metadata)) continue;
    unique.set(document.id, document);
  }
  return [...unique.values()].sort((a, b) => b.score - a.score).slice(0, k);
}

/** A field of the metadata by the name that the database has it under. */
export function storedName(field: string, { metadata }: StoredFields): string {
  return metadata === undefined ? field : `${metadata}.${field}`;
}
