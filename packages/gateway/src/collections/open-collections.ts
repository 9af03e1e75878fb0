import { WarmpathError, type Warning } from '@warmpath/core';
import { ERROR_TABLE, SpeculationGate } from '@warmpath/core/internal';
import type { CollectionStatus } from '@warmpath/dashboard';
import type { Collection, Collections, Query, SearchableCollection, SearchOptions, Stage } from '@warmpath/retrieval';
import type { FastifyRequest } from 'fastify';
import type { GatewayConfig } from '../config/schema.js';
import { identifiesTenants, isLoopback } from '../config/schema-server.js';
import type { Caller } from '../intake/authenticate.js';
import type { Log } from '../observe/log.js';
import type { ClientWarnings } from '../shapes/shapes.js';

type Settings = NonNullable<GatewayConfig['collections']>;

/** The tenant of callers that are not authenticated, and of `warmpath ingest` without `--tenant`. */
const DEFAULT_TENANT = 'default';
/** Collections whose searches are counted. */
const MAX_SEARCHED = 1_024;
/** Collections in a list of all tenants' collections. */
const MAX_LISTED = 64;
/** Collections of one tenant, over HTTP. */
const MAX_COLLECTIONS = 100;
const MAX_COLLECTION_BYTES = 10_737_418_240;

/** Bounds without a configuration key. */
interface OpenOptions {
  readonly memoryBytes: number;
  readonly wastedShare: number | undefined;
  readonly maxBytes?: number | undefined;
}

const NONE: readonly never[] = [];

/** The request, for the log. */
export type Asker = Pick<FastifyRequest, 'report'>;

/** An operation on a collection. */
interface Operation {
  readonly tenant: string;
  readonly name: string;
  readonly kind: 'search' | 'write' | 'list';
}

/** The path of a failure that ended the whole operation. */
const WHOLE = '';

/** Statistics of a collection's searches. */
interface Searched {
  /** By number of stages. */
  readonly gates: Map<number | undefined, SpeculationGate>;
  searches: number;
  failed: number;
  /** Milliseconds of successful searches. */
  ms: number;
  /** Logged warnings of each kind of operation, by path and code. */
  readonly logged: Map<Operation['kind'], ReadonlyMap<string, ReadonlySet<string>>>;
}

interface Observer {
  readonly log: Log;
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
  /** Called when a search is over, with its milliseconds. */
  readonly searched: (ms: number) => void;
}

/** The collections of a configuration. Loads `@warmpath/retrieval`. */
export class OpenCollections {
  readonly settings: Settings;
  /**
   * Share of prompt tokens that speculation may waste. If `undefined`, core's default on local engines and 0 on hosted
   * ones.
   */
  readonly wastedShare: number | undefined;
  /** Bytes of text that one collection may hold through the HTTP API. */
  readonly maxBytes: number;
  /** Collections in files, and in databases. */
  readonly retrieval: Collections;
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
    this.retrieval = collections;
    this.#observer = observer;
  }

  /** @throws WarmpathError WARMPATH_CONFIG_INVALID where the package is not installed. */
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

  /** One in files or in a database. @throws WarmpathError WARMPATH_COLLECTION_NOT_FOUND, _NAME, _UNREADABLE. */
  searchable(tenant: string, name: string): Promise<SearchableCollection> {
    return this.retrieval.searchable(tenant, name);
  }

  /** @throws WarmpathError WARMPATH_COLLECTION_NAME, _UNREADABLE, _STORED, WARMPATH_OVERLOADED. */
  async getOrMake(tenant: string, name: string): Promise<Collection> {
    const names = await this.retrieval.names(tenant);
    if (names.length >= MAX_COLLECTIONS && !names.includes(name)) {
      const detail = `A tenant has at most ${MAX_COLLECTIONS} collections.`;
      throw new WarmpathError('WARMPATH_OVERLOADED', { detail });
    }
    return this.retrieval.getOrMake(tenant, name);
  }

  /** Decides whether generation may start before a search of that collection and of so many stages is over. */
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
   * The stages of a search; at most `stages`. Counts and times the search, and logs its warnings and failures.
   *
   * @throws WarmpathError those of `searchable`; those of the search as a client may read them.
   */
  async *search(
    asker: Asker,
    { tenant, name, query, ...options }: { tenant: string; name: string; query: Query } & SearchOptions,
  ): AsyncGenerator<Stage, void> {
    const { retriever } = await this.searchable(tenant, name);
    const operation = { tenant, name, kind: 'search' } as const;
    const searched = this.#searchedOf(tenant, name);
    const startedAt = this.#observer.now();
    const { signal, stages } = options;
    try {
      for await (const given of retriever.search(query, options)) {
        const stage = given.index + 1 === stages ? { ...given, final: true } : given;
        if (stage.final) {
          const ms = this.#observer.now() - startedAt;
          searched.searches++;
          searched.ms += ms;
          this.#observer.searched(ms);
        }
        // An aborted search has not tried all parts.
        if (given.final) this.logWarnings(asker, operation, given.warnings);
        yield stage;
        if (stage.final) return;
      }
    } catch (error) {
      // An abort or an invalid request says nothing about the collection.
      if (signal.aborted || isCallersFault(error)) throw error;
      searched.failed++;
      throw this.#clientError(asker, operation, error);
    }
  }

  /** Collections of all tenants, the most searched first. Cheap when repeated. */
  async list(): Promise<{ readonly listed: readonly CollectionStatus[]; readonly isAll: boolean }> {
    const { listed, isAll } = await this.retrieval.list(MAX_LISTED);
    const found = listed.map(({ place, tenant, name, totals }): CollectionStatus => {
      const { searches = 0, failed = 0, ms = 0 } = this.#searched.get(place) ?? {};
      const { documents = null, passages = null, tokens = null } = totals ?? {};
      return { tenant, name, documents, passages, tokens, searches, failedSearches: failed, searchMs: ms };
    });
    return { listed: found.sort((a, b) => b.searches - a.searches), isAll };
  }

  #searchedOf(tenant: string, name: string): Searched {
    const place = this.retrieval.placeOf(tenant, name);
    let searched = this.#searched.get(place);
    if (searched === undefined) {
      if (this.#searched.size === MAX_SEARCHED) this.#searched.delete(this.#searched.keys().next().value!);
      searched = { gates: new Map(), searches: 0, failed: 0, ms: 0, logged: new Map() };
      this.#searched.set(place, searched);
    }
    return searched;
  }

  /**
   * Warnings as a client reads them, without the addresses of servers. `own` concern the client's data and stay as they
   * are.
   */
  clientWarnings(
    { report }: Asker,
    warnings: readonly Warning[] = NONE,
    own: readonly Warning[] = NONE,
  ): ClientWarnings {
    const safe = warnings.map(({ code, path }) => ({ code, path, message: ERROR_TABLE[code].message }));
    report.retrievalWarnings = [...warnings, ...own];
    return safe.length + own.length === 0 ? {} : { warnings: [...safe, ...own] };
  }

  /**
   * Logs the warnings of an operation. A repeated warning is logged again only after an operation of the same kind on
   * the same collection without it.
   */
  logWarnings(
    { report }: Asker,
    { tenant, name, kind }: Operation,
    warnings: readonly Warning[] = NONE,
    message = 'went without',
  ): void {
    const before = this.#searched.get(this.retrieval.placeOf(tenant, name))?.logged.get(kind);
    if (before === undefined && warnings.length === 0) return;
    const now = new Map<string, Set<string>>();
    for (const { code, path, message: reason } of warnings) {
      const codes = now.get(path) ?? new Set(before?.get(path));
      now.set(path, codes);
      if (codes.has(code)) continue;
      codes.add(code);
      this.#observer.log.warn({ requestId: report.requestId, collection: name, code, path, reason }, message);
    }
    this.#searchedOf(tenant, name).logged.set(kind, now);
  }

  /**
   * A failure as a client reads it: of a server behind the gateway, only the code and the table's message. The log gets
   * the rest, as `logWarnings` does.
   */
  #clientError(asker: Asker, operation: Operation, error: unknown): unknown {
    if (!WarmpathError.isInstance(error) || error.type !== 'upstream_error') return error;
    const { code, message } = error;
    this.logWarnings(asker, operation, [{ code, path: WHOLE, message }], `${operation.kind} failed`);
    return new WarmpathError(code, { cause: error });
  }

  close(): Promise<void> {
    return this.retrieval.close();
  }
}

/**
 * The tenant whose collections a caller sees: its own, where callers are authenticated. Without authentication it is
 * the default tenant, if only this machine can ask or `server.open` is set.
 *
 * @throws WarmpathError WARMPATH_FORBIDDEN otherwise.
 */
export function collectionTenant(
  { server }: Pick<GatewayConfig, 'server'>,
  { tenant, isAuthenticated }: Caller,
): string {
  if (isAuthenticated) return tenant;
  const isChecked = identifiesTenants(server);
  if (!isChecked && (server.open || isLoopback(server.host))) return DEFAULT_TENANT;
  throw new WarmpathError('WARMPATH_FORBIDDEN', {
    detail:
      'Collections need an authenticated caller: configure `server.keys`, `server.jwt` or `server.trustedHeaders.tenant`.',
  });
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
