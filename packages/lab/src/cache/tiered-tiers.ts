import { Replacement, type ReplacementPolicy } from '@warmpath/core/internal';
import { type TieredNode, TieredNodes } from './tiered-node.js';

export interface TiersOptions {
  readonly deviceTokens: number;
  readonly hostTokens: number;
  readonly policy: ReplacementPolicy;
  /** Requests whose uses count for frequencies; the core's default if undefined. */
  readonly window: number | undefined;
}

/**
 * What of a knowledge tree lies on the device and what in the host, and how it moves between them (RAGCache §5.1). Room
 * on the device is made by its unpinned leaves, lowest priority first: a node that has no copy in the host is copied
 * there, once; if the host is full, its own leaves go. A node that finds no room in the host is lost, and what stood
 * behind it in the host too.
 */
export class Tiers {
  readonly nodes = new TieredNodes();
  readonly replacement: Replacement;
  readonly #deviceTokens: number;
  readonly #hostTokens: number;
  #deviceUsed = 0;
  #hostUsed = 0;
  #pinned = 0;
  #reserved = 0;
  #copiedToHost = 0;

  constructor({ deviceTokens, hostTokens, policy, window }: TiersOptions) {
    this.#deviceTokens = deviceTokens;
    this.#hostTokens = hostTokens;
    this.replacement = new Replacement({
      policy,
      tiers: ['device', 'host'],
      ...(window !== undefined && { window }),
      onForgotten: (handle) => this.nodes.remove(handle),
    });
  }

  /** Tokens of room in use, in both tiers; a node in both counts twice. */
  get usedTokens(): number {
    return this.#deviceUsed + this.#reserved + this.#hostUsed;
  }

  /** Tokens copied from device to host so far. */
  get copiedToHost(): number {
    return this.#copiedToHost;
  }

  /** Device tokens that prompts under way leave. */
  get available(): number {
    return this.#deviceTokens - this.#pinned - this.#reserved;
  }

  /** A prompt uses the node: it stays where it is. */
  pin(node: TieredNode): void {
    if (node.pins++ > 0) return;
    if (node.isOnDevice) this.#pinned += node.tokens;
    this.replacement.forbidEviction(node.handle, 'device');
    this.replacement.forbidEviction(node.handle, 'host');
  }

  unpin(node: TieredNode): void {
    if (--node.pins > 0) return;
    if (node.isOnDevice) this.#pinned -= node.tokens;
    this.#allowEviction(node);
  }

  /** Sets device room aside for what is not computed yet. There must be as much `available`. */
  reserve(tokens: number): void {
    while (this.#deviceUsed + this.#reserved + tokens > this.#deviceTokens) this.#evictFromDevice();
    this.#reserved += tokens;
  }

  /** Gives room back that was set aside. */
  unreserve(tokens: number): void {
    this.#reserved -= tokens;
  }

  /** Puts a pinned node on the device, in room that was set aside. */
  place(node: TieredNode): void {
    this.#reserved -= node.tokens;
    this.#deviceUsed += node.tokens;
    this.#pinned += node.tokens;
    node.isOnDevice = true;
    node.parent!.deviceChildren++;
    this.replacement.enter(node.handle, 'device');
  }

  #evictFromDevice(): void {
    const node = this.nodes.at(this.replacement.evict('device')!);
    if (!node.isInHost && !this.#copyToHost(node)) this.#dropBehind(node);
    node.isOnDevice = false;
    this.#deviceUsed -= node.tokens;
    const parent = node.parent!;
    parent.deviceChildren--;
    this.replacement.leave(node.handle, 'device');
    this.#allowEviction(parent);
  }

  /** Whether there was room in the host, after its own leaves went. */
  #copyToHost(node: TieredNode): boolean {
    if (node.tokens > this.#hostTokens) return false;
    while (this.#hostUsed + node.tokens > this.#hostTokens) {
      const victim = this.replacement.evict('host');
      if (victim === undefined) return false;
      this.#leaveHost(this.nodes.at(victim));
    }
    node.isInHost = true;
    const parent = node.parent!;
    parent.hostChildren++;
    this.#hostUsed += node.tokens;
    this.#copiedToHost += node.tokens;
    if (parent.isInHost) this.replacement.forbidEviction(parent.handle, 'host');
    this.replacement.enter(node.handle, 'host');
    this.#allowEviction(node);
    return true;
  }

  #leaveHost(node: TieredNode): void {
    node.isInHost = false;
    this.#hostUsed -= node.tokens;
    const parent = node.parent!;
    parent.hostChildren--;
    this.replacement.leave(node.handle, 'host');
    this.#allowEviction(parent);
  }

  /** Drops what stands in the host behind a node that is lost. */
  #dropBehind(node: TieredNode): void {
    for (const child of [...node.children.values()]) {
      if (!child.isInHost) continue;
      this.#dropBehind(child);
      this.#leaveHost(child);
    }
  }

  /** Lets a node be evicted wherever it may be now. */
  #allowEviction(node: TieredNode): void {
    if (node.pins > 0 || node.parent === undefined) return;
    if (node.isOnDevice && node.deviceChildren === 0) this.replacement.allowEviction(node.handle, 'device');
    if (node.isInHost && node.hostChildren === 0) this.replacement.allowEviction(node.handle, 'host');
  }
}
