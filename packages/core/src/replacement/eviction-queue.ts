import { ABSENT, type HeapOrder, IndexedHeap } from '../indexed-heap.js';

/** An owner of nodes. Owners share each tier fairly. */
export interface NodeOwner {
  /** Whether its work can wait. Its nodes are evicted before those of other owners. */
  readonly canWait: boolean;
  /** Number of its last request. */
  usedAt: number;
}

/** Requests since an owner's last use after which its size counts double. */
export const SIZE_DOUBLING_REQUESTS = 500;
/** Excess of owners whose work can wait: their size counts as 2 to this power. */
const WAITING_EXCESS = 20;

/** The nodes of one owner in a tier. */
interface Share {
  readonly owner: NodeOwner;
  readonly candidates: IndexedHeap<number>;
  /** Nodes and their size, those that may not be evicted included. */
  nodes: number;
  size: number;
  /** The highest priority evicted from it. */
  clock: number;
  /** Logarithm of its size, less the age of its last use. The owner with the highest excess loses a node first. */
  excess: number;
  place: number;
}

/**
 * The nodes of one tier that may be evicted. The largest owner loses its node of lowest priority; among equals, the one
 * whose priority was set longest ago. An owner's size counts double for every `SIZE_DOUBLING_REQUESTS` requests since
 * its last use, and far more if its work can wait. O(log nodes) an operation.
 */
export class EvictionQueue {
  #priorities = new Float64Array(0);
  /** Number of the setting of the priority. */
  #settings = new Float64Array(0);
  /** Place in the heap of its owner, or `ABSENT`. */
  #places = new Int32Array(0);
  #sizes = new Float64Array(0);
  readonly #shareOf: (Share | undefined)[] = [];
  readonly #shares = new Map<NodeOwner, Share>();
  /** Shares with candidates, the one to lose a node first. */
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

  /** Owners with nodes. */
  get owners(): number {
    return this.#shares.size;
  }

  /** A node is in the tier. Sets its owner and size. */
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

  /** A node left the tier. Does nothing if it was not there. */
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

  /** The clock of a node's owner: the highest priority evicted of its nodes. Starts at 0 and never falls. */
  clockOf(node: number): number {
    return this.#shareOf[node]!.clock;
  }

  /** Sets the priority of a node. */
  setPriority(node: number, priority: number): void {
    this.#priorities[node] = priority;
    this.#settings[node] = ++this.#settled;
    if (this.#places[node] !== ABSENT) this.#shareOf[node]!.candidates.settle(node);
  }

  /** A node of the tier may be evicted. Its priority must have been set. */
  allowEviction(node: number): void {
    const share = this.#shareOf[node]!;
    if (this.#places[node] !== ABSENT) return;
    share.candidates.add(node);
    this.#size++;
    if (share.candidates.size === 1) this.#losing.add(share);
  }

  /** A node may not be evicted. */
  forbidEviction(node: number): void {
    if ((this.#places[node] ?? ABSENT) === ABSENT) return;
    const share = this.#shareOf[node]!;
    share.candidates.delete(node);
    this.#size--;
    if (share.candidates.size === 0) this.#losing.delete(share);
  }

  /** Removes the candidate that goes first, and advances the clock of its owner. */
  evict(): number | undefined {
    const share = this.#losing.first;
    const node = share?.candidates.first;
    if (share === undefined || node === undefined) return undefined;
    share.clock = Math.max(share.clock, this.#priorities[node]!);
    this.#clock = Math.max(this.#clock, share.clock);
    this.forbidEviction(node);
    return node;
  }

  /** The clock of a new owner starts at that of the tier. */
  #open(owner: NodeOwner): Share {
    const candidates = new IndexedHeap(this.#order);
    const share = { owner, candidates, nodes: 0, size: 0, clock: this.#clock, excess: 0, place: ABSENT };
    this.#shares.set(owner, share);
    return share;
  }

  #weigh(share: Share): void {
    const { canWait, usedAt } = share.owner;
    share.excess = Math.log2(share.size) - usedAt / SIZE_DOUBLING_REQUESTS + (canWait ? WAITING_EXCESS : 0);
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

/** A larger copy with room for at least `length` values. At least doubles. */
export function grown<Values extends Float64Array<ArrayBuffer> | Int32Array<ArrayBuffer>>(
  values: Values,
  length: number,
): Values {
  const Typed = values.constructor as new (length: number) => Values;
  const larger = new Typed(Math.max(length, values.length * 2, 16));
  larger.set(values);
  return larger;
}
