import type { SavableMemory, SequenceId } from '../../src/cache/sequence-memory.js';

interface Cell {
  readonly position: number;
  /** All tokens from the start to this cell, which is what an engine's cell depends on. */
  readonly path: string;
  readonly labels: Set<SequenceId>;
}

/** An engine's memory as llama.h describes it: cells with labels. Refuses whatever would be a defect in an engine. */
export class FakeMemory implements SavableMemory {
  #cells: Cell[] = [];
  readonly #capacity: number;
  /** Every state that was given out; what holds one sees it change. */
  readonly saved: Uint8Array[] = [];
  /** Whether states are taken back. */
  takesBack = true;

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  get liveCells(): number {
    return this.#cells.length;
  }

  /** Ids that label at least one cell. */
  get usedSequences(): Set<SequenceId> {
    return new Set(this.#cells.flatMap((cell) => [...cell.labels]));
  }

  /** What a decode does: one new cell a token, behind what the sequence has. */
  compute(sequence: SequenceId, tokens: readonly number[]): void {
    const before = this.tokensOf(sequence);
    for (const [index] of tokens.entries()) {
      const path = [...before, ...tokens.slice(0, index + 1)];
      this.#cells.push({ position: path.length - 1, path: path.join(' '), labels: new Set([sequence]) });
    }
    if (this.#cells.length > this.#capacity) {
      throw new Error(`${this.#cells.length} cells of ${this.#capacity}`);
    }
  }

  copy(source: SequenceId, target: SequenceId, from: number, to: number): void {
    for (const cell of this.#cells) {
      if (cell.labels.has(source) && cell.position >= from && cell.position < to) {
        cell.labels.add(target);
      }
    }
  }

  remove(sequence: SequenceId, from: number, to: number): void {
    for (const cell of this.#cells) {
      if (cell.position >= from && (to < 0 || cell.position < to)) {
        cell.labels.delete(sequence);
      }
    }
    this.#cells = this.#cells.filter((cell) => cell.labels.size > 0);
  }

  save(sequence: SequenceId, from: number, to: number): Uint8Array {
    const cells = this.#cells.filter(
      ({ labels, position }) => labels.has(sequence) && position >= from && position < to,
    );
    if (cells.length !== to - from) {
      throw new Error(`Sequence ${sequence} holds ${cells.length} cells at positions ${from} to ${to}`);
    }
    const state = encode(cells.map(({ path }) => path));
    this.saved.push(state);
    return state;
  }

  restore(sequence: SequenceId, state: Uint8Array, from: number, to: number): boolean {
    if (!this.takesBack) {
      return false;
    }
    const paths = decode(state);
    const before = this.tokensOf(sequence);
    if (before.length !== from || paths.length !== to - from) {
      throw new Error(`Cells ${from} to ${to} do not continue sequence ${sequence}`);
    }
    if (this.#cells.length + paths.length > this.#capacity) {
      throw new Error('There are no free cells for what comes back');
    }
    for (const path of paths) {
      this.#cells.push({ position: path.split(' ').length - 1, path, labels: new Set([sequence]) });
    }
    // A graft behind another prefix than it was cut from is what an engine would not notice.
    this.tokensOf(sequence);
    return true;
  }

  slice(state: Uint8Array, from: number, to: number): Uint8Array {
    return encode(
      decode(state).filter((path) => {
        const position = path.split(' ').length - 1;
        return position >= from && position < to;
      }),
    );
  }

  /** The tokens that a sequence holds; throws when it has a hole, two cells at a position, or cells of another path. */
  tokensOf(sequence: SequenceId): number[] {
    const cells = this.#cells.filter((cell) => cell.labels.has(sequence)).sort((a, b) => a.position - b.position);
    const last = cells.at(-1);
    const tokens = last === undefined ? [] : last.path.split(' ').map(Number);
    for (const [index, cell] of cells.entries()) {
      if (cell.position !== index || cell.path !== tokens.slice(0, index + 1).join(' ')) {
        throw new Error(`Sequence ${sequence} is broken at position ${index}`);
      }
    }
    return tokens;
  }
}

function encode(paths: readonly string[]): Uint8Array {
  return new TextEncoder().encode(paths.join('\n'));
}

function decode(state: Uint8Array): string[] {
  return new TextDecoder().decode(state).split('\n');
}
