import { type Arrangement, ServedHistory } from '@warmpath/core';
import { type EventResidency, PromptSlots, TenantCache } from '@warmpath/core/internal';
import { beliefOf, type Dialect, keptMsOf, leastReused, reusable } from '../dialects/dialects.js';

/** The residency that follows an engine's KV events. */
interface FollowedEvents {
  readonly events: EventResidency;
}

/** The engine of a history. */
export interface HistoryEngine {
  readonly number: number;
  readonly name: string;
  readonly url: string;
  /** Its kind. */
  readonly dialect: Dialect;
  /** Only for engines that publish KV events. */
  readonly kvResidency: FollowedEvents | undefined;
}

/** What the gateway knows about one tenant's requests to one model on one engine. */
export interface TenantModel {
  readonly tenant: string;
  readonly model: string;
  readonly engine: HistoryEngine;
  /** What the engine should have cached. */
  readonly history: ServedHistory;
  readonly counts: EngineCounts;
  readonly reported: ReportedCounts;
}

/** Parts of the memory that one history may take: its tree, and its statistics. */
const TREE_PART = 1 / 4;
const STATISTICS_PART = 1 / 32;
/** Estimated bytes of one document in the statistics. */
const STATISTIC_BYTES = 256;
/** Estimated bytes of a history beside those that it counts itself. */
const HISTORY_BYTES = 13_312;
/** Saved prompts of an engine with slots that are followed, and their spans: about 1 MiB. */
const MAX_SAVED_PROMPTS = 512;
const MAX_SAVED_SPANS = 8_192;
/** Models of engines whose slots and reports are followed. */
const MAX_MODELS = 64;

/**
 * State per engine, tenant and model, shared by no two. Bounded in bytes, which are counted when a history is used, so
 * they lag by one request. A full memory forgets the least recently used history of the tenant that holds most.
 */
export class ServedHistories {
  readonly #maxBytes: number;
  readonly #histories: TenantCache<TenantModel>;
  /** By engine and model: requests of all tenants evict each other's prompts. */
  readonly #slots = new Map<string, PromptSlots>();
  /** By engine and model: it reports the same to all tenants. */
  readonly #reported = new Map<string, ReportedCounts>();

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
    this.#histories = new TenantCache(maxBytes);
  }

  get size(): number {
    return this.#histories.size;
  }

  /** Bytes of all histories, as counted at their last use. */
  get bytes(): number {
    return this.#histories.bytes;
  }

  /** Nodes of all knowledge trees. O(histories). */
  get treeNodes(): number {
    let nodes = 0;
    for (const { history } of this.#histories.values()) nodes += history.tree.nodes;
    return nodes;
  }

  /** All states, tenant by tenant. */
  values(): Iterable<TenantModel> {
    return this.#histories.values();
  }

  /** The state of a tenant and model on an engine, created if new. O(log tenants). */
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

  /** Forgets an engine that was removed, or is of another kind than assumed. O(histories). */
  forget(engine: HistoryEngine): void {
    for (const state of [...this.#histories.values()]) {
      if (state.engine === engine) this.#histories.take(state.tenant, keyOf(engine, state.model));
    }
    for (const models of [this.#slots, this.#reported]) {
      for (const key of models.keys()) if (key.startsWith(keyOf(engine, ''))) models.delete(key);
    }
  }

  #make(engine: HistoryEngine, tenant: string, model: string): TenantModel {
    const { evictsLeastRecent } = beliefOf(engine.dialect.reuse);
    const maxAgeMs = keptMsOf(engine.dialect, model);
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

/** The state of a model. Clients choose names of models, so the oldest of too many is dropped. */
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
  const isOfTokens = reuse.kind === 'checkpoint' || (reuse.kind === 'prefix' && reuse.unit === 1);
  const unit = isOfTokens ? 1 : undefined;
  const estimated = () => reusable(engine.dialect, model, counts.toEngineTokens(arrangement.predictedCachedTokens));
  const known = engine.kvResidency?.events.cachedTokens(history, arrangement, unit);
  if (known === undefined) return estimated();
  // Prompts that are being computed, and those whose tokens are not known yet, count as cached.
  const isReported = engine.kvResidency!.events.residentSteps(history, arrangement) >= believedSteps(arrangement);
  return isReported ? known : Math.max(known, estimated());
}

/** Path steps up to the last document that should be cached; 0 if none. */
function believedSteps({ preamble, trace: { cachedDocuments } }: Arrangement): number {
  if (cachedDocuments === 0) return 0;
  return (preamble === undefined ? 0 : 1 + (preamble.steps?.length ?? 0)) + cachedDocuments;
}

/** An engine's token counts of a prompt. */
export interface Usage {
  readonly promptTokens: number;
  /** `undefined` if left out: some engines do so at 0, others always. */
  readonly cachedTokens: number | undefined;
  /** Tokens that the engine wrote into its cache for a price of their own. */
  readonly cacheWriteTokens?: number | undefined;
  /** How many of them it keeps for an hour. */
  readonly hourWriteTokens?: number | undefined;
}

/** An engine's token counts of one prompt and its answer, as far as it reported them. */
export interface EngineTokens {
  readonly promptTokens?: number | undefined;
  readonly cachedTokens?: number | undefined;
  readonly answerTokens?: number | undefined;
}

/** Weight of the newest observation in the moving average. */
const NEWEST_WEIGHT = 0.2;
/** Bounds of the factor. No tokenizer of natural language differs more from the estimate. */
const FACTOR_MIN = 0.25;
const FACTOR_MAX = 4;

/** Cached tokens that an engine is expected to report, at least, for its silence to say anything. */
const MIN_EXPECTED_TOKENS = 64;

/** How one model of an engine reports cached tokens, to whichever tenant. */
export class ReportedCounts {
  readonly #leavesOutZero: boolean;
  #isReported = false;
  #isZeroReported = false;

  /** @param leavesOutZero whether its kind of engine leaves the count out when it is 0. */
  constructor(leavesOutZero: boolean) {
    this.#leavesOutZero = leavesOutZero;
  }

  /**
   * The engine's cached tokens. A count that is left out means 0 once this model has sent one, but never 0; and before
   * that in dialects that leave out 0, where no tokens were expected to be cached. Else it is unknown: `undefined`.
   *
   * @param expected tokens that should have been cached
   */
  cachedTokens({ cachedTokens }: EngineTokens, expected: number): number | undefined {
    if (cachedTokens !== undefined) {
      this.#isReported = true;
      if (cachedTokens === 0) this.#isZeroReported = true;
      return cachedTokens;
    }
    if (this.#isZeroReported) return undefined;
    return this.#isReported || (this.#leavesOutZero && expected < MIN_EXPECTED_TOKENS) ? 0 : undefined;
  }
}

/**
 * Scales estimated tokens to one model's tokens, because the gateway has no tokenizer: by the moving average of
 * `usage.prompt_tokens` / estimate. Orders do not depend on it, so the knowledge tree has estimated tokens, and only
 * figures that are shown are scaled.
 */
export class EngineCounts {
  #factor = 1;
  #observed = false;

  /** Actual tokens per estimated token. */
  get factor(): number {
    return this.#factor;
  }

  /** Converts an estimate into this model's tokens. */
  toEngineTokens(estimated: number): number {
    return Math.round(estimated * this.#factor);
  }

  /** Converts a count of the engine into estimated tokens. */
  toEstimatedTokens(counted: number): number {
    return Math.round(counted / this.#factor);
  }

  /** Converts an engine's counts of a prompt, and the tokens of its blocks, into estimated tokens. */
  outcome({ promptTokens, cachedTokens, answerTokens }: EngineTokens, { reuse }: Dialect) {
    return {
      promptTokens: promptTokens && this.toEstimatedTokens(promptTokens),
      cachedTokens: cachedTokens && this.toEstimatedTokens(cachedTokens),
      answerTokens: answerTokens && this.toEstimatedTokens(answerTokens),
      blockTokens: 'unit' in reuse ? this.toEstimatedTokens(reuse.unit) : undefined,
    };
  }

  /** Learns from a request whose prompt has `estimated` tokens by the estimate. */
  observe(estimated: number, usage: Usage): void {
    if (estimated <= 0 || usage.promptTokens <= 0) return;
    const factor = Math.min(FACTOR_MAX, Math.max(FACTOR_MIN, usage.promptTokens / estimated));
    this.#factor += (this.#observed ? NEWEST_WEIGHT : 1) * (factor - this.#factor);
    this.#observed = true;
  }
}

/** A prompt prefix: the text before the documents, of one tenant and model. */
export interface PromptPrefix {
  readonly tenant: string;
  readonly key: string;
}

/** The key of a prefix. */
export function prefixOf(tenant: string, model: string, preambleKey: string): PromptPrefix {
  return { tenant, key: JSON.stringify([model, preambleKey]) };
}

/** Milliseconds after which a prefix counts as cold, if the engine does not say. */
const DEFAULT_TTL_MS = 300_000;
/** Estimated bytes of a timestamp. */
const TIME_BYTES = 16;

/**
 * When each prompt prefix was last prefilled, by a warm-up or an answered request. Bounded in bytes, shared fairly
 * among tenants. O(log tenants) an operation.
 */
export class WarmPrefixes {
  readonly #ttlMs: number;
  readonly #lastUse: TenantCache<number>;

  /** @param ttlMs milliseconds without use after which a prefix counts as cold */
  constructor(maxBytes: number, ttlMs = DEFAULT_TTL_MS) {
    this.#ttlMs = ttlMs;
    this.#lastUse = new TenantCache(maxBytes);
  }

  get size(): number {
    return this.#lastUse.size;
  }

  get bytes(): number {
    return this.#lastUse.bytes;
  }

  isWarm({ tenant, key }: PromptPrefix, now: number): boolean {
    const lastUse = this.#lastUse.get(tenant, key);
    return lastUse !== undefined && now - lastUse <= this.#ttlMs;
  }

  /** The engine has computed this prefix now, or read it from its cache. */
  touch({ tenant, key }: PromptPrefix, now: number): void {
    this.#lastUse.set(tenant, key, now, TIME_BYTES);
  }
}
