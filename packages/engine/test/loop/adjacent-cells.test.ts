import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { SavableMemory } from '../../src/cache/sequence-memory.js';
import { AdjacentCells } from '../../src/loop/adjacent-cells.js';
import { GenerationTask } from '../../src/loop/task.js';
import { llamaBindings } from '../../src/native/bindings.js';
import { NativeContext } from '../../src/native/context.js';
import { NativeModel } from '../../src/native/model.js';
import { someTokens } from '../support/engine.js';

const LISTENER = { onText: () => undefined, onFinish: () => undefined, onError: () => undefined };

/** A task that has computed a prompt, of which so many tokens are in the tree, and has chosen a token. */
function stream(sequence: number, prompt: number, shared: number): GenerationTask {
  const request = {
    id: String(sequence),
    prompt: someTokens(prompt, sequence),
    maxTokens: 1000,
    sampling: { temperature: 0, topP: 1 },
    seed: 1,
    stops: [],
    ignoreEndOfGeneration: true,
  };
  const task = new GenerationTask(request, LISTENER, 0);
  task.lease = { sequence, length: shared, privateCells: prompt - shared, commonTokens: 0 };
  task.computed = prompt;
  task.tokens.push(1);
  return task;
}

function advance(task: GenerationTask): void {
  task.computed++;
  task.tokens.push(1);
}

/** Cells as llama.cpp gives them: the first free ones, in the order of the batch. */
class Cells implements SavableMemory {
  readonly cells: ({ sequence: number; position: number } | undefined)[] = [];
  moved = 0;

  take(sequence: number, position: number): void {
    const free = this.cells.indexOf(undefined);
    this.cells[free < 0 ? this.cells.length : free] = { sequence, position };
  }

  copy(): void {
    throw new Error('nothing is shared here');
  }

  remove(sequence: number, from: number): void {
    for (const [index, cell] of this.cells.entries()) {
      if (cell?.sequence === sequence && cell.position >= from) {
        this.cells[index] = undefined;
      }
    }
  }

  save(sequence: number, from: number, to: number): Uint8Array {
    const positions = this.positionsOf(sequence).filter((position) => position >= from);
    expect(new Set(positions)).toEqual(new Set(Array.from({ length: to - from }, (_, index) => from + index)));
    this.moved += positions.length;
    return new Uint8Array(Uint32Array.from(positions).buffer);
  }

  restore(sequence: number, state: Uint8Array, from: number): boolean {
    expect(Math.max(-1, ...this.positionsOf(sequence))).toBe(from - 1);
    for (const position of new Uint32Array(state.slice().buffer)) {
      this.take(sequence, position);
    }
    return true;
  }

  slice(state: Uint8Array): Uint8Array {
    return state;
  }

  /** In the order of the cells. */
  positionsOf(sequence: number): number[] {
    return this.cells.filter((cell) => cell?.sequence === sequence).map((cell) => cell!.position);
  }

  /** How many of a sequence's cells stand right behind the one of the position before. */
  adjacentOf(sequence: number): number {
    return this.cells.filter((cell, index) => {
      const before = this.cells[index - 1];
      return cell?.sequence === sequence && before?.sequence === sequence && before.position === cell.position - 1;
    }).length;
  }
}

describe('the cells of streams', () => {
  it('lie together but for the latest, whatever comes and ends, and none is lost', () => {
    const streams = fc.array(
      fc.record({
        prompt: fc.integer({ min: 1, max: 60 }),
        from: fc.integer({ min: 0, max: 150 }),
        tokens: fc.integer({ min: 1, max: 400 }),
      }),
      { minLength: 2, maxLength: 8 },
    );
    fc.assert(
      fc.property(streams, (planned) => {
        const memory = new Cells();
        const adjacent = new AdjacentCells(memory);
        const running: GenerationTask[] = [];
        for (let step = 0; step < 400; step++) {
          for (const [index, { prompt, from, tokens }] of planned.entries()) {
            const task = running.find(({ lease }) => lease!.sequence === index);
            if (step === from) {
              running.push(stream(index, prompt, Math.floor(prompt / 2)));
              for (let position = 0; position < prompt; position++) memory.take(index, position);
            } else if (step === from + tokens && task !== undefined) {
              running.splice(running.indexOf(task), 1);
              memory.remove(index, 0);
            }
          }
          adjacent.gather(running);
          for (const task of running) {
            memory.take(task.lease!.sequence, task.computed);
            advance(task);
          }
        }
        for (const { lease, computed } of running) {
          const positions = memory.positionsOf(lease!.sequence);
          expect([...positions].sort((a, b) => a - b)).toEqual(Array.from({ length: computed }, (_, index) => index));
        }
        // Each is copied once.
        const answered = planned.reduce((sum, { prompt, tokens }) => sum + prompt + tokens, 0);
        expect(memory.moved).toBeLessThanOrEqual(answered);
      }),
      { seed: 5, numRuns: 60 },
    );
  });

  it('are gathered every 64 tokens where several stream, and not where one does', () => {
    const memory = new Cells();
    const adjacent = new AdjacentCells(memory);
    const running = [0, 1, 2, 3].map((sequence) => stream(sequence, 1, 1));
    for (const task of running) memory.take(task.lease!.sequence, 0);
    const step = (): void => {
      adjacent.gather(running);
      for (const task of running) {
        memory.take(task.lease!.sequence, task.computed);
        advance(task);
      }
    };
    for (let count = 0; count < 65; count++) step();
    for (const sequence of [0, 1, 2, 3]) {
      expect(memory.adjacentOf(sequence)).toBeGreaterThanOrEqual(62);
    }
    expect(memory.moved).toBe(4 * 64);
    for (const task of running.splice(1)) memory.remove(task.lease!.sequence, 0);
    for (let count = 0; count < 200; count++) step();
    running.push(stream(7, 1, 1));
    memory.take(7, 0);
    for (let count = 0; count < 60; count++) step();
    expect(memory.moved).toBe(4 * 64);
  });

  it('stay where they are when the memory gives no copy', () => {
    const memory = Object.assign(new Cells(), { save: () => undefined, remove: () => expect.fail('removed') });
    const adjacent = new AdjacentCells(memory);
    const running = [1, 2].map((sequence) => stream(sequence, 100, 0));
    adjacent.gather(running);
    adjacent.gather(running);
    expect(running.map((task) => task.adjacent)).toEqual([0, 0]);
  });
});

describe('on llama.cpp', () => {
  const TOKENS = 90;
  let model: NativeModel;
  const contexts: NativeContext[] = [];
  beforeAll(async () => {
    const path = fileURLToPath(new URL('../../models/warmpath-tiny.gguf', import.meta.url));
    model = await NativeModel.load(llamaBindings(), path);
    for (let count = 0; count < 2; count++) {
      const options = { cells: 1024, batchTokens: 64, outputs: 4, threads: 1 };
      contexts.push(await NativeContext.create(llamaBindings(), model, options));
    }
  });
  afterAll(async () => {
    for (const context of contexts) context.free();
    await model.free();
  });

  /** Computes one token of every sequence; answers all logits. */
  async function step(context: NativeContext, sequences: readonly number[], position: number): Promise<number[]> {
    context.batch.clear();
    const outputs = sequences.map((sequence) =>
      context.batch.add(someTokens(200, sequence)[position]!, position, sequence, true),
    );
    expect(await context.decode()).toBe(0);
    return outputs.flatMap((output) => [...context.logits(output)]);
  }

  it('what is computed behind gathered cells is the same to the last bit', async () => {
    const sequences = [1, 2, 3];
    for (const context of contexts) {
      for (let position = 0; position < TOKENS; position++) {
        await step(context, sequences, position);
      }
    }
    const [gathered, scattered] = contexts;
    const running = sequences.map((sequence) => stream(sequence, TOKENS, 0));
    new AdjacentCells(gathered!).gather(running);
    expect(running.map(({ adjacent }) => adjacent)).toEqual([TOKENS, TOKENS, TOKENS]);
    for (let position = TOKENS; position < TOKENS + 3; position++) {
      expect(await step(gathered!, sequences, position)).toEqual(await step(scattered!, sequences, position));
    }
  });
});
