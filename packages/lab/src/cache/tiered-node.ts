/**
 * A document behind the documents before it. It lies on the device, in the host, in both, or in neither: then it is
 * only remembered. What lies on the device stands above what lies in the host alone, so a node without its parent
 * cannot be.
 */
export interface TieredNode {
  /** What the replacement calls it. */
  readonly handle: number;
  readonly key: string;
  readonly tokens: number;
  /** Undefined for the root. */
  readonly parent: TieredNode | undefined;
  readonly children: Map<string, TieredNode>;
  isOnDevice: boolean;
  isInHost: boolean;
  /** Children on the device, and in the host. */
  deviceChildren: number;
  hostChildren: number;
  /** Prompts under way that use it. */
  pins: number;
}

/** Nodes by handle; a handle that is given back is given out again. */
export class TieredNodes {
  readonly root: TieredNode = newNode({ handle: -1, key: '', tokens: 0, parent: undefined });
  readonly #byHandle: (TieredNode | undefined)[] = [];
  readonly #freeHandles: number[] = [];

  /** Nodes that lie somewhere or are remembered. */
  get size(): number {
    return this.#byHandle.length - this.#freeHandles.length;
  }

  at(handle: number): TieredNode {
    return this.#byHandle[handle]!;
  }

  /** The child of that key; made if there is none. */
  childOf(parent: TieredNode, key: string, tokens: number): TieredNode {
    const known = parent.children.get(key);
    if (known !== undefined) return known;
    const handle = this.#freeHandles.pop() ?? this.#byHandle.length;
    const node = newNode({ handle, key, tokens, parent });
    this.#byHandle[handle] = node;
    parent.children.set(key, node);
    return node;
  }

  /** Takes a leaf out. */
  remove(handle: number): void {
    const node = this.at(handle);
    node.parent!.children.delete(node.key);
    this.#byHandle[handle] = undefined;
    this.#freeHandles.push(handle);
  }
}

function newNode(identity: Pick<TieredNode, 'handle' | 'key' | 'tokens' | 'parent'>): TieredNode {
  const empty = { isOnDevice: false, isInHost: false, deviceChildren: 0, hostChildren: 0, pins: 0 };
  return { ...identity, ...empty, children: new Map() };
}
