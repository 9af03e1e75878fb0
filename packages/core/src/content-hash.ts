import type { Document } from './document.js';
import { fingerprint } from './fingerprint.js';

/** Hashes of documents that were asked for before: callers keep passages that come again. */
const hashes = new WeakMap<object, string>();

/**
 * Hash of what a document says: title and content. The same text under two ids is the same text. O(length), once for
 * each object.
 */
export function contentHash(document: Pick<Document, 'title' | 'content'>): string {
  const known = hashes.get(document);
  if (known !== undefined) return known;
  const hash = textHash(document.title, document.content);
  hashes.set(document, hash);
  return hash;
}

/** The same of a text that is no document yet. O(length). */
export function textHash(title: string | undefined, content: string): string {
  return fingerprint([title ?? '', content]);
}

/** Stores what `contentHash` would compute for this document. */
export function cacheContentHash(document: Document, hash: string): void {
  hashes.set(document, hash);
}
