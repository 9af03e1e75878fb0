import { CandidatePool } from './candidate-pool.js';
import type { PreparedVector, VectorTable } from './vector-table.js';

export interface HnswOptions {
  /** Links of a row on the upper layers, twice as many on the lowest. 2 to 64; 16 by default. */
  readonly links?: number;
  /** Candidates looked at for each row that is linked. 100 by default; more takes longer and finds better links. */
  readonly buildBreadth?: number;
  /** Decides which rows stand on the upper layers. */
  readonly seed?: number;
}

/** A graph as it is stored and as it travels between threads. */
export interface HnswState {
  readonly links: number;
  readonly buildBreadth: number;
  readonly seed: number;
  readonly count: number;
  readonly entry: number;
  readonly lowest: Int32Array<ArrayBuffer>;
  readonly levels: Uint8Array<ArrayBuffer>;
  readonly upperAt: Int32Array<ArrayBuffer>;
  readonly upper: Int32Array<ArrayBuffer>;
  readonly twins: Int32Array<ArrayBuffer>;
}

/** One search of a graph. */
export interface HnswSearch {
  /** The candidates so far, best first. */
  readonly pool: CandidatePool;
  /** Goes on for so many expansions; returns whether the search is over. */
  advance(expansions: number): boolean;
  /** Must be called once, however the search ends. */
  end(): void;
}

/** Rows above this layer would be one in 16^12. */
const MAX_LEVEL = 12;
/** Searches that have ended leave their marks for the next ones; so many are kept. */
const SPARE_VISITS = 8;
/** Selected neighbours that a candidate is compared with at once; the first ones rule most candidates out. */
const COMPARED = 8;

/** Which rows a search has seen. A mark is the number of the search, so that nothing has to be cleared. */
class Visits {
  marks: Uint32Array;
  mark = 0;

  constructor(rows: number) {
    this.marks = new Uint32Array(rows);
  }

  begin(rows: number): void {
    if (this.marks.length < rows) {
      this.marks = new Uint32Array(rows);
      this.mark = 0;
    }
    if (this.mark === 0xffff_ffff) {
      this.marks.fill(0);
      this.mark = 0;
    }
    this.mark++;
  }

  /** Rows may come while a search waits for its turn. */
  grow(rows: number): void {
    if (this.marks.length >= rows) return;
    const marks = new Uint32Array(rows);
    marks.set(this.marks);
    this.marks = marks;
  }
}

/**
 * A hierarchical navigable small world (Malkov and Yashunin, 2018) over the rows of a table, with their heuristic for
 * choosing neighbours. Deterministic: the same rows in the same order under the same seed give the same graph.
 */
export class HnswGraph {
  readonly #table: VectorTable;
  readonly #links: number;
  readonly #buildBreadth: number;
  readonly #seed: number;
  #count = 0;
  #entry = -1;
  /** For each row: how many links, then room for twice `links` of them. */
  #lowest = new Int32Array(0);
  #levels = new Uint8Array(0);
  /** Where a row's upper layers begin in `#upper`. */
  #upperAt = new Int32Array(0);
  #upper = new Int32Array(0);
  #upperUsed = 0;
  /** For each row: the next one of exactly its vector, or -1. */
  #twins = new Int32Array(0);
  readonly #spareVisits: Visits[] = [];
  readonly #beam: CandidatePool;
  readonly #ranked: CandidatePool;
  readonly #chosen: Int32Array;

  constructor(table: VectorTable, { links = 16, buildBreadth = 100, seed = 1 }: HnswOptions = {}, state?: HnswState) {
    this.#table = table;
    this.#links = state?.links ?? links;
    this.#buildBreadth = Math.max(state?.buildBreadth ?? buildBreadth, this.#links + 1);
    this.#seed = state?.seed ?? seed;
    this.#beam = new CandidatePool(this.#buildBreadth);
    this.#ranked = new CandidatePool(2 * this.#links + 1);
    this.#chosen = new Int32Array(2 * this.#links);
    if (state === undefined) return;
    this.#count = state.count;
    this.#entry = state.entry;
    this.#lowest = state.lowest;
    this.#levels = state.levels;
    this.#upperAt = state.upperAt;
    this.#upper = state.upper;
    this.#upperUsed = state.upper.length;
    this.#twins = state.twins;
  }

  /** Rows that are linked: those of the table up to this number. */
  get count(): number {
    return this.#count;
  }

  /** Bytes of the graph, without the rows. */
  get bytes(): number {
    return (
      this.#lowest.byteLength +
      this.#levels.byteLength +
      this.#upperAt.byteLength +
      this.#upper.byteLength +
      this.#twins.byteLength
    );
  }

  /** Views of the graph as it is now. */
  get state(): HnswState {
    return {
      links: this.#links,
      buildBreadth: this.#buildBreadth,
      seed: this.#seed,
      count: this.#count,
      entry: this.#entry,
      lowest: this.#lowest.subarray(0, this.#count * (1 + 2 * this.#links)),
      levels: this.#levels.subarray(0, this.#count),
      upperAt: this.#upperAt.subarray(0, this.#count),
      upper: this.#upper.subarray(0, this.#upperUsed),
      twins: this.#twins.subarray(0, this.#count),
    };
  }

  /** Room for so many rows at once, instead of by and by. */
  reserve(rows: number): void {
    if (this.#levels.length >= rows) return;
    const capacity = Math.max(rows, Math.ceil(this.#levels.length * 1.5), 64);
    this.#lowest = grown(this.#lowest, new Int32Array(capacity * (1 + 2 * this.#links)));
    this.#levels = grown(this.#levels, new Uint8Array(capacity));
    this.#upperAt = grown(this.#upperAt, new Int32Array(capacity));
    this.#twins = grown(this.#twins, new Int32Array(capacity));
  }

  /** Links the table's next row. */
  add(): void {
    const row = this.#count;
    this.reserve(row + 1);
    const level = this.#drawLevel(row);
    this.#levels[row] = level;
    this.#twins[row] = -1;
    this.#reserveUpper(row, level);
    this.#count++;
    const entry = this.#entry;
    if (entry === -1) {
      this.#entry = row;
      return;
    }
    const table = this.#table;
    const beam = this.#beam;
    const visits = this.#takeVisits();
    const top = this.#levels[entry]!;
    table.useRow(row);
    let entries = [entry];
    for (let layer = top; layer > level; layer--) entries = [this.#descend(entries[0]!, layer)];
    for (let layer = Math.min(level, top); layer >= 0; layer--) {
      beam.reset(this.#buildBreadth);
      visits.begin(this.#levels.length);
      table.useRow(row);
      this.#enter(entries, beam, visits);
      this.#expand(beam, visits, layer, Number.POSITIVE_INFINITY);
      if (layer === 0 && this.#joinTwins(row, beam.row(0))) break;
      // Where the next layer begins: the closest few, of which each leads another way.
      entries = Array.from({ length: Math.min(beam.size, 4) }, (_, position) => beam.row(position));
      const chosen = this.#choose(beam, this.#links);
      const links = layer === 0 ? this.#lowest : this.#upper;
      const at = this.#linksAt(row, layer);
      links[at] = chosen;
      links.set(this.#chosen.subarray(0, chosen), at + 1);
      for (let i = 1; i <= chosen; i++) this.#linkBack(links[at + i]!, row, layer);
    }
    if (level > top) this.#entry = row;
    this.#endVisits(visits);
  }

  /**
   * A search that goes on in slices, between which anything may happen but a change of rows that exist. `breadth` is
   * how many candidates it keeps in view.
   */
  search(query: PreparedVector, breadth: number): HnswSearch {
    const pool = new CandidatePool(breadth);
    const visits = this.#takeVisits();
    if (this.#entry !== -1) {
      this.#table.useQuery(query);
      let nearest = this.#entry;
      for (let layer = this.#levels[nearest]!; layer > 0; layer--) nearest = this.#descend(nearest, layer);
      this.#enter([nearest], pool, visits);
    }
    return {
      pool,
      advance: (expansions) => {
        this.#table.useQuery(query);
        visits.grow(this.#levels.length);
        return this.#expand(pool, visits, 0, expansions);
      },
      end: () => this.#endVisits(visits),
    };
  }

  /**
   * Puts a row into a ring with the rows of exactly its vector, of which one has the links of all: copies would fill
   * each other's links, and most of them could not be reached. Returns whether there are such rows.
   */
  #joinTwins(row: number, other: number): boolean {
    const [one, two] = [this.#table.row(row), this.#table.row(other)];
    for (let i = 0; i < one.length; i++) if (one[i] !== two[i]) return false;
    const next = this.#twins[other]!;
    this.#twins[row] = next === -1 ? other : next;
    this.#twins[other] = row;
    return true;
  }

  /** Puts rows where a search begins. */
  #enter(entries: readonly number[], pool: CandidatePool, visits: Visits): void {
    const { ids, scores } = this.#table;
    for (let i = 0; i < entries.length; i++) ids[i] = entries[i]!;
    this.#table.score(entries.length);
    for (let i = 0; i < entries.length; i++) {
      visits.marks[entries[i]!] = visits.mark;
      pool.add(entries[i]!, scores[i]!);
    }
  }

  /**
   * Expands the best candidates of a layer, at most so many.
   * @returns whether the search is over: every candidate in view was expanded.
   */
  #expand(pool: CandidatePool, visits: Visits, layer: number, expansions: number): boolean {
    const table = this.#table;
    const { ids, scores } = table;
    const { marks, mark } = visits;
    const links = layer === 0 ? this.#lowest : this.#upper;
    for (let left = expansions; left > 0; left--) {
      const row = pool.expandNext();
      if (row === -1) return true;
      const at = this.#linksAt(row, layer);
      let count = 0;
      for (let i = at + 1, end = at + links[at]!; i <= end; i++) {
        const neighbour = links[i]!;
        if (marks[neighbour] === mark) continue;
        marks[neighbour] = mark;
        ids[count++] = neighbour;
      }
      const twin = layer === 0 ? this.#twins[row]! : -1;
      if (twin !== -1 && marks[twin] !== mark) {
        marks[twin] = mark;
        ids[count++] = twin;
      }
      table.score(count);
      let { threshold } = pool;
      for (let i = 0; i < count; i++) {
        const score = scores[i]!;
        if (score <= threshold) continue;
        pool.add(ids[i]!, score);
        threshold = pool.threshold;
      }
    }
    return false;
  }

  /** The row of a layer at which no neighbour is closer to what the table compares with. */
  #descend(from: number, layer: number): number {
    const table = this.#table;
    const { ids, scores } = table;
    const upper = this.#upper;
    ids[0] = from;
    table.score(1);
    let [nearest, best] = [from, scores[0]!];
    for (;;) {
      const at = this.#linksAt(nearest, layer);
      const count = upper[at]!;
      for (let i = 0; i < count; i++) ids[i] = upper[at + 1 + i]!;
      table.score(count);
      const before = nearest;
      for (let i = 0; i < count; i++) {
        if (scores[i]! > best) [nearest, best] = [ids[i]!, scores[i]!];
      }
      if (nearest === before) return nearest;
    }
  }

  /**
   * Chooses neighbours from candidates, closest first: one that is closer to a chosen one than to the row itself can be
   * reached through that one. Fills `#chosen` and returns how many.
   */
  #choose(candidates: CandidatePool, most: number): number {
    const table = this.#table;
    const { ids, scores } = table;
    const chosen = this.#chosen;
    let count = 0;
    for (let position = 0; position < candidates.size && count < most; position++) {
      const row = candidates.row(position);
      const score = candidates.scores[position]!;
      let isReached = false;
      for (let from = 0; from < count && !isReached; from += COMPARED) {
        const compared = Math.min(COMPARED, count - from);
        for (let i = 0; i < compared; i++) ids[i] = chosen[from + i]!;
        table.useRow(row);
        table.score(compared);
        for (let i = 0; i < compared; i++) isReached ||= scores[i]! > score;
      }
      if (!isReached) chosen[count++] = row;
    }
    return count;
  }

  /** Links a row back to a new one; where there is no room, the best set of links is chosen anew. */
  #linkBack(row: number, added: number, layer: number): void {
    const links = layer === 0 ? this.#lowest : this.#upper;
    const most = layer === 0 ? 2 * this.#links : this.#links;
    const at = this.#linksAt(row, layer);
    const count = links[at]!;
    if (count < most) {
      links[at + 1 + count] = added;
      links[at] = count + 1;
      return;
    }
    const table = this.#table;
    const { ids, scores } = table;
    for (let i = 0; i < count; i++) ids[i] = links[at + 1 + i]!;
    ids[count] = added;
    table.useRow(row);
    table.score(count + 1);
    const ranked = this.#ranked;
    ranked.reset(count + 1);
    for (let i = 0; i <= count; i++) ranked.add(ids[i]!, scores[i]!);
    const chosen = this.#choose(ranked, most);
    links[at] = chosen;
    links.set(this.#chosen.subarray(0, chosen), at + 1);
  }

  #linksAt(row: number, layer: number): number {
    return layer === 0 ? row * (1 + 2 * this.#links) : this.#upperAt[row]! + (layer - 1) * (1 + this.#links);
  }

  #reserveUpper(row: number, level: number): void {
    const at = this.#upperUsed;
    this.#upperUsed += level * (1 + this.#links);
    this.#upperAt[row] = at;
    if (this.#upperUsed > this.#upper.length) {
      this.#upper = grown(this.#upper, new Int32Array(Math.max(1024, 2 * this.#upperUsed)));
    }
    this.#upper.fill(0, at, this.#upperUsed);
  }

  /** One row in `links` stands a layer higher. A function of seed and row alone, so that rows may be added later. */
  #drawLevel(row: number): number {
    let hash = Math.imul(row + 1, 0x9e3779b1) ^ Math.imul(this.#seed, 0x85ebca6b);
    hash = Math.imul(hash ^ (hash >>> 16), 0x21f0aaad);
    hash = Math.imul(hash ^ (hash >>> 15), 0x735a2d97);
    const uniform = (((hash ^ (hash >>> 15)) >>> 0) + 1) / 0x1_0000_0001;
    return Math.min(MAX_LEVEL, Math.floor(-Math.log(uniform) / Math.log(this.#links)));
  }

  #takeVisits(): Visits {
    const visits = this.#spareVisits.pop() ?? new Visits(this.#levels.length);
    visits.begin(this.#levels.length);
    return visits;
  }

  #endVisits(visits: Visits): void {
    if (this.#spareVisits.length < SPARE_VISITS) this.#spareVisits.push(visits);
  }
}

function grown<T extends Int32Array | Uint8Array>(from: T, into: T): T {
  into.set(from);
  return into;
}
