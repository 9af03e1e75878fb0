import type { Tier } from '@warmpath/core/internal';
import type { RadixNode } from './radix-node.js';

/** By what the paths of a report are chosen and ordered: how often they were used, or how long they are. */
export const PATH_ORDERS = ['uses', 'tokens'] as const;

export interface TreeReportOptions {
  /** Most paths. */
  readonly paths: number;
  /** Most nodes of a path, and most depths that are distinguished. */
  readonly depth: number;
  readonly sort: (typeof PATH_ORDERS)[number];
}

const TIERS: readonly Tier[] = ['device', 'host', 'disk'];

/**
 * What a tree holds, in counts and sizes: no text, no token and no salt. Walks the tree, which must not change
 * meanwhile. Cost: O(nodes × log nodes).
 */
export function reportTree(roots: readonly RadixNode[], { paths, depth, sort }: TreeReportOptions) {
  const tiers = { device: { nodes: 0, tokens: 0 }, host: { nodes: 0, tokens: 0 }, disk: { nodes: 0, tokens: 0 } };
  const byDepth: number[] = [];
  const leaves: RadixNode[] = [];
  let [nodes, pinned, deepest] = [0, 0, 0];
  for (const [node, level] of nodesOf(roots)) {
    nodes++;
    pinned += Number(node.pins > 0);
    deepest = Math.max(deepest, level);
    const place = Math.min(level, depth) - 1;
    byDepth[place] = (byDepth[place] ?? 0) + 1;
    for (const tier of TIERS.filter((candidate) => node.liesIn(candidate))) {
      tiers[tier].nodes++;
      tiers[tier].tokens += node.tokenCount;
    }
    if (node.children.size === 0) {
      leaves.push(node);
    }
  }
  const salts = roots.filter(({ salt }) => salt !== undefined).length;
  leaves.sort((a, b) => (sort === 'uses' ? b.uses - a.uses || b.end - a.end : b.end - a.end || b.uses - a.uses));
  const reported = leaves.slice(0, paths).map((leaf) => reportPath(leaf, depth));
  // By depth from 1 on; nodes that are deeper stand in the last place.
  return { salts, nodes, leaves: leaves.length, pinned, deepest, nodes_by_depth: byDepth, tiers, paths: reported };
}

function* nodesOf(roots: readonly RadixNode[]): Iterable<readonly [node: RadixNode, level: number]> {
  const open: [RadixNode, number][] = roots.flatMap(({ children }) => [...children.values()].map((node) => [node, 1]));
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    yield next;
    for (const child of next[0].children.values()) {
      open.push([child, next[1] + 1]);
    }
  }
}

/** From where prompts begin to a leaf: the first nodes, parents before children, and how many follow. */
function reportPath(leaf: RadixNode, depth: number) {
  const path = leaf.path();
  return {
    tokens: leaf.end,
    uses: leaf.uses,
    salted: path[0]!.parent!.salt !== undefined,
    nodes: path.slice(0, depth).map((node) => ({
      tokens: node.tokenCount,
      uses: node.uses,
      pins: node.pins,
      children: node.children.size,
      tiers: TIERS.filter((tier) => node.liesIn(tier)),
    })),
    nodes_left_out: Math.max(0, path.length - depth),
  };
}
