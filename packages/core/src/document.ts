import type { Warning } from './errors.js';
import { fingerprint } from './fingerprint.js';

/** A document as a caller hands it over: one passage of retrieved text. */
export interface DocumentInput {
  /** Stable id of the passage. Without one, the id is a hash of title and content. */
  readonly id?: string;
  readonly title?: string;
  readonly content: string;
  readonly metadata?: Readonly<Record<string, unknown>>;
  /** Tokens of the rendered document, when the caller knows; otherwise counted by the `TokenCounter`. */
  readonly tokens?: number;
}

/** A document after preparation: every field that later stages read, computed once. */
export interface Document {
  readonly id: string;
  /**
   * Identity in the knowledge tree: id and a fingerprint of what is rendered. A document whose text changed under
   * the same id is another document, because its old KV is of no use to the engine.
   */
  readonly key: string;
  /**
   * What the prompt calls it. Derives from the id alone, never from the position, or moving it would change its tokens.
   */
  readonly label: string;
  readonly title: string | undefined;
  readonly content: string;
  readonly metadata: Readonly<Record<string, unknown>> | undefined;
  /** Tokens of the rendered document. */
  readonly tokens: number;
  /** The document as it was supplied, where parts of its content are references here (`ArrangeRequest.shown`). */
  readonly whole?: Document;
}

/** A document whose full text stands elsewhere in the conversation. */
export interface DocumentReference {
  /** Under the label and title that it was sent with. */
  readonly document: Document;
  /** Retrieval rank among all documents of the request. */
  readonly rank: number;
}

/** Counts the tokens of a text for one model. Must be deterministic. */
export type TokenCounter = (text: string) => number;

/** Bounds on what one request may bring. */
export interface DocumentLimits {
  /** Documents a request may hold. Default 1,000. */
  readonly maxDocuments: number;
  /** UTF-16 units of one document's content. Default 1,000,000. */
  readonly maxContentLength: number;
}

/** Prepared documents in retrieval order, and what was mended on the way. */
export interface PreparedDocuments {
  readonly documents: readonly Document[];
  readonly warnings: readonly Warning[];
}

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
