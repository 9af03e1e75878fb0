/**
 * Why a node is believed resident: `expected` from the dispatch of the request that brings it into the engine's cache,
 * `confirmed` once a request along it was completed.
 */
export type ResidencyMark = 'expected' | 'confirmed';

/** A document behind all documents of its path. The root stands for the empty path. */
export interface TreeNode {
  readonly key: string;
  /** `undefined` for the root. */
  readonly parent: TreeNode | undefined;
  /** By key. */
  readonly children: ReadonlyMap<string, TreeNode>;
  /** Tokens of this step alone. */
  readonly tokens: number;
  /** Requests that were served along it. */
  readonly hits: number;
  readonly residency: ResidencyMark;
  /** Number of the insertion that used it last. */
  readonly lastAccess: number;
  /** Time of the last use, in milliseconds of the caller's clock. */
  readonly lastUsedAt: number;
}

/** What ordering and the dashboard read of the knowledge tree. */
export interface KnowledgeTreeView {
  readonly root: TreeNode;
  /** The longest resident path that spells `keys` from the root; number of leading keys matched. O(keys). */
  longestPrefix(keys: readonly string[]): number;
  /** Requests that were served along each leading key of the longest path that spells `keys` from the root. O(keys). */
  hitsAlong(keys: readonly string[]): number[];
  /** The nodes that were used last, at most `limit`, the latest first. A node stands behind its parent. O(limit). */
  recentNodes(limit: number): TreeNode[];
  /** Nodes in use, the root not counted. */
  readonly nodes: number;
  /** Tokens of all nodes. */
  readonly tokens: number;
  /** Bytes held, estimated. */
  readonly bytes: number;
}

/** A path of the knowledge tree that starts at the root's child for the preamble, or at the root if there is none. */
export interface CachedPath {
  /** Retrieval ranks (indices into the given documents), in path order. */
  readonly order: readonly number[];
  /** Tokens of the path, the preamble's included. */
  readonly tokens: number;
  /** Operations that the search took; see tree/best-path.ts. */
  readonly operations: number;
  /** Whether no other path can save more tokens; false where the search was cut short by its budget. */
  readonly isComplete: boolean;
}

/** Whether a document may stand at a place, and what that costs; lets a search keep within the constraints. */
export interface PlacementRule {
  /** May `rank` follow `prefix` (retrieval ranks), such that the rest can still be placed? */
  allows(prefix: readonly number[], rank: number): boolean;
  /**
   * Least tokens that it costs to begin with `prefix`: 0 for an empty one, and never less for a longer one. Absent
   * where moving is free.
   */
  readonly priceOf?: ((prefix: readonly number[]) => number) | undefined;
}
