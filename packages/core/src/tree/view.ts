/** State of a node: `expected` from the dispatch of a request along it, `confirmed` once such a request completed. */
export type ResidencyMark = 'expected' | 'confirmed';

/** A document behind all documents of its path. The root is the empty path. */
export interface TreeNode {
  readonly key: string;
  /** `undefined` for the root. */
  readonly parent: TreeNode | undefined;
  /** By key. */
  readonly children: ReadonlyMap<string, TreeNode>;
  /** Tokens of this document alone. */
  readonly tokens: number;
  /** Requests served along it. */
  readonly hits: number;
  readonly residency: ResidencyMark;
  /** Number of the last insertion along it. */
  readonly lastAccess: number;
  /** Time of the last use (milliseconds). */
  readonly lastUsedAt: number;
}

/** The knowledge tree, read-only. */
export interface KnowledgeTreeView {
  readonly root: TreeNode;
  /** Number of leading keys that are a resident path from the root. O(keys). */
  longestPrefix(keys: readonly string[]): number;
  /** For each key of that path: requests served along it. O(keys). */
  hitsAlong(keys: readonly string[]): number[];
  /** The last used nodes, at most `limit`, the latest first. A node comes behind its parent. O(limit). */
  recentNodes(limit: number): TreeNode[];
  /** Nodes without the root. */
  readonly nodes: number;
  /** Tokens of all nodes. */
  readonly tokens: number;
  /** Bytes held, estimated. */
  readonly bytes: number;
}

/** A path of the knowledge tree behind the preamble. */
export interface CachedPath {
  /** Retrieval ranks (indices into the given documents), in path order. */
  readonly order: readonly number[];
  /** Tokens of the path, the preamble's included. */
  readonly tokens: number;
  /** Operations of the search (`OperationBudget`). */
  readonly operations: number;
  /** False if the search reached its limit, so that another path may save more. */
  readonly isComplete: boolean;
}

/** The constraints of one request, for a search. */
export interface PlacementRule {
  /** Whether `rank` may follow `start` (retrieval ranks), such that the rest can still be placed. */
  allows(start: readonly number[], rank: number): boolean;
  /** Price in tokens of beginning with `start`; never less for a longer start. Absent if moving is free. */
  readonly priceOf?: ((start: readonly number[]) => number) | undefined;
}
