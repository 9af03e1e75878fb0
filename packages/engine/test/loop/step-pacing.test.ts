import { describe, expect, it } from 'vitest';
import { ObservedCost } from '../../src/loop/observed-cost.js';
import { StepPacing } from '../../src/loop/step-pacing.js';
import { GenerationTask } from '../../src/loop/task.js';
import type { BatchAttention } from '../../src/native/tile-padding.js';

const LISTENER = { onText: () => undefined, onFinish: () => undefined, onError: () => undefined };

/** A task of which so many tokens of the prompt are computed; one that has them all has generated a token too. */
function task(prompt: number, computed: number, isStreamed = true): GenerationTask {
  const request = {
    id: 'x',
    prompt: Array.from({ length: prompt }, () => 1),
    maxTokens: 10,
    isStreamed,
    sampling: { temperature: 0, topP: 1 },
    seed: 1,
    stops: [],
    ignoreEndOfGeneration: true,
  };
  const created = new GenerationTask(request, LISTENER, 0);
  created.computed = computed;
  if (computed === prompt) {
    created.tokens.push(1);
  }
  return created;
}

function start(streamGap = 3) {
  const asked: BatchAttention[] = [];
  const estimate = (batch: BatchAttention) => {
    asked.push(batch);
    return { nanoseconds: batch.rows + batch.attended, isTiled: false };
  };
  const pacing = new StepPacing({ batchTokens: 128, streamGap, cost: new ObservedCost(), estimate });
  const learnQuiet = (streams: readonly GenerationTask[]) => {
    for (let step = 0; step < 5; step++) {
      pacing.learn(
        streams.map((stream) => ({ task: stream, count: 1 })),
        1e6,
        100,
      );
    }
    asked.length = 0;
  };
  return { pacing, asked, learnQuiet };
}

describe('what a step may hold', () => {
  const streams = [task(100, 100), task(200, 200)];

  it('is a whole batch where nobody reads a stream, nobody waits with a prompt, or no limit is asked for', () => {
    const whole = { batchTokens: 128, promptTokens: 128 };
    const { pacing } = start();
    expect(pacing.limits([task(100, 100, false), task(50, 0)], 1e6)).toEqual(whole);
    expect(pacing.limits(streams, 1e6)).toEqual(whole);
    expect(start(0).pacing.limits([...streams, task(500, 0)], 1e6).promptTokens).toBe(126);
  });

  it('depends on what stands before the prompts that come first', () => {
    const { pacing, asked, learnQuiet } = start();
    learnQuiet(streams);
    // 304 for the two streams, and 2.4 × 2.55 times that in a burst: 1,556 are left.
    expect(pacing.limits([...streams, task(100, 0)], 1e6).promptTokens).toBe(54);
    expect(pacing.limits([...streams, task(500, 122)], 1e6).promptTokens).toBe(12);
    asked.length = 0;
    expect(pacing.limits([...streams, task(52, 50), task(2000, 1000)], 1e6).promptTokens).toBe(3);
    expect(asked[0]).toEqual({ rows: 2, attended: 101 + 201, span: 101 + 201 });
    expect(asked[1]).toEqual({ rows: 3, attended: 101 + 201 + 51, span: 101 + 201 + 51 });
    expect(asked[3]).toEqual({ rows: 5, attended: 101 + 201 + 51 + 52 + 1001, span: 101 + 201 + 52 + 1001 });
  });

  it('counts no more cells than there are, where sequences share them', () => {
    const { pacing, asked, learnQuiet } = start();
    learnQuiet(streams);
    pacing.limits([...streams, task(50, 0)], 150);
    expect(asked.every(({ span }) => span === 150)).toBe(true);
  });
});
