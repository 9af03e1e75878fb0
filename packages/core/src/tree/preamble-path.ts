import type { Preamble } from '../preamble.js';
import type { KnowledgeTreeView } from './view.js';

type Tree = Pick<KnowledgeTreeView, 'child'>;

/** The node behind which the documents stand, or -1 if the preamble is not resident as a whole. O(steps). */
export function preambleNode(tree: Tree, preamble: Preamble | undefined): number {
  if (preamble === undefined) return 0;
  let node = 0;
  if (preamble.steps !== undefined) {
    for (const { key } of preamble.steps) {
      node = tree.child(node, key);
      if (node < 0) return -1;
    }
  }
  return tree.child(node, preamble.key);
}

/**
 * Tokens of the preamble that are resident: a conversation's new turn finds what the turns before it left. `node` is
 * what `preambleNode` answered. O(1), or O(steps) where the whole preamble is not resident.
 */
export function residentPreambleTokens(tree: Tree, preamble: Preamble | undefined, node: number): number {
  if (preamble === undefined) return 0;
  if (node >= 0) return preamble.tokens;
  let reached = 0;
  let tokens = 0;
  for (const step of preamble.steps ?? []) {
    reached = tree.child(reached, step.key);
    if (reached < 0) break;
    tokens += step.tokens;
  }
  return tokens;
}
