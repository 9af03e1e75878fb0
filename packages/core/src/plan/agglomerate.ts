import { ABSENT, keyedHeap } from '../intrusive-collections.js';
import type { FinishGroup, Group, Remainders } from './group-recursion.js';
import type { PlanTree } from './plan-tree.js';

/**
 * Agglomeration by largest intersection: merges the two clusters that share most tokens (documents), until no two share
 * any. A merged cluster is what its parts share.
 *
 * The best partner of a cluster only gets worse, so a heap of last known pairs is corrected at its top. Cost: a search
 * of the inverted index for each set, merge and lost partner; memory O(documents).
 *
 * @returns a function that attaches the sets of a group below its node
 */
export function agglomeration(tree: PlanTree, remainders: Remainders): FinishGroup {
  const numbers = new Int32Array(tree.batch.documentOf.length).fill(-1);
  return (group) => {
    new Agglomeration(tree, remainders, { group, numbers }).run();
    tree.collapse(group.node);
  };
}

class Agglomeration {
  readonly #tree: PlanTree;
  readonly #group: Group;
  /** By cluster: the shared symbols, as numbers local to the group; empty once it is merged. */
  readonly #contents: number[][];
  /** By cluster: its node in the tree. */
  readonly #nodes: number[];
  readonly #alive: boolean[];
  /** By document: clusters with it. Dead ones are removed when the list is read. */
  readonly #holders: number[][] = [];
  readonly #symbols: number[] = [];
  /** By symbol: its local number, or -1. Shared by all groups, so it is reset at the end. */
  readonly #numbers: Int32Array;
  readonly #weights: number[] = [];
  readonly #partner: number[];
  /** Clusters by the tokens shared with their last known best partner. */
  readonly #heap = keyedHeap();
  /** Tokens shared with each cluster during a search, else 0. */
  readonly #shared: Float64Array;
  /** Marks documents by local number; 0 between uses. */
  readonly #mark: Uint8Array;

  constructor(tree: PlanTree, remainders: Remainders, { group, numbers }: { group: Group; numbers: Int32Array }) {
    this.#tree = tree;
    this.#numbers = numbers;
    this.#group = group;
    this.#nodes = [...group.sets];
    this.#alive = group.sets.map(() => true);
    this.#partner = group.sets.map(() => -1);
    this.#shared = new Float64Array(2 * group.sets.length);
    this.#contents = this.#index(remainders);
    this.#mark = new Uint8Array(this.#symbols.length);
  }

  run(): void {
    for (let cluster = 0; cluster < this.#group.sets.length; cluster++) this.#findPartner(cluster);
    for (let entry = this.#heap.first; entry !== undefined; entry = this.#heap.first) {
      const cluster = entry.number;
      this.#heap.delete(entry);
      if (!this.#alive[cluster]) continue;
      const partner = this.#partner[cluster]!;
      if (this.#alive[partner]) this.#merge(cluster, partner);
      else this.#findPartner(cluster);
    }
    for (const [cluster, node] of this.#nodes.entries()) {
      if (this.#alive[cluster]) this.#tree.attach(node, this.#group.node);
    }
    for (const symbol of this.#symbols) this.#numbers[symbol] = -1;
  }

  /** Numbers the symbols of the group and lists their holders. The label of a leaf is the rest of its set. */
  #index(remainders: Remainders): number[][] {
    return this.#group.sets.map((set, cluster) => {
      const label = remainders.rest(set);
      this.#tree.labels[set] = label;
      return label.map((symbol) => {
        let number = this.#numbers[symbol]!;
        if (number < 0) {
          number = this.#symbols.push(symbol) - 1;
          this.#numbers[symbol] = number;
          this.#weights.push(this.#tree.batch.weights[symbol]!);
          this.#holders.push([]);
        }
        this.#holders[number]!.push(cluster);
        return number;
      });
    });
  }

  /** Finds the cluster that shares most with this one, and adds the pair to the heap. */
  #findPartner(cluster: number): void {
    const shared = this.#shared;
    const alive = this.#alive;
    const candidates: number[] = [];
    for (const document of this.#contents[cluster]!) {
      const holders = this.#holders[document]!;
      const weight = this.#weights[document]!;
      let kept = 0;
      for (const holder of holders) {
        if (!alive[holder]) continue;
        holders[kept++] = holder;
        if (shared[holder] === 0) candidates.push(holder);
        shared[holder]! += weight;
      }
      holders.length = kept;
    }
    shared[cluster] = 0;
    let best = -1;
    let most = 0;
    for (const candidate of candidates) {
      const value = shared[candidate]!;
      shared[candidate] = 0;
      if (value > most || (value === most && value > 0 && this.#isCloser(candidate, best))) {
        most = value;
        best = candidate;
      }
    }
    this.#partner[cluster] = best;
    if (best >= 0) this.#heap.add({ number: cluster, key: most, place: ABSENT });
  }

  /** Among partners that share equally much: the smaller one, then the earlier one. */
  #isCloser(candidate: number, best: number): boolean {
    const difference = this.#contents[candidate]!.length - this.#contents[best]!.length;
    return difference < 0 || (difference === 0 && candidate < best);
  }

  #merge(one: number, other: number): void {
    const shared = this.#intersect(one, other);
    const oneIsAll = shared.length === this.#contents[one]!.length && !this.#tree.isLeaf(this.#nodes[one]!);
    const otherIsAll = shared.length === this.#contents[other]!.length && !this.#tree.isLeaf(this.#nodes[other]!);
    if (oneIsAll) this.#attachBelow(one, other, shared);
    else if (otherIsAll) this.#attachBelow(other, one, shared);
    else this.#join(one, other, shared);
  }

  /** `lower` contains all of `upper` and becomes a child of it. */
  #attachBelow(upper: number, lower: number, shared: readonly number[]): void {
    this.#retire(lower, shared);
    const node = this.#nodes[lower]!;
    if (this.#tree.labels[node]!.length === 0 && !this.#tree.isLeaf(node)) {
      this.#tree.adopt(this.#nodes[upper]!, node);
    } else this.#tree.attach(node, this.#nodes[upper]!);
    this.#findPartner(upper);
  }

  #join(one: number, other: number, shared: number[]): void {
    const node = this.#tree.create(shared.map((document) => this.#symbols[document]!));
    for (const part of [one, other]) {
      this.#retire(part, shared);
      this.#tree.attach(this.#nodes[part]!, node);
    }
    const cluster = this.#nodes.push(node) - 1;
    this.#contents.push(shared);
    this.#alive.push(true);
    this.#partner.push(-1);
    for (const document of shared) this.#holders[document]!.push(cluster);
    this.#findPartner(cluster);
  }

  /** Ends a cluster: the symbols that it shares with its new parent leave its label. */
  #retire(cluster: number, shared: readonly number[]): void {
    const node = this.#nodes[cluster]!;
    for (const document of shared) this.#mark[document] = 1;
    const label = this.#tree.labels[node]!;
    this.#tree.labels[node] = label.filter((symbol) => this.#mark[this.#numbers[symbol]!] === 0);
    for (const document of shared) this.#mark[document] = 0;
    this.#alive[cluster] = false;
    this.#contents[cluster] = [];
  }

  #intersect(one: number, other: number): number[] {
    const mark = this.#mark;
    for (const document of this.#contents[one]!) mark[document] = 1;
    const shared = this.#contents[other]!.filter((document) => mark[document] === 1);
    for (const document of this.#contents[one]!) mark[document] = 0;
    return shared;
  }
}
