import { ABSENT, type HeapOrder, IndexedHeap } from '../intrusive-collections.js';

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
  readonly candidates: IndexedHeap<HeldNode>;
  /** Nodes and their size, those that may not be evicted included. */
  nodes: number;
  size: number;
  /** The highest priority evicted from it. */
  clock: number;
  /** Logarithm of its size, less the age of its last use. The owner with the highest excess loses a node first. */
  excess: number;
  place: number;
}

/** A node of the tier. */
interface HeldNode {
  readonly node: number;
  readonly share: Share;
  size: number;
  priority: number;
  /** Number of the setting of the priority. */
  setting: number;
  /** Place among the candidates of its owner, or `ABSENT`. */
  place: number;
}

/** The lowest priority first; among equals, the one set longest ago. */
const LOWEST_FIRST: HeapOrder<HeldNode> = {
  before: (a, b) => a.priority < b.priority || (a.priority === b.priority && a.setting < b.setting),
  placeOf: ({ place }) => place,
  setPlace: (held, place) => {
    held.place = place;
  },
};

/**
 * The nodes of one tier that may be evicted. The largest owner loses its node of lowest priority; among equals, the one
 * whose priority was set longest ago. An owner's size counts double for every `SIZE_DOUBLING_REQUESTS` requests since
 * its last use, and far more if its work can wait. O(log nodes) an operation.
 */
export class EvictionQueue {
  readonly #held = new Map<number, HeldNode>();
  readonly #shares = new Map<NodeOwner, Share>();
  /** Shares with candidates, the one to lose a node first. */
  readonly #losing = new IndexedHeap<Share>({
    before: (one, other) => one.excess > other.excess,
    placeOf: ({ place }) => place,
    setPlace: (share, place) => {
      share.place = place;
    },
  });
  #size = 0;
  #settings = 0;
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
    const former = this.#held.get(node);
    const held = former?.share.owner === owner ? former : this.#add(node, owner, former);
    held.share.size += size - held.size;
    held.size = size;
    this.#weigh(held.share);
  }

  /** A node left the tier. Does nothing if it was not there. */
  release(node: number): void {
    const held = this.#held.get(node);
    if (held === undefined) return;
    this.forbidEviction(node);
    this.#held.delete(node);
    const { share } = held;
    share.size -= held.size;
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
    return this.#held.get(node)!.share.clock;
  }

  /** Sets the priority of a node of the tier. */
  setPriority(node: number, priority: number): void {
    const held = this.#held.get(node)!;
    held.priority = priority;
    held.setting = ++this.#settings;
    if (held.place !== ABSENT) held.share.candidates.settle(held);
  }

  /** A node of the tier may be evicted. Its priority must have been set. */
  allowEviction(node: number): void {
    const held = this.#held.get(node)!;
    if (held.place !== ABSENT) return;
    const { share } = held;
    share.candidates.add(held);
    this.#size++;
    if (share.candidates.size === 1) this.#losing.add(share);
  }

  /** A node may not be evicted. */
  forbidEviction(node: number): void {
    const held = this.#held.get(node);
    if (held === undefined || held.place === ABSENT) return;
    const { share } = held;
    share.candidates.delete(held);
    this.#size--;
    if (share.candidates.size === 0) this.#losing.delete(share);
  }

  /** Removes the candidate that goes first, and advances the clock of its owner. */
  evict(): number | undefined {
    const share = this.#losing.first;
    const first = share?.candidates.first;
    if (share === undefined || first === undefined) return undefined;
    share.clock = Math.max(share.clock, first.priority);
    this.#clock = Math.max(this.#clock, share.clock);
    this.forbidEviction(first.node);
    return first.node;
  }

  /** Adds a node, or gives it to another owner. */
  #add(node: number, owner: NodeOwner, former: HeldNode | undefined): HeldNode {
    const isCandidate = former !== undefined && former.place !== ABSENT;
    this.release(node);
    const share = this.#shares.get(owner) ?? this.#open(owner);
    share.nodes++;
    const { priority, setting } = former ?? { priority: 0, setting: 0 };
    const held: HeldNode = { node, share, size: 0, priority, setting, place: ABSENT };
    this.#held.set(node, held);
    if (isCandidate) this.allowEviction(node);
    return held;
  }

  /** The clock of a new owner starts at that of the tier. */
  #open(owner: NodeOwner): Share {
    const candidates = new IndexedHeap(LOWEST_FIRST);
    const share = { owner, candidates, nodes: 0, size: 0, clock: this.#clock, excess: 0, place: ABSENT };
    this.#shares.set(owner, share);
    return share;
  }

  #weigh(share: Share): void {
    const { canWait, usedAt } = share.owner;
    share.excess = Math.log2(share.size) - usedAt / SIZE_DOUBLING_REQUESTS + (canWait ? WAITING_EXCESS : 0);
    if (share.place !== ABSENT) this.#losing.settle(share);
  }
}
