import type { RadixNode } from './radix-node.js';

const FNV_PRIME = 0x01000193;
const SEEDS = [0x811c9dc5, 0x050c5d1f] as const;

/** Hashes of all tokens to a node's end, and the position of that end when they were computed. */
export interface PathHash {
  readonly end: number;
  readonly low: number;
  readonly high: number;
}

/**
 * What a node holds, as a short text: its place and a 64-bit hash (FNV-1a twice) of all tokens to its end. Two that are
 * equal by accident share statistics and nothing else. Cost: O(tokens) once a node.
 */
export function pathKey(node: RadixNode): string {
  const { low, high } = hashOf(node);
  return `${node.start}:${node.end}:${low}:${high}`;
}

function hashOf(node: RadixNode): PathHash {
  if (node.parent === undefined) {
    return { end: 0, low: SEEDS[0], high: SEEDS[1] };
  }
  // A node that was cut still ends where it ended; one that grew or lost tokens does not.
  if (node.pathHash?.end === node.end) {
    return node.pathHash;
  }
  let { low, high } = hashOf(node.parent);
  for (const token of node.tokens) {
    low = Math.imul(low ^ token, FNV_PRIME) >>> 0;
    high = Math.imul(high ^ (token + 1), FNV_PRIME) >>> 0;
  }
  node.pathHash = { end: node.end, low, high };
  return node.pathHash;
}
