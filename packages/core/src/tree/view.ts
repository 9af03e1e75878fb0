/** A path of the knowledge tree that starts at the root's child for the preamble, or at the root if there is none. */
export interface CachedPath {
  /** Retrieval ranks (indices into the given documents), in path order. */
  readonly order: readonly number[];
  /** Tokens of the path, the preamble's included. */
  readonly tokens: number;
  /** What the search took; see tree/best-path.ts. */
  readonly operations: number;
  /** Whether no other path can save more tokens; false where the search was cut short by its budget. */
  readonly isComplete: boolean;
}

/** Whether a document may stand at a place, and what that costs; lets a search keep within the constraints. */
export interface PlacementRule {
  /**
   * May `order` (the prefix chosen so far, retrieval ranks) be extended by `rank`, such that the rest can still be
   * placed?
   */
  allows(prefix: readonly number[], rank: number): boolean;
  /**
   * Tokens that it costs to begin with `prefix`, at least: 0 for an empty one, and never less for a longer one. Absent
   * where nothing costs anything.
   */
  readonly priceOf?: ((prefix: readonly number[]) => number) | undefined;
}

/** A node among those that were used last. */
export interface RecentNode {
  /** The node's number, and its parent's; 0 is the root. */
  readonly node: number;
  readonly parent: number;
  readonly key: string;
  /** Tokens of this step alone. */
  readonly tokens: number;
  /** Requests that were served along it. */
  readonly hits: number;
  /** Whether a request along it was completed; else it is expected from one under way. */
  readonly isConfirmed: boolean;
  /** Time of the last use, in milliseconds of the caller's clock. */
  readonly lastUsedAt: number;
  /** Children, those that are not among these nodes included. */
  readonly children: number;
}

/**
 * What ordering, and whoever shows the tree, may read of the knowledge tree. All node numbers are opaque; 0 is the
 * root, -1 is none.
 */
export interface KnowledgeTreeView {
  /** The tree's own number for a document or preamble key, or -1 if no node has it. O(1) expected. */
  numberOf(key: string): number;
  /** The resident child of `node` for a number that `numberOf` gave, or -1. O(1) expected. */
  childByNumber(node: number, number: number): number;
  /**
   * The resident children of `node` among documents by number: those at the places of `numbers` whose bits are set in
   * `among`. Writes each to `children`, at `from` and its place, and returns the places that have one as a bit mask.
   * Cost: `lookUpsAmong`; no allocation.
   */
  childrenAmong(node: number, numbers: Int32Array, among: number, children: Int32Array, from: number): number;
  /** Look-ups that `childrenAmong` takes: the children of `node` if they are few, else the documents. O(1). */
  lookUpsAmong(node: number, among: number): number;
  /** The resident child of `node` for `key`, or -1. O(1) expected. */
  child(node: number, key: string): number;
  /** The longest resident path that spells `keys` from the root; number of leading keys matched. O(keys). */
  longestPrefix(keys: readonly string[]): number;
  /** Requests that were served along each leading key of the longest path that spells `keys` from the root. O(keys). */
  hitsAlong(keys: readonly string[]): number[];
  /** The nodes that were used last, at most so many, the latest first: each behind its parent. O(limit). */
  recentNodes(limit: number): RecentNode[];
  /** Nodes in use, the root not counted. */
  readonly nodes: number;
  /** Tokens of all nodes. */
  readonly tokens: number;
  /** Bytes held. */
  readonly bytes: number;
}
