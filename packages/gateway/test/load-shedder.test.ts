import { describe, expect, it } from 'vitest';
import { LoadShedder, type ProcessLoad, type SheddingReason } from '../src/intake/load-shedder.js';

const MIB = 2 ** 20;
const LIMIT = 1_024 * MIB;
/** A process that has nothing to do. */
const IDLE: ProcessLoad = { delayMs: 0, acceptMs: 0, acceptQueue: 0, heapBytes: 100 * MIB, heapLimitBytes: LIMIT };
const late = (delayMs: number): ProcessLoad => ({ ...IDLE, delayMs });
/** With so much of the old generation taken: all of the heap but three semi-spaces of 16 MiB. */
const taken = (part: number): ProcessLoad => ({ ...IDLE, heapBytes: part * (LIMIT - 48 * MIB) });

function shedderWith({ isBusy = true } = {}) {
  const clock = { now: 0 };
  const changes: (SheddingReason | undefined)[] = [];
  const refused: SheddingReason[] = [];
  let collections = 0;
  const busy = { isBusy };
  const turns = { queue: { requests: 0, waitMs: 0 } };
  const shedder = new LoadShedder({
    now: () => clock.now,
    turns,
    isBusy: () => busy.isBusy,
    collectGarbage: () => collections++,
    changed: (reason) => changes.push(reason),
    refused: (reason) => refused.push(reason),
  });
  return { shedder, clock, turns, changes, refused, busy, collections: () => collections };
}

/**
 * A process whose turns take as long as what came during the last one: `perMs` requests, of which each takes a
 * millisecond where it is served, and `refusalMs` where it is not.
 */
class BusyProcess {
  readonly parts = shedderWith();
  readonly served = new Map<string, number>();
  readonly offered = new Map<string, number>();
  readonly turns: number[] = [];
  readonly #refusalMs: number;
  #turnMs = 1;
  #lookedAt = 0;
  #owed = 0;
  looks = 0;

  constructor(refusalMs: number) {
    this.#refusalMs = refusalMs;
  }

  run(ms: number, perMs: number, tenantOf: (request: number) => string = () => 'only'): void {
    const { shedder, clock } = this.parts;
    for (const until = clock.now + ms; clock.now < until; ) {
      this.#owed += this.#turnMs * perMs;
      let turnMs = 0;
      const began = clock.now;
      for (let request = 0; this.#owed >= 1; request++, this.#owed--) {
        const tenant = tenantOf(request);
        clock.now = began + turnMs;
        const isServed = shedder.refusal(tenant) === undefined;
        this.offered.set(tenant, (this.offered.get(tenant) ?? 0) + 1);
        if (isServed) this.served.set(tenant, (this.served.get(tenant) ?? 0) + 1);
        turnMs += isServed ? 1 : this.#refusalMs;
      }
      this.#turnMs = Math.max(1, turnMs);
      clock.now = began + this.#turnMs;
      this.turns.push(this.#turnMs);
      if (clock.now - this.#lookedAt < 100) continue;
      this.#lookedAt = clock.now;
      this.looks++;
      shedder.look(late(this.#turnMs));
    }
  }
}

describe('an event loop that comes late', () => {
  it.each([
    [1.2, 0.1],
    [2, 0.1],
    [2, 0.3],
    [5, 0.1],
  ])('offered %d times what it can do, it goes on doing it', (times, refusalMs) => {
    const busy = new BusyProcess(refusalMs);
    busy.run(10_000, times);
    busy.turns.length = 0;
    busy.served.clear();
    busy.run(20_000, times);
    // Little longer than is let be, and not more and more.
    expect(Math.max(...busy.turns)).toBeLessThan(2_500);
    // What refusing costs is lost; of the rest most is served.
    const possible = (1 - times * refusalMs) / (1 - refusalMs);
    expect(busy.served.get('only')! / 20_000).toBeGreaterThan(0.6 * possible);
    const { looks } = busy;
    busy.run(1_000, 0.5);
    expect(busy.parts.shedder.reason).toBeUndefined();
    expect(busy.looks - looks).toBeLessThanOrEqual(10);
  });

  it('refuses those who ask most, and nobody else as long as that is enough', () => {
    const busy = new BusyProcess(0.1);
    busy.run(30_000, 2, (request) => (request % 10 === 0 ? `small-${(request / 10) % 4}` : 'large'));
    expect(busy.served.get('large')).toBeLessThan(0.7 * busy.offered.get('large')!);
    for (let i = 0; i < 4; i++) {
      const [served, offered] = [busy.served.get(`small-${i}`)!, busy.offered.get(`small-${i}`)!];
      expect(served / offered).toBeGreaterThan(0.9);
    }
  });

  it('is none because of one long turn', () => {
    const { shedder, changes } = shedderWith();
    for (let i = 0; i < 10; i++) {
      shedder.look(late(5_000));
      shedder.look(IDLE);
    }
    expect(changes).toEqual([]);
    expect(shedder.refusal('anybody')).toBeUndefined();
  });

  it('tells once that requests are refused, and once that none is, and when to come again', () => {
    const { shedder, changes, refused } = shedderWith();
    for (let i = 0; i < 20; i++) shedder.look(late(1_200));
    const error = shedder.refusal('anybody')!;
    expect(error).toMatchObject({ code: 'WARMPATH_OVERLOADED', status: 429, retryAfterS: 1 });
    expect(refused).toEqual(['event_loop']);
    for (let i = 0; i < 20; i++) shedder.look(IDLE);
    expect(changes).toEqual(['event_loop', undefined]);
  });
});

/**
 * A process that accepts connections in the order in which they come, `perMs` of them, each with a request that takes
 * a millisecond where it is served, and `refusalMs` where it is not.
 */
function queueOf({
  perMs,
  refusalMs,
  ms,
}: {
  readonly perMs: number;
  readonly refusalMs: number;
  readonly ms: number;
}) {
  const { shedder, clock, changes } = shedderWith();
  const waits: number[] = [];
  let served = 0;
  let lookedAt = 0;
  for (let next = 0; clock.now < ms; next++) {
    const cameAt = next / perMs;
    clock.now = Math.max(clock.now, cameAt);
    const waitedMs = clock.now - cameAt;
    if (clock.now - lookedAt >= 100) {
      lookedAt = clock.now;
      shedder.look({ ...IDLE, acceptMs: waitedMs, acceptQueue: waitedMs * perMs });
    }
    const isServed = shedder.refusal('only') === undefined;
    if (clock.now > ms / 2) {
      waits.push(waitedMs);
      if (isServed) served++;
    }
    clock.now += isServed ? 1 : refusalMs;
  }
  return { shedder, changes, waits, served };
}

describe('connections that wait', () => {
  it.each([
    [1.2, 0.1],
    [2, 0.1],
    [2, 0.3],
    [5, 0.1],
    [8, 0.1],
  ])('offered %d times what it can do, it keeps their wait near a second at most', (perMs, refusalMs) => {
    const { waits, served } = queueOf({ perMs, refusalMs, ms: 20_000 });
    expect(Math.max(...waits)).toBeLessThan(1_200);
    // What refusing costs is lost; the rest is served.
    const possible = (1 - perMs * refusalMs) / (1 - refusalMs);
    expect(served / 10_000).toBeGreaterThan(0.9 * possible);
  });

  it('are no overload where there is time for all', () => {
    const { changes, served } = queueOf({ perMs: 0.95, refusalMs: 0.1, ms: 20_000 });
    expect(changes).toEqual([]);
    expect(served / 9_500).toBeCloseTo(1, 2);
  });

  it('are no overload in a burst that is served in time', () => {
    const { shedder, changes } = shedderWith();
    for (let i = 0; i < 20; i++) shedder.look({ ...IDLE, acceptMs: 1_400, acceptQueue: 800 });
    expect(changes).toEqual([]);
    shedder.look({ ...IDLE, acceptMs: 1_400, acceptQueue: 801 });
    expect(changes).toEqual(['event_loop']);
  });

  it('are refused in part before the kernel has no room for more, however short they wait', () => {
    const refusedOf = (acceptQueue: number) => {
      const { shedder } = shedderWith();
      shedder.look({ ...IDLE, acceptMs: 100, acceptQueue });
      return Array.from({ length: 100 }, () => shedder.refusal('only')).filter((error) => error !== undefined).length;
    };
    expect(refusedOf(2_048)).toBe(0);
    expect(refusedOf(2_304)).toBe(50);
    expect(refusedOf(2_560)).toBe(100);
    expect(refusedOf(4_096)).toBe(100);
  });

  it('are no queue where the turns alone explain their wait', () => {
    const { shedder, changes } = shedderWith();
    for (let i = 0; i < 20; i++) shedder.look({ ...IDLE, delayMs: 600, acceptMs: 1_300, acceptQueue: 10 });
    expect(changes).toEqual([]);
    shedder.look({ ...IDLE, delayMs: 600, acceptMs: 2_900, acceptQueue: 10 });
    expect(changes).toEqual(['event_loop']);
  });
});

describe('a turn that becomes too long', () => {
  it('refuses what is left of many requests, and nothing of a few', () => {
    const refusedOf = (count: number, eachMs: number) => {
      const { shedder, clock } = shedderWith();
      let refused = 0;
      for (let i = 0; i < count; i++, clock.now += eachMs) if (shedder.refusal('only') !== undefined) refused++;
      return refused;
    };
    expect(refusedOf(99, 100)).toBe(0);
    expect(refusedOf(800, 1.8)).toBe(0);
    // All are served up to a part of a second, and none later.
    expect(refusedOf(10_000, 0.1)).toBeGreaterThan(2_000);
    expect(refusedOf(10_000, 0.1)).toBeLessThan(4_000);
  });
});

describe('requests that wait for a turn', () => {
  it('are refused in part where many wait long, or a few for longer, and no more once they are begun', () => {
    const { shedder, turns, changes } = shedderWith();
    const refusedOf = (requests: number, waitMs: number) => {
      turns.queue = { requests, waitMs };
      return Array.from({ length: 100 }, () => shedder.refusal('only')).filter((error) => error !== undefined).length;
    };
    expect(refusedOf(800, 1_400)).toBe(0);
    expect(refusedOf(801, 599)).toBe(0);
    expect(refusedOf(801, 675)).toBe(50);
    expect(refusedOf(800, 1_575)).toBe(50);
    expect(refusedOf(801, 900)).toBe(100);
    shedder.look(IDLE);
    expect(changes).toEqual(['event_loop']);
    turns.queue = { requests: 0, waitMs: 0 };
    for (let i = 0; i < 10; i++) shedder.look(IDLE);
    expect(changes).toEqual(['event_loop', undefined]);
    expect(refusedOf(0, 0)).toBe(0);
  });
});

describe('a heap that is full', () => {
  it('lets one request at a time go on', () => {
    const { shedder, busy, changes, refused } = shedderWith();
    shedder.look(taken(0.79));
    expect(shedder.refusal('anybody')).toBeUndefined();
    shedder.look(taken(0.81));
    expect(shedder.refusal('anybody')).toMatchObject({ code: 'WARMPATH_OVERLOADED', retryAfterS: 1 });
    busy.isBusy = false;
    expect(shedder.refusal('anybody')).toBeUndefined();
    // Free again with a little more room than it was full with.
    shedder.look(taken(0.76));
    expect(changes).toEqual(['heap']);
    shedder.look(taken(0.74));
    expect(changes).toEqual(['heap', undefined]);
    expect(refused).toEqual(['heap']);
  });

  it('is looked at again after a collection, which is asked for ever more seldom', () => {
    const { shedder, clock, collections } = shedderWith();
    for (; clock.now < 120_000; clock.now += 100) shedder.look(taken(0.95));
    // After 0, 1, 3, 7, 15, 31 seconds, and every 30 from then on.
    expect(collections()).toBe(8);
    shedder.look(IDLE);
    shedder.look(taken(0.95));
    clock.now += 1_000;
    shedder.look(taken(0.95));
    expect(collections()).toBeGreaterThanOrEqual(9);
  });
});
