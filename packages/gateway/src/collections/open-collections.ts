import { WarmpathError, type Warning } from '@warmpath/core';
import { ERROR_TABLE, SpeculationGate } from '@warmpath/core/internal';
import type { CollectionStatus } from '@warmpath/dashboard';
import type {
  Collection,
  Collections,
  CutDocument,
  DocumentFile,
  DocumentText,
  FileDocument,
  SearchableCollection,
  SearchOptions,
  Stage,
} from '@warmpath/retrieval';
import type { FastifyRequest } from 'fastify';
import type { GatewayConfig } from '../config/schema.js';
import { identifiesTenants, isLoopback } from '../config/schema-server.js';
import type { Caller } from '../intake/authenticate.js';
import { invalid } from '../json/json-body.js';
import type { Log } from '../observe/log.js';
import type { ClientWarnings } from '../shapes/shapes.js';

type Settings = NonNullable<GatewayConfig['collections']>;

/** The tenant of whoever the gateway cannot tell from others, and of `warmpath ingest` without `--tenant`. */
const DEFAULT_TENANT = 'default';
/** Collections of which it is known what their searches were like. */
const MOST_SEARCHED = 1_024;
/** Collections that are opened for a list of all. */
const MOST_LISTED = 64;
/** Collections of one tenant that can be made over HTTP. */
const MOST_COLLECTIONS = 100;
/** The n-th stage by which a caller may end a search at most. No search has as many. */
export const MOST_STAGES = 32;
const MAX_COLLECTION_BYTES = 10_737_418_240;

/** Bounds that no key sets. */
interface OpenOptions {
  readonly memoryBytes: number;
  readonly wastedShare: number | undefined;
  readonly maxBytes?: number | undefined;
}

const NONE: readonly never[] = [];

/** Who asks, as the log has it. */
export type Asker = Pick<FastifyRequest, 'exchange'>;

/** What a collection was asked for. */
interface Operation {
  readonly tenant: string;
  readonly name: string;
  readonly kind: 'search' | 'write' | 'list';
}

/** Where a failure stands that ended the whole operation, beside the parts that others went without. */
const WHOLE = '';

/** What is known of the searches of a collection. */
interface Searched {
  /** By the stages that were asked for: which stage agrees with the last one depends on which is the last. */
  readonly gates: Map<number | undefined, SpeculationGate>;
  searches: number;
  failed: number;
  /** Of those that did not fail. */
  ms: number;
  /** What the log says already of what each kind of operation went without, by the part and the code. */
  readonly logged: Map<Operation['kind'], ReadonlyMap<string, ReadonlySet<string>>>;
}

interface Observer {
  readonly log: Log;
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
  /** A search is over, after so many milliseconds. */
  readonly searched: (ms: number) => void;
}

/** The collections that a configuration names. The package behind it is loaded where one does. */
export class OpenCollections {
  readonly settings: Settings;
  /**
   * Share of prompt tokens that may be prefilled in vain. Core's default on engines of one's own and 0 on others if
   * `undefined`.
   */
  readonly wastedShare: number | undefined;
  /** Bytes of text that one collection may hold through the HTTP API. */
  readonly maxBytes: number;
  readonly #collections: Collections;
  readonly #observer: Observer;
  /** By place (`placeOf`). */
  readonly #searched = new Map<string, Searched>();

  private constructor(
    settings: Settings,
    collections: Collections,
    observer: Observer,
    options: Pick<OpenCollections, 'wastedShare' | 'maxBytes'>,
  ) {
    this.settings = settings;
    this.wastedShare = options.wastedShare;
    this.maxBytes = options.maxBytes;
    this.#collections = collections;
    this.#observer = observer;
  }

  /** Error: WARMPATH_CONFIG_INVALID where the package is not installed. */
  static async open(
    settings: Settings,
    { memoryBytes, wastedShare, maxBytes = MAX_COLLECTION_BYTES }: OpenOptions,
    observer: Observer,
  ): Promise<OpenCollections> {
    const { Collections } = await loadRetrieval();
    const { folder, embeddings, rerank, stores } = settings;
    return new OpenCollections(
      settings,
      new Collections(folder, { embeddings, rerank, stores, memoryBytes }),
      observer,
      { wastedShare, maxBytes },
    );
  }

  names(tenant: string): Promise<string[]> {
    return this.#collections.names(tenant);
  }

  /** Names of collections that live in databases. */
  storedNames(tenant: string): string[] {
    return this.#collections.storedNames(tenant);
  }

  /** A collection wherever it lives. Errors: those of `get` but for _STORED. */
  searchable(tenant: string, name: string): Promise<SearchableCollection> {
    return this.#collections.searchable(tenant, name);
  }

  /** Errors: WARMPATH_COLLECTION_NOT_FOUND, _NAME, _UNREADABLE, _STORED. */
  get(tenant: string, name: string): Promise<Collection> {
    return this.#collections.get(tenant, name);
  }

  /** Errors: those of `get` but for NOT_FOUND, and WARMPATH_OVERLOADED for one collection too many. */
  async getOrMake(tenant: string, name: string): Promise<Collection> {
    const names = await this.names(tenant);
    if (names.length >= MOST_COLLECTIONS && !names.includes(name)) {
      const detail = `A tenant has at most ${MOST_COLLECTIONS} collections.`;
      throw new WarmpathError('WARMPATH_OVERLOADED', { detail });
    }
    return this.#collections.getOrMake(tenant, name);
  }

  /**
   * Reads a file that is to be put into a collection, which need not be there yet. `longest`: UTF-16 units of its text.
   * Errors: those of `get` but for NOT_FOUND; WARMPATH_UNREADABLE_FILE, _EMPTY_DOCUMENT, _DOCUMENT_TOO_LARGE,
   * _OVERLOADED; the signal's reason.
   */
  readFile(
    place: { readonly tenant: string; readonly name: string },
    bytes: Buffer,
    file: DocumentFile,
    options: { readonly signal: AbortSignal; readonly longest: number },
  ): Promise<FileDocument> {
    return this.#collections.readFile(place, bytes, file, options);
  }

  /**
   * Cuts texts that are to be put into a collection, which need not be there yet.
   * Errors: those of `get` but for NOT_FOUND; WARMPATH_UNREADABLE_FILE, _OVERLOADED; the signal's reason.
   */
  cutTexts(
    place: { readonly tenant: string; readonly name: string },
    texts: readonly DocumentText[],
    signal: AbortSignal,
  ): Promise<readonly CutDocument[]> {
    return this.#collections.cutTexts(place, texts, signal);
  }

  /** Errors: those of `get`, and WARMPATH_COLLECTION_BUSY. */
  delete(tenant: string, name: string): Promise<void> {
    return this.#collections.delete(tenant, name);
  }

  /** What decides whether generation may start before a search of that collection, of so many stages, is over. */
  gateOf(tenant: string, name: string, stages: number | undefined): SpeculationGate {
    const { gates } = this.#searchedOf(tenant, name);
    let gate = gates.get(stages);
    if (gate === undefined) {
      gate = new SpeculationGate(this.wastedShare === undefined ? {} : { wastedShare: this.wastedShare });
      gates.set(stages, gate);
    }
    return gate;
  }

  /**
   * The stages of a search, whose time is noted; it ends with the n-th where `stages` says so. What it went without, or
   * failed for, is logged. Errors: those of `searchable`, and those of the search as a caller may read them.
   */
  async *search(
    asker: Asker,
    { tenant, name, text, ...options }: { tenant: string; name: string; text: string } & SearchOptions,
  ): AsyncGenerator<Stage, void> {
    const { retriever } = await this.searchable(tenant, name);
    const operation = { tenant, name, kind: 'search' } as const;
    const searched = this.#searchedOf(tenant, name);
    const startedAt = this.#observer.now();
    const { signal, stages } = options;
    try {
      for await (const given of retriever.search({ text }, options)) {
        const stage = given.index + 1 === stages ? { ...given, final: true } : given;
        if (stage.final) {
          const ms = this.#observer.now() - startedAt;
          searched.searches++;
          searched.ms += ms;
          this.#observer.searched(ms);
        }
        // A search that was cut short says nothing of the parts that it did not get to.
        if (given.final) this.wentWithout(asker, operation, given.warnings);
        yield stage;
        if (stage.final) return;
      }
    } catch (error) {
      // Who leaves, or asks for what cannot be, says nothing about the collection.
      if (signal.aborted || isCallersFault(error)) throw error;
      searched.failed++;
      throw this.#clientError(asker, operation, error);
    }
  }

  /** Collections of all tenants, those that are searched most first. Cheap where they were listed before. */
  async list(): Promise<{ readonly listed: readonly CollectionStatus[]; readonly isAll: boolean }> {
    const { listed, isAll } = await this.#collections.list(MOST_LISTED);
    const found = listed.map(({ place, tenant, name, totals }): CollectionStatus => {
      const { searches = 0, failed = 0, ms = 0 } = this.#searched.get(place) ?? {};
      const { documents = null, passages = null, tokens = null } = totals ?? {};
      return { tenant, name, documents, passages, tokens, searches, failedSearches: failed, searchMs: ms };
    });
    return { listed: found.sort((a, b) => b.searches - a.searches), isAll };
  }

  #searchedOf(tenant: string, name: string): Searched {
    const place = this.#collections.placeOf(tenant, name);
    let searched = this.#searched.get(place);
    if (searched === undefined) {
      if (this.#searched.size === MOST_SEARCHED) this.#searched.delete(this.#searched.keys().next().value!);
      searched = { gates: new Map(), searches: 0, failed: 0, ms: 0, logged: new Map() };
      this.#searched.set(place, searched);
    }
    return searched;
  }

  /**
   * What a caller learns of what a search or a write went without: not the addresses of servers that only the operator
   * knows. `own` are about what it sent, and reach it as they are.
   */
  clientWarnings(
    { exchange }: Asker,
    warnings: readonly Warning[] = NONE,
    own: readonly Warning[] = NONE,
  ): ClientWarnings {
    const safe = warnings.map(({ code, path }) => ({ code, path, message: ERROR_TABLE[code].message }));
    exchange.retrievalWarnings = [...warnings, ...own];
    return safe.length + own.length === 0 ? {} : { warnings: [...safe, ...own] };
  }

  /**
   * Logs what an operation on a collection went without, once, and again after that part was there in between: the next
   * operation of the same kind, on the same collection, that has no warning of it.
   */
  wentWithout(
    { exchange }: Asker,
    { tenant, name, kind }: Operation,
    warnings: readonly Warning[] = NONE,
    message = 'went without',
  ): void {
    const before = this.#searched.get(this.#collections.placeOf(tenant, name))?.logged.get(kind);
    if (before === undefined && warnings.length === 0) return;
    const now = new Map<string, Set<string>>();
    for (const { code, path, message: reason } of warnings) {
      const codes = now.get(path) ?? new Set(before?.get(path));
      now.set(path, codes);
      if (codes.has(code)) continue;
      codes.add(code);
      this.#observer.log.warn({ requestId: exchange.requestId, collection: name, code, path, reason }, message);
    }
    this.#searchedOf(tenant, name).logged.set(kind, now);
  }

  /**
   * A failure as a caller reads it: of a server that only the operator knows, the code and the table's words.
   * The log has the rest, once as for `wentWithout`.
   */
  #clientError(asker: Asker, operation: Operation, error: unknown): unknown {
    if (!WarmpathError.isInstance(error) || error.type !== 'upstream_error') return error;
    const { code, message } = error;
    this.wentWithout(asker, operation, [{ code, path: WHOLE, message }], `${operation.kind} failed`);
    return new WarmpathError(code, { cause: error });
  }

  close(): Promise<void> {
    return this.#collections.close();
  }
}

/**
 * Whose collections a caller sees: those of its tenant, where the gateway checks who asks. Where it does not, whoever
 * reaches it is the same to it, and sees the default tenant's, as long as only this machine can ask or the operator
 * said that the gateway is open. Error: WARMPATH_FORBIDDEN.
 */
export function collectionTenant(
  { server }: Pick<GatewayConfig, 'server'>,
  { tenant, isAuthenticated }: Caller,
): string {
  if (isAuthenticated) return tenant;
  const isChecked = identifiesTenants(server);
  if (!isChecked && (server.open || isLoopback(server.host))) return DEFAULT_TENANT;
  throw new WarmpathError('WARMPATH_FORBIDDEN', {
    detail: 'Collections are for callers that the gateway can tell from others.',
  });
}

/** The number of stages with which a caller wants a search to end; undefined for all. Error: with the path. */
export function readStages(stages: unknown, path: string): number | undefined {
  if (stages === undefined) return undefined;
  if (typeof stages === 'number' && Number.isInteger(stages) && stages >= 1 && stages <= MOST_STAGES) return stages;
  throw invalid(path, `a whole number from 1 to ${MOST_STAGES} was expected`);
}

function isCallersFault(error: unknown): boolean {
  return WarmpathError.isInstance(error) && error.code === 'WARMPATH_INVALID_REQUEST';
}

async function loadRetrieval(): Promise<typeof import('@warmpath/retrieval')> {
  try {
    return await import('@warmpath/retrieval');
  } catch (cause) {
    throw new WarmpathError('WARMPATH_CONFIG_INVALID', {
      path: 'collections.folder',
      detail: 'The package @warmpath/retrieval cannot be loaded. Run: npm install @warmpath/retrieval',
      cause,
    });
  }
}
