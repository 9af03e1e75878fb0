import { type EventResidency, PromptSlots, ServedHistory } from '@warmpath/core';
import type { GatewayConfig } from '../config/schema.js';
import { beliefOf, type Dialect, dialectOf } from '../engines/dialects/dialects.js';
import { EngineCounts } from './engine-counts.js';
import { TenantCache } from './tenant-cache.js';

/** What the gateway knows about one tenant's requests to one model. */
export interface TenantModel {
  readonly tenant: string;
  readonly model: string;
  /** What the engine is believed to hold. */
  readonly history: ServedHistory;
  readonly counts: EngineCounts;
}

/** Part of the memory that one history may take: its tree, and its statistics. */
const TREE_PART = 1 / 4;
const STATISTICS_PART = 1 / 32;
/** Bytes of one document in the statistics. */
const STATISTIC_BYTES = 256;
/** Bytes of a history beside what it counts itself. */
const HISTORY_BYTES = 2_048;
/** Prompts that an engine with slots may have saved, as far as that is followed. */
const MAX_SAVED_PROMPTS = 512;
/** Models whose slots are followed. */
const MAX_SLOT_MODELS = 16;

/**
 * State per tenant and model, never shared between them. Bounded in bytes, which are taken when a history is asked for,
 * so they lag by one request; what goes is the least recently used history of the tenant that holds most.
 */
export class ServedHistories {
  readonly #maxBytes: number;
  readonly #residency: GatewayConfig['residency'];
  readonly #events: EventResidency | undefined;
  readonly #histories: TenantCache<TenantModel>;
  #dialect: Dialect;
  /** Of each model: the engine's requests push each other's prompts out, whoever sent them. */
  #slots = new Map<string, PromptSlots>();

  /** @param events The engine's own events, where it publishes them. */
  constructor(
    maxBytes: number,
    residency: GatewayConfig['residency'],
    events?: EventResidency,
    dialect: Dialect = dialectOf('generic'),
  ) {
    this.#dialect = dialect;
    this.#maxBytes = maxBytes;
    this.#residency = residency;
    this.#events = events;
    this.#histories = new TenantCache(maxBytes);
  }

  /** What kind of engine it is. */
  get dialect(): Dialect {
    return this.#dialect;
  }

  /** It has turned out to be an engine of this kind. What was believed of another kind is forgotten. */
  use(dialect: Dialect): void {
    if (dialect.name === this.#dialect.name) return;
    this.#dialect = dialect;
    this.#histories.clear();
    this.#slots.clear();
  }

  get size(): number {
    return this.#histories.size;
  }

  /** Bytes of all histories, as far as they were asked for since they grew. */
  get bytes(): number {
    return this.#histories.bytes;
  }

  /** Nodes of all knowledge trees. O(histories). */
  get treeNodes(): number {
    let nodes = 0;
    for (const { history } of this.#histories.values()) nodes += history.tree.nodes;
    return nodes;
  }

  /** All of them, tenant by tenant. */
  values(): Iterable<TenantModel> {
    return this.#histories.values();
  }

  /** The state of that tenant and model; made when it is new. O(log tenants). */
  of(tenant: string, model: string): TenantModel {
    const known = this.#histories.get(tenant, model);
    const state = known ?? this.#make(tenant, model);
    const bytes = HISTORY_BYTES + state.history.bytes;
    if (known === undefined) this.#histories.set(tenant, model, state, bytes);
    else this.#histories.resize(tenant, model, bytes);
    return state;
  }

  #make(tenant: string, model: string): TenantModel {
    const belief = beliefOf(this.#dialect.reuse);
    const { evictsLeastRecent = belief.evictsLeastRecent, maxAgeMs = belief.maxAgeMs } = this.#residency;
    const slots = this.#slotsOf(model);
    const history = new ServedHistory({
      tree: { maxBytes: Math.floor(TREE_PART * this.#maxBytes) },
      hotness: { maxDocuments: Math.ceil((STATISTICS_PART * this.#maxBytes) / STATISTIC_BYTES) },
      evictsLeastRecent,
      ...(this.#events !== undefined && { events: this.#events }),
      ...(slots !== undefined && { slots: { prompts: slots, name: tenant } }),
      ...(maxAgeMs !== undefined && { maxAgeMs }),
    });
    return { tenant, model, history, counts: new EngineCounts() };
  }

  #slotsOf(model: string): PromptSlots | undefined {
    const { slots } = beliefOf(this.#dialect.reuse);
    if (slots === undefined) return undefined;
    let prompts = this.#slots.get(model);
    if (prompts === undefined) {
      // Clients choose names of models: those of unknown ones must not pile up.
      if (this.#slots.size === MAX_SLOT_MODELS) this.#slots.delete(this.#slots.keys().next().value!);
      prompts = new PromptSlots({ ...slots, maxSaved: MAX_SAVED_PROMPTS });
      this.#slots.set(model, prompts);
    }
    return prompts;
  }
}
