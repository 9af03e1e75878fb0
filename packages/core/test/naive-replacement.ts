import type { ReplacementPolicy, Tier } from '../src/internal.js';
import type { PathUse } from '../src/replacement/replacement.js';

interface Held {
  priority: number;
  setting: number;
  isOffered: boolean;
}

/** `Replacement` as one would write it down first: maps, lists, and a look at everything at every step. */
export class NaiveReplacement {
  readonly forgotten: number[] = [];
  readonly #policy: ReplacementPolicy;
  readonly #window: number;
  readonly #tiers = new Map<Tier, Map<number, Held>>();
  readonly #clocks = new Map<Tier, number>();
  #requests: number[][] = [];
  #count = 0;
  #settings = 0;
  readonly #costs = new Map<number, number[]>();
  /** Requests that used each node, also those that left the window, since it was forgotten. */

  constructor(policy: ReplacementPolicy, window: number, tiers: readonly Tier[]) {
    this.#policy = policy;
    this.#window = window;
    for (const tier of tiers) {
      this.#tiers.set(tier, new Map());
      this.#clocks.set(tier, 0);
    }
  }

  use({ nodes, computedFrom, costPerToken }: PathUse): void {
    const before = this.#used();
    this.#requests.push([...nodes]);
    this.#count++;
    this.#requests = this.#requests.slice(-this.#window);
    for (const node of [...before].filter((other) => !this.#used().has(other))) this.#forgetIfAbsent(node);
    for (const [place, node] of nodes.entries()) {
      if (place >= computedFrom) this.#costs.set(node, [...(this.#costs.get(node) ?? []), costPerToken]);
      for (const [tier, held] of this.#tiers) if (held.has(node)) this.#prioritise(node, tier);
    }
  }

  enter(node: number, tier: Tier): void {
    const held = this.#tiers.get(tier)!;
    if (!held.has(node)) held.set(node, { priority: 0, setting: 0, isOffered: false });
    this.#prioritise(node, tier);
  }

  leave(node: number, tier: Tier): void {
    this.#tiers.get(tier)!.delete(node);
    if (!this.#policy.remembersEvicted || this.#frequency(node) === 0) this.#forgetIfAbsent(node);
  }

  setEvictable(node: number, tier: Tier, isOffered: boolean): void {
    this.#tiers.get(tier)!.get(node)!.isOffered = isOffered;
  }

  evict(tier: Tier): number | undefined {
    const candidates = [...this.#tiers.get(tier)!].filter(([, { isOffered }]) => isOffered);
    candidates.sort(([, a], [, b]) => a.priority - b.priority || a.setting - b.setting);
    const [victim] = candidates;
    if (victim === undefined) return undefined;
    victim[1].isOffered = false;
    this.#clocks.set(tier, Math.max(this.#clocks.get(tier)!, victim[1].priority));
    return victim[0];
  }

  isHeld(node: number, tier: Tier): boolean {
    return this.#tiers.get(tier)!.has(node);
  }

  #prioritise(node: number, tier: Tier): void {
    const costs = this.#costs.get(node) ?? [];
    let sum = 0;
    for (const cost of costs) sum += cost;
    const held = this.#tiers.get(tier)!.get(node)!;
    held.setting = ++this.#settings;
    held.priority = this.#policy.priority(
      {
        request: this.#count,
        frequency: this.#frequency(node),
        costPerToken: costs.length === 0 ? 0 : sum / costs.length,
      },
      this.#clocks.get(tier)!,
    );
  }

  #frequency(node: number): number {
    return this.#requests.filter((nodes) => nodes.includes(node)).length;
  }

  #used(): Set<number> {
    return new Set(this.#requests.flat());
  }

  #forgetIfAbsent(node: number): void {
    if ([...this.#tiers.values()].some((held) => held.has(node))) return;
    this.#requests = this.#requests.map((nodes) => nodes.filter((other) => other !== node));
    this.#costs.delete(node);
    this.forgotten.push(node);
  }
}
