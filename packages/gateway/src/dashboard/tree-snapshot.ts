import { randomUUID } from 'node:crypto';
import { fingerprint, type TreeNode } from '@warmpath/core/internal';
import type { HistoryTree, TreeRow, TreeSnapshot } from '@warmpath/dashboard';
import type { ServedHistories, TenantModel } from '../memory/served-histories.js';

/** Nodes and histories that are shown at most. */
const MAX_NODES = 10_000;
const MAX_HISTORIES = 256;
/** Characters of a label. */
const LABEL_LENGTH = 120;

/** Without it, a short hash of an id would be the same everywhere, and could be looked up. */
const SALT = randomUUID();

/**
 * What the engine is believed to hold, of all tenants and models. Bounded: small trees are shown whole, large ones
 * share what is left, each its most recently used nodes. O(nodes shown + histories).
 *
 * @param names whether documents and tenants are shown by name; else by a short hash that is this process's alone.
 */
export function treeSnapshot(histories: ServedHistories, now: number, names: boolean): TreeSnapshot {
  const all = [...histories.values()].toSorted((a, b) => b.history.tree.nodes - a.history.tree.nodes);
  const shown = all.slice(0, MAX_HISTORIES).reverse();
  let left = MAX_NODES;
  const trees = shown.map((state, i) => {
    const tree = historyTree(state, { limit: Math.floor(left / (shown.length - i)), now, names });
    left -= tree.rows.length;
    return tree;
  });
  const nodes = sumOf(all, ({ history }) => history.tree.nodes);
  return {
    histories: trees.reverse(),
    omittedHistories: all.length - shown.length,
    omittedNodes: nodes - (MAX_NODES - left),
    nodes,
    tokens: sumOf(all, ({ history }) => history.tree.tokens),
  };
}

function historyTree(
  { tenant, model, engine, history }: TenantModel,
  { limit, now, names }: { readonly limit: number; readonly now: number; readonly names: boolean },
): HistoryTree {
  const placeOf = new Map<TreeNode | undefined, number>();
  const rows = history.tree.recentNodes(limit).map((node, place): TreeRow => {
    placeOf.set(node, place);
    return [
      placeOf.get(node.parent) ?? -1,
      node.tokens,
      node.hits,
      node.residency === 'confirmed' ? 1 : 0,
      Math.max(0, Math.round((now - node.lastUsedAt) / 1_000)),
      node.children.size,
      labelOf(node.key, names),
    ];
  });
  const { nodes, tokens } = history.tree;
  return {
    engine: engine.name,
    tenant: nameOf(tenant, names),
    model: cut(model),
    state: history.state,
    nodes,
    tokens,
    rows,
  };
}

/** A key is an id and fingerprints behind it, or what stands before the documents (`preamble`). */
function labelOf(key: string, names: boolean): string {
  if (key.startsWith('preamble#')) return `preamble ${shortHash(key)}`;
  if (!names) return shortHash(key);
  return cut(key.replace(/(?<=.)#[^#]*(?:#[^#]*)?$/, ''));
}

/** A name that may be a client's own. */
export function nameOf(name: string, names: boolean): string {
  return names ? cut(name) : shortHash(name);
}

function shortHash(text: string): string {
  return fingerprint([SALT, text]).slice(0, 8);
}

function cut(text: string): string {
  return text.length > LABEL_LENGTH ? `${text.slice(0, LABEL_LENGTH)}…` : text;
}

function sumOf<Item>(items: readonly Item[], value: (item: Item) => number): number {
  return items.reduce((sum, item) => sum + value(item), 0);
}
