import type { CostModel, ReplacementPolicyName, SchedulerName } from '@warmpath/core';
import type { HotCopiesStats } from '../cache/hot-copies.js';
import type { PrefixCacheStats } from '../cache/prefix-cache.js';
import type { KvEventFeed } from '../events/kv-event-feed.js';
import type { LlamaBindings } from '../native/bindings.js';
import type { NativeModel } from '../native/model.js';
import type { KvType } from '../native/structs.js';
import type { StateStoreOptions } from '../store/state-store.js';
import type { LoopObserver } from './announcer.js';

/** A folder of stored states. */
export interface StoreOptions extends Pick<StateStoreOptions, 'directory' | 'capacityBytes'> {
  /** What tells the model's file from every other that states in the folder may be of. */
  readonly model: string;
}

/** What an engine loop is started with. */
export interface EngineLoopOptions {
  readonly bindings: LlamaBindings;
  readonly model: NativeModel;
  /** Name in the events. */
  readonly name: string;
  /** KV cells in all. */
  readonly cells: number;
  /** Most tokens in one decode. */
  readonly batchTokens: number;
  /** Most requests that are computed at the same time. */
  readonly maxRunning: number;
  /** Most requests that wait for a place. */
  readonly queueLimit: number;
  /** Which of the waiting requests goes next. */
  readonly schedule?: SchedulerName;
  /** How often `cache-aware` may let others overtake a request. */
  readonly window?: number;
  /** How many times longer than without prompts a step of running streams may take; 0 or left out for no limit. */
  readonly streamGap?: number;
  readonly threads: number;
  /** How keys and values stand in the cells; f16 when left out. */
  readonly kvType?: KvType;
  /** What leaves the cells, and the host tier, first. */
  readonly policy?: ReplacementPolicyName;
  /** Bytes of host memory for what leaves the cells; without any, it is dropped. */
  readonly hostTierBytes?: number;
  /** Files for what leaves host memory. */
  readonly diskTier?: StoreOptions;
  /** Most leading parts of a prompt that are cached: the system prompt, then documents. All when left out. */
  readonly cachedDocuments?: number;
  /** What prefill costs; learned from the steps when left out. */
  readonly cost?: CostModel;
  /** Milliseconds that bringing a byte back takes, where that was measured; learned from then on. */
  readonly restoreMsPerByte?: { readonly host: number; readonly disk?: number };
  /** Hears what comes to the cache and what leaves it; flushed once a step, ended with the loop. */
  readonly kvEvents?: KvEventFeed;
  /** Where copies of what is used most are kept for the process that comes after this one, should it crash. */
  readonly hotCopies?: StoreOptions;
  /** Compute every batch in the same way, whatever stands beside a request in it. Needs batches of at least a tile. */
  readonly batchInvariant?: boolean;
  /** Check every invariant of the cache after every step. */
  readonly verifyCache?: boolean;
  readonly observer: LoopObserver;
}

/** What the loop holds right now. */
export interface LoopStats extends PrefixCacheStats {
  readonly running: number;
  readonly waiting: number;
  /** Generations that are held: they have no cells and wait to be released. */
  readonly held: number;
  /** Present when copies are kept for the next process. */
  readonly hot?: HotCopiesStats;
}
