import type { DeletedRows } from './row-search.js';
import type { VectorTable } from './vector-table.js';

/** A vector and what it is found as. */
export interface VectorEntry {
  readonly id: string;
  readonly vector: ArrayLike<number>;
}

/** The rows of a table by id. A row that is deleted or replaced stays in the table and is marked. */
export class StoredRows implements DeletedRows {
  readonly table: VectorTable;
  readonly #ids: string[] = [];
  readonly #rowOf = new Map<string, number>();
  #deleted = new Uint8Array(1024);
  #deletedCount = 0;

  constructor(table: VectorTable) {
    this.table = table;
  }

  /** Rows that are deleted. */
  get count(): number {
    return this.#deletedCount;
  }

  /** Whether a row is deleted. */
  has(row: number): boolean {
    return this.#deleted[row] === 1;
  }

  /** Ids that have a row. */
  get size(): number {
    return this.#rowOf.size;
  }

  /** The id of each row, deleted ones included. */
  get ids(): readonly string[] {
    return this.#ids;
  }

  rowOf(id: string): number | undefined {
    return this.#rowOf.get(id);
  }

  /** Adds a row; that of the same id is deleted. @throws WARMPATH_INVALID_VECTOR; then nothing has changed. */
  push({ id, vector }: VectorEntry, path: string): void {
    this.table.push(vector, path);
    this.name(id);
  }

  /** Names the next row that the table has already; the row itself may be deleted. */
  name(id: string, isDeleted = false): void {
    const row = this.#ids.push(id) - 1;
    if (isDeleted) {
      this.#mark(row);
      return;
    }
    this.delete(id);
    this.#rowOf.set(id, row);
  }

  /** Whether there was a row of this id. */
  delete(id: string): boolean {
    const row = this.#rowOf.get(id);
    if (row === undefined) return false;
    this.#rowOf.delete(id);
    this.#mark(row);
    return true;
  }

  /** What can be found, in the order in which it came. Views, valid until the next row is added. */
  *entries(): Generator<VectorEntry, void> {
    const { table } = this;
    for (const [id, row] of this.#rowOf) yield { id, vector: table.row(row).subarray(0, table.dimension) };
  }

  /** A byte for each row: 1 where it is deleted. */
  get deletedBytes(): Uint8Array {
    const bytes = new Uint8Array(this.#ids.length);
    bytes.set(this.#deleted.subarray(0, bytes.length));
    return bytes;
  }

  #mark(row: number): void {
    if (row >= this.#deleted.length) {
      const grown = new Uint8Array(2 * (row + 1));
      grown.set(this.#deleted);
      this.#deleted = grown;
    }
    this.#deleted[row] = 1;
    this.#deletedCount++;
  }
}
