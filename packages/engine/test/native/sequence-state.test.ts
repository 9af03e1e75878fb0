import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { isFull } from '../../../../test/suite.js';
import { modelPath } from '../../bench/random-model/src/model-path.js';
import { resolveModel } from '../../src/models/resolve.js';
import { llamaBindings } from '../../src/native/bindings.js';
import { NativeContext } from '../../src/native/context.js';
import { NativeModel } from '../../src/native/model.js';
import { someTokens } from '../support/engine.js';

const CELLS = 1024;
/** The sequence on which a prompt is computed anew, to compare. */
const FRESH = 100;

/** Cells that were saved: the tokens in front of them, which they depend on, and their own. */
interface Saved {
  readonly before: readonly number[];
  readonly tokens: readonly number[];
  readonly state: Uint8Array;
}

/** What sequences hold, computed, shared, saved and put back in any order; the twin of the native memory. */
class Sequences {
  readonly held = new Map<number, number[]>([1, 2].map((sequence) => [sequence, []]));
  readonly saved: Saved[] = [];
  /** How often saved cells came back. */
  grafts = 0;

  constructor(readonly context: NativeContext) {}

  async compute(sequence: number, tokens: readonly number[], shape: number): Promise<Float32Array> {
    let last = 0;
    const before = this.held.get(sequence)?.length ?? 0;
    for (let done = 0; done < tokens.length; done += shape) {
      const part = tokens.slice(done, done + shape);
      this.context.batch.clear();
      for (const [index, token] of part.entries()) {
        last = this.context.batch.add(token, before + done + index, sequence, index === part.length - 1);
      }
      expect(await this.context.decode()).toBe(0);
    }
    this.held.get(sequence)?.push(...tokens);
    return this.context.logits(last).slice();
  }

  share(source: number, target: number, length: number): void {
    const tokens = this.held.get(source)!.slice(0, length);
    if (source !== target) {
      this.context.remove(target, 0, -1);
      this.context.copy(source, target, 0, length);
      this.held.set(target, tokens);
    }
  }

  /** Saves the end of a sequence and drops it there. */
  swapOut(sequence: number, from: number): void {
    const tokens = this.held.get(sequence)!;
    if (from < 0) {
      return;
    }
    const state = this.context.save(sequence, from, tokens.length)!;
    this.saved.push({ before: tokens.slice(0, from), tokens: tokens.slice(from), state });
    this.context.remove(sequence, from, -1);
    tokens.length = from;
  }

  /** Puts the first part of the cells that were saved last behind a sequence that holds what stood before them. */
  graft(sequence: number, share: number): void {
    const held = this.held.get(sequence)!;
    const saved = this.saved.findLast(({ before }) => before.join() === held.join());
    if (saved === undefined) {
      return;
    }
    const length = Math.ceil(share * saved.tokens.length);
    const end = held.length + length;
    const state = length < saved.tokens.length ? this.context.slice(saved.state, held.length, end) : saved.state;
    expect(this.context.restore(sequence, state, held.length, end)).toBe(true);
    held.push(...saved.tokens.slice(0, length));
    this.grafts++;
  }

  clear(): void {
    for (const sequence of [...this.held.keys(), FRESH]) {
      this.context.remove(sequence, 0, -1);
    }
  }
}

const sequence = fc.integer({ min: 1, max: 2 });
/** A part of what is there, of any size alike. */
const share = fc.noBias(fc.integer({ min: 1, max: 100 })).map((percent) => percent / 100);
const operation = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant('compute' as const),
      sequence,
      document: fc.nat({ max: 3 }),
      shape: fc.constantFrom(8, 32, 64),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constantFrom('swap' as const, 'graft' as const, 'round trip' as const),
      sequence,
      share,
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('share' as const),
      sequence,
      target: sequence,
      share,
    }),
  },
);
type Operation = typeof operation extends fc.Arbitrary<infer T> ? T : never;

async function apply(sequences: Sequences, step: Operation): Promise<void> {
  const held = sequences.held.get(step.sequence)!;
  switch (step.kind) {
    case 'compute': {
      const tokens = someTokens(12 + step.document * 23, step.document);
      await sequences.compute(step.sequence, tokens, step.shape);
      break;
    }
    case 'swap':
      sequences.swapOut(step.sequence, Math.ceil(step.share * held.length) - 1);
      break;
    case 'share':
      sequences.share(step.sequence, step.target, Math.floor(step.share * held.length));
      break;
    case 'graft':
      sequences.graft(step.sequence, step.share);
      break;
    case 'round trip':
      sequences.swapOut(step.sequence, Math.ceil(step.share * held.length) - 1);
      // Other tokens take the cells that became free, so that what comes back finds others.
      await sequences.compute(3 - step.sequence, someTokens(9, held.length), 32);
      sequences.graft(step.sequence, 1);
  }
}

/**
 * Prompts behind each other whose logits are compared; few for the larger model, which needs a second for hundred
 * tokens.
 */
const RUNS: Readonly<Record<string, number>> = isFull
  ? {
      demo: 60,
      'random:24m': 8,
      'random:1m-mrope': 20,
      'random:1m-mla': 20,
      'random:1m-longrope512': 20,
      'random:4m-window64': 20,
    }
  : { demo: 8, 'random:1m-mla': 6, 'random:4m-window64': 6 };

describe.each(Object.entries(RUNS))('the saved cells of %s', (spec, numRuns) => {
  let folder: string;
  let model: NativeModel;
  let context: NativeContext;
  let sequences: Sequences;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'warmpath-state-'));
    const { path } = await resolveModel(await modelPath(spec, folder));
    model = await NativeModel.load(llamaBindings(), path);
    context = await NativeContext.create(llamaBindings(), model, {
      cells: CELLS,
      batchTokens: 64,
      outputs: 1,
      threads: 1,
    });
  });
  afterAll(async () => {
    context.free();
    model.free();
    await rm(folder, { recursive: true, force: true });
  });
  beforeEach(() => {
    sequences = new Sequences(context);
  });

  it('come back behind their prefix with logits no further off than batches of another shape make them', async () => {
    const probe = someTokens(6, 77);
    const fresh = async (tokens: readonly number[], shape: number): Promise<Float32Array> => {
      const logits = await sequences.compute(FRESH, [...tokens, ...probe], shape);
      context.remove(FRESH, 0, -1);
      return logits;
    };
    const shapes: number[] = [];
    const differences: number[] = [];
    let grafts = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(operation, { minLength: 8, maxLength: 14, size: 'max' }), async (steps) => {
        sequences = new Sequences(context);
        for (const step of steps) {
          await apply(sequences, step);
        }
        grafts += sequences.grafts;
        for (const [held, tokens] of [...sequences.held].filter(([, { length }]) => length > 0)) {
          expect(context.lastPosition(held)).toBe(tokens.length - 1);
          const whole = await fresh(tokens, 64);
          shapes.push(distance(whole, await fresh(tokens, 8)));
          differences.push(distance(whole, await sequences.compute(held, probe, 64)));
        }
        sequences.clear();
      }),
      { seed: 4, numRuns },
    );
    expect(grafts).toBeGreaterThan(numRuns / 2);
    // Measured over 120 sequences of the demo model and 24 of the other, as largest (mean): batches of another shape
    // 0.032 (0.010) and 0.042 (0.019); what was computed in mixed shapes and came back 0.074 (0.008) and 0.043 (0.018).
    // Rows that stand one cell off move a logit of the demo model by 2.6; random weights hardly notice.
    expect(Math.max(...differences)).toBeLessThan(4 * Math.max(...shapes));
    expect(mean(differences)).toBeLessThan(2 * mean(shapes));
  });

  it('are cut to what saving a part of them would have given', async () => {
    await sequences.compute(1, someTokens(90, 5), 32);
    sequences.swapOut(1, 30);
    await sequences.compute(2, someTokens(17, 6), 32);
    sequences.graft(1, 1);
    const state = context.save(1, 20, 90)!;
    for (const [from, to] of [
      [20, 21],
      [20, 60],
      [25, 90],
    ] as const) {
      expect(Buffer.compare(context.slice(state, from, to), context.save(1, from, to)!)).toBe(0);
    }
    sequences.clear();
  });

  it('are refused when they are not what is asked for, and nothing changes', async () => {
    await sequences.compute(1, someTokens(50, 5), 64);
    const state = context.save(1, 20, 50)!;
    context.remove(1, 20, -1);
    for (const [what, bytes] of [
      ['no bytes', new Uint8Array(0)],
      ['a byte short', state.slice(0, -1)],
      ['a byte long', Uint8Array.from([...state, 0])],
      ['another magic', Uint8Array.from([1, ...state.subarray(1)])],
    ] as const) {
      expect(context.restore(1, bytes, 20, 50), what).toBe(false);
      expect(context.lastPosition(1)).toBe(19);
    }
    expect(() => context.restore(1, state, 21, 51)).toThrow('do not continue');
    expect(context.restore(1, state, 20, 50)).toBe(true);
    expect(context.lastPosition(1)).toBe(49);
    sequences.clear();
  });

  it('are refused when there are not as many free cells', async () => {
    await sequences.compute(1, someTokens(40, 5), 64);
    const state = context.save(1, 10, 40)!;
    context.remove(1, 10, -1);
    await sequences.compute(2, someTokens(CELLS - 39, 6), 64);
    expect(context.restore(1, state, 10, 40)).toBe(false);
    expect(context.lastPosition(1)).toBe(9);
    context.remove(2, CELLS - 40, -1);
    expect(context.restore(1, state, 10, 40)).toBe(true);
    sequences.clear();
  });
});

function distance(a: Float32Array, b: Float32Array): number {
  return a.reduce((largest, logit, token) => Math.max(largest, Math.abs(logit - b[token]!)), 0);
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
