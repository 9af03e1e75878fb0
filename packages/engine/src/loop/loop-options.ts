import type { PrefixCacheStats } from '../cache/prefix-cache.js';
import type { KvEventFeed } from '../events/kv-event-log.js';
import type { LlamaBindings } from '../native/bindings.js';
import type { NativeModel } from '../native/model.js';
import type { ResolvedEngineOptions } from '../options.js';
import type { StateStoreOptions } from '../store/state-store.js';
import type { LoopObserver } from './events.js';

/** A folder of stored states. */
interface StoreOptions extends Pick<StateStoreOptions, 'directory' | 'capacityBytes'> {
  /** What tells the model's file from every other that states in the folder may be of. */
  readonly model: string;
}

/** The engine's own options that the loop takes as they are. */
type LoopSettings = Pick<ResolvedEngineOptions, 'batchTokens' | 'maxRunning' | 'queueLimit' | 'threads'> &
  Partial<Pick<ResolvedEngineOptions, 'batchInvariant' | 'kvType'>>;

/** What an engine loop is started with. */
export interface EngineLoopOptions extends LoopSettings {
  readonly bindings: LlamaBindings;
  readonly model: NativeModel;
  /** Name in the events. */
  readonly name: string;
  /** KV cells in all. */
  readonly cells: number;
  /** Bytes of host memory for what leaves the cells; without any, it is dropped. */
  readonly hostTierBytes?: number;
  /** Files for what leaves host memory. */
  readonly diskTier?: StoreOptions | undefined;
  /** Hears what comes to the cache and what leaves it; flushed once a step, ended with the loop. */
  readonly kvEvents?: KvEventFeed | undefined;
  readonly observer: LoopObserver;
}

/** What the loop holds right now. */
export interface LoopStats extends PrefixCacheStats {
  readonly running: number;
  readonly waiting: number;
}
