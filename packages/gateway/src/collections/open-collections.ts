import { ERROR_TABLE, SpeculationGate, WarmpathError, type Warning } from '@warmpath/core';
import type { CollectionStatus } from '@warmpath/dashboard';
import type { Collection, Collections, SearchableCollection, SearchOptions, Stage } from '@warmpath/retrieval';
import type { FastifyRequest } from 'fastify';
import type { GatewayConfig } from '../config/schema.js';
import { checksKeys, isLoopback } from '../config/schema-server.js';
import type { Caller } from '../intake/authenticate.js';
import { invalid } from '../intake/prompt-view.js';

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
/** Kinds of what searches go without that the log distinguishes. */
const MOST_LOGGED = 64;

/** Warnings as a caller reads them; left out where there are none. */
export interface ClientWarnings {
  readonly warnings?: readonly Warning[];
}

const NONE: readonly never[] = [];

/** What is known of the searches of a collection. */
interface Searched {
  /** By the stages that were asked for: which stage agrees with the last one depends on which is the last. */
  readonly gates: Map<number | undefined, SpeculationGate>;
  searches: number;
  failed: number;
  /** Of those that did not fail. */
  ms: number;
}

interface Observer {
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
  /** A search is over, after so many milliseconds. */
  readonly searched: (ms: number) => void;
}

/** The collections that a configuration names. The package behind it is loaded where one does. */
export class OpenCollections {
  readonly settings: Settings;
  readonly #collections: Collections;
  readonly #observer: Observer;
  /** By place (`placeOf`). */
  readonly #searched = new Map<string, Searched>();
  /** What the log says already of what searches go without. */
  readonly #logged = new Set<string>();

  private constructor(settings: Settings, collections: Collections, observer: Observer) {
    this.settings = settings;
    this.#collections = collections;
    this.#observer = observer;
  }

  /** Error: WARMPATH_CONFIG_INVALID where the package is not installed. */
  static async open(settings: Settings, observer: Observer): Promise<OpenCollections> {
    const { Collections } = await loadRetrieval();
    const { folder, embeddings, rerank, stores } = settings;
    return new OpenCollections(settings, new Collections(folder, { embeddings, rerank, stores }), observer);
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

  /** Errors: those of `get`, and WARMPATH_COLLECTION_BUSY. */
  delete(tenant: string, name: string): Promise<void> {
    return this.#collections.delete(tenant, name);
  }

  /** What decides whether generation may start before a search of that collection, of so many stages, is over. */
  gateOf(tenant: string, name: string, stages: number | undefined): SpeculationGate {
    const { gates } = this.#searchedOf(tenant, name);
    let gate = gates.get(stages);
    if (gate === undefined) {
      gate = new SpeculationGate({ wastedShare: this.settings.wastedShare });
      gates.set(stages, gate);
    }
    return gate;
  }

  /**
   * The stages of a search, whose time is noted; it ends with the n-th where `stages` says so. Errors: those of
   * `searchable`, and those of the search.
   */
  async *search(
    tenant: string,
    name: string,
    { text, ...options }: { readonly text: string } & SearchOptions,
  ): AsyncGenerator<Stage, void> {
    const { retriever } = await this.searchable(tenant, name);
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
        yield stage;
        if (stage.final) return;
      }
    } catch (error) {
      // Who leaves, or asks for what cannot be, says nothing about the collection.
      if (!signal.aborted && !isCallersFault(error)) searched.failed++;
      throw error;
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
      searched = { gates: new Map(), searches: 0, failed: 0, ms: 0 };
      this.#searched.set(place, searched);
    }
    return searched;
  }

  /**
   * What a caller learns of what a search or a write went without: not the addresses of servers that only the operator
   * knows. The log says it once, and again after it was there in between.
   */
  clientWarnings(
    { exchange, log }: Pick<FastifyRequest, 'exchange' | 'log'>,
    warnings: readonly Warning[] = NONE,
  ): ClientWarnings {
    exchange.retrievalWarnings = warnings;
    if (warnings.length === 0) {
      this.#logged.clear();
      return {};
    }
    for (const { code, path, message } of warnings) {
      const kind = `${code} ${path}`;
      if (this.#logged.has(kind) || this.#logged.size === MOST_LOGGED) continue;
      this.#logged.add(kind);
      log.warn({ requestId: exchange.requestId, code, path, reason: message }, 'went without');
    }
    return { warnings: warnings.map(({ code, path }) => ({ code, path, message: ERROR_TABLE[code].message })) };
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
  const isChecked = checksKeys(server) || server.trustedHeaders.tenant !== undefined;
  if (isChecked && isAuthenticated) return tenant;
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
