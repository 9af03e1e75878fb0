import type { SavableMemory, SequenceId } from '../../src/cache/sequence-memory.js';
import type { LlamaBindings } from '../../src/native/bindings.js';
import type { NativeContext } from '../../src/native/context.js';
import type { TokenGrammar } from '../../src/native/grammar.js';
import type { NativeModel } from '../../src/native/model.js';
import { SEQUENCE_IDS } from '../../src/native/sequence-ids.js';

/** Tokens of the model: the last one ends a generation, the others are letters and digits. */
const VOCABULARY_SIZE = 37;
const END_TOKEN = VOCABULARY_SIZE - 1;
/** What a path is before its first token. */
const NOTHING = 0x9e37_79b9;
/** Behind what a failed decode has left. */
const RUBBISH = -1;
const WORDS_PER_CELL = 3;
/** A saved state begins with words that say nothing here: two states are larger than one of both. */
const HEAD_WORDS = 5;

interface Cell {
  readonly position: number;
  /** Hash of all tokens from the start to this cell, which is what an engine's cell depends on. */
  readonly path: number;
  /** The same before this cell's own token. */
  readonly before: number;
  readonly labels: Set<SequenceId>;
}

interface Row {
  readonly token: number;
  readonly position: number;
  readonly sequence: SequenceId;
  readonly output: boolean;
}

/** Two rounds of murmur's mixing: as good as different for different paths. */
function mix(path: number, token: number): number {
  let mixed = Math.imul(path ^ (token + 0x7f4a_7c15), 0x85eb_ca6b);
  mixed ^= mixed >>> 13;
  mixed = Math.imul(mixed, 0xc2b2_ae35);
  return (mixed ^ (mixed >>> 16)) >>> 0;
}

/** The logits behind a path: a function of every token before, and of nothing else. */
function logitsBehind(path: number): Float32Array {
  return Float32Array.from({ length: VOCABULARY_SIZE }, (_, token) => {
    const value = (mix(mix(path, token), 77) / 2 ** 32) * 6;
    return token === END_TOKEN ? value - 1 : value;
  });
}

/** What the model would say behind some tokens that are computed alone. */
export function exactLogits(tokens: readonly number[]): Float32Array {
  return logitsBehind(tokens.reduce(mix, NOTHING));
}

/** Grammars that are open. */
export const exactGrammars = { open: 0 };

/** A grammar whose allowed tokens, a third of all, are a function of every token before. */
class ExactGrammar implements TokenGrammar {
  #path: number;
  #isOpen = true;

  constructor(text: string) {
    this.#path = Number(text);
    exactGrammars.open++;
  }

  allows(tokens: readonly number[]): boolean[] {
    const allowed = this.allowed();
    return tokens.map((token) => allowed.includes(token));
  }

  allowed(): readonly number[] {
    this.#requireOpen();
    const tokens = Array.from({ length: VOCABULARY_SIZE }, (_, token) => token);
    return tokens.filter((token) => mix(this.#path, token) % 3 === 0 || this.#path % VOCABULARY_SIZE === token);
  }

  accept(token: number): void {
    if (!this.allowed().includes(token)) {
      throw new Error(`Token ${token} is not allowed here`);
    }
    this.#path = mix(this.#path, token);
  }

  free(): void {
    this.#requireOpen();
    this.#isOpen = false;
    exactGrammars.open--;
  }

  #requireOpen(): void {
    if (!this.#isOpen) {
      throw new Error('The grammar was touched after it was freed');
    }
  }
}

const vocabulary = {
  grammars: { open: (text: string): TokenGrammar => new ExactGrammar(text) },
  size: VOCABULARY_SIZE,
  piece: (token: number): Uint8Array => Buffer.from(token.toString(36)),
  endsGeneration: (token: number): boolean => token === END_TOKEN,
};

/** What a loop asks of a model, for one that computes nothing. */
export const exactModel = {
  vocabulary,
  trainedContext: 4_096,
  generatesText: true,
  isRecurrent: false,
  usesGpu: false,
  parameterCount: 1_000,
  layers: 2,
  width: 4,
  reuse: 'prefix',
} as unknown as NativeModel;

/** There is nothing to call. */
export const noBindings = {} as unknown as LlamaBindings;

/**
 * An engine's context that computes without rounding: a cell holds what its whole path is, and logits are a function of
 * the path alone. So one wrong token, cell or position before a place changes everything behind it, and what computing
 * in another order, another batch or at another time changes is nothing. It refuses what would be a defect in an
 * engine.
 *
 * A decode lies still until it is told to end, so that a test decides what happens while it is in flight.
 */
export class ExactContext implements SavableMemory {
  readonly cells: number;
  readonly sequences = SEQUENCE_IDS;
  #cells: Cell[] = [];
  #rows: Row[] = [];
  #logits = new Map<number, Float32Array>();
  #finish: ((code: number) => void) | undefined;

  constructor(cells: number) {
    this.cells = cells;
  }

  /** As a loop takes it. */
  get asNative(): NativeContext {
    return this as unknown as NativeContext;
  }

  get liveCells(): number {
    return this.#cells.length;
  }

  get isDecoding(): boolean {
    return this.#finish !== undefined;
  }

  get batch(): Pick<NativeContext['batch'], 'clear' | 'add'> {
    this.#requireIdle();
    return {
      clear: () => {
        this.#rows = [];
      },
      add: (token, position, sequence, output) => this.#rows.push({ token, position, sequence, output }) - 1,
    };
  }

  decode(): Promise<number> {
    this.#requireIdle();
    return new Promise((resolve) => {
      this.#finish = resolve;
    });
  }

  /** Ends the decode that is in flight; a code that is not 0 leaves cells with rubbish, as far as there is room. */
  finishDecode(code = 0): void {
    const finish = this.#finish!;
    this.#finish = undefined;
    this.#logits = new Map();
    const isTooMuch = this.#cells.length + this.#rows.length > this.cells;
    for (const [index, row] of isTooMuch ? [] : this.#rows.entries()) {
      this.#compute(row, index, code);
    }
    finish(isTooMuch ? 1 : code);
  }

  logits(index: number): Float32Array {
    this.#requireIdle();
    const logits = this.#logits.get(index);
    if (logits === undefined) {
      throw new Error(`Nobody asked for the logits of row ${index}`);
    }
    return logits;
  }

  copy(source: SequenceId, target: SequenceId, from: number, to: number): void {
    this.#requireIdle();
    for (const cell of this.#cells) {
      if (cell.labels.has(source) && cell.position >= from && cell.position < to) {
        cell.labels.add(target);
      }
    }
  }

  remove(sequence: SequenceId, from: number, to: number): void {
    this.#requireIdle();
    for (const cell of this.#cells) {
      if (cell.position >= from && (to < 0 || cell.position < to)) {
        cell.labels.delete(sequence);
      }
    }
    this.#cells = this.#cells.filter(({ labels }) => labels.size > 0);
  }

  save(sequence: SequenceId, from: number, to: number): Uint8Array {
    this.#requireIdle();
    return encode(this.#path(sequence).slice(from, to), to - from);
  }

  restore(sequence: SequenceId, state: Uint8Array, from: number, to: number): boolean {
    this.#requireIdle();
    const cells = decode(state);
    const path = this.#path(sequence);
    if (path.length !== from || cells.length !== to - from || cells[0]!.before !== (path.at(-1)?.path ?? NOTHING)) {
      throw new Error(`Cells ${from} to ${to} do not continue sequence ${sequence}`);
    }
    if (this.#cells.length + cells.length > this.cells) {
      throw new Error('There are no free cells for what comes back');
    }
    for (const cell of cells) {
      this.#cells.push({ ...cell, labels: new Set([sequence]) });
    }
    this.#path(sequence);
    return true;
  }

  slice(state: Uint8Array, from: number, to: number): Uint8Array {
    return encode(
      decode(state).filter(({ position }) => position >= from && position < to),
      to - from,
    );
  }

  free(): void {
    this.#requireIdle();
  }

  #compute({ token, position, sequence, output }: Row, index: number, code: number): void {
    const path = this.#path(sequence);
    if (path.length !== position) {
      throw new Error(`A token at ${position} does not continue the ${path.length} of sequence ${sequence}`);
    }
    const before = path.at(-1)?.path ?? NOTHING;
    const cell = { position, before, path: mix(before, code === 0 ? token : RUBBISH), labels: new Set([sequence]) };
    this.#cells.push(cell);
    if (output && code === 0) {
      this.#logits.set(index, logitsBehind(cell.path));
    }
  }

  /** What a sequence attends to, which must be each position once and one path. */
  #path(sequence: SequenceId): Cell[] {
    const cells = this.#cells.filter(({ labels }) => labels.has(sequence)).sort((a, b) => a.position - b.position);
    for (const [index, cell] of cells.entries()) {
      if (cell.position !== index || cell.before !== (cells[index - 1]?.path ?? NOTHING)) {
        throw new Error(`Sequence ${sequence} is broken at position ${index}`);
      }
    }
    return cells;
  }

  #requireIdle(): void {
    if (this.#finish !== undefined) {
      throw new Error('The context was touched while it was decoding');
    }
  }
}

function encode(cells: readonly Omit<Cell, 'labels'>[], count: number): Uint8Array {
  if (cells.length !== count) {
    throw new Error(`${cells.length} cells where ${count} are to be saved`);
  }
  const words = cells.flatMap(({ position, before, path }) => [position, before, path]);
  return new Uint8Array(Uint32Array.from([...new Array<number>(HEAD_WORDS).fill(0), ...words]).buffer);
}

function decode(state: Uint8Array): Omit<Cell, 'labels'>[] {
  const words = new Uint32Array(state.slice().buffer).subarray(HEAD_WORDS);
  return Array.from({ length: words.length / WORDS_PER_CELL }, (_, index) => {
    const [position, before, path] = words.subarray(index * WORDS_PER_CELL, (index + 1) * WORDS_PER_CELL);
    return { position: position!, before: before!, path: path! };
  });
}
