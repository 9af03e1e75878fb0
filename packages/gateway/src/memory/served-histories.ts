import { type Arrangement, ServedHistory } from '@warmpath/core';
import { type EventResidency, PromptSlots, TenantCache } from '@warmpath/core/internal';
import { beliefOf, type Dialect, leastReused, reusable } from '../dialects/dialects.js';
import { EngineCounts, ReportedCounts } from './engine-counts.js';

/** What an engine's own events tell. */
interface FollowedEvents {
  readonly events: EventResidency;
  /** Whether prompts of that history are served whose tokens are not known yet. */
  isLearning(history: ServedHistory): boolean;
}

/** The engine that holds what a history says. */
export interface HistoryEngine {
  readonly number: number;
  readonly name: string;
  readonly url: string;
  /** What kind of engine it is. */
  readonly dialect: Dialect;
  /** Only where it publishes KV events. */
  readonly kvResidency: FollowedEvents | undefined;
}

/** What the gateway knows about one tenant's requests to one model on one engine. */
export interface TenantModel {
  readonly tenant: string;
  readonly model: string;
  readonly engine: HistoryEngine;
  /** What the engine is believed to hold. */
  readonly history: ServedHistory;
  readonly counts: EngineCounts;
  readonly reported: ReportedCounts;
}

/** Part of the memory that one history may take: its tree, and its statistics. */
const TREE_PART = 1 / 4;
const STATISTICS_PART = 1 / 32;
/** Bytes of one document in the statistics. */
const STATISTIC_BYTES = 256;
/** Bytes of a history beside what it counts itself: small tables of a fixed size, maps and objects. */
const HISTORY_BYTES = 13_312;
/** Prompts that an engine with slots may have saved, and their spans, as far as that is followed: some 1 MiB. */
const MAX_SAVED_PROMPTS = 512;
const MAX_SAVED_SPANS = 8_192;
/** Models of engines whose slots are followed, and of which is known what they report. */
const MAX_MODELS = 64;

/**
 * State per engine, tenant and model, never shared between them. Bounded in bytes, which are taken when a history is
 * asked for, so they lag by one request; what goes is the least recently used history of the tenant that holds most.
 */
export class ServedHistories {
  readonly #maxBytes: number;
  readonly #histories: TenantCache<TenantModel>;
  /** Of each engine and model: its requests push each other's prompts out, whoever sent them. */
  readonly #slots = new Map<string, PromptSlots>();
  /** Of the same: what it reports, it reports to all tenants. */
  readonly #reported = new Map<string, ReportedCounts>();

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
    this.#histories = new TenantCache(maxBytes);
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

  /** The state of that tenant and model on an engine; made when it is new. O(log tenants). */
  of(engine: HistoryEngine, tenant: string, model: string): TenantModel {
    const key = keyOf(engine, model);
    const known = this.#histories.get(tenant, key);
    const state = known ?? this.#make(engine, tenant, model);
    const bytes = HISTORY_BYTES + state.history.bytes;
    if (known === undefined) this.#histories.set(tenant, key, state, bytes);
    else this.#histories.resize(tenant, key, bytes);
    return state;
  }

  /** How a model of an engine reports cached tokens. */
  reportedCounts(engine: HistoryEngine, model: string): ReportedCounts {
    return ofModel(this.#reported, keyOf(engine, model), () => {
      return new ReportedCounts(engine.dialect.leavesOutZero === true);
    });
  }

  /** The engine is gone, or of another kind than was believed, and what it held. O(histories). */
  forget(engine: HistoryEngine): void {
    for (const state of [...this.#histories.values()]) {
      if (state.engine === engine) this.#histories.take(state.tenant, keyOf(engine, state.model));
    }
    for (const models of [this.#slots, this.#reported]) {
      for (const key of models.keys()) if (key.startsWith(keyOf(engine, ''))) models.delete(key);
    }
  }

  #make(engine: HistoryEngine, tenant: string, model: string): TenantModel {
    const { evictsLeastRecent, maxAgeMs } = beliefOf(engine.dialect.reuse);
    const events = engine.kvResidency?.events;
    const slots = this.#slotsOf(engine, model);
    const history = new ServedHistory({
      tree: { maxBytes: Math.floor(TREE_PART * this.#maxBytes) },
      hotness: { maxDocuments: Math.ceil((STATISTICS_PART * this.#maxBytes) / STATISTIC_BYTES) },
      evictsLeastRecent,
      ...(events !== undefined && { events }),
      ...(slots !== undefined && { slots: { prompts: slots, name: tenant } }),
      ...(maxAgeMs !== undefined && { maxAgeMs }),
    });
    return { tenant, model, engine, history, counts: new EngineCounts(), reported: this.reportedCounts(engine, model) };
  }

  #slotsOf(engine: HistoryEngine, model: string): PromptSlots | undefined {
    const { slots } = beliefOf(engine.dialect.reuse);
    if (slots === undefined) return undefined;
    return ofModel(this.#slots, keyOf(engine, model), () => {
      return new PromptSlots({ ...slots, maxSaved: MAX_SAVED_PROMPTS, maxSavedSpans: MAX_SAVED_SPANS });
    });
  }
}

/** Clients choose names of models: those of unknown ones must not pile up, so the first of many goes. */
function ofModel<State>(models: Map<string, State>, key: string, make: () => State): State {
  let state = models.get(key);
  if (state === undefined) {
    if (models.size === MAX_MODELS) models.delete(models.keys().next().value!);
    state = make();
    models.set(key, state);
  }
  return state;
}

function keyOf({ number }: HistoryEngine, model: string): string {
  return `${number}\n${model}`;
}

/** Whether the engine caches prompts of this length: hosted APIs do so only from a minimum on. */
export function mayBeReused({ engine, model, counts }: TenantModel, estimatedTokens: () => number): boolean {
  const least = leastReused(engine.dialect, model);
  return least === 0 || counts.toEngineTokens(estimatedTokens()) >= least;
}

/**
 * Engine tokens of an arranged prompt that should be cached: by KV events if there are any, else an estimate, in the
 * engine's units of reuse.
 */
export function predictedTokens({ engine, model, history, counts }: TenantModel, arrangement: Arrangement): number {
  const { reuse } = engine.dialect;
  const unit = reuse.kind === 'prefix' && reuse.unit === 1 ? 1 : undefined;
  const estimated = () => reusable(engine.dialect, model, counts.toEngineTokens(arrangement.predictedCachedTokens));
  const known = engine.kvResidency?.events.cachedTokens(history, arrangement, unit);
  if (known === undefined) return estimated();
  // Prompts whose tokens are not known yet count as cached.
  const { events } = engine.kvResidency!;
  const isBelieved =
    engine.kvResidency!.isLearning(history) || events.followedSteps(history, arrangement) < believedSteps(arrangement);
  return isBelieved ? Math.max(known, estimated()) : known;
}

/** Path steps up to the last document that should be cached; 0 if none. */
function believedSteps({ preamble, trace: { cachedDocuments } }: Arrangement): number {
  if (cachedDocuments === 0) return 0;
  return (preamble === undefined ? 0 : 1 + (preamble.steps?.length ?? 0)) + cachedDocuments;
}
