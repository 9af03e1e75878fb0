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
 * What a node holds, as a short text: its place and a 64-bit hash (FNV-1a twice) of the salt and all tokens to its end. Two that are
 * equal by accident share statistics and nothing else. Cost: O(tokens) once a node.
 */
export function pathKey(node: RadixNode): string {
  const { low, high } = hashOf(node);
  return `${node.start}:${node.end}:${low}:${high}`;
}

function hashOf(node: RadixNode): PathHash {
  // A node that was cut still ends where it ended; one that grew or lost tokens does not.
  if (node.pathHash?.end === node.end) {
    return node.pathHash;
  }
  let { low, high } = node.parent === undefined ? { low: SEEDS[0], high: SEEDS[1] } : hashOf(node.parent);
  const numbers = node.parent === undefined ? Buffer.from(node.salt ?? '') : node.tokens;
  for (const number of numbers) {
    low = Math.imul(low ^ number, FNV_PRIME) >>> 0;
    high = Math.imul(high ^ (number + 1), FNV_PRIME) >>> 0;
  }
  node.pathHash = { end: node.end, low, high };
  return node.pathHash;
}
