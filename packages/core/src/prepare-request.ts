import type { ArrangeRequest } from './arrangement.js';
import {
  cacheContentHash,
  type Document,
  type DocumentLimits,
  isBlank,
  isRecord,
  type PreparedDocuments,
  type RawField,
  readRawDocument,
  TEXT_PLACES,
  type TokenCounter,
  textHash,
} from './document.js';
import { WarmpathError, type Warning } from './errors.js';
import { fingerprint } from './fingerprint.js';
import { nearestName } from './nearest-name.js';
import { readMaxShift, readShiftPrice } from './ordering/placement.js';
import { POLICY_NAMES, type PolicyName } from './ordering/policy.js';
import type { TemplateName } from './render/prompt.js';
import { renderDocument } from './render/template.js';
import { estimateTokens } from './token-estimate.js';

export interface PrepareRequestOptions extends PrepareDocumentsOptions {
  /** Path of the ordering options in the caller's input, for errors. Default: none. */
  readonly switchesPath?: string | undefined;
}

/**
 * Checks an arrange request from outside and prepares its documents. `null` counts as absent; unknown fields are
 * ignored.
 *
 * @throws the errors of `prepareDocuments`; `WARMPATH_INVALID_REQUEST` for a wrong type; `WARMPATH_UNKNOWN_POLICY`,
 * `WARMPATH_INVALID_MAX_SHIFT`, `WARMPATH_INVALID_SHIFT_PRICE`, `WARMPATH_INVALID_PIN`
 */
export function prepareRequest(raw: unknown, options: PrepareRequestOptions = {}): ArrangeRequest {
  if (!isRecord(raw)) {
    throw new WarmpathError('WARMPATH_INVALID_REQUEST', { detail: 'An object with `documents` was expected.' });
  }
  return withSwitches(prepareDocuments(raw['documents'], options), raw, options);
}

/**
 * The same as `prepareRequest`, one document a step. `switches`: policy, maxShift, shiftPrice, pin and hints,
 * unchecked.
 */
export function* requestSteps(
  documents: DocumentList,
  switches: Readonly<Record<string, unknown>>,
  options: PrepareRequestOptions = {},
): WorkSteps<ArrangeRequest> {
  return withSwitches(yield* documentSteps(documents, options), switches, options);
}

function withSwitches(
  { documents, sources, warnings, emptyIds }: PreparedDocuments,
  input: Readonly<Record<string, unknown>>,
  options: PrepareRequestOptions,
): ArrangeRequest {
  const pathOf = (field: string) => (options.switchesPath === undefined ? field : `${options.switchesPath}.${field}`);
  const switches = {
    policy: readPolicy(input['policy'], pathOf('policy')),
    maxShift: readMaxShift(input['maxShift'], pathOf('maxShift')),
    shiftPrice: readShiftPrice(input['shiftPrice'], pathOf('shiftPrice')),
    pin: readPin(input['pin'], { documents, emptyIds }, pathOf('pin')),
    hints: readHints(input['hints'], pathOf('hints')),
  };
  // An absent field stays absent, because callers spread this over their own defaults.
  const given = Object.entries(switches).filter(([, value]) => value !== undefined);
  return { documents, sources, warnings, ...Object.fromEntries(given) };
}

/** Checks a policy's name. Error: `WARMPATH_UNKNOWN_POLICY`, which names the nearest known policy. */
export function readPolicyName(name: unknown, path = 'policy'): PolicyName {
  const known = POLICY_NAMES.find((candidate) => candidate === name);
  if (known !== undefined) return known;
  const nearest = typeof name === 'string' ? nearestName(name, POLICY_NAMES) : undefined;
  throw new WarmpathError('WARMPATH_UNKNOWN_POLICY', {
    path,
    ...(nearest !== undefined && { detail: `There is no ordering policy of that name; did you mean \`${nearest}\`?` }),
  });
}

function readPolicy(value: unknown, path: string): PolicyName | undefined {
  return value === undefined || value === null ? undefined : readPolicyName(value, path);
}

/** The ids of pinned documents. Ids of documents without text are left out, as their documents are. */
function readPin(
  value: unknown,
  { documents, emptyIds }: Pick<PreparedDocuments, 'documents' | 'emptyIds'>,
  path: string,
): readonly string[] | undefined {
  if (value === undefined || value === null) return undefined;
  if (!Array.isArray(value)) throw new WarmpathError('WARMPATH_INVALID_PIN', { path });
  const given = new Set(documents.map((document) => document.id));
  const pinned = new Set<string>();
  for (const [place, pin] of (value as readonly unknown[]).entries()) {
    const id = typeof pin === 'number' ? String(pin) : pin;
    if (typeof id === 'string' && given.has(id)) pinned.add(id);
    else if (typeof id !== 'string' || !emptyIds.has(id)) {
      throw new WarmpathError('WARMPATH_INVALID_PIN', { path: `${path}[${place}]` });
    }
  }
  return [...pinned];
}

function readHints(value: unknown, path: string): boolean | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value === 'boolean') return value;
  throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path, detail: '`hints` is true or false.' });
}

/** Work in steps. The caller may pause between steps; each step yields the characters or bytes that it processed. */
export type WorkSteps<Result> = Generator<number, Result, void>;

/** Runs all steps. */
function toEnd<Result>(steps: WorkSteps<Result>): Result {
  for (;;) {
    const { done, value } = steps.next();
    if (done === true) return value;
  }
}

/** Default limits of one request. */
export const DEFAULT_DOCUMENT_LIMITS: DocumentLimits = { maxDocuments: 1_000, maxContentLength: 1_000_000 };

/** UTF-16 units of an id. Ids are kept in the knowledge tree. */
const MAX_ID_LENGTH = 512;

/** Token counts are summed in 32 bits. */
const MAX_TOKENS = 2 ** 31 - 1;

/** Ids that serve as labels: a model can repeat them, and no template has to escape them. */
const SAFE_LABEL = /^[A-Za-z0-9._:-]{1,32}$/;

export interface PrepareDocumentsOptions {
  /** Path of the documents in the caller's input, for errors. Default `documents`. */
  readonly path?: string;
  /** Counts the tokens of a rendered document. Default: `estimateTokens`. */
  readonly countTokens?: TokenCounter;
  readonly limits?: Partial<DocumentLimits>;
  /** The template that the documents will be rendered with: its tags count as tokens. Default `xml`. */
  readonly template?: TemplateName;
  /** Documents prepared for earlier requests. Changes the cost, not the result. */
  readonly memo?: DocumentMemo;
}

/**
 * Remembers prepared documents from one request to the next, for a caller that identifies a document by its bytes. One
 * memo serves one template and one token counter. Its owner bounds it.
 */
interface DocumentMemo {
  /** The document remembered for exactly the bytes at this position. */
  recall(position: number): Document | undefined;
  /** Called with the document at this position, if no other document of the request influenced its id or label. */
  remember(position: number, document: Document): void;
}

/** Documents that are read one by one. */
export interface DocumentList {
  readonly length: number;
  /** The parsed JSON of the document at this position. */
  read(position: number): unknown;
  /** Characters or bytes that reading it takes. */
  size(position: number): number;
}

/**
 * Checks documents from outside and prepares them, in the same order. Reads all forms of `DocumentInput`; `null` counts
 * as absent. Without an id, the id is a hash of title and content.
 *
 * Warns where it changes something: a document without text is left out (`WARMPATH_EMPTY_DOCUMENT`); one that comes
 * twice is kept once (`WARMPATH_DUPLICATE_DOCUMENT`); another text under a used id gets a new id
 * (`WARMPATH_CONFLICTING_DOCUMENT`). Cost: O(total length).
 *
 * @throws the errors of the table whose code names documents, with a path
 */
export function prepareDocuments(input: unknown, options: PrepareDocumentsOptions = {}): PreparedDocuments {
  if (!Array.isArray(input)) {
    throw new WarmpathError('WARMPATH_INVALID_DOCUMENTS', { path: options.path ?? 'documents' });
  }
  return toEnd(documentSteps({ length: input.length, read: (position) => input[position], size: () => 0 }, options));
}

/** The same as `prepareDocuments`, one document a step. Documents that `memo` knows are not read. */
function* documentSteps(input: DocumentList, options: PrepareDocumentsOptions = {}): WorkSteps<PreparedDocuments> {
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
    const document = preparation.prepare(checked, i);
    if (document !== undefined) options.memo?.remember(i, document);
    yield input.size(i);
  }
  return preparation;
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

/** Checks one document. One without text is returned before its other fields are checked. */
function readDocument(input: unknown, path: string, limits: DocumentLimits): CheckedDocument {
  const raw = readRawDocument(input);
  const content = raw?.content.value;
  if (raw === undefined || (typeof content !== 'string' && content !== null)) {
    throw invalid(
      `${path}${raw?.content.path ?? ''}`,
      `A document is a string, or an object with a text ${TEXT_PLACES}.`,
    );
  }
  if (content === null || isBlank(content)) {
    const id = typeof raw.id.value === 'string' ? raw.id.value : undefined;
    return {
      path: `${path}${raw.content.path}`,
      id,
      title: undefined,
      content: '',
      metadata: undefined,
      tokens: undefined,
    };
  }
  const id = optionalString(raw.id, path);
  if (id !== undefined && (id === '' || id.length > MAX_ID_LENGTH)) {
    throw invalid(`${path}${raw.id.path}`, `An id has 1 to ${MAX_ID_LENGTH} characters.`);
  }
  const title = optionalString(raw.title, path);
  const length = content.length + (title?.length ?? 0);
  if (length > limits.maxContentLength) {
    const detail = `${length} characters, and the limit is ${limits.maxContentLength}.`;
    throw new WarmpathError('WARMPATH_DOCUMENT_TOO_LARGE', { path: `${path}${raw.content.path}`, detail });
  }
  const metadata = raw.metadata.value ?? undefined;
  if (metadata !== undefined && !isRecord(metadata)) {
    throw invalid(`${path}${raw.metadata.path}`, 'Metadata is an object.');
  }
  const tokens = raw.tokens.value ?? undefined;
  if (tokens !== undefined && !isTokenCount(tokens)) {
    throw invalid(`${path}${raw.tokens.path}`, `A token count is a whole number from 1 to ${MAX_TOKENS}.`);
  }
  return { path, id, title: title === '' ? undefined : title, content, metadata, tokens };
}

/** The prepared documents of one request, with the ids and labels that are used. */
class Preparation implements PreparedDocuments {
  readonly documents: Document[] = [];
  readonly sources: number[] = [];
  readonly warnings: Warning[] = [];
  readonly emptyIds = new Set<string>();
  readonly #byId = new Map<string, Document>();
  /** Labels that differ from the id of their document. */
  readonly #otherLabels = new Set<string>();
  readonly #template: TemplateName;
  readonly #countTokens: TokenCounter;
  readonly #memo: DocumentMemo | undefined;

  constructor(options: PrepareDocumentsOptions) {
    this.#template = options.template ?? 'xml';
    this.#countTokens = options.countTokens ?? estimateTokens;
    this.#memo = options.memo;
  }

  /** Adds the document that the memo knows, unless this request already uses its id or label. */
  recall(position: number): boolean {
    const known = this.#memo?.recall(position);
    if (known === undefined || this.#byId.has(known.id) || this.#isTaken(known.label)) return false;
    this.#keep(known, position);
    return true;
  }

  /** @returns the document, if no other one of this request influenced its id or label. */
  prepare(checked: CheckedDocument, position: number): Document | undefined {
    if (checked.content === '') {
      const message = 'The document has no text. It was left out.';
      this.warnings.push({ code: 'WARMPATH_EMPTY_DOCUMENT', path: checked.path, message });
      if (checked.id !== undefined) this.emptyIds.add(checked.id);
      return undefined;
    }
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
    const document = this.#enter(checked, { id, usualKey: key, position });
    cacheContentHash(document, hash);
    return document.id === ownId && document.key === key ? document : undefined;
  }

  #enter(
    checked: CheckedDocument,
    { id, usualKey, position }: { readonly id: string; readonly usualKey: string; readonly position: number },
  ): Document {
    const usualLabel = labelOf(id);
    const label = this.#unused(usualLabel, id);
    // An unusual label changes the rendered text, so it is part of the identity.
    const key = label === usualLabel ? usualKey : `${usualKey}#${label}`;
    const { title, content, metadata } = checked;
    const tokens = checked.tokens ?? this.#count(renderDocument({ label, title, content }, this.#template));
    const document = { id, key, label, title, content, metadata, tokens };
    this.#keep(document, position);
    return document;
  }

  #keep(document: Document, position: number): void {
    this.#byId.set(document.id, document);
    if (document.label !== document.id) this.#otherLabels.add(document.label);
    this.documents.push(document);
    this.sources.push(position);
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

/** The label of a document: its id if that is short and safe, else a short hash of the id. */
function labelOf(id: string): string {
  return SAFE_LABEL.test(id) ? id : `d${fingerprint([id]).slice(0, 8)}`;
}

function keyOf(id: string, hash: string): string {
  return `${id}#${hash}`;
}

function optionalString({ value, path }: RawField, before: string): string | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value !== 'string')
    throw invalid(
      `${before}${path}`,
      `A string was expected, not ${Array.isArray(value) ? 'an array' : typeof value}.`,
    );
  return value;
}

function invalid(path: string, detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_INVALID_DOCUMENT', { path, detail });
}

function isTokenCount(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 1 && (value as number) <= MAX_TOKENS;
}
