import { type HeldPrompt, type HeldSpan, PromptSlots, TenantCache } from '@warmpath/core/internal';
import type { PromptApi } from '../apis/prompt-view.js';
import { type Dialect, keptMsOf, type ReuseModel, reusable } from '../dialects/dialects.js';
import { answerSpan, type CountedAnswer, type CountedStart, type PromptSpans, promptSpans } from './prompt-spans.js';

/** Tokens that an engine holds where it does not say how many. */
const DEFAULT_CAPACITY_TOKENS = 500_000;
/** Larger bodies have no baseline. */
const MAX_BODY_BYTES = 4_194_304;
/** Part of the memory for turns of conversations, and answers that are remembered. */
const TURNS_PART = 1 / 4;
const ANSWERS_PART = 1 / 16;
const ANSWER_BYTES = 128;
/** Bytes of one remembered span: a key of 33 characters, a number and a slot of a map. */
const SPAN_BYTES = 128;
/** Cost of a token where the engine has not counted any. */
const DEFAULT_TOKEN_COST = 20;
const NOTHING_COUNTED: CountedStart = { cost: 0, tokens: 0 };
/** Weight of the newest observation in the moving average of the cost of a token. */
const NEWEST_WEIGHT = 0.1;

/** The engine whose cache is followed. */
export interface BaselineEngine {
  readonly number: number;
  readonly dialect: Dialect;
  /** Tokens that it holds; `undefined` where it does not say. */
  readonly capacityTokens: number | undefined;
}

/** A prompt as its client wrote it: documents in retrieval order, no references, no hint. */
export interface WrittenPrompt {
  readonly engine: BaselineEngine;
  readonly api: PromptApi;
  readonly body: Buffer;
  readonly tenant: string;
  /** Whether tenants share nothing in the engine's cache. */
  readonly isSalted: boolean;
  /** Names of the turn of its conversation and of the one before, where it has one. */
  readonly turn: string | undefined;
  readonly turnBefore: string | undefined;
  readonly now: number;
}

/** What the engine would have had cached of one prompt. */
export interface PromptBaseline {
  readonly model: string;
  /** Tokens, before the engine has counted the prompt. */
  readonly predictedTokens: number;
  /** Tokens, of a prompt of so many. */
  tokens(promptTokens: number): number;
  /** Tokens that the engine would have written into its cache for a price, up to the last mark of the client. */
  cacheWriteTokens(promptTokens: number): number;
  /** The engine has computed the prompt. */
  prefilled(): void;
  /** The engine is done with it. `answerTokens`: those of its answer, where it was complete. */
  ended(counts: { readonly promptTokens: number | undefined; readonly answerTokens: number | undefined }): void;
}

/** One engine's shadow. */
interface Shadow {
  readonly cache: ShadowCache;
  /** Cost of one of its tokens, as it counts them. */
  tokenCost: number;
}

/**
 * For each engine a second cache, in which prompts are as clients wrote them: its longest match is what the engine
 * would have had cached without Warmpath. Hashes and lengths only, within a budget of bytes.
 */
export class Baselines {
  readonly #maxBytes: number;
  readonly #shadows = new Map<number, Shadow>();
  /** Of conversations with documents, the spans of the turn that comes before the next one. */
  readonly #turns: TenantCache<PromptSpans>;
  /** Answers by the key of their prompt's last span, the oldest first. */
  readonly #answers = new Map<string, CountedAnswer>();

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
    this.#turns = new TenantCache(Math.floor(TURNS_PART * maxBytes));
  }

  get bytes(): number {
    let bytes = this.#turns.bytes + ANSWER_BYTES * this.#answers.size;
    for (const { cache } of this.#shadows.values()) bytes += cache.bytes;
    return bytes;
  }

  /** The prompt goes out. `undefined` for one that is too long. O(body). */
  begin(prompt: WrittenPrompt): PromptBaseline | undefined {
    const { engine, body, api, tenant, isSalted, turn, turnBefore, now } = prompt;
    if (body.length > MAX_BODY_BYTES) return undefined;
    const spans = promptSpans(body, {
      api,
      salt: isSalted ? tenant : undefined,
      answerTo: (key) => this.#answers.get(key),
      continued: turnBefore === undefined ? undefined : this.#turns.get(tenant, turnBefore),
    });
    if (turn !== undefined) this.#turns.set(tenant, turn, spans, SPAN_BYTES * spans.spans.length);
    const shadow = this.#shadowOf(engine);
    return new DispatchedBaseline(spans, shadow, {
      dialect: engine.dialect,
      use: shadow.cache.begin({
        spans: spans.spans,
        marks: spans.marks,
        keptMs: keptMsOf(engine.dialect, spans.model, body) ?? Number.POSITIVE_INFINITY,
        now,
      }),
      answered: (key, answer) => this.#rememberAnswer(key, answer),
    });
  }

  /** The engine is gone, or caches otherwise than was believed. */
  forget({ number }: Pick<BaselineEngine, 'number'>): void {
    this.#shadows.delete(number);
  }

  #shadowOf(engine: BaselineEngine): Shadow {
    const known = this.#shadows.get(engine.number);
    if (known !== undefined) return known;
    const maxBytes = (1 - TURNS_PART - ANSWERS_PART) * this.#maxBytes;
    const shadow: Shadow = {
      tokenCost: DEFAULT_TOKEN_COST,
      cache: shadowCacheOf(engine.dialect.reuse, {
        cost: () => shadow.tokenCost * (engine.capacityTokens ?? DEFAULT_CAPACITY_TOKENS),
        bytes: () => maxBytes / Math.max(1, this.#shadows.size),
      }),
    };
    this.#shadows.set(engine.number, shadow);
    return shadow;
  }

  #rememberAnswer(key: string, answer: CountedAnswer): HeldSpan {
    this.#answers.delete(key);
    this.#answers.set(key, answer);
    if (ANSWER_BYTES * this.#answers.size > ANSWERS_PART * this.#maxBytes) {
      this.#answers.delete(this.#answers.keys().next().value!);
    }
    return answerSpan(key, answer.answerCost);
  }
}

interface DispatchedParts {
  readonly dialect: Dialect;
  readonly use: ShadowUse;
  readonly answered: (key: string, answer: CountedAnswer) => HeldSpan;
}

class DispatchedBaseline implements PromptBaseline {
  readonly model: string;
  readonly #cost: number;
  readonly #counted: CountedStart | undefined;
  readonly #lastKey: string | undefined;
  /** Cost up to the last mark of the client. */
  readonly #markedCost: number;
  readonly #shadow: Shadow;
  readonly #parts: DispatchedParts;

  constructor({ model, cost, counted, spans, marks }: PromptSpans, shadow: Shadow, parts: DispatchedParts) {
    this.model = model;
    this.#cost = cost;
    this.#counted = counted;
    this.#lastKey = spans.at(-1)?.key;
    this.#markedCost = spans.slice(0, (marks.at(-1) ?? -1) + 1).reduce((sum, { tokens }) => sum + tokens, 0);
    this.#shadow = shadow;
    this.#parts = parts;
  }

  get predictedTokens(): number {
    return this.tokens(Math.max(1, Math.round(this.#cost / this.#shadow.tokenCost)));
  }

  cacheWriteTokens(promptTokens: number): number {
    if (this.#parts.dialect.reuse.kind !== 'breakpoints') return 0;
    return Math.max(0, this.#tokensUpTo(this.#markedCost, promptTokens) - this.tokens(promptTokens));
  }

  tokens(promptTokens: number): number {
    return this.#tokensUpTo(this.#parts.use.cachedCost, promptTokens);
  }

  /** Tokens of the beginning of a prompt that an engine can reuse. */
  #tokensUpTo(cachedCost: number, promptTokens: number): number {
    const { dialect } = this.#parts;
    if (cachedCost === 0) return 0;
    // Behind what the engine has counted, tokens are divided by cost.
    const isCounted = this.#counted !== undefined && cachedCost >= this.#counted.cost;
    const start = isCounted && this.#counted.tokens < promptTokens ? this.#counted : NOTHING_COUNTED;
    const share = (cachedCost - start.cost) / Math.max(1, this.#cost - start.cost);
    const cached = start.tokens + Math.round((promptTokens - start.tokens) * share);
    // The last token is always computed.
    return reusable(dialect, this.model, Math.min(promptTokens - 1, cached));
  }

  prefilled(): void {
    this.#parts.use.prefilled();
  }

  ended({ promptTokens, answerTokens }: Parameters<PromptBaseline['ended']>[0]): void {
    const { use, answered } = this.#parts;
    if (promptTokens !== undefined && promptTokens > 0 && this.#cost > 0) {
      this.#shadow.tokenCost += NEWEST_WEIGHT * (this.#cost / promptTokens - this.#shadow.tokenCost);
    }
    if (!promptTokens || !answerTokens || this.#lastKey === undefined) {
      use.ended(undefined);
      return;
    }
    const answerCost = Math.round(answerTokens * this.#shadow.tokenCost);
    use.ended(answered(this.#lastKey, { promptTokens, answerTokens, answerCost }));
  }
}

/** Prompts that a server with slots may have saved, as far as they are followed. */
const MAX_SAVED_PROMPTS = 512;

/** One prompt in a shadow cache. */
interface ShadowUse {
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
  /** Milliseconds for which it stays cached. */
  readonly keptMs: number;
  readonly now: number;
}

/** What bounds a shadow cache. */
interface ShadowBounds {
  /** Cost of everything that the engine holds. */
  readonly cost: () => number;
  readonly bytes: () => number;
}

/** The prefix cache that an engine would have if prompts came as clients wrote them. */
interface ShadowCache {
  readonly bytes: number;
  begin(prompt: ShadowPrompt): ShadowUse;
}

function shadowCacheOf(reuse: ReuseModel, bounds: ShadowBounds): ShadowCache {
  switch (reuse.kind) {
    case 'none':
      return new PrefixShadow({ ...bounds, cost: () => 0 }, false);
    case 'slots': {
      const maxSavedSpans = Math.floor(bounds.bytes() / SPAN_BYTES);
      return new SlotShadow(new PromptSlots({ ...reuse.slots, maxSaved: MAX_SAVED_PROMPTS, maxSavedSpans }));
    }
    case 'prefix':
    case 'checkpoint':
    case 'hosted':
      return new PrefixShadow(bounds, false);
    case 'breakpoints':
      return new PrefixShadow(bounds, true);
  }
}

interface Held {
  readonly cost: number;
  readonly usedAt: number;
  readonly keptMs: number;
}

/**
 * Spans, the least recently used first. Hosted APIs forget by time, other engines when they are full. A prompt counts
 * as cached when its answer begins, so that two prompts at once do not count each other.
 */
class PrefixShadow implements ShadowCache {
  readonly #bounds: ShadowBounds;
  readonly #onlyMarks: boolean;
  readonly #held = new Map<string, Held>();
  #cost = 0;

  constructor(bounds: ShadowBounds, onlyMarks: boolean) {
    this.#bounds = bounds;
    this.#onlyMarks = onlyMarks;
  }

  get bytes(): number {
    return this.#held.size * SPAN_BYTES;
  }

  begin({ spans, marks, keptMs, now }: ShadowPrompt): ShadowUse {
    const use = { usedAt: now, keptMs };
    const written = this.#onlyMarks ? spans.slice(0, (marks.at(-1) ?? -1) + 1) : spans;
    return {
      cachedCost: this.#cachedCost(written, now),
      prefilled: () => this.#hold(written, marks, use),
      ended: (answer) => {
        if (answer !== undefined && !this.#onlyMarks) this.#hold([answer], [], use);
      },
    };
  }

  #cachedCost(spans: HeldPrompt, now: number): number {
    let cost = 0;
    let cached = 0;
    for (const { key, tokens } of spans) {
      cost += tokens;
      const held = this.#held.get(key);
      if (held !== undefined && now - held.usedAt <= held.keptMs) cached = cost;
      else if (!this.#onlyMarks) break;
    }
    return cached;
  }

  /** The last span first: engines give up the end of a prompt before its beginning. */
  #hold(spans: HeldPrompt, marks: readonly number[], use: Omit<Held, 'cost'>): void {
    for (let place = spans.length - 1; place >= 0; place--) {
      const { key, tokens } = spans[place]!;
      if (this.#onlyMarks && !marks.includes(place)) continue;
      const known = this.#held.get(key);
      if (known !== undefined) this.#held.delete(key);
      else this.#cost += tokens;
      this.#held.set(key, { cost: tokens, ...use });
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
