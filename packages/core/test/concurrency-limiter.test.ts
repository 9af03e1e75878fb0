import './seed.js';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
import { ConcurrencyLimiter, type SentRequest } from '../src/index.js';
import { SimulatedEngine, type SimulatedEngineOptions, scattered } from './simulated-engine.js';

const MAX = 1_024;

/** Prompts side by side in slots, as with many replicas behind one address; short answers. */
const PARALLEL: SimulatedEngineOptions = {
  slots: 8,
  prefillMs: (newTokens) => 20 + newTokens / 10,
  answerMs: (random) => 400 * random(),
  noise: scattered(0.2),
};

function engineOf(options: Partial<SimulatedEngineOptions>, seed = 1) {
  const limiter = new ConcurrencyLimiter(MAX);
  return { limiter, engine: new SimulatedEngine(limiter, { ...PARALLEL, ...options }, seed) };
}

/** Enough requests for the limit to be found. */
const settled = (slots: number) => 3_000 + 60 * slots;

describe('ConcurrencyLimiter', () => {
  it('finds the number of slots of an engine under lasting load, within a quarter', () => {
    const capacities = fc.oneof(fc.constantFrom(1, 2, 3, 4, 8, 256), fc.integer({ min: 1, max: 256 }));
    fc.assert(
      fc.property(capacities, fc.integer({ min: 0, max: 1_000 }), fc.boolean(), (slots, seed, isShort) => {
        const { engine } = engineOf({ slots, answerMs: (random) => (isShort ? 0 : 1_500 * random()) }, seed);
        engine.arrive(4 * slots + 50);
        engine.serve(settled(slots));
        const { limit } = engine.serve(settled(slots));
        expect(limit / slots).toBeGreaterThan(1 / 1.25);
        expect(limit / slots).toBeLessThan(1.25);
      }),
      { numRuns: runs(40) },
    );
  });

  it('finds what keeps an engine busy that computes one prompt at a time, whatever its slots', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 2_000 }), fc.integer({ min: 0, max: 1_000 }), (answerMs, seed) => {
        const serial = { isSerial: true, slots: 512, answerMs: () => answerMs, noise: scattered(0.2) };
        const { engine } = engineOf(serial, seed);
        engine.arrive(200);
        engine.serve(4_000);
        const { limit, perSecond } = engine.serve(4_000);
        const prefillMs = PARALLEL.prefillMs(1_100);
        const busy = (prefillMs + answerMs) / prefillMs;
        expect(limit / busy).toBeGreaterThan(1 / 1.25);
        expect(limit / busy).toBeLessThan(1.5);
        // Nothing is lost of what it can do.
        expect(perSecond * prefillMs).toBeGreaterThan(0.85 * 1_000);
      }),
      { numRuns: 10 },
    );
  });

  it('does not collapse under noise', () => {
    for (const [place, noise] of [scattered(0.5), scattered(0.8)].entries()) {
      const estimate = (newTokens: number, random: () => number) => newTokens * (0.5 + random());
      const { engine } = engineOf({ slots: 32, noise, estimate }, place);
      engine.arrive(200);
      engine.serve(6_000);
      const { limit, perSecond } = engine.serve(10_000);
      expect(limit).toBeGreaterThan(0.7 * 32);
      expect(limit).toBeLessThan(1.5 * 32);
      expect(perSecond).toBeGreaterThan((0.8 * 32 * 1_000) / (PARALLEL.prefillMs(1_100) + 200));
    }
  });

  it('follows an engine that loses slots and gets them back', () => {
    const { engine } = engineOf({ slots: 64 });
    engine.arrive(400);
    engine.serve(5_000);
    engine.options = { ...engine.options, slots: 12 };
    engine.serve(3_000);
    const few = engine.serve(2_000).limit;
    expect(few).toBeGreaterThan(12 / 1.25);
    expect(few).toBeLessThan(12 * 1.25);
    engine.options = { ...engine.options, slots: 64 };
    engine.serve(6_000);
    const many = engine.serve(5_000).limit;
    expect(many).toBeGreaterThan(64 / 1.25);
    expect(many).toBeLessThan(64 * 1.25);
  });

  it('recovers from a time in which the engine computed five times as slowly', () => {
    const { engine } = engineOf({ slots: 32 });
    engine.arrive(200);
    engine.serve(5_000);
    const { prefillMs } = engine.options;
    engine.options = { ...engine.options, prefillMs: (newTokens) => 5 * prefillMs(newTokens) };
    engine.serve(5_000);
    const slow = engine.serve(3_000).limit;
    expect(slow).toBeGreaterThan(32 / 1.25);
    engine.options = { ...engine.options, prefillMs };
    engine.serve(5_000);
    const { limit } = engine.serve(3_000);
    expect(limit).toBeGreaterThan(32 / 1.25);
    expect(limit).toBeLessThan(32 * 1.25);
  });

  it('does not grow while nothing needs it to, and takes nothing away from a light load', () => {
    const { limiter, engine } = engineOf({ slots: 8 });
    engine.arrive(60);
    engine.serve(3_000);
    const found = limiter.limit;
    engine.isClosed = false;
    while (engine.waiting > 0) engine.serve(1);
    engine.arriveAtRandom(4);
    const light = engine.serve(2_000);
    expect(light.limit).toBeLessThanOrEqual(found + 2);
    expect(light.limit).toBeGreaterThan(4);
    expect(light.perSecond).toBeGreaterThan(3.6);
  });

  it('leaves a light load alone from the start', () => {
    const { engine } = engineOf({ slots: 64, isSerial: true, answerMs: () => 4_000 });
    engine.arriveAtRandom(1);
    const { limit } = engine.serve(2_000);
    expect(limit).toBeGreaterThan(20);
  });

  it('holds up nothing where first tokens come at once, however many stream', () => {
    for (const prefillMs of [0.02, 0.1]) {
      const serial = { isSerial: true, slots: MAX, prefillMs: () => prefillMs, answerMs: () => 1_300 };
      const { engine } = engineOf({ ...serial, noise: scattered(0.8) });
      engine.arrive(512);
      engine.serve(4_000);
      expect(engine.serve(4_000).limit).toBe(MAX);
    }
  });

  it('learns from what the engine reports where answers do not tell when they begin', () => {
    const { limiter, engine } = engineOf({ slots: 8, tells: false });
    const report = (): void => {
      limiter.reported(engine.inside);
      engine.later(1_000, report);
    };
    engine.later(1_000, report);
    engine.arrive(60);
    engine.serve(3_000);
    const { limit } = engine.serve(3_000);
    expect(limit).toBeGreaterThan(8 / 1.25);
    expect(limit).toBeLessThan(8 * 1.3);
  });

  it('keeps its maximum where nothing tells', () => {
    const { engine } = engineOf({ slots: 8, tells: false });
    engine.arrive(60);
    expect(engine.serve(3_000).limit).toBe(MAX);
  });

  it('lets others pass where one is stuck, one after the other', () => {
    const limiter = new ConcurrencyLimiter(8);
    let now = 0;
    // One at a time, each a tenth of a second: two wait for each other.
    for (let place = 0; place < 400; place++) {
      const [first, second] = [limiter.sent(now, true), limiter.hasRoom(now) ? limiter.sent(now, true) : undefined];
      for (const request of [first, second]) {
        if (request === undefined) continue;
        now += 100;
        limiter.began(request, now, 100);
        limiter.ended(request, now);
      }
    }
    expect(limiter.limit).toBeLessThan(3);
    while (limiter.hasRoom(now)) limiter.sent(now, true);
    const { inFlight } = limiter;
    const roomAt = limiter.roomAt(now)!;
    expect(roomAt - now).toBeGreaterThan(500);
    expect(limiter.hasRoom(roomAt - 1)).toBe(false);
    for (let more = 0; inFlight + more < 8; more++) {
      now = limiter.roomAt(now)! + 1;
      expect(limiter.hasRoom(now)).toBe(true);
      limiter.sent(now, true);
    }
    expect(limiter.hasRoom(now + 1e9)).toBe(false);
    expect(limiter.roomAt(now)).toBeUndefined();
  });

  it('stays between 1 and its maximum, and counts right, whatever it is told', () => {
    const step = fc.record({
      kind: fc.constantFrom('send', 'begin', 'end', 'report'),
      ms: fc.oneof(fc.constant(0), fc.double({ min: 0, max: 1e6, noNaN: true }), fc.constant(-5)),
      which: fc.nat(),
      value: fc.oneof(fc.constantFrom(Number.NaN, -1, 0, 1e9), fc.nat(5_000)),
    });
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 40 }), fc.array(step, { maxLength: 300 }), (max, steps) => {
        const limiter = new ConcurrencyLimiter(max);
        const sent: SentRequest[] = [];
        let now = 0;
        for (const { kind, ms, which, value } of steps) {
          now += ms;
          const request = sent[which % Math.max(1, sent.length)];
          if (kind === 'send' && limiter.hasRoom(now)) sent.push(limiter.sent(now, which % 4 > 0));
          else if (kind === 'report') limiter.reported(value);
          else if (request !== undefined && kind === 'begin') limiter.began(request, now, value);
          else if (request !== undefined && kind === 'end') {
            limiter.ended(request, now);
            // Once is all that counts.
            limiter.ended(request, now);
            sent.splice(sent.indexOf(request), 1);
          }
          expect(Number.isSafeInteger(limiter.limit)).toBe(true);
          expect(limiter.limit).toBeGreaterThanOrEqual(1);
          expect(limiter.limit).toBeLessThanOrEqual(max);
          expect(limiter.inFlight).toBe(sent.length);
          expect(limiter.waiting).toBeGreaterThanOrEqual(0);
          // One that is alone is never held back.
          if (sent.length === 0) expect(limiter.hasRoom(now)).toBe(true);
          const roomAt = limiter.roomAt(now);
          if (roomAt !== undefined) expect(limiter.hasRoom(roomAt + 1e-3 + Math.abs(roomAt) * 1e-9)).toBe(true);
        }
      }),
      { numRuns: runs(300) },
    );
  });
});
