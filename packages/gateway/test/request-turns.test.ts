import { expect, test } from 'vitest';
import { RequestTurns } from '../src/intake/request-turns.js';

const nextTurn = () => new Promise<void>((resolve) => setImmediate(resolve));

/** Requests of `eachMs` that come in one turn, and what each later turn began of them. */
async function burst(count: number, eachMs: number) {
  let now = 0;
  const turns = new RequestTurns(() => now);
  const begun: number[] = [];
  const perTurn: number[] = [];
  for (let name = 0; name < count; name++) {
    turns.run(() => {
      begun.push(name);
      now += eachMs;
    });
  }
  for (let before = 0; before < count; await nextTurn()) {
    perTurn.push(begun.length - before);
    before = begun.length;
  }
  return { turns, begun, perTurn };
}

test('what comes at once is begun at once up to some milliseconds, and the rest in later turns, in its order', async () => {
  const { turns, begun, perTurn } = await burst(100, 0.5);
  expect(begun).toEqual(Array.from({ length: 100 }, (_, name) => name));
  expect(perTurn).toEqual([20, 20, 20, 20, 20]);
  expect(turns.queue).toEqual({ requests: 0, waitMs: 0 });
});

test('how long the last one will have waited is known by the pace of the turns before', async () => {
  let now = 0;
  const turns = new RequestTurns(() => now);
  for (let count = 0; count < 1_000; count++) turns.run(() => now++);
  for (let turn = 0; turn < 5; turn++) await nextTurn();
  const { requests, waitMs } = turns.queue;
  expect(requests).toBeLessThan(960);
  expect(waitMs).toBeCloseTo(requests);
  // As many have come again, and nothing is begun any faster: it is their wait, and not that of the first alone.
  for (let count = 0; count < 1_000; count++) turns.run(() => now++);
  expect(turns.queue.waitMs).toBeCloseTo(requests + 1_000);
});

test('a request that takes longer than a turn is alone in it', async () => {
  expect((await burst(4, 60)).perTurn).toEqual([1, 1, 1, 1]);
});

test('who comes while others wait goes behind them, and how long the first has waited is known', async () => {
  let now = 0;
  const turns = new RequestTurns(() => now);
  const begun: string[] = [];
  const come = (name: string, ms: number) =>
    turns.run(() => {
      begun.push(name);
      now += ms;
    });
  come('a', 10);
  come('b', 10);
  now = 35;
  expect(turns.queue).toEqual({ requests: 1, waitMs: 25 });
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
