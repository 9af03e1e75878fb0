import type { Warning } from './errors.js';
import { fingerprint } from './fingerprint.js';

/**
 * A document from a caller, in its own library's form: a text alone, `content`, LangChain's `pageContent`, Cohere's
 * `{id, data}`, LlamaIndex's `{node}`, a reranker's `{document}`. `readRawDocument` has all names.
 */
export type DocumentInput = string | PlainDocument | object;

/** A document with Warmpath's own field names. */
interface PlainDocument {
  /** Stable id of the passage. Without one, the id is a hash of title and content. */
  readonly id?: string;
  readonly title?: string;
  readonly content: string;
  readonly metadata?: Readonly<Record<string, unknown>>;
  /** Tokens of the rendered document. Default: counted by the `TokenCounter`. */
  readonly tokens?: number;
}

/** A prepared document: every field that later stages read, computed once. */
export interface Document {
  readonly id: string;
  /**
   * Identity in the knowledge tree: the id and a hash of the rendered fields. Another text under the same id is another
   * document.
   */
  readonly key: string;
  /**
   * The name of the document in the prompt. Follows from the id, never from the position, so moving a document does not
   * change its tokens.
   */
  readonly label: string;
  readonly title: string | undefined;
  readonly content: string;
  readonly metadata: Readonly<Record<string, unknown>> | undefined;
  /** Tokens of the rendered document. */
  readonly tokens: number;
  /** The full document, if parts of its content are references here (`ArrangeRequest.shown`). */
  readonly whole?: Document;
}

/** A document whose full text is elsewhere in the conversation. */
export interface DocumentReference {
  /** With the label and title that it was sent with. */
  readonly document: Document;
  /** Retrieval rank among all documents of the request. */
  readonly rank: number;
}

/** Counts the tokens of a text for one model. Must be deterministic. */
export type TokenCounter = (text: string) => number;

/** Limits of one request. */
export interface DocumentLimits {
  /** Documents a request may hold. Default 1,000. */
  readonly maxDocuments: number;
  /** UTF-16 units of one document's content. Default 1,000,000. */
  readonly maxContentLength: number;
}

/** Prepared documents in retrieval order, and warnings about changes. */
export interface PreparedDocuments {
  readonly documents: readonly Document[];
  /** `sources[rank]` is the position of that document in the caller's list. */
  readonly sources: readonly number[];
  readonly warnings: readonly Warning[];
  /** Ids of documents that were left out because they have no text. */
  readonly emptyIds: ReadonlySet<string>;
}

/** Content hashes by document object. */
const hashes = new WeakMap<object, string>();

/** Hash of title and content. Does not depend on the id. O(length), once for each object. */
export function contentHash(document: Pick<Document, 'title' | 'content'>): string {
  const known = hashes.get(document);
  if (known !== undefined) return known;
  const hash = textHash(document.title, document.content);
  hashes.set(document, hash);
  return hash;
}

/** Hash of title and content. O(length). */
export function textHash(title: string | undefined, content: string): string {
  return fingerprint([title ?? '', content]);
}

/** Stores the result of `contentHash` for a document. */
export function cacheContentHash(document: Document, hash: string): void {
  hashes.set(document, hash);
}
