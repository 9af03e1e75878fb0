import { ServedHistory } from '@warmpath/core';
import type { GatewayConfig } from '../config/schema.js';
import { EngineCounts } from './engine-counts.js';

/** What the gateway knows about one tenant's requests to one model. */
export interface TenantModel {
  readonly tenant: string;
  /** What the engine is believed to hold. */
  readonly history: ServedHistory;
  readonly counts: EngineCounts;
}

interface Entry extends TenantModel {
  /** Bytes of the knowledge tree when the entry was last asked for. */
  bytes: number;
}

/**
 * State per tenant and model, never shared between them. Bounded in number and in bytes together: the least recently
 * used history goes first. The bytes are taken when a history is asked for, so they lag by one request.
 */
export class ServedHistories {
  readonly #config: Pick<GatewayConfig, 'limits' | 'residency'>;
  readonly #entries = new Map<string, Entry>();
  #bytes = 0;

  constructor(config: Pick<GatewayConfig, 'limits' | 'residency'>) {
    this.#config = config;
  }

  get size(): number {
    return this.#entries.size;
  }

  /** Nodes of all knowledge trees. O(histories). */
  get treeNodes(): number {
    let nodes = 0;
    for (const { history } of this.#entries.values()) nodes += history.tree.nodes;
    return nodes;
  }

  /** Bytes of all knowledge trees. O(histories). */
  get treeBytes(): number {
    let bytes = 0;
    for (const { history } of this.#entries.values()) bytes += history.tree.bytes;
    return bytes;
  }

  /** The state of that tenant and model; made when it is new. O(1). */
  of(tenant: string, model: string): TenantModel {
    const key = `${tenant}\n${model}`;
    const entry = this.#entries.get(key) ?? this.#make(tenant);
    const bytes = entry.history.tree.bytes;
    this.#bytes += bytes - entry.bytes;
    entry.bytes = bytes;
    // A Map iterates in insertion order; re-inserting makes the first key the least recently used one.
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    const { tenants, totalTreeBytes } = this.#config.limits;
    while (this.#entries.size > tenants || (this.#bytes > totalTreeBytes && this.#entries.size > 1)) this.#evict();
    return entry;
  }

  #make(tenant: string): Entry {
    const { limits, residency } = this.#config;
    const history = new ServedHistory({
      tree: { maxNodes: limits.treeNodes, maxBytes: limits.treeBytes },
      hotness: { window: limits.window },
      evictsLeastRecent: residency.evictsLeastRecent,
      ...(residency.maxAgeMs !== undefined && { maxAgeMs: residency.maxAgeMs }),
    });
    return { tenant, history, counts: new EngineCounts(), bytes: 0 };
  }

  #evict(): void {
    const [key, entry] = this.#entries.entries().next().value!;
    this.#entries.delete(key);
    this.#bytes -= entry.bytes;
  }
}
