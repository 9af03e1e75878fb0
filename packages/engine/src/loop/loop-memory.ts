import { WarmpathError } from '@warmpath/core';
import { type CostModel, replacementPolicy } from '@warmpath/core/internal';
import { PrefixCache } from '../cache/prefix-cache.js';
import { NativeContext } from '../native/context.js';
import type { EngineReuse, NativeModel } from '../native/model.js';
import { StateStore } from '../store/state-store.js';
import type { EngineLoopOptions } from './loop-options.js';

/** What an engine loop computes in: the native context, and the cache over its cells. */
export interface LoopMemory {
  readonly context: NativeContext;
  readonly cache: PrefixCache;
}

/**
 * Creates the native context and opens the stores behind it.
 *
 * @throws What `NativeContext.create` and `StateStore.open` throw, and WARMPATH_CONFIG_INVALID for a host tier where
 *   nothing can be shared, and for batches of one kind with a recurrent model.
 */
export async function openLoopMemory(options: EngineLoopOptions): Promise<LoopMemory> {
  const { bindings, model, cells, batchTokens, maxRunning, threads, kvType, batchInvariant = false } = options;
  const { hostTierBytes = 0, diskTier, kvEvents } = options;
  const reuse = reuseOf(options);
  if (reuse === 'none' && (hostTierBytes > 0 || diskTier !== undefined)) {
    throw new WarmpathError('WARMPATH_CONFIG_INVALID', {
      path: diskTier === undefined ? 'hostTier' : 'diskTier',
      detail:
        model.reuse === 'checkpoint'
          ? 'Some layers of this model have a recurrent state, whose checkpoints need a host tier.'
          : 'No other prompt can use what this model computed.',
    });
  }
  if (model.isRecurrent && batchInvariant) {
    throw new WarmpathError('WARMPATH_CONFIG_INVALID', {
      path: 'batchInvariant',
      detail: 'Batches of this model cannot be filled up: some of its layers have a recurrent state.',
    });
  }
  const context = await NativeContext.create(bindings, model, {
    cells,
    batchTokens,
    outputs: maxRunning,
    threads,
    isPadded: batchInvariant,
    ...(kvType !== undefined && { kvType }),
  });
  try {
    const disk =
      diskTier &&
      (await StateStore.open({
        directory: diskTier.directory,
        capacityBytes: diskTier.capacityBytes,
        identity: { model: diskTier.model, ...context.stateIdentity },
        clock: () => performance.now(),
        onWarning: (message) => process.emitWarning(message),
      }));
    const cache = new PrefixCache({
      memory: context,
      cells: context.cells,
      sequences: context.sequences,
      policy: replacementPolicy('pgdsf'),
      cost: prefillCost(model),
      host: { memory: context, capacityBytes: hostTierBytes },
      disk,
      listener: kvEvents?.listener,
      checkpoints: reuse === 'checkpoint',
    });
    return { context, cache };
  } catch (error) {
    context.free();
    throw error;
  }
}

/** Where what one request computed may serve another. */
export function reuseOf({ model, hostTierBytes = 0 }: EngineLoopOptions): EngineReuse {
  return model.reuse === 'checkpoint' && hostTierBytes === 0 ? 'none' : model.reuse;
}

/** What computing tokens costs, in proportion: the weights for each token, and its attention to those before it. */
function prefillCost({
  parameterCount,
  layers,
  width,
}: Pick<NativeModel, 'parameterCount' | 'layers' | 'width'>): CostModel {
  const perPosition = (2 * layers * width) / parameterCount;
  return { prefillMs: (cached, tokens) => tokens * (1 + perPosition * (cached + tokens / 2)) };
}
