import { type HeldPrompt, type HeldSpan, PromptSlots } from '@warmpath/core/internal';
import type { ReuseModel } from '../dialects/dialects.js';

/** Bytes of one remembered span: a key of 33 characters, a number and a slot of a map. */
const SPAN_BYTES = 128;
/** Prompts that a server with slots may have saved, as far as they are followed. */
const MAX_SAVED_PROMPTS = 512;

/** One prompt in a shadow cache. */
export interface ShadowUse {
  /** Cost of its beginning that was cached when it was dispatched. */
  readonly cachedCost: number;
  /** The engine has computed the prompt. */
  prefilled(): void;
  /** The engine is done with it. `answer`: the span of its answer, where it was complete. */
  ended(answer: HeldSpan | undefined): void;
}

/** A prompt that is looked for. */
interface ShadowPrompt {
  readonly spans: HeldPrompt;
  /** Numbers of spans up to whose end the client wants it cached. */
  readonly marks: readonly number[];
  readonly now: number;
}

/** What bounds a shadow cache. */
export interface ShadowBounds {
  /** Cost of everything that the engine holds. */
  readonly cost: () => number;
  readonly bytes: () => number;
}

/** The prefix cache that an engine would have if prompts came as clients wrote them. */
export interface ShadowCache {
  readonly bytes: number;
  begin(prompt: ShadowPrompt): ShadowUse;
}

export function shadowCacheOf(reuse: ReuseModel, bounds: ShadowBounds): ShadowCache {
  switch (reuse.kind) {
    case 'slots': {
      const maxSavedSpans = Math.floor(bounds.bytes() / SPAN_BYTES);
      return new SlotShadow(new PromptSlots({ ...reuse.slots, maxSaved: MAX_SAVED_PROMPTS, maxSavedSpans }));
    }
    case 'prefix':
      return new PrefixShadow(bounds, {});
    case 'hosted':
      return new PrefixShadow(bounds, { keptMs: reuse.keptMs });
    case 'breakpoints':
      return new PrefixShadow(bounds, { keptMs: reuse.keptMs, onlyMarks: true });
  }
}

interface Held {
  readonly cost: number;
  readonly usedAt: number;
}

/**
 * Spans, the least recently used first. Hosted APIs forget by time, other engines when they are full. A prompt counts
 * as cached when its answer begins, so that two prompts at once do not count each other.
 */
class PrefixShadow implements ShadowCache {
  readonly #bounds: ShadowBounds;
  readonly #keptMs: number;
  readonly #onlyMarks: boolean;
  readonly #held = new Map<string, Held>();
  #cost = 0;

  constructor(
    bounds: ShadowBounds,
    {
      keptMs = Number.POSITIVE_INFINITY,
      onlyMarks = false,
    }: { readonly keptMs?: number; readonly onlyMarks?: boolean },
  ) {
    this.#bounds = bounds;
    this.#keptMs = keptMs;
    this.#onlyMarks = onlyMarks;
  }

  get bytes(): number {
    return this.#held.size * SPAN_BYTES;
  }

  begin({ spans, marks, now }: ShadowPrompt): ShadowUse {
    const written = this.#onlyMarks ? spans.slice(0, (marks.at(-1) ?? -1) + 1) : spans;
    return {
      cachedCost: this.#cachedCost(written, now),
      prefilled: () => this.#hold(written, marks, now),
      ended: (answer) => {
        if (answer !== undefined && !this.#onlyMarks) this.#hold([answer], [], now);
      },
    };
  }

  #cachedCost(spans: HeldPrompt, now: number): number {
    let cost = 0;
    let cached = 0;
    for (const { key, tokens } of spans) {
      cost += tokens;
      const held = this.#held.get(key);
      if (held !== undefined && now - held.usedAt <= this.#keptMs) cached = cost;
      else if (!this.#onlyMarks) break;
    }
    return cached;
  }

  /** The last span first: engines give up the end of a prompt before its beginning. */
  #hold(spans: HeldPrompt, marks: readonly number[], now: number): void {
    for (let place = spans.length - 1; place >= 0; place--) {
      const { key, tokens } = spans[place]!;
      if (this.#onlyMarks && !marks.includes(place)) continue;
      const known = this.#held.get(key);
      if (known !== undefined) this.#held.delete(key);
      else this.#cost += tokens;
      this.#held.set(key, { cost: tokens, usedAt: now });
    }
    this.#evict();
  }

  #evict(): void {
    const [maxCost, maxBytes] = [this.#bounds.cost(), this.#bounds.bytes()];
    for (const [key, { cost }] of this.#held) {
      if (this.#cost <= maxCost && this.bytes <= maxBytes) return;
      this.#held.delete(key);
      this.#cost -= cost;
    }
  }
}

/** llama-server: one prompt a slot, and saved ones. A prompt holds its slot until its answer ends. */
class SlotShadow implements ShadowCache {
  readonly #slots: PromptSlots;

  constructor(slots: PromptSlots) {
    this.#slots = slots;
  }

  get bytes(): number {
    let spans = 0;
    for (const prompt of this.#slots.prompts()) spans += prompt.length;
    return SPAN_BYTES * spans;
  }

  begin({ spans }: ShadowPrompt): ShadowUse {
    let use = this.#slots.begin(spans);
    if (use === undefined) {
      this.#slots.releaseLongestRunning();
      use = this.#slots.begin(spans)!;
    }
    const own = use;
    return {
      cachedCost: own.cachedTokens,
      prefilled: () => own.hold(spans),
      ended: (answer) => {
        if (answer !== undefined) own.hold([...spans, answer]);
        own.release();
      },
    };
  }
}
