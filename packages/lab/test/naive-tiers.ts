import type { CostModel, ReplacementPolicy } from '@warmpath/core/internal';
import type { Admission, CachedPrompt } from '../src/index.js';
import { promptTokens } from '../src/index.js';

/** A document behind others, by the whole path that leads to it. */
interface Entry {
  readonly path: string;
  readonly tokens: number;
  pins: number;
  /** Priority and when it was set, where it lies; absent where it does not. */
  device: { priority: number; setting: number } | undefined;
  host: { priority: number; setting: number } | undefined;
}

interface Options {
  readonly deviceTokens: number;
  readonly hostTokens: number;
  readonly policy: ReplacementPolicy;
  readonly cost: CostModel;
}

/** RAGCache's tree without a tree: paths as text, every set found by looking at everything. No window. */
export class NaiveTiers {
  copiedToHost = 0;
  readonly #options: Options;
  readonly #entries = new Map<string, Entry>();
  #uses: { path: string; request: number }[] = [];
  readonly #costs: { path: string; cost: number }[] = [];
  readonly #clocks = { device: 0, host: 0 };
  #requests = 0;
  #settings = 0;
  #reserved = 0;

  constructor(options: Options) {
    this.#options = options;
  }

  usedTokens(): number {
    return this.#used('device') + this.#used('host') + this.#reserved;
  }

  reuse(prompt: CachedPrompt): { cachedTokens: number; hostTokens: number } {
    const found = this.#find(prompt);
    return { cachedTokens: total(found), hostTokens: total(found.filter(({ device }) => device === undefined)) };
  }

  admit(prompt: CachedPrompt): Admission | undefined {
    const tokens = promptTokens(prompt);
    const all = tokens + (prompt.answer?.tokens ?? 0);
    const path = this.#find(prompt);
    const { cachedTokens, hostTokens } = this.reuse(prompt);
    const pinned = [...this.#entries.values()].filter(({ pins, device }) => pins > 0 && device !== undefined);
    const using = total(path.filter(({ pins, device }) => pins === 0 && device !== undefined));
    const needed = all - cachedTokens + hostTokens;
    if (total(pinned) + using + this.#reserved + needed > this.#options.deviceTokens) return undefined;
    for (const entry of path) entry.pins++;
    while (this.#used('device') + this.#reserved + needed > this.#options.deviceTokens) this.#evictFromDevice();
    for (const entry of path) if (entry.device === undefined) this.#put(entry, 'device');
    let own = all - cachedTokens;
    this.#reserved += own;
    const found = path.length;
    const paths = pathsOf(prompt);
    return {
      cachedTokens,
      hostTokens,
      enter: (computed) => {
        while (path.length < paths.length) {
          const next = paths[path.length]!;
          if (total(path) + next.tokens > computed) return;
          const entry = this.#entries.get(next.path) ?? { ...next, pins: 0, device: undefined, host: undefined };
          this.#entries.set(next.path, entry);
          entry.pins++;
          path.push(entry);
          if (entry.device !== undefined) continue;
          this.#put(entry, 'device');
          own -= entry.tokens;
          this.#reserved -= entry.tokens;
        }
      },
      release: () => {
        this.#requests++;
        this.#uses.push(...path.map((entry) => ({ path: entry.path, request: this.#requests })));
        const cost = this.#options.cost.prefillMs(cachedTokens, tokens - cachedTokens) / (tokens - cachedTokens);
        for (const [place, entry] of path.entries()) {
          if (place >= found) this.#costs.push({ path: entry.path, cost });
          for (const tier of ['device', 'host'] as const) if (entry[tier] !== undefined) this.#put(entry, tier);
        }
        for (const entry of path) entry.pins--;
        this.#reserved -= own;
      },
    };
  }

  #evictFromDevice(): void {
    const victim = this.#take('device')!;
    if (victim.host === undefined) {
      const { hostTokens } = this.#options;
      while (victim.tokens <= hostTokens && this.#used('host') + victim.tokens > hostTokens) {
        const lost = this.#take('host');
        if (lost === undefined) break;
        lost.host = undefined;
        this.#forgetIfGone(lost);
      }
      if (this.#used('host') + victim.tokens <= hostTokens) {
        this.#put(victim, 'host');
        this.copiedToHost += victim.tokens;
      } else {
        for (const entry of this.#entries.values()) {
          if (!entry.path.startsWith(`${victim.path}/`)) continue;
          entry.host = undefined;
          this.#forgetIfGone(entry);
        }
      }
    }
    victim.device = undefined;
    this.#forgetIfGone(victim);
  }

  /** The entry of a tier that goes first; moves the tier's clock. */
  #take(tier: 'device' | 'host'): Entry | undefined {
    const inTier = [...this.#entries.values()].filter((entry) => entry[tier] !== undefined);
    const leaves = inTier.filter(
      ({ path, pins }) =>
        pins === 0 && !inTier.some((other) => path === other.path.slice(0, other.path.lastIndexOf('/'))),
    );
    leaves.sort((a, b) => a[tier]!.priority - b[tier]!.priority || a[tier]!.setting - b[tier]!.setting);
    const [first] = leaves;
    if (first !== undefined) this.#clocks[tier] = Math.max(this.#clocks[tier], first[tier]!.priority);
    return first;
  }

  #put(entry: Entry, tier: 'device' | 'host'): void {
    const costs = this.#costs.filter(({ path }) => path === entry.path);
    const uses = this.#uses.filter(({ path }) => path === entry.path);
    let sum = 0;
    for (const { cost } of costs) sum += cost;
    const use = {
      request: this.#requests,
      frequency: uses.length,
      costPerToken: costs.length === 0 ? 0 : sum / costs.length,
    };
    entry[tier] = {
      priority: this.#options.policy.priority(use, this.#clocks[tier]),
      setting: ++this.#settings,
    };
  }

  #forgetIfGone({ path, device, host }: Entry): void {
    if (this.#options.policy.remembersEvicted || device !== undefined || host !== undefined) return;
    this.#uses = this.#uses.filter((use) => use.path !== path);
    for (let place = this.#costs.length - 1; place >= 0; place--) {
      if (this.#costs[place]!.path === path) this.#costs.splice(place, 1);
    }
  }

  #find(prompt: CachedPrompt): Entry[] {
    const found: Entry[] = [];
    for (const { path } of pathsOf(prompt)) {
      const entry = this.#entries.get(path);
      if (entry === undefined || (entry.device === undefined && entry.host === undefined)) break;
      found.push(entry);
    }
    return found;
  }

  #used(tier: 'device' | 'host'): number {
    return total([...this.#entries.values()].filter((entry) => entry[tier] !== undefined));
  }
}

function pathsOf({ spans, salt = '' }: CachedPrompt): { path: string; tokens: number }[] {
  const kept = spans.filter(({ tokens }) => tokens > 0).slice(0, -1);
  let path = `salt ${salt}`;
  return kept.map(({ key, tokens }) => {
    path += `/${key}`;
    return { path, tokens };
  });
}

function total(entries: readonly { readonly tokens: number }[]): number {
  return entries.reduce((sum, { tokens }) => sum + tokens, 0);
}
