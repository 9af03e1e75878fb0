import { WarmpathError } from '@warmpath/core';
import { type CostModel, type ReplacementPolicy, replacementPolicy } from '@warmpath/core/internal';
import { RTX_4090 } from '../latency.js';
import type { PromptSpan } from '../workloads/workload.js';
import {
  type Admission,
  type CachedPrompt,
  type CachedPromptReuse,
  type PrefixCacheModel,
  promptTokens,
} from './prefix-cache.js';
import type { TieredNode } from './tiered-node.js';
import { Tiers } from './tiered-tiers.js';

export interface TieredTreeOptions {
  /** Tokens of KV memory on the device; prompts under way and the cache share it. */
  readonly deviceTokens: number;
  /** Tokens of KV memory in the host. 0 for none. */
  readonly hostTokens: number;
  /** What goes first. Default PGDSF. */
  readonly policy?: ReplacementPolicy;
  /** What computing costs; PGDSF weighs it. Default: the fit to the papers' RTX 4090. */
  readonly cost?: CostModel;
  /** Requests whose uses count for frequencies. Default 4,096. */
  readonly window?: number;
}

/**
 * RAGCache's knowledge tree over device and host memory: a node is a whole span of a prompt (the system prompt, a
 * document) behind the spans before it; the last span, the question, and the answer are never kept. A prompt finds the
 * longest path that lies on the device or in the host, brings the latter part over, and pins it all until it is
 * released; what it computes becomes nodes as it is entered. When a prompt is released, its nodes' uses and costs are
 * counted.
 *
 * Cost: O(spans) a prompt and O(log nodes) for each node that it uses or evicts. Remembered nodes are bounded by the
 * uses in the window.
 */
export class TieredTree implements PrefixCacheModel {
  readonly name: string;
  readonly granularity = 1;
  // What the host lost says nothing of the device, and the policy need not go by age.
  readonly evictsLeastRecent = false;
  readonly capacityTokens: number;
  readonly #options: TieredTreeOptions & { readonly policy: ReplacementPolicy };
  readonly #cost: CostModel;
  #tiers: Tiers;

  /** Error: `WARMPATH_INVALID_REQUEST` for sizes and windows out of range. */
  constructor(options: TieredTreeOptions) {
    checkTokens(options.deviceTokens, 1, 'deviceTokens');
    checkTokens(options.hostTokens, 0, 'hostTokens');
    this.#options = { ...options, policy: options.policy ?? replacementPolicy('pgdsf') };
    this.#cost = options.cost ?? RTX_4090;
    this.name = `tiered-${this.#options.policy.name}`;
    this.capacityTokens = options.deviceTokens + options.hostTokens;
    this.#tiers = this.#createTiers();
  }

  get usedTokens(): number {
    return this.#tiers.usedTokens;
  }

  /** Tokens copied from device to host so far; a node again only after the host lost it. */
  get copiedToHost(): number {
    return this.#tiers.copiedToHost;
  }

  /** Nodes that lie in a tier or are remembered. */
  get nodes(): number {
    return this.#tiers.nodes.size;
  }

  cachedTokens(prompt: CachedPrompt): number {
    return this.reuse(prompt).cachedTokens;
  }

  /** What a prompt would reuse now, and how much of that lies in the host; changes nothing. */
  reuse(prompt: CachedPrompt): CachedPromptReuse {
    let cachedTokens = 0;
    let hostTokens = 0;
    for (const node of this.#match(keptSpans(prompt))) {
      cachedTokens += node.tokens;
      if (!node.isOnDevice) hostTokens += node.tokens;
    }
    return { cachedTokens, hostTokens };
  }

  admit(prompt: CachedPrompt): Admission | undefined {
    const tiers = this.#tiers;
    const tokens = promptTokens(prompt);
    const total = tokens + (prompt.answer?.tokens ?? 0);
    if (total > this.#options.deviceTokens) {
      const detail = `The prompt has ${total} tokens, and the device has room for ${this.#options.deviceTokens}.`;
      throw new WarmpathError('WARMPATH_CONTEXT_TOO_LONG', { detail });
    }
    const spans = keptSpans(prompt);
    const path = this.#match(spans);
    const fromHost = path.filter(({ isOnDevice }) => !isOnDevice);
    const cachedTokens = sumTokens(path);
    const hostTokens = sumTokens(fromHost);
    for (const node of path) tiers.pin(node);
    const needed = total - cachedTokens + hostTokens;
    if (needed > tiers.available) {
      for (const node of path.toReversed()) tiers.unpin(node);
      return undefined;
    }
    tiers.reserve(needed);
    for (const node of fromHost) tiers.place(node);
    const found = path.length;
    let reserved = total - cachedTokens;
    let end = cachedTokens;
    const enter = (computed: number) => {
      for (let span = spans[path.length]; span !== undefined; span = spans[path.length]) {
        if (end + span.tokens > computed) return;
        end += span.tokens;
        const node = tiers.nodes.childOf(path.at(-1) ?? tiers.nodes.root, span.key, span.tokens);
        const isNew = !node.isOnDevice;
        tiers.pin(node);
        path.push(node);
        // What another prompt has put there meanwhile is used; the copy stays set aside until the release.
        if (!isNew) continue;
        tiers.place(node);
        reserved -= span.tokens;
      }
    };
    const release = () => {
      const newTokens = tokens - cachedTokens;
      const costPerToken = this.#cost.prefillMs(cachedTokens, newTokens) / newTokens;
      tiers.replacement.use({ nodes: path.map(({ handle }) => handle), computedFrom: found, costPerToken });
      for (const node of path.toReversed()) tiers.unpin(node);
      tiers.unreserve(reserved);
    };
    return { cachedTokens, hostTokens, enter, release };
  }

  clear(): void {
    this.#tiers = this.#createTiers();
  }

  /** The nodes of the longest path that lies on the device or in the host. */
  #match(spans: readonly PromptSpan[]): TieredNode[] {
    const path: TieredNode[] = [];
    let node: TieredNode | undefined = this.#tiers.nodes.root;
    for (const { key } of spans) {
      node = node.children.get(key);
      if (node === undefined || !(node.isOnDevice || node.isInHost)) break;
      path.push(node);
    }
    return path;
  }

  #createTiers(): Tiers {
    const { deviceTokens, hostTokens, policy, window } = this.#options;
    return new Tiers({ deviceTokens, hostTokens, policy, window });
  }
}

/** The spans that become nodes: all but the last; the salt goes into the first, and so into every path. */
function keptSpans({ spans, salt = '' }: CachedPrompt): PromptSpan[] {
  const kept = spans.filter(({ tokens }) => tokens > 0).slice(0, -1);
  const [first] = kept;
  if (first !== undefined) kept[0] = { ...first, key: `${salt.length}:${salt}${first.key}` };
  return kept;
}

function sumTokens(nodes: readonly TieredNode[]): number {
  return nodes.reduce((sum, { tokens }) => sum + tokens, 0);
}

function checkTokens(value: number, least: number, path: string): void {
  if (Number.isSafeInteger(value) && value >= least) return;
  const detail = `A whole number of ${least} or more was expected.`;
  throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path, detail });
}
