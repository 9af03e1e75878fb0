import { ABSENT, type HeapOrder, IndexedHeap } from '../indexed-heap.js';
import { USE_HALF_LIFE_REQUESTS } from './policy.js';

/** Whose nodes they are. Owners share every tier fairly; they are distinguished by identity. */
export interface NodeOwner {
  /** Whether it uses its nodes for work that can wait, which displaces nothing that other work uses. */
  readonly canWait: boolean;
  /** Number of the last request that used any of them. */
  usedAt: number;
}

/** What owners whose work can wait hold counts as many times, in powers of two: they give way before all others. */
const WAITING_EXCESS = 20;

/** What one owner holds of a tier. */
interface Share {
  readonly owner: NodeOwner;
  readonly candidates: IndexedHeap<number>;
  /** Nodes and what they take together, those that may not be evicted included. */
  nodes: number;
  size: number;
  /** The highest priority that was evicted from it. */
  clock: number;
  /** How soon it loses a node: the logarithm of what it holds, less the age of its last use. */
  excess: number;
  place: number;
}

/**
 * The nodes of one tier that may be evicted. The largest owner loses its node of lowest priority; among equals, the one
 * whose priority was set longest ago. An owner's size counts double for every `USE_HALF_LIFE_REQUESTS` requests since
 * its last use, and far more if its work can wait. O(log nodes) an operation.
 */
export class EvictionQueue {
  #priorities = new Float64Array(0);
  /** When the priority was set: the number of the setting. */
  #settings = new Float64Array(0);
  /** Place among its owner's candidates, or `ABSENT`. */
  #places = new Int32Array(0);
  #sizes = new Float64Array(0);
  readonly #shareOf: (Share | undefined)[] = [];
  readonly #shares = new Map<NodeOwner, Share>();
  /** Shares that have candidates, the one to lose the next first. */
  readonly #losing = new IndexedHeap<Share>({
    before: (one, other) => one.excess > other.excess,
    placeOf: ({ place }) => place,
    setPlace: (share, place) => {
      share.place = place;
    },
  });
  readonly #order: HeapOrder<number> = {
    before: (a, b) => {
      const difference = this.#priorities[a]! - this.#priorities[b]!;
      return difference < 0 || (difference === 0 && this.#settings[a]! < this.#settings[b]!);
    },
    placeOf: (node) => this.#places[node]!,
    setPlace: (node, place) => {
      this.#places[node] = place;
    },
  };
  #size = 0;
  #settled = 0;
  #clock = 0;

  /** Nodes that may be evicted. */
  get size(): number {
    return this.#size;
  }

  /** Owners that hold anything. */
  get owners(): number {
    return this.#shares.size;
  }

  /** A node lies in the tier, takes so much of it, and is this owner's from now on. */
  hold(node: number, owner: NodeOwner, size: number): void {
    this.#ensure(node);
    const former = this.#shareOf[node];
    if (former === undefined || former.owner !== owner) {
      const isCandidate = this.#places[node] !== ABSENT;
      this.release(node);
      const share = this.#shares.get(owner) ?? this.#open(owner);
      share.nodes++;
      this.#shareOf[node] = share;
      if (isCandidate) this.allowEviction(node);
    }
    const share = this.#shareOf[node]!;
    share.size += size - this.#sizes[node]!;
    this.#sizes[node] = size;
    this.#weigh(share);
  }

  /** A node lies in the tier no more; nothing happens if it did not. */
  release(node: number): void {
    const share = this.#shareOf[node];
    if (share === undefined) return;
    this.forbidEviction(node);
    share.size -= this.#sizes[node]!;
    this.#sizes[node] = 0;
    this.#shareOf[node] = undefined;
    if (--share.nodes === 0) this.#shares.delete(share.owner);
    else this.#weigh(share);
  }

  /** An owner was used. */
  use(owner: NodeOwner): void {
    const share = this.#shares.get(owner);
    if (share !== undefined) this.#weigh(share);
  }

  /** The highest priority that was evicted of what belongs to a node's owner; starts at 0 and never falls. */
  clockOf(node: number): number {
    return this.#shareOf[node]!.clock;
  }

  /** Gives a node its priority, whether or not it may be evicted now. */
  setPriority(node: number, priority: number): void {
    this.#priorities[node] = priority;
    this.#settings[node] = ++this.#settled;
    if (this.#places[node] !== ABSENT) this.#shareOf[node]!.candidates.settle(node);
  }

  /** A node that lies here may be evicted from now on. Its priority must have been set. */
  allowEviction(node: number): void {
    const share = this.#shareOf[node]!;
    if (this.#places[node] !== ABSENT) return;
    share.candidates.add(node);
    this.#size++;
    if (share.candidates.size === 1) this.#losing.add(share);
  }

  /** The node may not be evicted any more; nothing happens if it could not. */
  forbidEviction(node: number): void {
    if ((this.#places[node] ?? ABSENT) === ABSENT) return;
    const share = this.#shareOf[node]!;
    share.candidates.delete(node);
    this.#size--;
    if (share.candidates.size === 0) this.#losing.delete(share);
  }

  /** Takes out the candidate that goes first and moves its owner's clock up to it. */
  evict(): number | undefined {
    const share = this.#losing.first;
    const node = share?.candidates.first;
    if (share === undefined || node === undefined) return undefined;
    share.clock = Math.max(share.clock, this.#priorities[node]!);
    this.#clock = Math.max(this.#clock, share.clock);
    this.forbidEviction(node);
    return node;
  }

  /** The clock of an owner that comes begins where the tier is. */
  #open(owner: NodeOwner): Share {
    const candidates = new IndexedHeap(this.#order);
    const share = { owner, candidates, nodes: 0, size: 0, clock: this.#clock, excess: 0, place: ABSENT };
    this.#shares.set(owner, share);
    return share;
  }

  #weigh(share: Share): void {
    const { canWait, usedAt } = share.owner;
    share.excess = Math.log2(share.size) - usedAt / USE_HALF_LIFE_REQUESTS + (canWait ? WAITING_EXCESS : 0);
    if (share.place !== ABSENT) this.#losing.settle(share);
  }

  #ensure(node: number): void {
    const known = this.#places.length;
    if (node < known) return;
    this.#priorities = grown(this.#priorities, node + 1);
    this.#settings = grown(this.#settings, node + 1);
    this.#sizes = grown(this.#sizes, node + 1);
    this.#places = grown(this.#places, node + 1);
    this.#places.fill(ABSENT, known);
  }
}

/** A larger copy with room for at least `length` values; at least doubled, so that growth is O(1) a value. */
export function grown<Values extends Float64Array<ArrayBuffer> | Int32Array<ArrayBuffer>>(
  values: Values,
  length: number,
): Values {
  const Typed = values.constructor as new (length: number) => Values;
  const larger = new Typed(Math.max(length, values.length * 2, 16));
  larger.set(values);
  return larger;
}
