import { WarmpathError } from '@warmpath/core';
import {
  type ChosenToken,
  type GenerationHandle,
  type GenerationListener,
  type GenerationRequest,
  type GenerationResult,
  isolatedListener,
} from './generation.js';

/** Ended ids that are remembered, so that what comes late differs from what never was. */
const REMEMBERED_IDS = 4096;

/** How a speculation ended, or that a newer generation of its id took over. */
export type SpeculationOutcome = 'confirmed' | 'superseded' | 'cancelled' | 'expired' | 'failed' | 'closed';

export const SPECULATION_OUTCOMES: readonly SpeculationOutcome[] = [
  'confirmed',
  'superseded',
  'cancelled',
  'expired',
  'failed',
  'closed',
];

/** What a speculation is called. Two callers may choose the same id, and mean two speculations. */
export interface SpeculationName {
  /** Tells callers apart; of one length for all. */
  readonly owner: string;
  /** Shared by all generations of one user request. */
  readonly id: string;
}

/** What a request says of itself when it may turn out to be on the wrong documents. */
export interface SpeculationTag extends SpeculationName {
  /** Which of them it is: higher ones come later. One more than the latest when left out. */
  readonly generation?: number;
  /** Whether the documents are final: it takes the place of what was speculated and its answer is not held back. */
  readonly isConfirmed: boolean;
}

export interface SpeculationsOptions {
  /** Most ids that wait for their confirmation at the same time. */
  readonly capacity: number;
  /** How long a generation waits for its confirmation, in milliseconds. */
  readonly timeoutMs: number;
  /** Tokens after which an unconfirmed generation pauses. */
  readonly heldTokens: number;
  /** Hands a request to the loop. */
  readonly submit: (request: GenerationRequest, listener: GenerationListener) => GenerationHandle;
  /** Hears how each generation ended as a speculation. */
  readonly onEnd: (outcome: SpeculationOutcome) => void;
}

interface Speculation {
  readonly name: SpeculationName;
  readonly generation: number;
  readonly handle: GenerationHandle;
  readonly answer: HeldAnswer;
  readonly timer: NodeJS.Timeout;
}

/**
 * Generations that were started before the search for their documents was over (RAGCache §5.3). All generations of one
 * user request share an id; the newest is the only one that lives. One that a newer one replaces ends after the current
 * step, and what it has computed stays cached, so the newer one goes on behind the longest prefix that both have in
 * common. Its answer is held back until the id is confirmed; until then it makes `heldTokens` tokens at most and then
 * gives its cells away.
 *
 * Which documents are worth a generation is for `SpeculativePipeline` of `@warmpath/core` to say, at the side of the
 * search.
 */
export class Speculations {
  readonly #options: SpeculationsOptions;
  /** By `keyOf` their names. */
  readonly #open = new Map<string, Speculation>();
  /** Those that have ended, oldest first. */
  readonly #ended = new Map<string, SpeculationOutcome>();

  constructor(options: SpeculationsOptions) {
    this.#options = options;
  }

  /** Ids that wait for their confirmation. */
  get size(): number {
    return this.#open.size;
  }

  /**
   * Hands in a generation of an id; an older one ends and hears WARMPATH_SPECULATION_SUPERSEDED.
   *
   * @throws WARMPATH_SPECULATION_SUPERSEDED when a newer generation is here already, WARMPATH_SPECULATION_ENDED when
   *   the id was confirmed or cancelled, WARMPATH_OVERLOADED when too many ids are open; and what the loop throws, and
   *   then the older one lives on.
   */
  submit(request: GenerationRequest, tag: SpeculationTag, listener: GenerationListener): GenerationHandle {
    const { id, isConfirmed } = tag;
    const ended = this.#ended.get(keyOf(tag));
    if (ended === 'confirmed' || ended === 'cancelled') {
      throw hasEnded(id, ended);
    }
    const older = this.#open.get(keyOf(tag));
    const generation = tag.generation ?? (older === undefined ? 0 : older.generation + 1);
    if (older !== undefined && generation <= older.generation) {
      throw superseded(id, older.generation);
    }
    if (isConfirmed) {
      const handle = this.#options.submit(request, listener);
      this.#supersede(older, generation);
      this.#remember(tag, 'confirmed');
      return handle;
    }
    if (older === undefined && this.#open.size >= this.#options.capacity) {
      throw new WarmpathError('WARMPATH_OVERLOADED', { detail: `${this.#open.size} speculations are open already.` });
    }
    return this.#start(request, { name: { owner: tag.owner, id }, generation }, { older, listener });
  }

  /**
   * The documents of an id's newest generation are final: its answer goes out. Safe to repeat.
   *
   * @param generation The generation that is meant; the newest when left out.
   * @returns The generation that was confirmed; `undefined` when it was before.
   * @throws WARMPATH_SPECULATION_UNKNOWN, WARMPATH_SPECULATION_ENDED, WARMPATH_SPECULATION_SUPERSEDED.
   */
  confirm(name: SpeculationName, generation?: number): number | undefined {
    const speculation = this.#find(name, 'confirmed', generation);
    if (speculation !== undefined) {
      this.#close(speculation, 'confirmed');
      speculation.answer.letGo();
      speculation.handle.release();
    }
    return speculation?.generation;
  }

  /**
   * No generation of this id is wanted any more. Safe to repeat.
   *
   * @returns The generation that was ended; `undefined` when it was before.
   * @throws WARMPATH_SPECULATION_UNKNOWN, WARMPATH_SPECULATION_ENDED, WARMPATH_SPECULATION_SUPERSEDED.
   */
  cancel(name: SpeculationName, generation?: number): number | undefined {
    const speculation = this.#find(name, 'cancelled', generation);
    if (speculation !== undefined) {
      this.#end(speculation, 'cancelled', hasEnded(name.id, 'cancelled'));
    }
    return speculation?.generation;
  }

  /** Ends everything that waits for its confirmation: none will come. */
  close(): void {
    for (const speculation of [...this.#open.values()]) {
      this.#end(speculation, 'failed', new WarmpathError('WARMPATH_SHUTTING_DOWN'));
    }
  }

  #start(
    request: GenerationRequest,
    { name, generation }: Pick<Speculation, 'name' | 'generation'>,
    { older, listener }: { readonly older: Speculation | undefined; readonly listener: GenerationListener },
  ): GenerationHandle {
    const { heldTokens, timeoutMs, submit } = this.#options;
    // What was held back is sent outside the loop, so a listener that throws is no business of the loop's either.
    const isolated = isolatedListener(listener, () => handle.abort());
    const answer = new HeldAnswer({
      ...isolated,
      onError: (error) => {
        this.#close(speculation, 'failed');
        isolated.onError(error);
      },
    });
    const handle = submit({ ...request, holdAfter: heldTokens }, answer);
    this.#supersede(older, generation);
    const timer = setTimeout(() => {
      const detail = `It was not confirmed within ${timeoutMs} ms.`;
      this.#end(speculation, 'expired', new WarmpathError('WARMPATH_SPECULATION_ENDED', { detail }));
    }, timeoutMs);
    timer.unref();
    const speculation: Speculation = { name, generation, handle, answer, timer };
    const key = keyOf(name);
    this.#ended.delete(key);
    this.#open.set(key, speculation);
    return {
      abort: () => {
        this.#close(speculation, 'closed');
        handle.abort();
      },
      release: () => handle.release(),
    };
  }

  #supersede(older: Speculation | undefined, generation: number): void {
    if (older !== undefined) {
      this.#end(older, 'superseded', superseded(older.name.id, generation));
    }
  }

  /** The open speculation of an id; `undefined` when it has ended just as it is asked to. */
  #find(name: SpeculationName, wanted: SpeculationOutcome, generation: number | undefined): Speculation | undefined {
    const { id } = name;
    const key = keyOf(name);
    const speculation = this.#open.get(key);
    const ended = this.#ended.get(key);
    if (speculation === undefined) {
      if (ended === wanted) {
        return undefined;
      }
      throw ended === undefined ? new WarmpathError('WARMPATH_SPECULATION_UNKNOWN') : hasEnded(id, ended);
    }
    if (generation !== undefined && generation !== speculation.generation) {
      throw superseded(id, speculation.generation);
    }
    return speculation;
  }

  #end(speculation: Speculation, outcome: SpeculationOutcome, error: WarmpathError): void {
    this.#close(speculation, outcome);
    speculation.answer.onError(error);
    speculation.handle.abort();
  }

  /** A speculation waits for nothing any more; does nothing the second time. */
  #close(speculation: Speculation, outcome: SpeculationOutcome): void {
    const key = keyOf(speculation.name);
    if (this.#open.get(key) !== speculation) {
      return;
    }
    clearTimeout(speculation.timer);
    this.#open.delete(key);
    this.#remember(speculation.name, outcome);
    this.#options.onEnd(outcome);
  }

  #remember(name: SpeculationName, outcome: SpeculationOutcome): void {
    const key = keyOf(name);
    this.#ended.delete(key);
    this.#ended.set(key, outcome);
    if (this.#ended.size > REMEMBERED_IDS) {
      this.#ended.delete(this.#ended.keys().next().value!);
    }
  }
}

function keyOf({ owner, id }: SpeculationName): string {
  return `${owner} ${id}`;
}

function hasEnded(id: string, outcome: SpeculationOutcome): WarmpathError {
  return new WarmpathError('WARMPATH_SPECULATION_ENDED', {
    path: 'id',
    detail: `${JSON.stringify(id)} was ${outcome}.`,
  });
}

function superseded(id: string, generation: number): WarmpathError {
  const detail = `Generation ${generation} of ${JSON.stringify(id)} is the newest.`;
  return new WarmpathError('WARMPATH_SPECULATION_SUPERSEDED', { path: 'id', detail });
}

/**
 * A listener that gets nothing but errors before it is let go: texts and the end are kept back and sent in one go
 * then. What it keeps is bounded by the generation's own limit of tokens.
 */
class HeldAnswer implements GenerationListener {
  readonly #listener: GenerationListener;
  #text = '';
  #tokens: ChosenToken[] = [];
  #result: GenerationResult | undefined;
  #isLetGo = false;

  constructor(listener: GenerationListener) {
    this.#listener = listener;
  }

  /** Passes on what was kept back; from now on, everything goes straight through. */
  letGo(): void {
    this.#isLetGo = true;
    if (this.#text !== '' || this.#tokens.length > 0) {
      this.#listener.onText(this.#text, this.#tokens);
      this.#text = '';
      this.#tokens = [];
    }
    if (this.#result !== undefined) {
      this.#listener.onFinish(this.#result);
    }
  }

  onText(text: string, tokens: readonly ChosenToken[] = []): void {
    if (this.#isLetGo) {
      this.#listener.onText(text, tokens);
    } else {
      this.#text += text;
      this.#tokens.push(...tokens);
    }
  }

  onFinish(result: GenerationResult): void {
    if (this.#isLetGo) {
      this.#listener.onFinish(result);
    } else {
      this.#result = result;
    }
  }

  onError(error: WarmpathError): void {
    this.#listener.onError(error);
  }
}
