import { type HeldPrompt, leadingSpans, PromptSlots, type PromptSlotsOptions } from '@warmpath/core/internal';
import {
  type Admission,
  allSpans,
  type CachedPrompt,
  type CachedPromptReuse,
  type PrefixCacheModel,
} from './prefix-cache.js';
import { toRuns } from './token-runs.js';

/** llama-server's slots and saved prompts: `PromptSlots` of core, which is also what a gateway goes by. */
export class LlamaSlots implements PrefixCacheModel {
  readonly name = 'llama-slots';
  readonly granularity = 1;
  // A slot that was overwritten says nothing about the others.
  readonly evictsLeastRecent = false;
  readonly capacityTokens = Number.POSITIVE_INFINITY;
  /** What a residency for this cache follows. */
  readonly slots: PromptSlotsOptions;
  readonly #slots: PromptSlots;

  /** Error: `WARMPATH_INVALID_REQUEST` for a number of slots that is no whole number above 0. */
  constructor(options: PromptSlotsOptions = {}) {
    this.slots = options;
    this.#slots = new PromptSlots(options);
  }

  get usedTokens(): number {
    return this.#slots.tokens;
  }

  cachedTokens(prompt: CachedPrompt): number {
    return this.#slots.predict(heldPrompt(prompt.spans, prompt.salt))?.cachedTokens ?? 0;
  }

  reuse(prompt: CachedPrompt): CachedPromptReuse {
    const reuse = this.#slots.predict(heldPrompt(prompt.spans, prompt.salt));
    if (reuse === undefined) return { cachedTokens: 0, hostTokens: 0 };
    return { cachedTokens: reuse.cachedTokens, hostTokens: reuse.isLoaded ? reuse.cachedTokens : 0 };
  }

  admit(prompt: CachedPrompt): Admission | undefined {
    const use = this.#slots.begin(heldPrompt(prompt.spans, prompt.salt));
    if (use === undefined) return undefined;
    const { cachedTokens, isLoaded } = use;
    const all = heldPrompt(allSpans(prompt), prompt.salt);
    let entered = cachedTokens;
    return {
      cachedTokens,
      ...(isLoaded && { hostTokens: cachedTokens }),
      enter: (tokens) => {
        if (tokens <= entered) return;
        entered = tokens;
        use.hold(leadingSpans(all, tokens));
      },
      release: () => use.release(),
    };
  }

  clear(): void {
    this.#slots.clear();
  }
}

function heldPrompt(spans: CachedPrompt['spans'], salt: string | undefined): HeldPrompt {
  return toRuns(spans, salt);
}
