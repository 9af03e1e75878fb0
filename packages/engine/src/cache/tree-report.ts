import type { Tier } from '@warmpath/core/internal';
import type { RadixNode } from './radix-node.js';

/** Most nodes of a path in a report. */
const MAX_PATH_NODES = 32;

const TIERS: readonly Tier[] = ['device', 'host', 'disk'];

/**
 * What a tree holds, in counts and sizes: no text, no token and no salt. Walks the tree, which must not change
 * meanwhile. Cost: O(nodes × log nodes).
 *
 * @param paths Most paths, the most used first.
 */
export function reportTree(roots: readonly RadixNode[], paths: number) {
  const tiers = { device: { nodes: 0, tokens: 0 }, host: { nodes: 0, tokens: 0 }, disk: { nodes: 0, tokens: 0 } };
  const leaves: RadixNode[] = [];
  let [nodes, pinned] = [0, 0];
  for (const node of nodesOf(roots)) {
    nodes++;
    pinned += Number(node.pins > 0);
    for (const tier of TIERS.filter((candidate) => node.liesIn(candidate))) {
      tiers[tier].nodes++;
      tiers[tier].tokens += node.tokenCount;
    }
    if (node.children.size === 0) {
      leaves.push(node);
    }
  }
  const salts = roots.filter(({ salt }) => salt !== undefined).length;
  leaves.sort((a, b) => b.uses - a.uses || b.end - a.end);
  return { salts, nodes, leaves: leaves.length, pinned, tiers, paths: leaves.slice(0, paths).map(reportPath) };
}

function* nodesOf(roots: readonly RadixNode[]): Iterable<RadixNode> {
  const open = roots.flatMap(({ children }) => [...children.values()]);
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    yield next;
    open.push(...next.children.values());
  }
}

/** From where prompts begin to a leaf: the first nodes, parents before children, and how many follow. */
function reportPath(leaf: RadixNode) {
  const path = leaf.path();
  return {
    tokens: leaf.end,
    uses: leaf.uses,
    salted: path[0]!.parent!.salt !== undefined,
    nodes: path.slice(0, MAX_PATH_NODES).map((node) => ({
      tokens: node.tokenCount,
      uses: node.uses,
      pins: node.pins,
      children: node.children.size,
      tiers: TIERS.filter((tier) => node.liesIn(tier)),
    })),
    nodes_left_out: Math.max(0, path.length - MAX_PATH_NODES),
  };
}
