import type { Warning } from './errors.js';
import { fingerprint } from './fingerprint.js';

/**
 * A document from a caller, in its own library's form: a text alone, `content`, LangChain's `pageContent`, Cohere's
 * `{id, data}`, LlamaIndex's `{node}`, a reranker's `{document}`. See `readRawDocument`.
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

/** Names of a document's text, in order of preference. */
const TEXT_NAMES = ['content', 'text', 'pageContent', 'page_content', 'snippet'] as const;
/** Names of a document's id, in order of preference. */
const ID_NAMES = ['id', '_id', 'id_'] as const;
export const DOCUMENT_ID_FIELDS: ReadonlySet<string> = new Set(ID_NAMES);
/** Fields that hold the document itself (Cohere, LlamaIndex, rerankers). Read where no text stands beside them. */
export const NESTED_DOCUMENT_FIELDS: ReadonlySet<string> = new Set(['data', 'node', 'document']);
/** All fields of a document that are read, apart from nested ones. */
export const DOCUMENT_FIELDS: ReadonlySet<string> = new Set([
  ...ID_NAMES,
  ...TEXT_NAMES,
  'title',
  'metadata',
  'tokens',
]);

const quoted = (names: Iterable<string>) => [...names].map((name) => `\`${name}\``);
const listed = (names: readonly string[]) => `${names.slice(0, -1).join(', ')} or ${names.at(-1)!}`;

/** Where the text of a document may stand, for descriptions and error messages. */
export const TEXT_PLACES = `under ${listed(quoted(TEXT_NAMES))}, or in an object under ${listed(
  quoted(NESTED_DOCUMENT_FIELDS),
)}`;

/** A value of a document, unchecked. */
export interface RawField {
  readonly value: unknown;
  /** Path below the document, for errors: `.node.text`. Empty for a document that is a string. */
  readonly path: string;
}

/** The fields of a document under Warmpath's names. `null` or `undefined` where absent. */
export interface RawDocument {
  /** A numeric id is a string here. */
  readonly id: RawField;
  readonly title: RawField;
  /** `null` where a field for the text is there and holds none; `undefined` where there is no such field. */
  readonly content: RawField;
  readonly metadata: RawField;
  readonly tokens: RawField;
}

/**
 * Reads a document in the forms of common libraries: a string; `content`, `text`, LangChain's `pageContent` or
 * `page_content`, Cohere's `{id, data}`, LlamaIndex's `{node}`, a reranker's `{document}`. Checks nothing.
 *
 * @returns `undefined` for what is neither a string nor an object
 */
export function readRawDocument(input: unknown): RawDocument | undefined {
  if (typeof input === 'string') return { ...readFields({}, ''), content: { value: input, path: '' } };
  if (!isRecord(input)) return undefined;
  const outer = readFields(input, '');
  if (hasText(outer.content)) return outer;
  const nested = [...NESTED_DOCUMENT_FIELDS]
    .map((name) => readNested(input[name], `.${name}`))
    .filter((fields) => fields !== undefined);
  const inner =
    nested.find(({ content }) => hasText(content)) ??
    (outer.content.value === undefined ? nested.find(({ content }) => content.value !== undefined) : undefined);
  if (inner === undefined) return outer;
  const prefer = (field: keyof RawDocument) => (outer[field].value == null ? inner[field] : outer[field]);
  return {
    id: prefer('id'),
    title: prefer('title'),
    content: inner.content,
    metadata: prefer('metadata'),
    tokens: prefer('tokens'),
  };
}

/** Whether a text has nothing but white space. */
export function isBlank(text: string): boolean {
  return !/\S/.test(text);
}

export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function readNested(value: unknown, path: string): RawDocument | undefined {
  if (typeof value === 'string') return { ...readFields({}, path), content: { value, path } };
  return isRecord(value) ? readFields(value, path) : undefined;
}

function readFields(input: Readonly<Record<string, unknown>>, before: string): RawDocument {
  const field = (name: string): RawField => ({ value: input[name], path: `${before}.${name}` });
  const id = ID_NAMES.map(field).find(({ value }) => value != null) ?? field('id');
  return {
    id: isNumeric(id.value) ? { ...id, value: String(id.value) } : id,
    title: field('title'),
    content: readText(TEXT_NAMES.filter((name) => name in input).map(field)) ?? {
      value: undefined,
      path: `${before}.content`,
    },
    metadata: field('metadata'),
    tokens: field('tokens'),
  };
}

/** The first field with a text; else the first with a value; else `null` where there is any field. */
function readText(fields: readonly RawField[]): RawField | undefined {
  const [first] = fields;
  return (
    fields.find(hasText) ?? fields.find(({ value }) => value != null) ?? (first && { value: null, path: first.path })
  );
}

function isNumeric(value: unknown): value is number | bigint {
  return typeof value === 'bigint' || Number.isFinite(value);
}

function hasText({ value }: RawField): boolean {
  return value != null && !(typeof value === 'string' && isBlank(value));
}
