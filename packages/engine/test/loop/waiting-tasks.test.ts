import { type CostModel, replacementPolicy } from '@warmpath/core/internal';
import { describe, expect, it } from 'vitest';
import { PrefixCache } from '../../src/cache/prefix-cache.js';
import { GenerationTask } from '../../src/loop/task.js';
import { WaitingTasks } from '../../src/loop/waiting-tasks.js';
import { FakeMemory } from '../cache/fake-memory.js';

const COST: CostModel = { prefillMs: (_cachedTokens, newTokens) => newTokens };

/** A cache of 64 cells, and what waits for it. */
class Bench {
  readonly cache: PrefixCache;
  readonly memory = new FakeMemory(64);
  readonly waiting: WaitingTasks;

  constructor() {
    this.cache = new PrefixCache({
      memory: this.memory,
      cells: 64,
      sequences: Array.from({ length: 16 }, (_, index) => index),
      host: { memory: this.memory, capacityBytes: 0 },
      policy: replacementPolicy('lru'),
      cost: COST,
    });
    this.waiting = new WaitingTasks(this.cache);
  }

  /** Computes a prompt, so that it is cached. */
  serve(tokens: number[]): void {
    const lease = this.cache.acquire(tokens, tokens.length - 1)!;
    this.cache.extend(lease, tokens, tokens.length - 1);
    const from = lease.length;
    this.cache.grow(lease, tokens.length - from);
    this.memory.compute(lease.sequence, tokens.slice(from));
    this.cache.commit(lease, tokens.slice(from));
    this.cache.release(lease);
  }

  push(...prompts: number[][]): GenerationTask[] {
    return this.pushWith([], ...prompts);
  }

  /** The same, with a priority for each. */
  pushWith(priorities: readonly number[], ...prompts: number[][]): GenerationTask[] {
    return prompts.map((prompt, index) => {
      const listener = { onText: () => undefined, onFinish: () => undefined, onError: () => undefined };
      const request = {
        id: `${index}`,
        prompt,
        maxTokens: 1,
        ...(priorities[index] !== undefined && { priority: priorities[index] }),
        sampling: { temperature: 0, topP: 1 },
        seed: 0,
        stops: [],
        ignoreEndOfGeneration: false,
      };
      const task = new GenerationTask(request, listener, 0);
      this.waiting.push(task);
      return task;
    });
  }

  drain(tasks: readonly GenerationTask[]): number[] {
    return tasks.map(() => tasks.indexOf(this.waiting.next()!));
  }
}

const run = (first: number, count: number): number[] => Array.from({ length: count }, (_, index) => first + index);

describe('waiting requests', () => {
  it('go by what they find for what they must compute, looked up anew whenever one goes', () => {
    const bench = new Bench();
    bench.serve(run(100, 20));
    const tasks = bench.push(run(0, 10), [...run(100, 10), 1, 2, 3], [...run(100, 20), 7]);
    expect(tasks.indexOf(bench.waiting.next()!)).toBe(2);
    // The first is cached by now, and the other still finds what it found.
    bench.serve(run(0, 10));
    expect(tasks.indexOf(bench.waiting.next()!)).toBe(0);
    expect(tasks.indexOf(bench.waiting.next()!)).toBe(1);
    expect(bench.waiting.next()).toBeUndefined();
  });

  it('go by priority first, and among equals by what they find', () => {
    const bench = new Bench();
    bench.serve(run(100, 20));
    const held = [...run(100, 20), 7];
    const tasks = bench.pushWith([3, 0, 3, 1, 0], run(0, 10), run(0, 10), held, held, held);
    expect([...bench.waiting].length).toBe(5);
    expect(bench.waiting.next()).toBe(tasks[4]);
    bench.waiting.putBack(tasks[4]!);
    expect([4, 1, 3].map(() => tasks.indexOf(bench.waiting.next()!))).toEqual([4, 1, 3]);
    // One that gave way waits before its equals, and behind the more urgent.
    bench.waiting.putBack(tasks[3]!);
    expect(bench.waiting.remove(tasks[3]!)).toBe(true);
    expect(bench.waiting.remove(tasks[3]!)).toBe(false);
    expect(bench.drain(tasks).slice(0, 2)).toEqual([2, 0]);
    expect(bench.waiting.size).toBe(0);
  });

  it('see what was evicted while they waited', () => {
    const bench = new Bench();
    bench.serve(run(100, 20));
    bench.serve(run(200, 10));
    const tasks = bench.push([...run(200, 10), 1, 1], run(0, 30), [...run(100, 20), 1, 1], [...run(100, 20), 1, 2]);
    expect(tasks.indexOf(bench.waiting.next()!)).toBe(2);
    // Sixty-four cells of this push the other out.
    bench.serve([...run(200, 10), ...run(1_000, 54)]);
    expect(bench.drain(tasks.filter((_, index) => index !== 2))).toEqual([0, 1, 2]);
  });

  it('are overtaken 32 times at most', () => {
    const bench = new Bench();
    bench.serve(run(100, 20));
    const tasks = bench.push(run(0, 5), ...run(0, 40).map((last) => [...run(100, 20), last]));
    expect(bench.drain(tasks)).toEqual([...run(1, 32), 0, ...run(33, 8)]);
  });

  it('that were chosen and found no room go before all others', () => {
    const bench = new Bench();
    const tasks = bench.push(run(0, 5), run(50, 5));
    const chosen = bench.waiting.next()!;
    bench.waiting.putBack(chosen);
    bench.serve(run(50, 4));
    expect([...bench.waiting]).toEqual(tasks);
    expect(bench.drain(tasks)).toEqual([0, 1]);
  });

  it('can be taken out wherever they wait', () => {
    const bench = new Bench();
    const tasks = bench.push(run(0, 5), run(50, 5), run(70, 5));
    bench.waiting.putBack(bench.waiting.next()!);
    expect(tasks.map((task) => bench.waiting.remove(task))).toEqual([true, true, true]);
    expect(bench.waiting.size).toBe(0);
    expect(bench.waiting.remove(tasks[0]!)).toBe(false);
  });
});
