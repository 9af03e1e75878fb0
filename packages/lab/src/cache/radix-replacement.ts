import { Replacement, type ReplacementPolicy } from '@warmpath/core/internal';
import type { LeafReplacement, RadixNode, RadixUse } from './radix-tree.js';
import type { TokenRun } from './token-runs.js';

/**
 * Which leaf of a radix tree goes first where a replacement policy decides and not age, as in the embedded engine. A
 * node that goes is remembered by all tokens to its end, where the policy remembers: when they come back to the same
 * place, its uses count on. Cost: O(log nodes) an operation, O(path) a node that goes or comes while some are
 * remembered.
 */
export class RadixReplacement implements LeafReplacement {
  readonly #replacement: Replacement;
  readonly #remembersEvicted: boolean;
  readonly #handles = new Map<RadixNode, number>();
  readonly #nodes: (RadixNode | undefined)[] = [];
  readonly #freeHandles: number[] = [];
  /** Handles of nodes that are gone, by what they held, and the other way round. */
  readonly #remembered = new Map<string, number>();
  readonly #rememberedKeys = new Map<number, string>();

  constructor(policy: ReplacementPolicy) {
    this.#remembersEvicted = policy.remembersEvicted;
    this.#replacement = new Replacement({ policy, tiers: ['device'], onForgotten: (handle) => this.#forget(handle) });
  }

  added(node: RadixNode): void {
    const handle = this.#takeRemembered(node) ?? this.#freeHandles.pop() ?? this.#nodes.length;
    this.#nodes[handle] = node;
    this.#handles.set(node, handle);
    this.#replacement.enter(handle, 'device');
    this.review(node);
    this.review(node.parent!);
  }

  cut(upper: RadixNode, lower: RadixNode): void {
    this.added(upper);
    this.#replacement.inherit(this.#handles.get(upper)!, this.#handles.get(lower)!);
  }

  used(last: RadixNode, { cachedTokens, costPerToken }: RadixUse): void {
    const path = pathOf(last);
    const nodes = path.map((node) => this.#handles.get(node)!);
    let computedFrom = 0;
    for (let end = 0; computedFrom < path.length; computedFrom++) {
      end += path[computedFrom]!.tokens;
      if (end > cachedTokens) break;
    }
    this.#replacement.use({ nodes, computedFrom, costPerToken });
  }

  review(node: RadixNode): void {
    const handle = this.#handles.get(node);
    if (handle === undefined) return;
    if (node.locks === 0 && node.children.size === 0) this.#replacement.allowEviction(handle, 'device');
    else this.#replacement.forbidEviction(handle, 'device');
  }

  removed(node: RadixNode): void {
    const handle = this.#handles.get(node)!;
    this.#handles.delete(node);
    this.#nodes[handle] = undefined;
    if (this.#remembersEvicted) {
      const key = keyOf(node);
      this.#remembered.set(key, handle);
      this.#rememberedKeys.set(handle, key);
    }
    this.#replacement.leave(handle, 'device');
    this.review(node.parent!);
  }

  next(): RadixNode | undefined {
    const handle = this.#replacement.evict('device');
    return handle === undefined ? undefined : this.#nodes[handle];
  }

  #takeRemembered(node: RadixNode): number | undefined {
    if (this.#remembered.size === 0) return undefined;
    const key = keyOf(node);
    const handle = this.#remembered.get(key);
    if (handle === undefined) return undefined;
    this.#remembered.delete(key);
    this.#rememberedKeys.delete(handle);
    return handle;
  }

  #forget(handle: number): void {
    const key = this.#rememberedKeys.get(handle);
    this.#rememberedKeys.delete(handle);
    // Two handles can have held the same in turn, when the second was known before it had grown to it.
    if (key !== undefined && this.#remembered.get(key) === handle) this.#remembered.delete(key);
    this.#freeHandles.push(handle);
  }
}

/** The nodes from below the root to a node. */
function pathOf(last: RadixNode): RadixNode[] {
  const path: RadixNode[] = [];
  for (let node = last; node.parent !== undefined; node = node.parent) path.push(node);
  return path.reverse();
}

/** What stands in a tree to the end of a node, and where the node begins, however the path is cut. */
function keyOf(node: RadixNode): string {
  const merged: TokenRun[] = [];
  for (const run of pathOf(node).flatMap(({ runs }) => runs)) {
    const before = merged.at(-1);
    const goesOn = before?.key === run.key && before.offset + before.tokens === run.offset;
    if (goesOn) merged[merged.length - 1] = { ...before, tokens: before.tokens + run.tokens };
    else merged.push(run);
  }
  return JSON.stringify([node.tokens, ...merged.map(({ key, offset, tokens }) => [key, offset, tokens])]);
}
