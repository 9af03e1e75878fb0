import { WarmpathError } from '@warmpath/core';
import type { PromptSpan } from '../workloads/workload.js';
import {
  type Admission,
  type CachedPrompt,
  type CachedPromptReuse,
  type PrefixCacheModel,
  promptTokens,
} from './prefix-cache.js';
import { VllmBlockCache } from './vllm-blocks.js';

export interface GraftCacheOptions {
  /** The prefix cache in front. Default vLLM's blocks, unlimited. */
  readonly prefix?: PrefixCacheModel;
  /** Tokens of documents that are kept for other places, those used least recently go first. Default unlimited. */
  readonly tokens?: number;
  /** Share of a grafted document that is computed again where it stands now, 0 to 1. Default 0.15 (CacheBlend). */
  readonly recomputed?: number;
  /** Tokens at the start of a grafted document that are computed in any case. Default 16 (EPIC, a block). */
  readonly seam?: number;
  /**
   * Whether a later prompt may reuse, as a prefix, what was computed behind a graft. That is how far an engine gets
   * that takes approximate KV for exact; one that keeps them apart shares a path up to the first graft only. Default
   * true.
   */
  readonly sharesGrafted?: boolean;
}

/** The part of a prompt that is reused at another place. */
interface Grafts {
  readonly tokens: number;
  /** Where the first of them begins; infinite if there is none. */
  readonly start: number;
}

/**
 * A cache that also reuses documents at places where they did not stand before: behind the longest cached prefix, each
 * document that was ever computed is grafted, and of its tokens only some are computed again (selective recomputation:
 * CacheBlend computes about 15 % again, EPIC the first ones of each document). What comes out is close to the exact
 * KV and not equal to it, so this is a model of what such reuse would save, and says nothing about answers.
 *
 * Which spans are documents the prompt says (`CachedPrompt.documents`); nothing else is grafted. Cost: that of the
 * prefix cache, and O(documents).
 */
export class GraftCache implements PrefixCacheModel {
  readonly name = 'grafts';
  readonly granularity: number;
  readonly evictsLeastRecent: boolean;
  readonly capacityTokens: number;
  readonly #prefix: PrefixCacheModel;
  readonly #room: number;
  readonly #recomputed: number;
  readonly #seam: number;
  readonly #sharesGrafted: boolean;
  /** Tokens of the documents that are kept, by key, in order of last use. */
  readonly #kept = new Map<string, number>();
  #keptTokens = 0;

  /** Error: `WARMPATH_INVALID_REQUEST` for a share outside 0 to 1, or numbers of tokens that are none. */
  constructor(options: GraftCacheOptions = {}) {
    const { prefix = new VllmBlockCache(), tokens = Number.POSITIVE_INFINITY, recomputed = 0.15, seam = 16 } = options;
    if (!(recomputed >= 0 && recomputed <= 1)) throw invalid('recomputed', 'A share from 0 to 1 was expected.');
    if (!(tokens === Number.POSITIVE_INFINITY || (Number.isSafeInteger(tokens) && tokens >= 0))) {
      throw invalid('tokens', 'A whole number of 0 or more was expected.');
    }
    if (!(Number.isSafeInteger(seam) && seam >= 0)) throw invalid('seam', 'A whole number of 0 or more was expected.');
    this.#prefix = prefix;
    this.#room = tokens;
    this.#recomputed = recomputed;
    this.#seam = seam;
    this.#sharesGrafted = options.sharesGrafted ?? true;
    this.granularity = prefix.granularity;
    this.evictsLeastRecent = prefix.evictsLeastRecent;
    this.capacityTokens = prefix.capacityTokens + tokens;
  }

  get usedTokens(): number {
    return this.#prefix.usedTokens + this.#keptTokens;
  }

  cachedTokens(prompt: CachedPrompt): number {
    return this.#prefix.cachedTokens(prompt);
  }

  reuse(prompt: CachedPrompt): CachedPromptReuse {
    return this.#prefix.reuse?.(prompt) ?? { cachedTokens: this.cachedTokens(prompt), hostTokens: 0 };
  }

  admit(prompt: CachedPrompt): Admission | undefined {
    const admission = this.#prefix.admit(prompt);
    if (admission === undefined) return undefined;
    const { cachedTokens } = admission;
    const grafts = this.#graftsOf(prompt, cachedTokens);
    let kept = 0;
    return {
      ...admission,
      graftedTokens: grafts.tokens,
      enter: (tokens) => {
        if (tokens <= kept) return;
        this.#keep(prompt, kept, tokens);
        kept = tokens;
        admission.enter(this.#sharesGrafted ? tokens : Math.min(tokens, Math.max(grafts.start, cachedTokens)));
      },
      release: () => admission.release(),
    };
  }

  clear(): void {
    this.#prefix.clear();
    this.#kept.clear();
    this.#keptTokens = 0;
  }

  /** What is grafted of a prompt behind its cached tokens; at least one token of the prompt is always computed. */
  #graftsOf(prompt: CachedPrompt, cachedTokens: number): Grafts {
    let tokens = 0;
    let start = Number.POSITIVE_INFINITY;
    for (const document of documentsOf(prompt)) {
      const left = Math.min(document.tokens, document.end - cachedTokens);
      if (left <= 0 || !this.#kept.has(document.key)) continue;
      const behindSeam = Math.max(0, left - this.#seam);
      const saved = behindSeam - Math.ceil(this.#recomputed * behindSeam);
      if (saved === 0) continue;
      tokens += saved;
      start = Math.min(start, document.end - left);
    }
    return { tokens: Math.min(tokens, promptTokens(prompt) - cachedTokens - 1), start };
  }

  /** Keeps the documents that end behind `from` and not behind `to`, and makes room for them. */
  #keep(prompt: CachedPrompt, from: number, to: number): void {
    for (const { key, tokens, end } of documentsOf(prompt)) {
      if (end <= from || end > to || tokens > this.#room) continue;
      this.#keptTokens += tokens - (this.#kept.get(key) ?? 0);
      this.#kept.delete(key);
      this.#kept.set(key, tokens);
    }
    for (const [key, tokens] of this.#kept) {
      if (this.#keptTokens <= this.#room) break;
      this.#kept.delete(key);
      this.#keptTokens -= tokens;
    }
  }
}

interface PlacedDocument extends PromptSpan {
  /** Token of the prompt behind its last one. */
  readonly end: number;
}

/** The documents of a prompt that have tokens, each under a key of its salt. */
function documentsOf({ spans, documents, salt = '' }: CachedPrompt): readonly PlacedDocument[] {
  const [from, to] = documents ?? [0, 0];
  const placed: PlacedDocument[] = [];
  let end = 0;
  for (const [place, { key, tokens }] of spans.entries()) {
    end += tokens;
    if (place >= from && place < to && tokens > 0) placed.push({ key: `${salt.length}:${salt}${key}`, tokens, end });
  }
  return placed;
}

function invalid(path: string, detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_INVALID_REQUEST', { path, detail });
}
