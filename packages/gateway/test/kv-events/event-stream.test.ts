import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { EventStream, type NumberedBatch } from '../../src/engines/kv-events/event-stream.js';
import '../../../core/test/seed.js';

/** What the sink heard: numbers of one engine's batches, from the start or behind a loss. */
interface Life {
  readonly numbers: number[];
  losses: number;
}

/** A publisher that counts, keeps its latest batches, and restarts; and the network to one subscriber. */
class PublisherTwin {
  readonly lives: Life[] = [];
  readonly stream: EventStream;
  readonly #kept: number;
  #life = 0;
  #next = 0;
  #pending: (() => void)[] = [];

  constructor(kept: number, { answers = true } = {}) {
    this.#kept = kept;
    this.stream = new EventStream({
      sink: {
        began: () => this.lives.push({ numbers: [], losses: 0 }),
        batch: (payload) => this.lives.at(-1)!.numbers.push(Buffer.from(payload).readUInt32BE(0)),
        lost: () => {
          this.lives.at(-1)!.losses++;
        },
      },
      replay: (from) =>
        new Promise((resolve, reject) => {
          const answer = this.#from(from);
          this.#pending.push(() => (answers ? resolve(answer) : reject(new Error('no answer'))));
        }),
    });
  }

  publish(isDropped: boolean): void {
    const batch = this.#batch(this.#next++);
    if (isDropped) return;
    this.stream.receive(batch);
  }

  restart(): void {
    this.#life++;
    this.#next = 0;
  }

  /** Answers all questions, and those that the answers lead to. */
  async answer(): Promise<void> {
    while (this.#pending.length > 0) {
      for (const answer of this.#pending.splice(0)) answer();
      await Promise.resolve();
      await Promise.resolve();
    }
  }

  get next(): number {
    return this.#next;
  }

  #from(first: number): NumberedBatch[] {
    const oldest = Math.max(first, this.#next - this.#kept, 0);
    return Array.from({ length: Math.max(0, this.#next - oldest) }, (_, place) => this.#batch(oldest + place));
  }

  #batch(sequence: number): NumberedBatch {
    const payload = Buffer.alloc(8);
    payload.writeUInt32BE(sequence, 0);
    payload.writeUInt32BE(this.#life, 4);
    return { sequence, payload };
  }
}

const step = fc.oneof(
  { weight: 10, arbitrary: fc.record({ kind: fc.constant('publish' as const), isDropped: fc.boolean() }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('answer' as const) }) },
);

describe('a stream of KV events', () => {
  test('hands on every batch once and in order; says so where some are gone', async () => {
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 0, max: 12 }), fc.array(step, { maxLength: 60 }), async (kept, steps) => {
        const publisher = new PublisherTwin(kept);
        for (const each of steps) {
          if (each.kind === 'answer') await publisher.answer();
          else publisher.publish(each.isDropped);
        }
        await publisher.answer();
        publisher.publish(false);
        await publisher.answer();
        const [life] = publisher.lives;
        expect(publisher.lives).toHaveLength(1);
        const { numbers, losses } = life!;
        expect(numbers).toEqual([...new Set(numbers)].toSorted((a, b) => a - b));
        expect(numbers.at(-1)).toBe(publisher.next - 1);
        const isWhole = numbers.length === publisher.next;
        expect(losses === 0).toBe(isWhole);
      }),
      { numRuns: 1_000 },
    );
  });

  test('loses nothing that the publisher still keeps', async () => {
    const publisher = new PublisherTwin(1_000);
    for (let number = 0; number < 100; number++) {
      publisher.publish(number % 3 === 0);
      if (number % 7 === 0) await publisher.answer();
    }
    publisher.publish(false);
    await publisher.answer();
    expect(publisher.lives).toEqual([{ numbers: Array.from({ length: 101 }, (_, number) => number), losses: 0 }]);
    expect(publisher.stream.counts.gaps).toBeGreaterThan(10);
  });

  test('begins anew with an engine that counts anew, and drops the answer to a question about the old one', async () => {
    const publisher = new PublisherTwin(1_000);
    for (let number = 0; number < 5; number++) publisher.publish(number === 3);
    publisher.restart();
    publisher.publish(false);
    publisher.publish(false);
    await publisher.answer();
    expect(publisher.lives).toEqual([
      { numbers: [0, 1, 2], losses: 0 },
      { numbers: [0, 1], losses: 0 },
    ]);
    expect(publisher.stream.counts.restarts).toBe(1);
  });

  test.each([
    ['behind a gap', 3, false],
    ['that got just as far, where the connection broke', 2, true],
  ])('notices an engine that began anew %s', async (_, missed, isBroken) => {
    const publisher = new PublisherTwin(1_000);
    publisher.publish(false);
    publisher.publish(false);
    publisher.restart();
    if (isBroken) publisher.stream.disconnected();
    for (let number = 0; number < missed; number++) publisher.publish(true);
    publisher.publish(false);
    publisher.publish(false);
    await publisher.answer();
    expect(publisher.lives).toEqual([
      { numbers: [0, 1], losses: 0 },
      { numbers: Array.from({ length: missed + 2 }, (_each, number) => number), losses: 0 },
    ]);
    expect(publisher.stream.counts.restarts).toBe(1);
  });

  test('goes on after a broken connection to the same engine', async () => {
    const publisher = new PublisherTwin(1_000);
    publisher.publish(false);
    publisher.stream.disconnected();
    publisher.publish(false);
    publisher.publish(false);
    await publisher.answer();
    expect(publisher.lives).toEqual([{ numbers: [0, 1, 2], losses: 0 }]);
    expect(publisher.stream.counts.restarts).toBe(0);
  });

  test('a subscriber that comes late hears from the beginning what is kept, and is told what is not', async () => {
    for (const [kept, losses] of [
      [50, 0],
      [5, 1],
    ] as const) {
      const publisher = new PublisherTwin(kept);
      for (let number = 0; number < 20; number++) publisher.publish(number < 19);
      await publisher.answer();
      expect(publisher.lives).toHaveLength(1);
      expect(publisher.lives[0]!.losses).toBe(losses);
      expect(publisher.lives[0]!.numbers.at(-1)).toBe(19);
    }
  });

  test('an engine without batches is known to hold nothing; so is one that restarted and is idle', async () => {
    const publisher = new PublisherTwin(1_000);
    publisher.stream.connected();
    await publisher.answer();
    expect(publisher.lives).toEqual([{ numbers: [], losses: 0 }]);
    publisher.publish(false);
    publisher.stream.disconnected();
    publisher.restart();
    publisher.stream.connected();
    await publisher.answer();
    publisher.publish(false);
    await publisher.answer();
    expect(publisher.lives).toEqual([
      { numbers: [0], losses: 0 },
      { numbers: [0], losses: 0 },
    ]);
    expect(publisher.stream.counts.restarts).toBe(1);
  });

  test('a connection to an engine that does not answer proves nothing', async () => {
    const publisher = new PublisherTwin(1_000, { answers: false });
    publisher.stream.connected();
    await publisher.answer();
    expect(publisher.lives).toEqual([]);
    publisher.publish(false);
    await publisher.answer();
    expect(publisher.lives).toEqual([{ numbers: [0], losses: 0 }]);
  });

  test('a gap is a loss where nobody answers, and the stream goes on', async () => {
    const publisher = new PublisherTwin(1_000, { answers: false });
    publisher.publish(false);
    publisher.publish(true);
    publisher.publish(false);
    publisher.publish(false);
    await publisher.answer();
    expect(publisher.lives).toEqual([{ numbers: [0, 2, 3], losses: 1 }]);
  });

  test('a batch that comes twice is no new engine', () => {
    const heard: number[] = [];
    const sink = { began: () => heard.push(-1), batch: ([byte]: Uint8Array) => heard.push(byte!), lost: () => {} };
    const stream = new EventStream({ sink, replay: undefined });
    for (const sequence of [0, 1, 2, 2, 3]) stream.receive({ sequence, payload: Uint8Array.of(sequence) });
    expect(heard).toEqual([-1, 0, 1, 2, 3]);
    expect(stream.counts).toMatchObject({ duplicates: 1, restarts: 0, losses: 0 });
  });

  test('waits for a replay with a bounded number of batches', () => {
    const publisher = new PublisherTwin(0);
    publisher.publish(false);
    publisher.publish(true);
    for (let number = 0; number < 10_001; number++) publisher.publish(false);
    expect(publisher.lives[0]!.losses).toBe(1);
    expect(publisher.lives[0]!.numbers).toHaveLength(10_002);
  });

  test('waits for a replay with a bounded number of bytes', () => {
    let lost = 0;
    const numbers: number[] = [];
    const sink = { began: () => {}, batch: (payload: Uint8Array) => numbers.push(payload.length), lost: () => lost++ };
    const stream = new EventStream({ sink, replay: () => new Promise(() => {}) });
    const payload = Buffer.alloc(1_048_576);
    stream.receive({ sequence: 0, payload });
    for (let sequence = 2; sequence < 34; sequence++) stream.receive({ sequence, payload });
    expect([numbers.length, lost]).toEqual([1, 0]);
    stream.receive({ sequence: 34, payload });
    expect([numbers.length, lost]).toEqual([34, 1]);
    // What waited counts no more: as much finds room behind the next gap.
    for (let sequence = 36; sequence < 68; sequence++) stream.receive({ sequence, payload });
    expect([numbers.length, lost]).toEqual([34, 1]);
  });
});
