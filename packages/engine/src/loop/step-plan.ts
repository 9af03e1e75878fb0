import type { PrefixCache } from '../cache/prefix-cache.js';
import { TILE_ROWS } from '../native/structs.js';
import type { GenerationTask } from './task.js';

/** A task's share of one decode: the next `count` of its tokens. */
export interface StepEntry {
  readonly task: GenerationTask;
  readonly count: number;
}

export interface StepLimits {
  /** Most tokens of one decode. */
  readonly batchTokens: number;
  /** Whether a GPU computes: then a whole batch takes no longer than streams may wait. */
  readonly isOnGpu: boolean;
  /** Whether prompts share what they compute. */
  readonly sharesPrompts: boolean;
}

/** Most tokens of one decode while clients read streams: one tile of attention. Fewer would be computed row by row. */
const STREAMING_TOKENS = TILE_ROWS;

/**
 * A prompt waits when another prompt of the same step is about to compute at least this many tokens that it needs too,
 * or all that it needs, and then shares them. Below that, waiting costs more than computing them twice.
 */
const WORTH_WAITING_TOKENS = 16;

/**
 * Fills one decode and takes the cells for it: one token for every task that generates, so that no stream waits for a
 * prompt; then chunks of prompts in the order of their admission. Tasks without free cells sit this step out, and those
 * whose next tokens come from the disk.
 */
export function planStep(running: readonly GenerationTask[], cache: PrefixCache, limits: StepLimits): StepEntry[] {
  const entries: StepEntry[] = [];
  const generating = running.filter((candidate) => candidate.isDecoding);
  for (const task of generating) {
    if (entries.length < limits.batchTokens && cache.grow(task.lease!, 1)) entries.push({ task, count: 1 });
  }
  const prompts: StepEntry[] = [];
  const isStreaming = !limits.isOnGpu && generating.some(({ request }) => request.isStreamed);
  // Many streams fill the first tile: then prompts fill up the last one.
  const most = isStreaming ? STREAMING_TOKENS * Math.ceil((entries.length + 1) / STREAMING_TOKENS) : limits.batchTokens;
  let budget = Math.min(most, limits.batchTokens) - entries.length;
  for (const task of running.filter((candidate) => !candidate.isDecoding)) {
    if (budget === 0) break;
    share(task, cache);
    if (task.isAwaitingDisk) continue;
    if (limits.sharesPrompts && prompts.some((entry) => isWorthWaiting(task, entry, cache))) continue;
    const wanted = cache.checkpoints ? task.checkpointAfter(task.computed) - task.computed : task.pending;
    const count = Math.min(budget, wanted, cache.availableCells());
    task.endsAtCheckpoint = count === wanted;
    if (count > 0 && cache.grow(task.lease!, count)) {
      prompts.push({ task, count });
      budget -= count;
    }
  }
  return [...entries, ...prompts];
}

/**
 * Takes over what other requests have computed of this prompt since its last chunk, and what lower tiers hold of it.
 */
function share(task: GenerationTask, cache: PrefixCache): void {
  if (task.hasPrivateTokens) return;
  task.share(cache.extend(task.lease!, task.tokens, task.sharedAtMost));
}

function isWorthWaiting(task: GenerationTask, entry: StepEntry, cache: PrefixCache): boolean {
  const { task: other, count } = entry;
  if (task.hasPrivateTokens || !cache.samePath(task.lease!, other.lease!)) return false;
  const computed = cache.checkpoints ? other.checkpointAfter(other.lease!.length) : other.computed + count;
  if (computed <= other.computed) {
    // There was no room for its checkpoint.
    return false;
  }
  const needed = task.sharedAtMost - task.computed;
  const most = Math.min(computed - task.computed, needed);
  let common = 0;
  while (common < most && task.tokens[task.computed + common] === other.tokens[task.computed + common]) common++;
  return common >= Math.min(WORTH_WAITING_TOKENS, Math.max(1, needed));
}
