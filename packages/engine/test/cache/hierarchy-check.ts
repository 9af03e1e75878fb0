import type { Tier } from '@warmpath/core/internal';
import type { HeldLease } from '../../src/cache/lease-table.js';
import { PrefixCache } from '../../src/cache/prefix-cache.js';
import type { RadixNode } from '../../src/cache/radix-node.js';
import type { TieredTree } from '../../src/cache/tiered-tree.js';

const OPERATIONS = ['acquire', 'extend', 'load', 'clearIdle', 'flush', 'grow', 'commit', 'release'] as const;

/** Sequence ids of each cache, all of which are free before its first operation. */
const sequences = new WeakMap<PrefixCache, number>();

/** From now on, every operation of every cache of this process checks all invariants when it has ended. */
export function verifyCaches(): void {
  const prototype = PrefixCache.prototype as unknown as Record<string, (...values: unknown[]) => unknown>;
  for (const name of OPERATIONS) {
    const original = prototype[name]!;
    if (original.name === 'checked') {
      return;
    }
    prototype[name] = function checked(this: PrefixCache, ...values: unknown[]): unknown {
      const { tree, leases } = this.parts;
      const total = sequences.get(this) ?? tree.freeSequences.length;
      sequences.set(this, total);
      const check = (): void => checkHierarchy(tree, [...leases], total);
      const result = original.apply(this, values);
      if (result instanceof Promise) {
        return result.then((settled: unknown) => {
          check();
          return settled;
        });
      }
      check();
      return result;
    };
  }
}

/**
 * Whether a tree is what it says of itself: the shape, the hierarchy of the tiers, who owns which sequence, every
 * count. Cost: O(tokens in the tree).
 *
 * @param sequences Sequence ids in all.
 * @throws Error that names the first thing that is wrong.
 */
function checkHierarchy(tree: TieredTree, leases: readonly HeldLease[], sequences: number): void {
  const nodes = tree.roots.flatMap((root) => [...nodesBelow(root)]);
  for (const node of nodes) {
    checkNode(node);
  }
  claim(
    tree.roots.every(({ salt, children, pins }) => salt === undefined || children.size > 0 || pins > 0),
    'a salt is kept that nothing hangs on',
  );
  checkSequences(tree, nodes, leases, sequences);
  for (const lease of leases) {
    claim(
      lease.node.end === lease.length && (tree.checkpoints || lease.node.onDevice),
      'a lease ends where it does not stand',
    );
  }
  const pins = [...tree.roots, ...nodes].reduce((sum, node) => sum + node.pins, 0);
  claim(pins === leases.length, `${pins} pins for ${leases.length} leases`);
  const count = (which: (node: RadixNode) => boolean): number => nodes.filter(which).length;
  const tokens = (which: (node: RadixNode) => boolean): number =>
    nodes.filter(which).reduce((sum, { tokenCount }) => sum + tokenCount, 0);
  claim(
    tokens(({ onDevice }) => onDevice) === tree.deviceTokens,
    `the device is said to hold ${tree.deviceTokens} tokens`,
  );
  const candidates = (tier: Tier): boolean => tree.candidates(tier) === count((node) => node.mayLeave(tier));
  claim(candidates('device'), 'other nodes may leave the device');
  const host = tree.lower.hostStats;
  const hostBytes = nodes.reduce((sum, { copy }) => sum + (copy?.state.length ?? 0), 0);
  claim(hostBytes === host.usedBytes && hostBytes <= host.capacityBytes, `the host holds ${hostBytes} bytes`);
  claim(tokens(({ copy }) => copy !== undefined) === host.tokens, `the host is said to hold ${host.tokens} tokens`);
  claim(candidates('host'), 'other nodes may leave the host');
  const disk = tree.lower.diskStats;
  if (disk !== undefined) {
    const copies = [...new Set(nodes.flatMap(({ file }) => (file === undefined ? [] : [file])))];
    const bytes = copies.reduce((sum, { file }) => sum + file.bytes, 0);
    claim(bytes === disk.usedBytes && bytes <= disk.capacityBytes, `the disk holds ${bytes} bytes`);
    claim(tokens(({ file }) => file !== undefined) === disk.tokens, `the disk is said to hold ${disk.tokens} tokens`);
    claim(copies.length === disk.files, `${copies.length} files are in use`);
    claim(candidates('disk'), 'other nodes may leave the disk');
  }
}

function* nodesBelow(node: RadixNode): Iterable<RadixNode> {
  for (const child of node.children.values()) {
    yield child;
    yield* nodesBelow(child);
  }
}

function checkNode(node: RadixNode): void {
  const parent = node.parent!;
  const children = [...node.children.values()];
  claim(node.tokenCount > 0, 'a node is empty');
  claim(node.start === parent.end && parent.children.get(node.tokens[0]!) === node, 'a node stands elsewhere');
  claim(node.isResident, 'a node lies nowhere');
  claim(!node.onDevice || parent.onDevice, 'a node is on the device without its parent');
  claim(node.isDeviceLeaf === (node.owner !== undefined), 'a device leaf has no owner, or another node has one');
  const onDevice = children.filter((child) => child.onDevice);
  claim(
    onDevice.length === node.deviceChildren.size && onDevice.every((child) => node.deviceChildren.has(child)),
    'the children on the device are others',
  );
  claim(
    children.filter(({ copy }) => copy !== undefined).length === node.hostChildren,
    'the copied children are others',
  );
  checkFile(node, children);
  const { copy } = node;
  claim(copy === undefined || (copy.from === node.start && copy.to === node.end), 'a copy is of other positions');
}

function checkFile(node: RadixNode, children: readonly RadixNode[]): void {
  const { file, parent, start, end } = node;
  claim(
    children.filter((child) => child.file !== undefined).length === node.diskChildren,
    'the children on the disk are others',
  );
  if (file !== undefined) {
    claim(file.nodes.has(node) && file.file.from <= start && end <= file.file.to, 'a file is of other positions');
    claim(parent!.parent === undefined || parent!.file !== undefined, 'a node is on the disk without its parent');
  }
}

function checkSequences(
  tree: TieredTree,
  nodes: readonly RadixNode[],
  leases: readonly HeldLease[],
  sequences: number,
): void {
  const owners = nodes.flatMap(({ owner }) => (owner === undefined ? [] : [owner]));
  claim(new Set(owners).size === owners.length, 'two leaves have one sequence');
  const used = new Set([...owners, ...leases.map(({ sequence }) => sequence)]);
  claim(new Set(tree.freeSequences).size === tree.freeSequences.length, 'a sequence is free twice');
  claim(!tree.freeSequences.some((sequence) => used.has(sequence)), 'a sequence is free and in use');
  claim(used.size + tree.freeSequences.length === sequences, 'a sequence is lost');
}

function claim(isTrue: boolean, otherwise: string): void {
  if (!isTrue) {
    throw new Error(`The prefix cache is broken: ${otherwise}`);
  }
}
