import { arrange, type WorkSteps } from '@warmpath/core';
import { expect, test } from 'vitest';
import { SLICE_SIZE, WorkSlices } from '../src/intake/work-slices.js';
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

test('work of less than a slice is done at once', () => {
  expect(
    new WorkSlices().run(
      workOf(10, SLICE_SIZE / 20, () => {}),
      () => false,
    ),
  ).toBe('done');
});

test('in one turn of the event loop, no more than a slice of all large work together is done', async () => {
  const slices = new WorkSlices();
  const clock = countTurns();
  const sizes = new Map<number, number>();
  const order: number[] = [];
  const size = SLICE_SIZE / 4;
  const works = [0, 1, 2].map((name) =>
    workOf(40, size, () => {
      sizes.set(clock.turns, (sizes.get(clock.turns) ?? 0) + size);
      order.push(name);
    }),
  );
  const results = works.map((work) => slices.run(work, () => false));
  // What is begun at once is as many slices as there are works.
  sizes.clear();
  order.length = 0;
  expect(await Promise.all(results)).toEqual(['done', 'done', 'done']);
  clock.stop();
  expect(Math.max(...sizes.values())).toBeLessThanOrEqual(SLICE_SIZE);
  // One slice each, in turns.
  expect(order.slice(0, 12)).toEqual([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]);
});

test('what nobody waits for any more is not worked on, and what fails stops no other work', async () => {
  const slices = new WorkSlices();
  let steps = 0;
  const unwanted = slices.run(
    workOf(40, SLICE_SIZE, () => {
      steps++;
    }),
    () => true,
  );
  const failing = slices.run(
    workOf(40, SLICE_SIZE, () => {
      if (++steps > 5) throw new TypeError('a defect');
    }),
    () => false,
  );
  const other = slices.run(
    workOf(40, SLICE_SIZE, () => {}),
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
          return performance.now();
        },
        arrange: (...given) => {
          between = clock.turns - noted[BODY_NOTED]!;
          return arrange(...given);
        },
      },
    ),
  );
  noted = [];
  const reply = await send(`${gateway.url}/v1/chat/completions`, { model: 'm', ...fields });
  clock.stop();
  expect(reply.status).toBe(200);
  // Each byte is looked at more than once: read, and hashed or rendered.
  expect(between).toBeGreaterThan((1.5 * BYTES) / SLICE_SIZE);
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
