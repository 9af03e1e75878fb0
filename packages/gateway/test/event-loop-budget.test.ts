import { arrange } from '@warmpath/core';
import type { WorkSteps } from '@warmpath/core/internal';
import { expect, onTestFinished, test, vi } from 'vitest';
import { EventLoopBudget, UNINTERRUPTED_SIZE } from '../src/limits/load.js';
import { FakeEngine } from './fake-engine.js';
import { closing, gatewayAt, send, stand } from './harness.js';

/** Turns of the event loop, counted as long as `stop` is not called. */
function countTurns() {
  let turns = 0;
  let isOver = false;
  const next = (): void => {
    turns++;
    if (!isOver) setImmediate(next);
  };
  setImmediate(next);
  return {
    get turns() {
      return turns;
    },
    stop: () => {
      isOver = true;
    },
  };
}

/** Work of so many steps of one size; `noted` is told of each. */
function* workOf(steps: number, size: number, noted: () => void): WorkSteps<string> {
  for (let step = 0; step < steps; step++) {
    noted();
    yield size;
  }
  return 'done';
}

const nextTurn = () => new Promise<void>((resolve) => setImmediate(resolve));

/** Pieces of work of `eachMs` that come in one turn, and how many of them each turn began. */
async function burst(count: number, eachMs: number) {
  let now = 0;
  const budget = new EventLoopBudget(() => now);
  const begun: number[] = [];
  const perTurn: number[] = [];
  for (let name = 0; name < count; name++) {
    budget.run(() => {
      begun.push(name);
      now += eachMs;
    });
  }
  for (let before = 0; before < count; await nextTurn()) {
    perTurn.push(begun.length - before);
    before = begun.length;
  }
  return { budget, begun, perTurn };
}

test('a burst is begun in its order, for ten milliseconds in each turn', async () => {
  const { budget, begun, perTurn } = await burst(100, 0.5);
  expect(begun).toEqual(Array.from({ length: 100 }, (_, name) => name));
  expect(perTurn).toEqual([20, 20, 20, 20, 20]);
  expect(budget.waitMs).toBe(0);
});

test('work that takes longer than the budget of a turn is alone in it', async () => {
  expect((await burst(4, 60)).perTurn).toEqual([1, 1, 1, 1]);
});

test('a turn in which a connection was accepted does one piece of waiting work', async () => {
  let now = 0;
  const budget = new EventLoopBudget(() => now);
  let begun = 0;
  for (let count = 0; count < 40; count++) {
    budget.run(() => {
      begun++;
      now++;
    });
  }
  expect(begun).toBe(10);
  budget.shortenTurn();
  await nextTurn();
  expect(begun).toBe(11);
  await nextTurn();
  expect(begun).toBe(21);
});

test('new work goes behind waiting work, and the wait of the oldest is known', async () => {
  let now = 0;
  const budget = new EventLoopBudget(() => now);
  const begun: string[] = [];
  const come = (name: string, ms: number) =>
    budget.run(() => {
      begun.push(name);
      now += ms;
    });
  come('a', 10);
  come('b', 10);
  now = 35;
  expect(budget.waitMs).toBe(25);
  const late = nextTurn();
  come('c', 1);
  await late;
  expect(begun).toEqual(['a', 'b']);
  await nextTurn();
  expect(begun).toEqual(['a', 'b', 'c']);
  await nextTurn();
  come('d', 1);
  expect(begun).toEqual(['a', 'b', 'c', 'd']);
});

test('small work is done at once, even when the budget of the turn is used up', () => {
  let now = 0;
  const budget = new EventLoopBudget(() => now);
  const small = workOf(10, UNINTERRUPTED_SIZE / 20, () => {
    now += 5;
  });
  expect(budget.runSteps(small, () => false)).toBe('done');
});

test('large works share the budget of a turn with each other and with new work', async () => {
  let now = 0;
  const budget = new EventLoopBudget(() => now);
  const clock = countTurns();
  const msOf = new Map<number, number>();
  const order: string[] = [];
  const took = (name: string, ms: number) => {
    now += ms;
    msOf.set(clock.turns, (msOf.get(clock.turns) ?? 0) + ms);
    if (order.at(-1) !== name) order.push(name);
  };
  const results = ['a', 'b', 'c'].map((name) =>
    budget.runSteps(
      workOf(40, UNINTERRUPTED_SIZE, () => took(name, 3)),
      () => false,
    ),
  );
  budget.run(() => took('small', 1));
  // What comes while nothing has run yet in this turn begins at once.
  msOf.clear();
  expect(await Promise.all(results)).toEqual(['done', 'done', 'done']);
  clock.stop();
  expect(Math.max(...msOf.values())).toBeLessThan(10 + 3);
  expect(order.slice(0, 8)).toEqual(['a', 'b', 'c', 'a', 'b', 'c', 'small', 'a']);
});

test('what nobody waits for any more is not worked on, and what fails stops no other work', async () => {
  let now = 0;
  const budget = new EventLoopBudget(() => now);
  let steps = 0;
  const unwanted = budget.runSteps(
    workOf(40, UNINTERRUPTED_SIZE, () => {
      now += 10;
      steps++;
    }),
    () => true,
  );
  const failing = budget.runSteps(
    workOf(40, UNINTERRUPTED_SIZE, () => {
      now += 10;
      if (++steps > 5) throw new TypeError('a defect');
    }),
    () => false,
  );
  const other = budget.runSteps(
    workOf(40, UNINTERRUPTED_SIZE, () => {
      now += 10;
    }),
    () => false,
  );
  const [left, failed, done] = await Promise.allSettled([unwanted, failing, other]);
  expect(left).toMatchObject({ reason: { code: 'WARMPATH_CLIENT_CLOSED' } });
  expect(failed).toMatchObject({ reason: { message: 'a defect' } });
  expect(done).toEqual({ status: 'fulfilled', value: 'done' });
});

const TEXT = 'The weight of Velka is 42 kg. '.repeat(40_000);
const large = (count: number) =>
  Array.from({ length: count }, (_, place) => ({ id: `d${place}`, content: `${place} ${TEXT.slice(0, 100_000)}` }));
const BYTES = 4_000_000;
const question = { role: 'user', content: 'What is the weight?' };

test.each([
  ['documents', { documents: large(BYTES / 100_000), messages: [question] }],
  [
    'messages before documents',
    {
      documents: large(1),
      messages: [...large(BYTES / 100_000).map(({ content }) => ({ role: 'user', content })), question],
    },
  ],
])('4 MB of %s let everything else have its turn while they are read', async (_name, fields) => {
  const engine = closing(await FakeEngine.start());
  const clock = countTurns();
  // By its clock the gateway notes when it has the body, and then when it arranges.
  let noted: number[] = [];
  let between = 0;
  const gateway = closing(
    await gatewayAt(
      engine.url,
      {},
      {
        now: () => {
          noted.push(clock.turns);
          return 0;
        },
        arrange: (...given) => {
          between = clock.turns - noted[BODY_NOTED]!;
          return arrange(...given);
        },
      },
    ),
  );
  // Each look at the clock finds the budget of the turn used up.
  let ms = performance.now();
  const processClock = vi.spyOn(performance, 'now').mockImplementation(() => {
    ms += 10;
    return ms;
  });
  onTestFinished(() => processClock.mockRestore());
  noted = [];
  const reply = await send(`${gateway.url}/v1/chat/completions`, { model: 'm', ...fields });
  clock.stop();
  expect(reply.status).toBe(200);
  // Each byte is looked at more than once: read, and hashed or rendered.
  expect(between).toBeGreaterThan((1.5 * BYTES) / UNINTERRUPTED_SIZE);
});

/** The clock is read when a request comes, and when its body is there. */
const BODY_NOTED = 1;

test('a small body is arranged in the turn in which it came', async () => {
  const turns: number[] = [];
  const clock = countTurns();
  const { gateway } = await stand(
    undefined,
    {},
    {
      now: () => {
        turns.push(clock.turns);
        return performance.now();
      },
      arrange: (...given) => {
        turns.push(clock.turns);
        return arrange(...given);
      },
    },
  );
  turns.length = 0;
  await send(`${gateway.url}/v1/chat/completions`, { model: 'm', documents: [{ content: 'a' }], messages: [question] });
  clock.stop();
  expect(turns[BODY_NOTED]).toBe(turns[BODY_NOTED + 1]);
});
