import { ERROR_TABLE, SpeculationGate, WarmpathError, type Warning } from '@warmpath/core';
import type { Collection, Collections, SearchableCollection } from '@warmpath/retrieval';
import type { FastifyRequest } from 'fastify';
import type { GatewayConfig } from '../config/schema.js';
import { checksKeys, isLoopback } from '../config/schema-server.js';
import type { Caller } from '../intake/authenticate.js';

type Settings = NonNullable<GatewayConfig['collections']>;

/** The tenant of whoever the gateway cannot tell from others, and of `warmpath ingest` without `--tenant`. */
const DEFAULT_TENANT = 'default';
/** Collections of which it is known what their searches were like. */
const MOST_GATES = 1_024;
/** Collections of one tenant that can be made over HTTP. */
const MOST_COLLECTIONS = 100;
/** Kinds of what searches go without that are told apart in the log. */
const MOST_LOGGED = 64;

/** Warnings as a caller reads them; left out where there are none. */
export interface ToldWarnings {
  readonly warnings?: readonly Warning[];
}

const NONE: readonly never[] = [];

/** The collections that a configuration names. The package behind it is loaded where one does. */
export class OpenCollections {
  readonly settings: Settings;
  readonly #collections: Collections;
  readonly #gates = new Map<string, SpeculationGate>();
  /** What the log says already of what searches go without. */
  readonly #logged = new Set<string>();

  private constructor(settings: Settings, collections: Collections) {
    this.settings = settings;
    this.#collections = collections;
  }

  /** Error: WARMPATH_CONFIG_INVALID where the package is not installed. */
  static async open(settings: Settings): Promise<OpenCollections> {
    const { Collections } = await loadRetrieval();
    const { folder, embeddings, stores } = settings;
    return new OpenCollections(settings, new Collections(folder, { embeddings, stores }));
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

  /** What is known of the searches of a collection; nothing at first. */
  gateOf(tenant: string, name: string): SpeculationGate {
    const key = `${tenant}\n${name}`;
    let gate = this.#gates.get(key);
    if (gate === undefined) {
      if (this.#gates.size === MOST_GATES) this.#gates.delete(this.#gates.keys().next().value!);
      gate = new SpeculationGate({ wastedShare: this.settings.wastedShare });
      this.#gates.set(key, gate);
    }
    return gate;
  }

  /**
   * What a caller is told of what a search or a write went without: not the addresses of servers that only the operator
   * knows. The log says it once, and again after it was there in between.
   */
  told({ exchange, log }: Pick<FastifyRequest, 'exchange' | 'log'>, warnings: readonly Warning[] = NONE): ToldWarnings {
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
