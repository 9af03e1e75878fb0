import { WarmpathError } from '@warmpath/core';
import { type CostModel, replacementPolicy } from '@warmpath/core/internal';
import { PrefixCache } from '../cache/prefix-cache.js';
import { NativeContext } from '../native/context.js';
import { StateStore } from '../store/state-store.js';
import type { EngineLoopOptions, EngineReuse, StoreOptions } from './loop-options.js';

type OpenStore = Awaited<ReturnType<typeof StateStore.open>>;

/** What an engine loop computes in: the native context, and the cache over its cells. */
export interface LoopMemory {
  readonly context: NativeContext;
  readonly cache: PrefixCache;
}

/**
 * Creates the native context and opens the stores behind it.
 *
 * @param cost What prefill costs.
 * @throws What `NativeContext.create` and `StateStore.open` throw, and WARMPATH_CONFIG_INVALID for a host tier where
 *   nothing can be shared, and for batches of one kind with a recurrent model.
 */
export async function openLoopMemory(options: EngineLoopOptions, cost: CostModel): Promise<LoopMemory> {
  const { isRecurrent } = options.model;
  const reuse = reuseOf(options);
  const hasTiers = (options.hostTierBytes ?? 0) > 0 || options.diskTier !== undefined;
  if (reuse === 'none' && hasTiers) {
    throw new WarmpathError('WARMPATH_CONFIG_INVALID', {
      path: options.diskTier === undefined ? 'hostTier' : 'diskTier',
      detail: isRecurrent
        ? 'Some layers of this model have a recurrent state, whose checkpoints need a host tier.'
        : 'Some layers of this model keep a window in a form that no other prompt can use.',
    });
  }
  if (isRecurrent && options.batchInvariant === true) {
    throw new WarmpathError('WARMPATH_CONFIG_INVALID', {
      path: 'batchInvariant',
      detail: 'Batches of this model cannot be filled up: some of its layers have a recurrent state.',
    });
  }
  const context = await NativeContext.create(options.bindings, options.model, {
    cells: options.cells,
    batchTokens: options.batchTokens,
    outputs: options.maxRunning,
    threads: options.threads,
    isPadded: options.batchInvariant === true,
    ...(options.kvType !== undefined && { kvType: options.kvType }),
  });
  try {
    const disk = options.diskTier && (await openStore(options.diskTier, context));
    const cache = createCache(options, { context, disk, cost });
    return { context, cache };
  } catch (error) {
    context.free();
    throw error;
  }
}

/** Where what one request computed may serve another. */
export function reuseOf({ model, hostTierBytes = 0 }: EngineLoopOptions): EngineReuse {
  if (model.canSharePrefixes) {
    return 'prefix';
  }
  return model.isRecurrent && hostTierBytes > 0 ? 'checkpoint' : 'none';
}

interface CacheParts {
  readonly context: NativeContext;
  readonly disk: OpenStore | undefined;
  readonly cost: CostModel;
}

function createCache(options: EngineLoopOptions, { context, disk, cost }: CacheParts): PrefixCache {
  const { policy = 'pgdsf', hostTierBytes = 0, kvEvents, verifyCache = false } = options;
  return new PrefixCache({
    memory: context,
    cells: context.cells,
    sequences: context.sequences,
    policy: replacementPolicy(policy),
    cost,
    host: hostTierBytes > 0 ? { memory: context, capacityBytes: hostTierBytes, clock } : undefined,
    disk: disk && { ...disk, clock },
    listener: kvEvents?.listener,
    verify: verifyCache,
    checkpoints: reuseOf(options) === 'checkpoint',
  });
}

function clock(): number {
  return performance.now();
}

function openStore({ directory, capacityBytes, model }: StoreOptions, context: NativeContext): Promise<OpenStore> {
  return StateStore.open({
    directory,
    capacityBytes,
    identity: { model, ...context.stateIdentity },
    clock,
    onWarning: (message) => process.emitWarning(message),
  });
}
