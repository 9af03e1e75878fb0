import { WarmpathError } from '../errors.js';
import type { OperationBudget } from '../tree/best-path.js';

/** A slot is chosen for its content only if it shares more than this of the new prompt (`--slot-prompt-similarity`). */
const SLOT_SIMILARITY = 0.1;
/** A prompt that would keep less than this share is saved before its slot is overwritten. */
const SAVED_BELOW_SHARE = 0.5;
/** A saved prompt is loaded only if the new prompt keeps at least this share of it. */
export const MIN_LOADED_SHARE = 0.25;

/** Default slots of llama-server (`-np auto`), with unified KV. */
const AUTO_SLOTS = 4;

/** A part of a prompt. Equal keys are equal tokens; a span with fewer tokens is the start of a longer one. */
export interface HeldSpan {
  readonly key: string;
  readonly tokens: number;
}

/** A prompt, from its first token. */
export type HeldPrompt = readonly HeldSpan[];

export interface PromptSlotsOptions {
  /** Slots (`-np`). Default 4, as llama-server chooses. */
  readonly slots?: number;
  /** Tokens of all saved prompts at most (`--cache-ram` by bytes a token). Default unlimited; 0 saves none. */
  readonly savedTokens?: number;
  /** Saved prompts at most, to bound memory. Default unlimited. */
  readonly maxSaved?: number;
  /** Spans of saved prompts at most, to bound memory. Default unlimited. */
  readonly maxSavedSpans?: number;
  /** Whether each request saves the idle slots (`--cache-idle-slots`). Default true. */
  readonly savesIdleSlots?: boolean;
  /** Whether saved slots are cleared, as llama-server does with unified KV. Default: only with 4 slots. */
  readonly clearsIdleSlots?: boolean;
}

/** Predicted reuse of a prompt. */
export interface SlotReuse {
  readonly cachedTokens: number;
  /** Whether a saved prompt is loaded for it. Host memory then no longer has it. */
  readonly isLoaded: boolean;
  /** Share of the stored prompt that is reused. */
  readonly kept: number;
}

/** A running prompt in a slot. */
export interface SlotUse extends SlotReuse {
  /** Sets the content of the slot. */
  hold(prompt: HeldPrompt): void;
  /** The slot is idle again. */
  release(): void;
}

interface Held {
  readonly prompt: HeldPrompt;
  readonly tokens: number;
}

interface Slot {
  held: Held;
  /** The number of its last release; 0 before the first. */
  lastUse: number;
  /** The running request. No other request can use the slot or its prompt. */
  use: SlotUse | undefined;
  /** The number of its start. */
  startedAt: number;
}

interface Choice {
  readonly slot: Slot;
  /** Whether its content is saved and replaced, by a saved prompt if one is better. */
  readonly isReplaced: boolean;
  readonly loaded: Held | undefined;
}

const NOTHING: Held = { prompt: [], tokens: 0 };
const NOTHING_REUSED: SlotReuse = { cachedTokens: 0, isLoaded: false, kept: 0 };

/**
 * A model of llama-server's prompt cache (`get_available_slot`, `server_prompt_cache`). A request takes the slot most
 * like its prompt, else the least recently used. A prompt that would mostly be lost is saved, and loaded for one later
 * request.
 *
 * Deterministic. `--cache-reuse` and context checkpoints are not modelled. O((slots + saved prompts) × spans in
 * common).
 */
export class PromptSlots {
  readonly #savedTokens: number;
  readonly #maxSaved: number;
  readonly #maxSavedSpans: number;
  readonly #savesIdleSlots: boolean;
  readonly #clearsIdleSlots: boolean;
  readonly #slotCount: number;
  #slots: Slot[] = [];
  /** Oldest first. */
  #saved: readonly Held[] = [];
  #uses = 0;

  /** Error: `WARMPATH_INVALID_REQUEST` for a number of slots that is no whole number above 0. */
  constructor(options: PromptSlotsOptions = {}) {
    this.#slotCount = options.slots ?? AUTO_SLOTS;
    this.#savedTokens = options.savedTokens ?? Number.POSITIVE_INFINITY;
    this.#maxSaved = options.maxSaved ?? Number.POSITIVE_INFINITY;
    this.#maxSavedSpans = options.maxSavedSpans ?? Number.POSITIVE_INFINITY;
    // Without room for saved prompts, llama-server switches this off.
    this.#savesIdleSlots = (options.savesIdleSlots ?? true) && this.#savedTokens > 0;
    this.#clearsIdleSlots = options.clearsIdleSlots ?? this.#slotCount === AUTO_SLOTS;
    if (!Number.isSafeInteger(this.#slotCount) || this.#slotCount < 1) {
      const detail = 'A whole number above 0 was expected.';
      throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'slots', detail });
    }
    this.clear();
  }

  /** Tokens of all slots and saved prompts. */
  get tokens(): number {
    let tokens = 0;
    for (const held of this.#all()) tokens += held.tokens;
    return tokens;
  }

  /** All stored prompts that no request uses, those of slots first. */
  *prompts(): Generator<HeldPrompt> {
    for (const { held, use } of this.#slots) if (use === undefined && held.tokens > 0) yield held.prompt;
    for (const { prompt } of this.#saved) yield prompt;
  }

  /**
   * Predicts the reuse of a prompt. While all slots are busy, it assumes that the longest running request is done.
   * Prompts that the budget does not reach count as absent.
   */
  predict(prompt: HeldPrompt, budget?: OperationBudget): SlotReuse {
    if (budget?.take(prompt.length) === false) return NOTHING_REUSED;
    const tokens = tokensOf(prompt);
    const choice =
      this.#choose(prompt, tokens, budget) ?? this.#chooseAmong([this.#longestRunning()], prompt, tokens, budget)!;
    return reuseOf(choice, prompt, tokens);
  }

  /** Starts a prompt; `undefined` while all slots are busy. The slot then holds the reused tokens, until `hold`. */
  begin(prompt: HeldPrompt): SlotUse | undefined {
    const tokens = tokensOf(prompt);
    const choice = this.#choose(prompt, tokens);
    if (choice === undefined) return undefined;
    const reuse = reuseOf(choice, prompt, tokens);
    const { slot, isReplaced, loaded } = choice;
    if (isReplaced) this.#save(slot.held);
    if (loaded !== undefined) this.#saved = this.#saved.filter((held) => held !== loaded);
    slot.held = toHeld(leadingSpans(prompt, reuse.cachedTokens));
    const use: SlotUse = {
      ...reuse,
      hold: (held) => {
        if (slot.use === use) slot.held = toHeld(held);
      },
      release: () => {
        if (slot.use === use) this.#release(slot);
      },
    };
    slot.use = use;
    slot.startedAt = ++this.#uses;
    this.#saveIdle();
    return use;
  }

  /** Ends the longest running request. Its later calls change nothing. */
  releaseLongestRunning(): void {
    this.#release(this.#longestRunning());
  }

  /** Removes the oldest saved prompts beyond so many tokens in all. */
  pruneToTokens(tokens: number): void {
    let excess = this.tokens - tokens;
    let oldest = 0;
    while (excess > 0 && oldest < this.#saved.length) excess -= this.#saved[oldest++]!.tokens;
    if (oldest > 0) this.#saved = this.#saved.slice(oldest);
  }

  /** Forgets everything, running requests too. */
  clear(): void {
    this.#slots = Array.from({ length: this.#slotCount }, () => ({
      held: NOTHING,
      lastUse: 0,
      use: undefined,
      startedAt: 0,
    }));
    this.#saved = [];
    this.#uses = 0;
  }

  *#all(): Generator<Held> {
    for (const { held } of this.#slots) yield held;
    yield* this.#saved;
  }

  #release(slot: Slot): void {
    slot.use = undefined;
    slot.lastUse = ++this.#uses;
  }

  #longestRunning(): Slot {
    return this.#slots.reduce((longest, slot) => (slot.startedAt < longest.startedAt ? slot : longest));
  }

  #choose(prompt: HeldPrompt, tokens: number, budget?: OperationBudget): Choice | undefined {
    return this.#chooseAmong(
      this.#slots.filter(({ use }) => use === undefined),
      prompt,
      tokens,
      budget,
    );
  }

  #chooseAmong(
    slots: readonly Slot[],
    prompt: HeldPrompt,
    tokens: number,
    budget: OperationBudget | undefined,
  ): Choice | undefined {
    let best: Slot | undefined;
    let similarity = SLOT_SIMILARITY;
    let oldest: Slot | undefined;
    for (const slot of slots) {
      if (oldest === undefined || slot.lastUse <= oldest.lastUse) oldest = slot;
      const shared = commonTokens(slot.held.prompt, prompt, budget) / Math.max(1, tokens);
      if (shared > similarity) [best, similarity] = [slot, shared];
    }
    const slot = best ?? oldest;
    if (slot === undefined) return undefined;
    const isReplaced = best === undefined || (similarity * tokens) / slot.held.tokens < SAVED_BELOW_SHARE;
    return { slot, isReplaced, loaded: isReplaced ? this.#bestSaved(prompt, slot.held, budget) : undefined };
  }

  /** The saved prompt that keeps more of itself and shares more than the content of the slot, if any. */
  #bestSaved(prompt: HeldPrompt, { prompt: own, tokens }: Held, budget: OperationBudget | undefined): Held | undefined {
    let best: Held | undefined;
    let shared = commonTokens(own, prompt, budget);
    let kept = tokens === 0 ? -1 : shared / tokens;
    for (const held of this.#saved) {
      const common = commonTokens(held.prompt, prompt, budget);
      if (budget?.isExceeded) break;
      const keeps = common / held.tokens;
      if (keeps < MIN_LOADED_SHARE || keeps <= kept || common <= shared) continue;
      [best, shared, kept] = [held, common, keeps];
    }
    return best;
  }

  #saveIdle(): void {
    for (const slot of this.#slots) {
      if (slot.use !== undefined || slot.held.tokens === 0) continue;
      if (this.#savesIdleSlots) this.#save(slot.held);
      if (this.#savesIdleSlots && this.#clearsIdleSlots) slot.held = NOTHING;
    }
  }

  #save(one: Held): void {
    if (one.tokens === 0 || this.#savedTokens === 0) return;
    if (this.#saved.some(({ prompt }) => commonTokens(prompt, one.prompt) === one.tokens)) return;
    if (one.tokens > this.#savedTokens) return;
    const all = this.#saved.filter(({ prompt, tokens }) => commonTokens(prompt, one.prompt) < tokens);
    all.push(one);
    let total = 0;
    let spans = 0;
    for (const { tokens, prompt } of all) {
      total += tokens;
      spans += prompt.length;
    }
    let oldest = 0;
    while (all.length - oldest > this.#maxSaved || spans > this.#maxSavedSpans || total > this.#savedTokens) {
      total -= all[oldest]!.tokens;
      spans -= all[oldest++]!.prompt.length;
    }
    this.#saved = oldest === 0 ? all : all.slice(oldest);
  }
}

function reuseOf({ slot, loaded }: Choice, prompt: HeldPrompt, tokens: number): SlotReuse {
  const held = loaded ?? slot.held;
  const common = commonTokens(held.prompt, prompt);
  // The last token is always computed.
  const cachedTokens = Math.max(0, Math.min(common, tokens - 1));
  return { cachedTokens, isLoaded: loaded !== undefined, kept: held.tokens === 0 ? 0 : common / held.tokens };
}

function toHeld(prompt: HeldPrompt): Held {
  return { prompt, tokens: tokensOf(prompt) };
}

function tokensOf(prompt: HeldPrompt): number {
  let sum = 0;
  for (const { tokens } of prompt) sum += tokens;
  return sum;
}

/** Leading tokens that two prompts share, within the budget. O(shared spans). */
function commonTokens(a: HeldPrompt, b: HeldPrompt, budget?: OperationBudget): number {
  let common = 0;
  for (let i = 0; i < a.length && i < b.length; i++) {
    if (budget?.take(1) === false) break;
    const [one, other] = [a[i]!, b[i]!];
    if (one.key !== other.key) break;
    common += Math.min(one.tokens, other.tokens);
    if (one.tokens !== other.tokens) break;
  }
  return common;
}

/** The first tokens of a prompt. O(spans). */
export function leadingSpans(prompt: HeldPrompt, tokens: number): HeldPrompt {
  const taken: HeldSpan[] = [];
  let left = tokens;
  for (const span of prompt) {
    if (left <= 0) break;
    taken.push(span.tokens <= left ? span : { key: span.key, tokens: left });
    left -= span.tokens;
  }
  return taken;
}
