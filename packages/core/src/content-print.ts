import type { Document } from './document.js';
import { fingerprint } from './fingerprint.js';

/** Prints of documents that were asked for before: callers keep passages that come again. */
const prints = new WeakMap<object, string>();

/**
 * Print of what a document says: title and content. The same text under two ids is the same text. O(length), once for
 * each object.
 */
export function contentPrint(document: Pick<Document, 'title' | 'content'>): string {
  const known = prints.get(document);
  if (known !== undefined) return known;
  const print = textPrint(document.title, document.content);
  prints.set(document, print);
  return print;
}

/** The same of a text that is no document yet. O(length). */
export function textPrint(title: string | undefined, content: string): string {
  return fingerprint([title ?? '', content]);
}

/** Stores what `contentPrint` would compute for this document. */
export function cacheContentHash(document: Document, hash: string): void {
  prints.set(document, hash);
}
