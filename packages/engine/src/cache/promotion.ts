import type { CostModel } from '@warmpath/core';
import type { Range } from './host-tier.js';
import type { Extension, HeldLease, LeaseTable } from './lease-table.js';
import type { PathStep, RadixNode } from './radix-node.js';
import type { TieredTree } from './tiered-tree.js';

export interface PromotionOptions {
  readonly tree: TieredTree;
  readonly leases: LeaseTable;
  /** Says what computing again would take. */
  readonly cost: CostModel;
}

/**
 * Brings back to the device what the lower tiers hold of a prompt, node by node and the nearest tier first (RAGCache
 * §5.1). A file that would take longer to read than its tokens to compute is left where it is. A copy in host memory
 * always comes back: that takes a hundredth of computing it, and one slow moment must not make the cache useless.
 */
export class Promotion {
  readonly #tree: TieredTree;
  readonly #leases: LeaseTable;
  readonly #cost: CostModel;

  constructor({ tree, leases, cost }: PromotionOptions) {
    this.#tree = tree;
    this.#leases = leases;
    this.#cost = cost;
  }

  /**
   * Copies back what the host holds beyond a lease's end, and asks for what comes next on the disk.
   *
   * @returns What the lease gained; what was read from the disk for this prompt counts as from there.
   */
  restore(lease: HeldLease, tokens: readonly number[], limit: number): Omit<Extension, 'device'> {
    const gained = { host: 0, disk: 0, isAwaitingDisk: false };
    for (;;) {
      const step = lease.node.next(tokens, lease.length, limit);
      if (step === undefined || this.#leases.availableCells() < step.length) {
        return gained;
      }
      if (step.node.copy === undefined) {
        gained.isAwaitingDisk = this.#awaitsDisk(lease, tokens, limit);
        return gained;
      }
      const tier = step.node.copy.isFresh === true ? 'disk' : 'host';
      const node = this.#bringBack(lease, step);
      if (node === undefined) {
        return gained;
      }
      gained[tier] += node.tokenCount;
    }
  }

  /**
   * Begins to read the nodes along `tokens[from …]` that lie on the disk alone.
   *
   * @returns How many tokens of them are on their way.
   */
  fetch(from: RadixNode, tokens: readonly number[], { from: offset, to: limit }: Range): number {
    let coming = 0;
    let step = from.next(tokens, offset, limit);
    while (step !== undefined) {
      const { node, length } = step;
      if (!node.onDevice && node.copy === undefined) {
        if (!this.#tree.lower!.load(node, this.#cost.prefillMs(node.start, length))) {
          return coming;
        }
        coming += length;
      }
      step = length < node.tokenCount ? undefined : node.next(tokens, node.end, limit);
    }
    return coming;
  }

  /** @returns The node, on the device and at the lease's end; `undefined` when its copy was no good. */
  #bringBack(lease: HeldLease, step: PathStep): RadixNode | undefined {
    const node = this.#tree.cut(step);
    if (node === undefined || node.copy === undefined) {
      return undefined;
    }
    // What makes room may go to the host, where it must not push out the very node that is to come back.
    this.#tree.pin(node);
    const isBack = this.#leases.makeRoom(node.tokenCount) && this.#tree.restore(node, lease.sequence);
    if (isBack) {
      this.#leases.moveTo(lease, node);
    }
    this.#tree.unpin(node);
    return isBack ? node : undefined;
  }

  /**
   * Whether what comes next is on its way from the disk and the lease still has patience: in all as long as computing
   * what it waits for would take, so that it loses at most that.
   */
  #awaitsDisk(lease: HeldLease, tokens: readonly number[], limit: number): boolean {
    const coming = this.fetch(lease.node, tokens, { from: lease.length, to: limit });
    if (coming === 0) {
      return false;
    }
    const nowMs = this.#tree.lower!.nowMs();
    lease.patientUntilMs ??= nowMs + this.#cost.prefillMs(lease.length, coming);
    return nowMs <= lease.patientUntilMs;
  }
}
