import { replacementPolicy } from '@warmpath/core/internal';
import { expect, it } from 'vitest';
import { PrefixCache } from '../../src/cache/prefix-cache.js';
import { planStep } from '../../src/loop/step-plan.js';
import { GenerationTask } from '../../src/loop/task.js';
import { FakeMemory } from '../cache/fake-memory.js';

const CELLS = 8192;

/** How many tokens of each request the next step holds, where so many streams run and prompts wait. */
function plan(streams: number, prompts: readonly number[], { isStreamed = true, isOnGpu = false } = {}): number[] {
  const memory = new FakeMemory(CELLS);
  const cache = new PrefixCache({
    memory,
    cells: CELLS,
    sequences: Array.from({ length: 250 }, (_, index) => index + 1),
    host: { memory, capacityBytes: 0 },
    policy: replacementPolicy('lru'),
    cost: { prefillMs: (_, newTokens) => newTokens },
  });
  const start = (prompt: readonly number[]): GenerationTask => {
    const sampling = { temperature: 0, topP: 1 };
    const request = { id: 'x', prompt, maxTokens: 9, isStreamed, sampling, seed: 0, stops: [] };
    const listener = { onText: () => undefined, onFinish: () => undefined, onError: () => undefined };
    const task = new GenerationTask({ ...request, ignoreEndOfGeneration: true }, listener, 0);
    task.lease = cache.acquire(task.tokens, task.sharedAtMost);
    return task;
  };
  const running = Array.from({ length: streams }, (_, index) => {
    const task = start([index]);
    cache.grow(task.lease!, 1);
    task.computed = 1;
    task.tokens.push(0);
    return task;
  });
  const waiting = prompts.map((length, index) => start(Array.from({ length }, () => 1_000 + index)));
  const entries = planStep([...running, ...waiting], cache, { batchTokens: 512, isOnGpu, sharesPrompts: true });
  expect(entries.slice(0, streams).every(({ count }) => count === 1)).toBe(true);
  return entries.slice(streams).map(({ count }) => count);
}

it.each([
  ['a whole batch where no client reads a stream', 3, [2_000], { isStreamed: false }, [509]],
  ['a whole batch where nothing is generated', 0, [300, 300], {}, [300, 212]],
  ['what fills up a tile beside streams', 3, [2_000], {}, [61]],
  ['several prompts in that tile', 3, [20, 30, 40], {}, [20, 30, 11]],
  ['what fills up the last tile beside many streams', 70, [2_000], {}, [58]],
  ['a tile more where streams fill theirs', 64, [2_000], {}, [64]],
  ['a whole batch on a GPU', 3, [2_000], { isOnGpu: true }, [509]],
] as const)('a step holds %s', (_, streams, prompts, how, expected) => {
  expect(plan(streams, prompts, how)).toEqual(expected);
});
