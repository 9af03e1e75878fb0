import { WarmpathError } from '@warmpath/core';
import { type Admission, allSpans, type CachedPrompt, type PrefixCacheModel } from './prefix-cache.js';
import { commonPrefix, countTokens, type TokenRun, takeTokens, toRuns } from './token-runs.js';

/** A slot is taken for its content only if it shares more than this of the new prompt (`--slot-prompt-similarity`). */
const SLOT_SIMILARITY = 0.1;
/** A slot that keeps less than this of its own prompt is saved before it is overwritten. */
const SAVE_BELOW = 0.5;
/** A saved prompt is loaded only if the new one keeps at least this of it. */
const LOAD_FROM = 0.25;

export interface LlamaSlotsOptions {
  /** Slots (`-np`). Default 4, as llama-server chooses. */
  readonly slots?: number;
  /**
   * Tokens that saved prompts may have together (`--cache-ram`, by what the model needs a token). Default unlimited; 0
   * saves none.
   */
  readonly savedTokens?: number;
  /** Whether every request saves and clears the other slots, as llama-server does with unified KV. Default true. */
  readonly clearsIdleSlots?: boolean;
}

interface Slot {
  runs: readonly TokenRun[];
  lastUse: number;
  /** A prompt is under way in it: nobody else can use it or what it holds. */
  isBusy: boolean;
}

type Prompts = readonly (readonly TokenRun[])[];

interface Preparation {
  readonly slot: Slot;
  readonly held: readonly TokenRun[];
  readonly saved: Prompts;
}

/** How much of a held prompt a new one keeps, and how much of the new one is held. */
interface Likeness {
  readonly kept: number;
  readonly similarity: number;
}

/**
 * The prompt cache of llama-server (`get_available_slot` and its RAM cache): a request takes the slot most like its
 * prompt, or the one used longest ago; a slot's prompt that would mostly be lost is saved first, and a saved one that
 * fits better is moved in. One prompt serves one consumer: slots share nothing, busy ones lend nothing, and a saved
 * prompt that is loaded (it lies in host memory) is gone. `--cache-reuse` and context checkpoints are not modelled.
 * Cost: O((slots + saved prompts) × runs).
 */
export class LlamaSlots implements PrefixCacheModel {
  readonly name = 'llama-slots';
  readonly granularity = 1;
  // A slot that was overwritten says nothing about the others.
  readonly evictsLeastRecent = false;
  readonly capacityTokens = Number.POSITIVE_INFINITY;
  readonly #slotCount: number;
  readonly #savedTokens: number;
  readonly #clearsIdleSlots: boolean;
  #slots: Slot[] = [];
  /** Oldest first. */
  #saved: Prompts = [];
  #uses = 0;

  /** Error: `WARMPATH_INVALID_REQUEST` for a number of slots that is no whole number above 0. */
  constructor(options: LlamaSlotsOptions = {}) {
    this.#slotCount = options.slots ?? 4;
    this.#savedTokens = options.savedTokens ?? Number.POSITIVE_INFINITY;
    this.#clearsIdleSlots = options.clearsIdleSlots ?? true;
    if (!Number.isSafeInteger(this.#slotCount) || this.#slotCount < 1) {
      const detail = 'A whole number above 0 was expected.';
      throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'slots', detail });
    }
    this.clear();
  }

  get usedTokens(): number {
    return [...this.#slots.map(({ runs }) => runs), ...this.#saved].reduce((sum, runs) => sum + countTokens(runs), 0);
  }

  cachedTokens(prompt: CachedPrompt): number {
    const runs = toRuns(prompt.spans, prompt.salt);
    const preparation = this.#prepare(runs);
    return preparation === undefined ? 0 : reusable(preparation.held, runs);
  }

  admit(prompt: CachedPrompt): Admission | undefined {
    const runs = toRuns(prompt.spans, prompt.salt);
    const preparation = this.#prepare(runs);
    if (preparation === undefined) return undefined;
    const { slot, held, saved } = preparation;
    const cachedTokens = reusable(held, runs);
    const isLoaded = held !== slot.runs;
    this.#saved = saved;
    if (this.#clearsIdleSlots) this.#clearOthers(slot);
    slot.isBusy = true;
    slot.runs = takeTokens(runs, cachedTokens);
    const all = toRuns(allSpans(prompt), prompt.salt);
    let entered = cachedTokens;
    return {
      cachedTokens,
      ...(isLoaded && { hostTokens: cachedTokens }),
      enter: (tokens) => {
        if (tokens <= entered) return;
        entered = tokens;
        slot.runs = takeTokens(all, tokens);
      },
      release: () => {
        slot.isBusy = false;
        slot.lastUse = ++this.#uses;
      },
    };
  }

  clear(): void {
    this.#slots = Array.from({ length: this.#slotCount }, () => ({ runs: [], lastUse: 0, isBusy: false }));
    this.#saved = [];
    this.#uses = 0;
  }

  /**
   * What serving a prompt would start from: the slot, what it then holds, and what is saved; undefined if all are busy.
   * Changes nothing.
   */
  #prepare(runs: readonly TokenRun[]): Preparation | undefined {
    const choice = this.#choose(runs);
    if (choice === undefined) return undefined;
    const { slot, isFresh } = choice;
    if (!isFresh) return { slot, held: slot.runs, saved: this.#saved };
    const saved = withSaved(this.#saved, slot.runs, this.#savedTokens);
    const loaded = bestSaved(saved, runs, slot.runs);
    if (loaded === undefined) return { slot, held: slot.runs, saved };
    return { slot, held: loaded, saved: saved.filter((candidate) => candidate !== loaded) };
  }

  /** The slot for a prompt, and whether its content is to be replaced rather than continued. */
  #choose(runs: readonly TokenRun[]): { readonly slot: Slot; readonly isFresh: boolean } | undefined {
    let best: Slot | undefined;
    let bestLikeness: Likeness | undefined;
    let oldest: Slot | undefined;
    for (const slot of this.#slots) {
      if (slot.isBusy) continue;
      if (oldest === undefined || slot.lastUse < oldest.lastUse) oldest = slot;
      const likeness = compare(slot.runs, runs);
      if (likeness.similarity > (bestLikeness?.similarity ?? SLOT_SIMILARITY)) [best, bestLikeness] = [slot, likeness];
    }
    if (best !== undefined && bestLikeness !== undefined) {
      return { slot: best, isFresh: bestLikeness.kept < SAVE_BELOW };
    }
    return oldest === undefined ? undefined : { slot: oldest, isFresh: true };
  }

  #clearOthers(slot: Slot): void {
    for (const other of this.#slots) {
      if (other === slot || other.isBusy || other.runs.length === 0) continue;
      this.#saved = withSaved(this.#saved, other.runs, this.#savedTokens);
      other.runs = [];
    }
  }
}

function compare(held: readonly TokenRun[], runs: readonly TokenRun[]): Likeness {
  const common = commonPrefix(held, runs);
  const tokens = countTokens(held);
  return { kept: tokens === 0 ? 0 : common / tokens, similarity: common / Math.max(1, countTokens(runs)) };
}

/** The saved prompt that beats what the slot holds by both measures, if any. */
function bestSaved(saved: Prompts, runs: readonly TokenRun[], held: readonly TokenRun[]): Prompts[number] | undefined {
  let best: Prompts[number] | undefined;
  let { kept, similarity } = compare(held, runs);
  for (const candidate of saved) {
    const likeness = compare(candidate, runs);
    if (likeness.kept < LOAD_FROM || likeness.kept <= kept || likeness.similarity <= similarity) continue;
    best = candidate;
    ({ kept, similarity } = likeness);
  }
  return best;
}

/**
 * The saved prompts after one more is saved: none that another contains, and the oldest out first beyond `room` tokens.
 */
function withSaved(saved: Prompts, runs: readonly TokenRun[], room: number): Prompts {
  const tokens = countTokens(runs);
  if (tokens === 0 || tokens > room) return saved;
  if (saved.some((other) => commonPrefix(other, runs) === tokens)) return saved;
  const all = saved.filter((other) => commonPrefix(other, runs) < countTokens(other));
  all.push(runs);
  let total = all.reduce((sum, prompt) => sum + countTokens(prompt), 0);
  let oldest = 0;
  while (total > room) total -= countTokens(all[oldest++]!);
  return all.slice(oldest);
}

/** Tokens of a held prompt that a new one can start from; the last token is always computed. */
function reusable(held: readonly TokenRun[], runs: readonly TokenRun[]): number {
  return Math.max(0, Math.min(commonPrefix(held, runs), countTokens(runs) - 1));
}
