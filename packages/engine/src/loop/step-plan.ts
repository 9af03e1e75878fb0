import type { PrefixCache } from '../cache/prefix-cache.js';
import type { GenerationTask } from './task.js';

/** A task's share of one decode: the next `count` of its tokens. */
export interface StepEntry {
  readonly task: GenerationTask;
  readonly count: number;
}

/** What one decode may hold, in tokens. */
export interface StepLimits {
  readonly batchTokens: number;
  /** Of prompts, where streams must not be kept waiting. */
  readonly promptTokens: number;
}

/**
 * A prompt waits one step when another prompt of the same step is about to compute at least this many tokens that it
 * needs too, and then shares them. Below that, waiting costs more than computing them twice.
 */
const WORTH_WAITING_TOKENS = 16;

/**
 * Fills one decode: first one token for every task that generates, so that no stream waits for a prompt; then prompts
 * in the order of their admission, in chunks of what is left; those whose next tokens come from the disk sit it out.
 * Takes the cells for what it plans; tasks for which there are none sit this step out.
 *
 * @param running In the order of admission; every one has a lease.
 * @param limits Most tokens in one decode, and most of them for prompts.
 */
export function planStep(running: readonly GenerationTask[], cache: PrefixCache, limits: StepLimits): StepEntry[] {
  const entries: StepEntry[] = [];
  for (const task of running.filter((candidate) => candidate.isDecoding)) {
    if (entries.length < limits.batchTokens && cache.grow(task.lease!, 1)) {
      entries.push({ task, count: 1 });
    }
  }
  const prompts: StepEntry[] = [];
  let budget = Math.min(limits.batchTokens - entries.length, limits.promptTokens);
  for (const task of running.filter((candidate) => !candidate.isDecoding)) {
    if (budget === 0) {
      break;
    }
    share(task, cache);
    if (task.isAwaitingDisk) {
      continue;
    }
    if (prompts.some((entry) => isWorthWaiting(task, entry, cache))) {
      continue;
    }
    const wanted = cache.checkpoints ? task.nextCheckpoint - task.computed : task.pending;
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
  if (task.hasPrivateTokens) {
    return;
  }
  const gained = cache.extend(task.lease!, task.tokens, task.sharedAtMost);
  task.share(gained);
  task.isAwaitingDisk = gained.isAwaitingDisk;
}

function isWorthWaiting(task: GenerationTask, entry: StepEntry, cache: PrefixCache): boolean {
  if (task.hasPrivateTokens || entry.task.hasPrivateTokens || !cache.samePath(task.lease!, entry.task.lease!)) {
    return false;
  }
  const most = Math.min(entry.count, task.sharedAtMost - task.computed);
  let common = 0;
  while (common < most && task.tokens[task.computed + common] === entry.task.tokens[entry.task.computed + common]) {
    common++;
  }
  return common >= WORTH_WAITING_TOKENS;
}
