import { WarmpathError } from '../errors.js';

/** Result of one stage of a search. */
export interface SearchStage {
  /** Ids of the current top-k, best first. */
  readonly documents: readonly string[];
  /** Whether this is the last stage. */
  readonly isFinal: boolean;
}

/** What to do at the engine after a stage. Generations of a request are numbered from 0. */
export type SpeculationAction =
  /** The generation has the wrong documents: abort it. The KV that it computed stays cached. */
  | { readonly kind: 'end'; readonly generation: number }
  /** Start a generation on these documents. Hold its tokens back if it is speculative. */
  | {
      readonly kind: 'start';
      readonly generation: number;
      readonly documents: readonly string[];
      readonly isSpeculative: boolean;
    }
  /** The generation still has the right documents. */
  | { readonly kind: 'keep'; readonly generation: number }
  /** The search is over, and the generation had the right documents: release its tokens. */
  | { readonly kind: 'confirm'; readonly generation: number };

export interface SpeculativePipelineOptions {
  /**
   * A speculation only starts while fewer requests wait for prefill (`max_prefill_bs` of RAGCache). 0 never speculates.
   */
  readonly maxPending: number;
  /**
   * Whether candidates are the same as before: in the same `order` (default, as in RAGCache), or the same `set`, where
   * prompts are arranged anyway.
   */
  readonly agreement?: 'order' | 'set';
  /** Whether to speculate on the candidates of this stage, from 0. Default: always. */
  readonly isWorthTrying?: (stage: number) => boolean;
}

interface Generation {
  readonly number: number;
  readonly documents: readonly string[];
}

/**
 * Dynamic speculative pipelining for one request (RAGCache §5.3, Algorithm 2): generation starts on the candidates of a
 * stage and is aborted when they change. A state machine without clock or I/O: stages in, actions out. At most one
 * generation runs.
 *
 * Unlike Algorithm 2, it tries candidates again that were skipped because the engine was busy.
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
   * Takes the candidates of a stage. Carry the actions out in order. O(k).
   *
   * @param pending other requests that wait for prefill at the engine
   * @throws `WARMPATH_INVALID_REQUEST` after the last stage or `abort`
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

  /** Ends the request, for instance because its client left. */
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
