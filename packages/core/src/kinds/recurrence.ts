/** Occurrences of a stretch that are kept: the latest with each pair of neighbours. */
const MAX_OCCURRENCES = 8;
/** Neighbours on each side that the label of a place has had, and texts that it has shared with another one. */
const MANY_NEIGHBOURS = 3;
const MIN_TOGETHER = 5;
/** Estimated bytes of a stretch in a remembered text, and of one in the index with its occurrences. */
const STRETCH_BYTES = 8;
const INDEXED_BYTES = 160;

/** The beginning or the end of a text, as a neighbour. Hashes are never negative. */
const EDGE = -1;

/** A run of stretches that moves as one: indices, end exclusive. */
interface Unit {
  readonly from: number;
  readonly to: number;
}

/** What the history of a text's stretches says about it. */
export interface Units {
  /** All stretches of the text, in its order. */
  readonly units: readonly Unit[];
  /** Whether a document certainly begins where the text does, and ends where it does. */
  readonly isStartCertain: boolean;
  readonly isEndCertain: boolean;
}

/** A text in which a stretch stood, and where. */
interface Occurrence {
  readonly hashes: Hashes;
  readonly at: number;
}

type Hashes = ArrayLike<number>;

/**
 * Finds documents by recurrence. A text is a list of stretches, each known by its hash. Two stretches part where each
 * side has been seen as a whole in other company: the left one before two different beginnings of documents, the right
 * one behind two different ends. So a document is cut only where both parts recur as documents of their own.
 *
 * Remembers the latest texts, as hashes, within `maxBytes`.
 */
export class RecurrenceHistory {
  readonly #maxBytes: number;
  readonly #texts: Float64Array[] = [];
  readonly #index = new Map<number, Occurrence[]>();
  #oldest = 0;
  #stretches = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Estimated bytes. */
  get bytes(): number {
    return this.#stretches * STRETCH_BYTES + this.#index.size * INDEXED_BYTES;
  }

  /** The remembered texts. */
  get size(): number {
    return this.#texts.length - this.#oldest;
  }

  /** Remembers a text. O(stretches). */
  learn(given: Hashes): void {
    const hashes = Float64Array.from(given);
    this.#texts.push(hashes);
    this.#stretches += hashes.length;
    for (let at = 0; at < hashes.length; at++) this.#add({ hashes, at });
    while (this.bytes > this.#maxBytes && this.size > 0) this.#forgetOldest();
  }

  /** Whether a stretch is known. */
  has(hash: number): boolean {
    return this.#index.has(hash);
  }

  /** The units of a text that was not learned yet. O(stretches), times a bound for those between documents. */
  unitsOf(hashes: Hashes): Units {
    return new Evidence(hashes, this.#index).units();
  }

  #add(occurrence: Occurrence): void {
    const { hashes, at } = occurrence;
    const known = this.#index.get(hashes[at]!);
    if (known === undefined) {
      this.#index.set(hashes[at]!, [occurrence]);
      return;
    }
    const same = known.findIndex(
      (other) => before(other) === before(occurrence) && behind(other) === behind(occurrence),
    );
    if (same >= 0) known.splice(same, 1);
    else if (known.length === MAX_OCCURRENCES) known.shift();
    known.push(occurrence);
  }

  #forgetOldest(): void {
    const hashes = this.#texts[this.#oldest]!;
    delete this.#texts[this.#oldest];
    this.#oldest++;
    this.#stretches -= hashes.length;
    for (const hash of hashes) {
      const known = this.#index.get(hash)?.filter((occurrence) => occurrence.hashes !== hashes);
      if (known === undefined) continue;
      if (known.length === 0) this.#index.delete(hash);
      else this.#index.set(hash, known);
    }
    if (this.#oldest * 2 < this.#texts.length) return;
    this.#texts.splice(0, this.#oldest);
    this.#oldest = 0;
  }
}

function before({ hashes, at }: Occurrence): number {
  return at === 0 ? EDGE : hashes[at - 1]!;
}

function behind({ hashes, at }: Occurrence): number {
  return at === hashes.length - 1 ? EDGE : hashes[at + 1]!;
}

/** What is known of the stretches of one text, that text included. */
class Evidence {
  readonly #text: Hashes;
  readonly #index: ReadonlyMap<number, readonly Occurrence[]>;
  readonly #own = new Map<number, Occurrence[]>();
  readonly #company = new Map<number, Company>();

  constructor(text: Hashes, index: ReadonlyMap<number, readonly Occurrence[]>) {
    this.#text = text;
    this.#index = index;
    for (let at = 0; at < text.length; at++) {
      const own = this.#own.get(text[at]!);
      if (own === undefined) this.#own.set(text[at]!, [{ hashes: text, at }]);
      else own.push({ hashes: text, at });
    }
  }

  units(): Units {
    const { length } = this.#text;
    const units: Unit[] = [];
    if (length === 0) return { units, isStartCertain: false, isEndCertain: false };
    let from = 0;
    for (let at = 0; at + 1 < length; at++) {
      if (!this.#parts(at)) continue;
      units.push({ from, to: at + 1 });
      from = at + 1;
    }
    units.push({ from, to: length });
    return { units, isStartCertain: this.#beginsAt(0), isEndCertain: this.#endsAt(length - 1) };
  }

  /** Whether two documents meet behind this stretch. */
  #parts(at: number): boolean {
    const [left, right] = [this.#text[at]!, this.#text[at + 1]!];
    if (this.#companyOf(left).behind.size < 2 || this.#companyOf(right).before.size < 2) return false;
    if (this.#isInPlace(at) || this.#isInPlace(at + 1)) return false;
    return this.#endsAt(at) && this.#beginsAt(at + 1) && this.#areApart(left, right);
  }

  /** Whether a document ends here: the whole run up to here has been followed by two beginnings. */
  #endsAt(at: number): boolean {
    const text = this.#text;
    let from = at;
    while (from > 0 && (!this.#isBeginning(text[from]!) || this.#isGlued(text[from - 1]!, 'behind'))) from--;
    const followers = new Set<number>();
    for (const { hashes, at: place } of this.#occurrences(text[at]!)) {
      if (!isSameRun(text, from, at, hashes, place)) continue;
      const follower = place === hashes.length - 1 ? EDGE : hashes[place + 1]!;
      if (follower === EDGE || this.#companyOf(follower).before.size >= 2) followers.add(follower);
      if (followers.size >= 2) return true;
    }
    return false;
  }

  /** Whether a document begins here: the whole run from here has stood behind two ends. */
  #beginsAt(at: number): boolean {
    const text = this.#text;
    const last = text.length - 1;
    let to = at;
    while (to < last && (!this.#isEnd(text[to]!) || this.#isGlued(text[to + 1]!, 'before'))) to++;
    const predecessors = new Set<number>();
    for (const { hashes, at: place } of this.#occurrences(text[at]!)) {
      if (!isSameRun(text, at, to, hashes, place + to - at)) continue;
      const predecessor = place === 0 ? EDGE : hashes[place - 1]!;
      if (predecessor === EDGE || this.#companyOf(predecessor).behind.size >= 2) predecessors.add(predecessor);
      if (predecessors.size >= 2) return true;
    }
    return false;
  }

  /**
   * Whether a stretch belongs to a place, such as a line `A)` or `<source id="1">`: it has had many neighbours, and has
   * always stood on the same side of another one that has.
   */
  #isInPlace(at: number): boolean {
    const hash = this.#text[at]!;
    if (!this.#hasManyNeighbours(hash)) return false;
    const company = this.#companyOf(hash);
    company.isInPlace ??= [...new Set(this.#own.keys())].some(
      (other) => other !== hash && this.#hasManyNeighbours(other) && this.#areInOrder(hash, other),
    );
    return company.isInPlace;
  }

  #hasManyNeighbours(hash: number): boolean {
    const { before, behind } = this.#companyOf(hash);
    return before.size >= MANY_NEIGHBOURS && behind.size >= MANY_NEIGHBOURS;
  }

  /** Whether one has never been without the other, and always on the same side of it. */
  #areInOrder(one: number, other: number): boolean {
    const known = this.#index.get(one) ?? [];
    if (known.length < MIN_TOGETHER) return false;
    const isBefore = ({ hashes, at }: Occurrence) => Array.prototype.indexOf.call(hashes, other, at) >= 0;
    const isBehind = ({ hashes, at }: Occurrence) => Array.prototype.lastIndexOf.call(hashes, other, at) >= 0;
    const areBefore = known.every(isBefore);
    if (!areBefore && !known.every(isBehind)) return false;
    return !known.some(areBefore ? isBehind : isBefore);
  }

  /** Whether one of two has been in a text without the other, or they have stood the other way round. */
  #areApart(left: number, right: number): boolean {
    const without = (one: number, other: number) =>
      this.#index.get(one)?.some(({ hashes }) => !Array.prototype.includes.call(hashes, other)) === true;
    if (without(left, right) || without(right, left)) return true;
    const turned = ({ hashes, at }: Occurrence) => Array.prototype.lastIndexOf.call(hashes, right, at) >= 0;
    return this.#index.get(left)?.some(turned) === true;
  }

  /** Whether a stretch has always been with the same neighbour on that side, more than once. */
  #isGlued(hash: number, side: 'before' | 'behind'): boolean {
    const company = this.#companyOf(hash);
    return company[side].size === 1 && this.#occurrences(hash).length >= 2;
  }

  #isBeginning(hash: number): boolean {
    const company = this.#companyOf(hash);
    company.isBeginning ??= this.#isFree(company.before, 'behind');
    return company.isBeginning;
  }

  #isEnd(hash: number): boolean {
    const company = this.#companyOf(hash);
    company.isEnd ??= this.#isFree(company.behind, 'before');
    return company.isEnd;
  }

  /** Whether there are two, one of which has itself had two neighbours on this side, or is the edge of a text. */
  #isFree(neighbours: ReadonlySet<number>, side: 'before' | 'behind'): boolean {
    if (neighbours.size < 2) return false;
    for (const each of neighbours) if (each === EDGE || this.#companyOf(each)[side].size >= 2) return true;
    return false;
  }

  #companyOf(hash: number): Company {
    let company = this.#company.get(hash);
    if (company === undefined) {
      company = { before: new Set(), behind: new Set() };
      for (const occurrence of this.#occurrences(hash)) {
        company.before.add(before(occurrence));
        company.behind.add(behind(occurrence));
      }
      this.#company.set(hash, company);
    }
    return company;
  }

  #occurrences(hash: number): readonly Occurrence[] {
    const known = this.#index.get(hash);
    const own = this.#own.get(hash);
    if (known === undefined) return own ?? [];
    return own === undefined ? known : [...known, ...own];
  }
}

/** The different neighbours that a stretch has had. */
interface Company {
  readonly before: Set<number>;
  readonly behind: Set<number>;
  isBeginning?: boolean;
  isEnd?: boolean;
  isInPlace?: boolean;
}

/** Whether `[from, to]` of a text stands in another one, ending at `end`. */
function isSameRun(text: Hashes, from: number, to: number, other: Hashes, end: number): boolean {
  if (end - (to - from) < 0 || end >= other.length) return false;
  for (let at = to, there = end; at >= from; at--, there--) if (text[at] !== other[there]) return false;
  return true;
}
