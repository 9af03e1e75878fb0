import {
  cacheContentHash,
  type Document,
  type DocumentLimits,
  type PreparedDocuments,
  type TokenCounter,
  textHash,
} from './document.js';
import { WarmpathError, type Warning } from './errors.js';
import { fingerprint } from './fingerprint.js';
import type { TemplateName } from './render/prompt.js';
import { renderDocument } from './render/template.js';
import { estimateTokens } from './token-estimate.js';
import { toEnd, type WorkSteps } from './work-steps.js';

/** The default bounds on what one request may bring. */
export const DEFAULT_DOCUMENT_LIMITS: DocumentLimits = { maxDocuments: 1_000, maxContentLength: 1_000_000 };

/**
 * UTF-16 units of an id; longer ones are refused, because ids are kept for as long as the knowledge tree remembers
 * them.
 */
const MAX_ID_LENGTH = 512;

/** Token counts are summed in 32 bits. */
const MAX_TOKENS = 2 ** 31 - 1;

/** Ids that a model can repeat and that no template has to escape; they serve as labels as they are. */
const SAFE_LABEL = /^[A-Za-z0-9._:-]{1,32}$/;

export interface PrepareDocumentsOptions {
  /** Where the documents stand in the caller's input, for error paths. Default `documents`. */
  readonly path?: string;
  /** Counts the tokens of a rendered document. Default: `estimateTokens`. */
  readonly countTokens?: TokenCounter;
  readonly limits?: Partial<DocumentLimits>;
  /** The template that the document will be rendered with, because its tags count. Default `xml`. */
  readonly template?: TemplateName;
  /** Spares the work on passages that earlier requests brought; the result is the same without one. */
  readonly memo?: DocumentMemo;
}

/**
 * Remembers prepared documents from one request to the next, for a caller that knows a document by the bytes it came
 * in. A document that is recalled is neither read, nor fingerprinted, nor counted again. One memo serves one template
 * and one token counter, and its owner bounds it.
 */
interface DocumentMemo {
  /** What was remembered for the document that came in exactly the bytes of this position. */
  recall(position: number): Document | undefined;
  /** Offers the document of this position: no other document of the request had a say in its id or label. */
  remember(position: number, document: Document): void;
}

/** Documents that are read one by one, when they are needed. */
export interface DocumentList {
  readonly length: number;
  /** The document of this position as JSON gives it. */
  read(position: number): unknown;
  /** What reading it costs, in characters or bytes. */
  size(position: number): number;
}

/**
 * Turns documents from outside into prepared ones, in the same order. `text` may stand for `content`; `null` counts as
 * absent. Without an id, the id is a hash of title and content.
 *
 * Mends and warns: the same document twice is kept once (`WARMPATH_DUPLICATE_DOCUMENT`); another text under a taken id
 * gets an id of its own (`WARMPATH_CONFLICTING_DOCUMENT`). Cost: O(total length).
 *
 * @throws the errors of the table whose code names documents, with a path
 */
export function prepareDocuments(input: unknown, options: PrepareDocumentsOptions = {}): PreparedDocuments {
  if (!Array.isArray(input)) {
    throw new WarmpathError('WARMPATH_INVALID_DOCUMENTS', { path: options.path ?? 'documents' });
  }
  return toEnd(documentSteps({ length: input.length, read: (position) => input[position], size: () => 0 }, options));
}

/**
 * The same, one document a step, for documents that are read when they are needed: those that `memo` knows are not.
 * Same errors, same cost.
 */
export function* documentSteps(
  input: DocumentList,
  options: PrepareDocumentsOptions = {},
): WorkSteps<PreparedDocuments> {
  const path = options.path ?? 'documents';
  const limits = { ...DEFAULT_DOCUMENT_LIMITS, ...options.limits };
  if (input.length > limits.maxDocuments) {
    const detail = `There are more than ${limits.maxDocuments}.`;
    throw new WarmpathError('WARMPATH_TOO_MANY_DOCUMENTS', { path, detail });
  }
  const preparation = new Preparation(options);
  for (let i = 0; i < input.length; i++) {
    if (preparation.recall(i)) continue;
    const checked = readDocument(input.read(i), `${path}[${i}]`, limits);
    const document = preparation.prepare(checked);
    if (document !== undefined) options.memo?.remember(i, document);
    yield input.size(i);
  }
  return { documents: preparation.documents, warnings: preparation.warnings };
}

/** The checked fields of one document. */
interface CheckedDocument {
  readonly path: string;
  readonly id: string | undefined;
  readonly title: string | undefined;
  readonly content: string;
  readonly metadata: Readonly<Record<string, unknown>> | undefined;
  readonly tokens: number | undefined;
}

function readDocument(input: unknown, path: string, limits: DocumentLimits): CheckedDocument {
  if (!isRecord(input)) throw invalid(path, 'A document is an object with a string `content` (or `text`).');
  const field = input['content'] == null && input['text'] != null ? 'text' : 'content';
  const content = input[field];
  if (typeof content !== 'string') throw invalid(`${path}.${field}`, 'The text of a document is a string.');
  const id = optionalString(input['id'], `${path}.id`);
  if (id !== undefined && (id === '' || id.length > MAX_ID_LENGTH)) {
    throw invalid(`${path}.id`, `An id has 1 to ${MAX_ID_LENGTH} characters.`);
  }
  const title = optionalString(input['title'], `${path}.title`);
  if (!/\S/.test(content)) throw new WarmpathError('WARMPATH_EMPTY_DOCUMENT', { path: `${path}.${field}` });
  const length = content.length + (title?.length ?? 0);
  if (length > limits.maxContentLength) {
    const detail = `${length} characters, and the limit is ${limits.maxContentLength}.`;
    throw new WarmpathError('WARMPATH_DOCUMENT_TOO_LARGE', { path: `${path}.${field}`, detail });
  }
  const metadata = input['metadata'] ?? undefined;
  if (metadata !== undefined && !isRecord(metadata)) throw invalid(`${path}.metadata`, 'Metadata is an object.');
  const tokens = input['tokens'] ?? undefined;
  if (tokens !== undefined && !isTokenCount(tokens)) {
    throw invalid(`${path}.tokens`, `A token count is a whole number from 1 to ${MAX_TOKENS}.`);
  }
  return { path, id, title: title === '' ? undefined : title, content, metadata, tokens };
}

/** Collects prepared documents; knows which ids and labels this request has used. */
class Preparation {
  readonly documents: Document[] = [];
  readonly warnings: Warning[] = [];
  readonly #byId = new Map<string, Document>();
  /** Labels that are not their document's own id: few are. */
  readonly #otherLabels = new Set<string>();
  readonly #template: TemplateName;
  readonly #countTokens: TokenCounter;
  readonly #memo: DocumentMemo | undefined;

  constructor(options: PrepareDocumentsOptions) {
    this.#template = options.template ?? 'xml';
    this.#countTokens = options.countTokens ?? estimateTokens;
    this.#memo = options.memo;
  }

  /** Takes over a document that the memo knows, unless this request has used its id or label already. */
  recall(position: number): boolean {
    const known = this.#memo?.recall(position);
    if (known === undefined || this.#byId.has(known.id) || this.#isTaken(known.label)) return false;
    this.#keep(known);
    return true;
  }

  /** @returns the document, if no other one of this request had a say in its id or label. */
  prepare(checked: CheckedDocument): Document | undefined {
    const hash = textHash(checked.title, checked.content);
    const ownId = checked.id ?? hash.slice(0, 12);
    let id = ownId;
    let key = keyOf(id, hash);
    for (let holder = this.#byId.get(id); holder !== undefined; holder = this.#byId.get(id)) {
      if (holder.content === checked.content && holder.title === checked.title) {
        const message = 'The same document appears twice; the first one stands.';
        this.warnings.push({ code: 'WARMPATH_DUPLICATE_DOCUMENT', path: checked.path, message });
        return undefined;
      }
      id = `${id}~${hash.slice(0, 8)}`;
      key = keyOf(id, hash);
    }
    if (id !== ownId) {
      const message = 'Another document of this request has the same id; this one was given an id of its own.';
      this.warnings.push({ code: 'WARMPATH_CONFLICTING_DOCUMENT', path: `${checked.path}.id`, message });
    }
    const document = this.#enter(checked, id, key);
    cacheContentHash(document, hash);
    return document.id === ownId && document.key === key ? document : undefined;
  }

  #enter(checked: CheckedDocument, id: string, usualKey: string): Document {
    const usualLabel = labelOf(id);
    const label = this.#unused(usualLabel, id);
    // A label that had to give way changes what is rendered, so it is part of the identity.
    const key = label === usualLabel ? usualKey : `${usualKey}#${label}`;
    const { title, content, metadata } = checked;
    const tokens = checked.tokens ?? this.#count(renderDocument({ label, title, content }, this.#template));
    const document = { id, key, label, title, content, metadata, tokens };
    this.#keep(document);
    return document;
  }

  #keep(document: Document): void {
    this.#byId.set(document.id, document);
    if (document.label !== document.id) this.#otherLabels.add(document.label);
    this.documents.push(document);
  }

  #isTaken(label: string): boolean {
    return this.#byId.get(label)?.label === label || this.#otherLabels.has(label);
  }

  #count(text: string): number {
    const tokens = this.#countTokens(text);
    return tokens >= 1 && tokens <= MAX_TOKENS ? Math.ceil(tokens) : estimateTokens(text);
  }

  /** Two documents of one request never share a label. */
  #unused(usual: string, id: string): string {
    let label = usual;
    for (let attempt = 1; this.#isTaken(label); attempt++) {
      label = attempt === 1 ? `d${fingerprint([id])}` : `d${fingerprint([id])}-${attempt}`;
    }
    return label;
  }
}

/** What the prompt calls a document: the id itself when it is short and safe, else a short hash of it. */
function labelOf(id: string): string {
  return SAFE_LABEL.test(id) ? id : `d${fingerprint([id]).slice(0, 8)}`;
}

/** `join` writes one flat string; a template would leave a tree of pieces, which costs twice the time to hash. */
function keyOf(id: string, hash: string): string {
  return [id, hash].join('#');
}

function optionalString(value: unknown, path: string): string | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value !== 'string')
    throw invalid(path, `A string was expected, not ${Array.isArray(value) ? 'an array' : typeof value}.`);
  return value;
}

function invalid(path: string, detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_INVALID_DOCUMENT', { path, detail });
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isTokenCount(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 1 && (value as number) <= MAX_TOKENS;
}
