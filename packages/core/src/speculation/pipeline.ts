import { WarmpathError } from '../errors.js';

/** What one step of a staged search found. */
export interface SearchStage {
  /** Ids of the current top-k, best first. */
  readonly documents: readonly string[];
  /** Whether the search is over: these are the documents of the answer. */
  readonly isFinal: boolean;
}

/** What to tell the engine after a stage. `generation` numbers the generations of one request from 0. */
export type SpeculationAction =
  /**
   * The generation is on the wrong documents: end it after the engine's current step. The KV of documents that it
   * shares with later ones stays.
   */
  | { readonly kind: 'end'; readonly generation: number }
  /** Begin a generation on these documents. Keep its tokens back, unless it is not speculative. */
  | {
      readonly kind: 'start';
      readonly generation: number;
      readonly documents: readonly string[];
      readonly isSpeculative: boolean;
    }
  /** The generation is still on the right documents: nothing to do. */
  | { readonly kind: 'keep'; readonly generation: number }
  /** The search is over and the generation was right: its tokens may go out. */
  | { readonly kind: 'confirm'; readonly generation: number };

export interface SpeculativePipelineOptions {
  /**
   * A speculation starts only while fewer requests than this wait for prefill (RAGCache's `max_prefill_bs`), so that it
   * takes time from no one. 0 never speculates.
   */
  readonly maxPending: number;
  /**
   * When candidates are the same as before: in the same `order` (the default, as in RAGCache), or the same `set`, for
   * where prompts are arranged anyway and a mere re-ranking changes nothing of them.
   */
  readonly agreement?: 'order' | 'set';
  /** Whether a speculation on this stage's candidates, counted from 0, pays. By default each does. */
  readonly isWorthTrying?: (stage: number) => boolean;
}

interface Generation {
  readonly number: number;
  readonly documents: readonly string[];
}

/**
 * Dynamic speculative pipelining for one request (RAGCache §5.3, Algorithm 2): generation starts on a stage's
 * candidates before the search is over, goes on while they stay, and is ended when they change. A state machine: stages
 * in, actions out, no clock and no I/O. At most one generation lives at a time; the last is always on the final
 * documents.
 *
 * Other than in Algorithm 2, candidates that were passed over because the engine was busy are tried again at the next
 * stage, though they are the same: there, they count as submitted.
 */
export class SpeculativePipeline {
  readonly #maxPending: number;
  readonly #isSame: (a: readonly string[], b: readonly string[]) => boolean;
  readonly #isWorthTrying: (stage: number) => boolean;
  #stages = 0;
  #live: Generation | undefined;
  #started = 0;
  #isOver = false;

  /** Error: `WARMPATH_INVALID_REQUEST` for a bound that is no whole number of 0 or more. */
  constructor({ maxPending, agreement = 'order', isWorthTrying = () => true }: SpeculativePipelineOptions) {
    if (!Number.isSafeInteger(maxPending) || maxPending < 0) {
      const detail = 'A whole number of 0 or more was expected.';
      throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'maxPending', detail });
    }
    this.#maxPending = maxPending;
    this.#isSame = agreement === 'order' ? areEqual : haveSameMembers;
    this.#isWorthTrying = isWorthTrying;
  }

  /**
   * Takes a stage's candidates in. `pending` is the number of other requests that wait for prefill at the engine.
   * Actions are to be carried out in order. Error: `WARMPATH_INVALID_REQUEST` after the final stage or `abort`. O(k).
   */
  stage({ documents, isFinal }: SearchStage, pending: number): SpeculationAction[] {
    if (this.#isOver) {
      throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'stage', detail: 'The search is over already.' });
    }
    this.#isOver = isFinal;
    const stage = this.#stages++;
    const live = this.#live;
    if (live !== undefined && this.#isSame(live.documents, documents)) {
      return [{ kind: isFinal ? 'confirm' : 'keep', generation: live.number }];
    }
    const actions = this.#end();
    const hasRoom = documents.length > 0 && pending < this.#maxPending;
    if (!isFinal && !(hasRoom && this.#isWorthTrying(stage))) return actions;
    const generation = this.#started++;
    this.#live = { number: generation, documents: [...documents] };
    return [...actions, { kind: 'start', generation, documents, isSpeculative: !isFinal }];
  }

  /** The request is given up, for instance because its client left. Nothing follows. */
  abort(): SpeculationAction[] {
    this.#isOver = true;
    return this.#end();
  }

  #end(): SpeculationAction[] {
    const live = this.#live;
    if (live === undefined) return [];
    this.#live = undefined;
    return [{ kind: 'end', generation: live.number }];
  }
}

function haveSameMembers(a: readonly string[], b: readonly string[]): boolean {
  const members = new Set(a);
  return members.size === new Set(b).size && b.every((id) => members.has(id));
}

function areEqual(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((id, place) => id === b[place]);
}
