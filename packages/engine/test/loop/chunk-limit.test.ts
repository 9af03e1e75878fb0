import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ChunkLimit } from '../../src/loop/chunk-limit.js';
import { seededRandom } from '../../src/loop/random.js';
import { type BatchAttention, type BatchEstimate, TILE_ROWS, TilePadding } from '../../src/native/tile-padding.js';

/** The shape of `random:24m`. */
const PADDING = new TilePadding({
  layers: 7,
  heads: 8,
  headWidth: 64,
  weights: 20e6,
  threads: 1,
  wideVectors: true,
});

interface Machine {
  /** How far its times are from what was estimated, for steps row by row and in tiles. */
  readonly byRow: number;
  readonly tiled: number;
  /** What every step takes besides. */
  readonly fixedMs: number;
  /** Share by which steps of one size differ. */
  readonly noise: number;
}

interface SimulatedStep {
  readonly tokens: number;
  /** How many times longer than without any prompt it took. */
  readonly ratio: number;
  readonly ms: number;
}

const EXACT: Machine = { byRow: 1, tiled: 1, fixedMs: 0, noise: 0 };

/**
 * Streams that were computed to a depth, and a prompt behind what is cached of it, on a machine with a cost model of
 * its own.
 */
class Simulation {
  readonly #limit: ChunkLimit;
  readonly #machine: Machine;
  readonly #random = seededRandom(7);
  readonly streams: number;
  depth: number;
  computed = 0;
  #prompt = {};

  constructor({ gap = 3, streams = 8, depth = 200, machine = EXACT, burstMs = 0 } = {}) {
    this.#limit = new ChunkLimit(gap, burstMs);
    this.#machine = machine;
    this.streams = streams;
    this.depth = depth;
  }

  /** @param prompt Tokens of the prompt, from `computed` on. */
  estimate(prompt: number): BatchEstimate {
    const runs = prompt * (this.computed + (prompt + 1) / 2);
    const batch: BatchAttention = {
      rows: this.streams + prompt,
      attended: this.streams * (this.depth + 1) + runs,
      span: this.streams * (this.depth + 1) + this.computed + prompt,
    };
    return PADDING.estimate(batch, true);
  }

  trueMs({ nanoseconds, isTiled }: BatchEstimate): number {
    return this.#machine.fixedMs + nanoseconds * 1e-6 * (isTiled ? this.#machine.tiled : this.#machine.byRow);
  }

  /**
   * One step; answers how many prompt tokens it held, and how many times longer than without any it took, noise left
   * out.
   */
  step(most: number): SimulatedStep {
    const { streams: generating } = this;
    const tokens =
      most === 0
        ? 0
        : this.#limit.tokens({
            prompt: this.#prompt,
            generating,
            most,
            estimate: (count) => this.estimate(count),
          });
    const estimate = this.estimate(tokens);
    const ratio = this.trueMs(estimate) / this.trueMs(this.estimate(0));
    const noise = 1 + this.#machine.noise * this.#random();
    this.#limit.observe({ generating, promptTokens: tokens, estimate }, this.trueMs(estimate) * noise);
    this.depth++;
    this.computed += tokens;
    return { tokens, ratio, ms: this.trueMs(estimate) };
  }

  quiet(steps: number): void {
    for (let step = 0; step < steps; step++) {
      this.step(0);
    }
  }

  /** Computes a prompt; answers its steps. */
  prompt(tokens: number, batchTokens = 128): SimulatedStep[] {
    this.#prompt = {};
    return this.samePrompt(tokens, batchTokens);
  }

  samePrompt(tokens: number, batchTokens = 128): SimulatedStep[] {
    const steps: SimulatedStep[] = [];
    while (this.computed < tokens) {
      steps.push(this.step(Math.min(batchTokens - this.streams, tokens - this.computed)));
    }
    return steps;
  }
}

describe('the prompt tokens beside running streams', () => {
  it('keep the gap at every depth of the prompt, on machines of every kind, and the prompt goes on', () => {
    const machine = fc.record({
      byRow: fc.double({ min: 0.3, max: 5, noNaN: true }),
      tiled: fc.double({ min: 0.3, max: 5, noNaN: true }),
      fixedMs: fc.double({ min: 0, max: 3, noNaN: true }),
      noise: fc.double({ min: 0, max: 0.2, noNaN: true }),
    });
    fc.assert(
      fc.property(
        machine,
        fc.integer({ min: 2, max: 40 }),
        fc.integer({ min: 50, max: 1500 }),
        (each, streams, depth) => {
          const simulation = new Simulation({ machine: each, streams, depth });
          simulation.quiet(20);
          const steps = simulation.prompt(3_000);
          const beside = steps.filter(({ tokens }) => tokens > 1);
          // The first steps find out how the machine differs from the estimate; a single token goes in whatever it
          // takes.
          expect(Math.max(...beside.slice(8).map(({ ratio }) => ratio))).toBeLessThan(3);
          expect(steps.filter(({ tokens }) => tokens === 0)).toEqual([]);
        },
      ),
      { seed: 3, numRuns: 60 },
    );
  });

  it('use the room that there was when the prompt came, and a third of a step whatever that was', () => {
    const simulation = new Simulation();
    simulation.quiet(20);
    const quietMs = simulation.trueMs(simulation.estimate(0));
    const steps = simulation.prompt(4_000);
    const gaps = steps.map(({ ms }) => ms / quietMs).sort((a, b) => a - b);
    expect(gaps[gaps.length >> 1]).toBeGreaterThan(2.4);
    expect(gaps[gaps.length >> 1]).toBeLessThan(3);
    expect(steps[0]!.tokens).toBeGreaterThan(steps[steps.length - 2]!.tokens);
    simulation.computed = 0;
    simulation.depth *= 10;
    const later = simulation.samePrompt(1_000).map(({ ratio }) => ratio);
    expect(Math.min(...later.slice(0, -1))).toBeGreaterThan(1.3);
    expect(Math.max(...later)).toBeLessThan(1.6);
  });

  it('fill a whole tile where that keeps the gap, and are never what a tile would hold in part', () => {
    const simulation = new Simulation({ gap: 40 });
    simulation.quiet(20);
    for (const { tokens } of simulation.prompt(2_000).slice(0, -1)) {
      const rows = tokens + simulation.streams;
      expect(tokens === 0 || rows < TILE_ROWS || rows % TILE_ROWS === 0 || tokens === 120).toBe(true);
    }
  });

  it('fall at once when a prompt begins far behind what is cached', () => {
    const simulation = new Simulation();
    simulation.quiet(20);
    simulation.prompt(400);
    simulation.computed = 6_000;
    const { ratio, tokens } = simulation.step(100);
    expect(tokens).toBeGreaterThan(0);
    expect(ratio).toBeLessThan(3);
  });

  it('recover from a step that something else disturbed', () => {
    const limit = new ChunkLimit(3, 0);
    const prompt = {};
    const estimate = (tokens: number): BatchEstimate => ({ nanoseconds: (8 + tokens) * 1e6, isTiled: false });
    const step = (promptTokens: number, factor = 1): void =>
      limit.observe({ generating: 8, promptTokens, estimate: estimate(promptTokens) }, factor * (8 + promptTokens));
    for (let count = 0; count < 5; count++) {
      step(0);
    }
    expect(limit.tokens({ prompt, generating: 8, most: 100, estimate })).toBe(12);
    step(12, 50);
    expect(limit.tokens({ prompt, generating: 8, most: 100, estimate })).toBeGreaterThanOrEqual(4);
    for (let count = 0; count < 12; count++) {
      step(12);
    }
    expect(limit.tokens({ prompt, generating: 8, most: 100, estimate })).toBe(12);
  });

  it('are none until it is known what is quiet with so many streams, and one at least from then on', () => {
    const slow = new Simulation({ gap: 1 });
    expect([slow.step(50), slow.step(50), slow.step(50)].map(({ tokens }) => tokens)).toEqual([0, 0, 0]);
    const later = slow.prompt(40);
    expect(later.every(({ tokens }) => tokens === 1)).toBe(true);
  });

  it('measure what is quiet anew for another prompt after many steps, and not for the same', () => {
    const simulation = new Simulation();
    simulation.quiet(20);
    expect(simulation.prompt(3_000).filter(({ tokens }) => tokens === 0)).toEqual([]);
    simulation.computed = 0;
    const sizes = simulation.prompt(500).map(({ tokens }) => tokens > 0);
    expect(sizes.slice(0, 4)).toEqual([false, false, false, true]);
    expect(sizes.slice(4)).not.toContain(false);
  });

  it('come in bursts where steps are short, which keep the gap on average and leave most steps quiet', () => {
    const machine = fc.record({
      byRow: fc.double({ min: 0.2, max: 1, noNaN: true }),
      tiled: fc.double({ min: 0.2, max: 1, noNaN: true }),
      fixedMs: fc.double({ min: 1.5, max: 3, noNaN: true }),
      noise: fc.double({ min: 0, max: 0.2, noNaN: true }),
    });
    fc.assert(
      fc.property(
        machine,
        fc.integer({ min: 1, max: 8 }),
        fc.integer({ min: 50, max: 300 }),
        (each, streams, depth) => {
          const simulation = new Simulation({ machine: each, streams, depth, burstMs: 100 });
          simulation.quiet(20);
          const quietMs = simulation.trueMs(simulation.estimate(0));
          const steps = simulation.prompt(1_500, 512);
          // The first of them finds out how the machine differs from the estimate.
          const learned = steps.slice(steps.findIndex(({ tokens }) => tokens > 0) + 1);
          expect(Math.max(...learned.map(({ ms }) => ms))).toBeLessThan(1.3 * 100);
          expect(learned.filter(({ tokens }) => tokens > 0).length).toBeLessThan(0.45 * learned.length + 2);
          const meanMs = steps.reduce((sum, { ms }) => sum + ms, 0) / steps.length;
          // The last burst is still to be caught up with.
          expect(meanMs).toBeLessThan(3 * quietMs + 200 / steps.length);
        },
      ),
      { seed: 4, numRuns: 30 },
    );
  });

  it('of several short prompts go in one step', () => {
    const simulation = new Simulation({ machine: { ...EXACT, byRow: 0.3, tiled: 0.3 }, streams: 1, burstMs: 100 });
    simulation.quiet(20);
    const steps = simulation.prompt(7 * 30, 512);
    expect(steps.length).toBeLessThan(4);
  });

  it('go on behind a burst however little longer a step may take', () => {
    const simulation = new Simulation({ gap: 1.2, machine: { ...EXACT, byRow: 0.1, tiled: 0.1 }, burstMs: 100 });
    simulation.quiet(20);
    const steps = simulation.prompt(2_000, 512);
    expect(steps.length).toBeLessThan(65 * 5);
  });

  it('have no limit when none is asked for', () => {
    const limit = new ChunkLimit(0);
    expect(
      limit.tokens({ prompt: {}, generating: 8, most: 500, estimate: () => ({ nanoseconds: 1, isTiled: false }) }),
    ).toBe(500);
  });
});
