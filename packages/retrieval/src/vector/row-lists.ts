import { Turn } from '../event-loop-turn.js';
import { type PreparedVector, VectorTable } from './vector-table.js';

/** Lists that the rows are divided into. A search in stages needs few. */
const LISTS = 64;
/** Rows from which the centres are learned, and the rounds of k-means over them. */
const SAMPLE = 32 * LISTS;
const ROUNDS = 4;

/**
 * The rows of a table, divided into lists around centres (an inverted file). A search reads the lists whose centres are
 * closest to the question first, and all of them in the end. Fewer rows than `divideAt` are one list.
 */
export class RowLists {
  readonly #table: VectorTable;
  /** They are divided anew when they are twice as many. */
  #divideAt: number;
  #centres: VectorTable | undefined;
  #lists: number[][] = [[]];
  #isDividing = false;

  constructor(table: VectorTable, divideAt: number) {
    this.#table = table;
    this.#divideAt = divideAt;
  }

  /** Takes the table's next row in. O(lists * dimension). */
  add(row: number): void {
    this.#lists[this.#centres === undefined ? 0 : nearest(this.#centres, this.#table.row(row))]!.push(row);
  }

  /** Lists of row numbers, those first that are closest to a question. */
  closest(query: PreparedVector): readonly (readonly number[])[] {
    if (this.#centres === undefined) return this.#lists;
    const scores = Array.from(scoresOf(this.#centres, query));
    const order = scores.map((_, list) => list).sort((a, b) => scores[b]! - scores[a]!);
    return order.map((list) => this.#lists[list]!);
  }

  /** Divides the rows where they have become many. The same rows give the same lists. */
  async divide(): Promise<void> {
    const table = this.#table;
    if (table.count < this.#divideAt || this.#isDividing) return;
    this.#isDividing = true;
    const turn = new Turn();
    const centres = await learnCentres(table, turn);
    const lists: number[][] = Array.from({ length: LISTS }, () => []);
    // Rows that come meanwhile are divided, too.
    for (let row = 0; row < table.count; row++) {
      lists[nearest(centres, table.row(row))]!.push(row);
      if (turn.isOver) await turn.next();
    }
    [this.#centres, this.#lists, this.#divideAt, this.#isDividing] = [centres, lists, 2 * table.count, false];
  }
}

/** k-means over rows that stand evenly spread in the table. */
async function learnCentres(table: VectorTable, turn: Turn): Promise<VectorTable> {
  const size = Math.min(SAMPLE, table.count);
  const sample = Array.from({ length: size }, (_, i) => Math.floor((i * table.count) / size));
  const start = (list: number) => table.row(sample[Math.floor((list * size) / LISTS)]!).slice(0, table.dimension);
  let centres = tableOf(
    table.dimension,
    Array.from({ length: LISTS }, (_, list) => start(list)),
  );
  for (let round = 0; round < ROUNDS; round++) {
    const sums = Array.from({ length: LISTS }, () => new Float32Array(table.dimension));
    for (const row of sample) {
      const vector = table.row(row);
      const sum = sums[nearest(centres, vector)]!;
      for (let i = 0; i < sum.length; i++) sum[i]! += vector[i]!;
      if (turn.isOver) await turn.next();
    }
    // A list that got no row, or rows that cancel each other out, begins anew where it began.
    centres = tableOf(
      table.dimension,
      sums.map((sum, list) => (sum.some(Boolean) ? sum : start(list))),
    );
  }
  return centres;
}

function tableOf(dimension: number, vectors: readonly Float32Array[]): VectorTable {
  const table = new VectorTable(dimension);
  for (const vector of vectors) table.push(vector, 'centre');
  return table;
}

/** The centre that is closest to a row. */
function nearest(centres: VectorTable, row: PreparedVector): number {
  const scores = scoresOf(centres, row);
  let best = 0;
  for (let list = 1; list < scores.length; list++) if (scores[list]! > scores[best]!) best = list;
  return best;
}

function scoresOf(centres: VectorTable, row: PreparedVector): Float32Array {
  for (let list = 0; list < LISTS; list++) centres.ids[list] = list;
  centres.score(row, LISTS);
  return centres.scores.subarray(0, LISTS);
}
