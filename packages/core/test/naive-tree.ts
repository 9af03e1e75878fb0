import type { ResidencyMark } from '../src/tree/view.js';

interface NaiveNode {
  readonly key: string;
  readonly tokens: number;
  hits: number;
  access: number;
  time: number;
  mark: ResidencyMark;
}

/** What `KnowledgeTree` must behave like: a map from paths to nodes, searched and evicted by looking at every one. */
export class NaiveTree {
  readonly nodes = new Map<string, NaiveNode>();
  readonly #maxNodes: number;
  #access = 0;

  constructor(maxNodes: number) {
    this.#maxNodes = maxNodes;
  }

  insert(keys: readonly string[], tokens: readonly number[], mark: ResidencyMark, time: number) {
    const access = ++this.#access;
    const confirmedAt: number[] = [];
    let known = 0;
    for (let depth = 0; depth < keys.length; depth++) {
      const path = pathOf(keys.slice(0, depth + 1));
      let node = this.nodes.get(path);
      if (node === undefined) {
        while (this.nodes.size >= this.#maxNodes) {
          const victim = this.#oldestLeaf();
          if (victim === undefined || this.nodes.get(victim)!.access === access)
            return { depth, known, access, confirmedAt };
          this.nodes.delete(victim);
        }
        node = { key: keys[depth]!, tokens: tokens[depth]!, hits: 1, access: 0, time, mark: 'expected' };
        this.nodes.set(path, node);
      } else {
        known++;
        if (mark === 'expected') node.hits++;
      }
      confirmedAt.push(node.mark === 'confirmed' ? node.access : 0);
      if (mark === 'confirmed') node.mark = 'confirmed';
      node.access = access;
      node.time = time;
    }
    return { depth: keys.length, known, access, confirmedAt };
  }

  longestPrefix(keys: readonly string[]): number {
    let depth = 0;
    while (depth < keys.length && this.nodes.has(pathOf(keys.slice(0, depth + 1)))) depth++;
    return depth;
  }

  withdraw(keys: readonly string[], access: number): number {
    let removed = 0;
    for (let depth = this.longestPrefix(keys); depth > 0; depth--) {
      const path = pathOf(keys.slice(0, depth));
      const node = this.nodes.get(path)!;
      if (node.mark !== 'expected' || node.access !== access || this.#hasChildren(path)) break;
      this.nodes.delete(path);
      removed++;
    }
    return removed;
  }

  /** Removes all nodes that match; with them goes everything below. */
  prune(matches: (node: NaiveNode) => boolean): number {
    const before = this.nodes.size;
    for (const [path, node] of [...this.nodes]) {
      if (!matches(node)) continue;
      for (const below of [...this.nodes.keys()])
        if (below === path || below.startsWith(`${path}/`)) this.nodes.delete(below);
    }
    return before - this.nodes.size;
  }

  get tokens(): number {
    return [...this.nodes.values()].reduce((total, node) => total + node.tokens, 0);
  }

  /** Removes the oldest leaf again and again, but for what the last insertion used. */
  pruneToTokens(tokens: number): number {
    let removed = 0;
    for (; this.tokens > tokens; removed++) {
      const victim = this.#oldestLeaf()!;
      if (this.nodes.get(victim)!.access === this.#access) break;
      this.nodes.delete(victim);
    }
    return removed;
  }

  #hasChildren(path: string): boolean {
    return [...this.nodes.keys()].some((other) => other.startsWith(`${path}/`));
  }

  #oldestLeaf(): string | undefined {
    let oldest: string | undefined;
    for (const [path, node] of this.nodes) {
      if (this.#hasChildren(path)) continue;
      if (oldest === undefined || node.access < this.nodes.get(oldest)!.access) oldest = path;
    }
    return oldest;
  }
}

function pathOf(keys: readonly string[]): string {
  return keys.join('/');
}
