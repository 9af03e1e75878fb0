import type { StateRecord } from '../store/stored-state.js';
import type { HostCopy } from './host-tier.js';
import type { RadixNode } from './radix-node.js';

/**
 * What is stored of a node: its cells, everything that says what they are, and its uses. Cost: O(tokens of its path).
 */
export function stateRecord(
  node: RadixNode,
  { state, checksum }: Pick<HostCopy, 'state' | 'checksum'>,
  uses: number,
): StateRecord {
  const path = node.path();
  const salt = path[0]!.parent!.salt ?? '';
  return { salt, tokens: path.flatMap(({ tokens }) => tokens), from: node.start, state, checksum, uses };
}
