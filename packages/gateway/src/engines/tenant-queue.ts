import type { Document, Preamble, WarmpathError } from '@warmpath/core';
import { CacheAwareScheduler, FifoScheduler, type PromptReuse, type Scheduler } from '@warmpath/core/internal';
import type { GatewayConfig } from '../config/schema.js';
import type { ColdPrefix } from './leading-prompts.js';

/** The documents of a waiting prompt. */
export interface WaitingContext {
  /** Its key differs by model, too. */
  readonly preamble: Preamble;
  readonly documents: readonly Document[];
  /** What the engine is believed to hold of it now. */
  reuse(): PromptReuse;
}

/** A prompt on its way to the engine. */
export interface Dispatch {
  readonly tenant: string;
  /** When its client gives up, on the queue's clock; `undefined` where the client does not say. */
  readonly deadline: number | undefined;
  /** `undefined` for a prompt without documents. Called only when it waits or may follow a leader. Must not throw. */
  context(): WaitingContext | undefined;
  /**
   * Hashes of the beginnings of the body, the shortest first; none where documents are arranged in it. Called only
   * where a leader goes first. Must not throw.
   */
  beginnings(): readonly string[];
  /** Higher goes first within its tenant. Called only when it waits. Must not throw. */
  urgency(): number;
  /** Sends the prompt; called once, when the engine has room. Must not throw. */
  start(queuedMs: number, place: EnginePlace): void;
  /** It waited too long, or was displaced. */
  refuse(error: WarmpathError): void;
  /** The engine takes no more prompts: this one goes to another. Must not throw. */
  moved(): void;
}

/** The room of one prompt in the engine. */
export interface EnginePlace {
  /** Makes it the leader of this prefix: prompts that share it wait for its first token or its end. */
  leads(prefix: ColdPrefix): void;
  /** The same for a body without arranged documents. Returns whether it leads. */
  leadsBytes(beginnings: readonly string[]): boolean;
  /** The first token of its answer has come. */
  began(): void;
  /** The engine is done with it. `isComputed`: it computed the prompt. */
  release(isComputed: boolean): void;
}

/** Times that a prompt may be overtaken with `cache-aware`. */
const MAX_OVERTAKEN = 32;

/** The reuse of a prompt without documents. */
const UNKNOWN_REUSE: PromptReuse = { cachedTokens: 0, hostTokens: 0, computeTokens: 1 };

/** A prompt that waits. */
export interface Waiting {
  readonly dispatch: Dispatch;
  /** In order of arrival. */
  readonly number: number;
  readonly since: number;
  /** Higher goes first within its tenant. */
  readonly urgency: number;
  /** Ends its wait. */
  timer: NodeJS.Timeout | undefined;
  /** Ends its wait for a leader. */
  followTimer: NodeJS.Timeout | undefined;
  /** It followed leaders for as long as it may. */
  hasFollowed: boolean;
  /** It has started or left. */
  isOver: boolean;
}

interface UrgencyClass {
  readonly urgency: number;
  readonly scheduler: Scheduler<Waiting>;
}

/**
 * The waiting prompts of one tenant: the most urgent first, equals in the order of core's scheduler. Prompts that
 * follow a leader stand aside until it has computed what they share with it, then go before all others.
 */
export class TenantQueue implements Iterable<Waiting> {
  readonly #settings: Pick<GatewayConfig['queue'], 'capacity' | 'discipline'>;
  /** In descending order. */
  readonly #classes: UrgencyClass[] = [];
  readonly #following = new Set<Waiting>();
  readonly #returned: Waiting[] = [];

  constructor(settings: Pick<GatewayConfig['queue'], 'capacity' | 'discipline'>) {
    this.#settings = settings;
  }

  get size(): number {
    return this.ready + this.#following.size;
  }

  /** Prompts that follow a leader. */
  get following(): number {
    return this.#following.size;
  }

  /** Prompts that may go. */
  get ready(): number {
    return this.#classes.reduce((sum, { scheduler }) => sum + scheduler.size, this.#returned.length);
  }

  push(waiting: Waiting): void {
    this.#classOf(waiting.urgency).push(waiting);
  }

  /** Removes and returns the prompt that goes next; prompts for which `follows` is true stand aside. */
  next(now: number, follows: (waiting: Waiting) => boolean): Waiting | undefined {
    for (let waiting = this.#take(now); waiting !== undefined; waiting = this.#take(now)) {
      if (!follows(waiting)) return waiting;
      this.#following.add(waiting);
    }
    return undefined;
  }

  /** Ends the wait of all followers for which `follows` is false, in the order in which they stood aside. */
  comeBack(follows: (waiting: Waiting) => boolean): void {
    for (const waiting of this.#following) {
      if (follows(waiting)) continue;
      this.#following.delete(waiting);
      this.#returned.push(waiting);
    }
  }

  remove(waiting: Waiting): boolean {
    if (this.#following.delete(waiting)) return true;
    const place = this.#returned.indexOf(waiting);
    if (place >= 0) {
      this.#returned.splice(place, 1);
      return true;
    }
    const found = this.#classes.find(({ urgency }) => urgency === waiting.urgency);
    const isRemoved = found?.scheduler.remove(waiting) === true;
    if (isRemoved) this.#dropEmpty(found!);
    return isRemoved;
  }

  /** In the expected order of dispatch. */
  *[Symbol.iterator](): IterableIterator<Waiting> {
    yield* this.#returned;
    yield* this.#following;
    for (const { scheduler } of this.#classes) yield* scheduler;
  }

  #take(now: number): Waiting | undefined {
    const returned = this.#returned.shift();
    if (returned !== undefined) return returned;
    const [first] = this.#classes;
    const next = first?.scheduler.next(now);
    if (first !== undefined) this.#dropEmpty(first);
    return next;
  }

  #classOf(urgency: number): Scheduler<Waiting> {
    const known = this.#classes.find((each) => each.urgency === urgency);
    if (known !== undefined) return known.scheduler;
    const scheduler = this.#createScheduler();
    const place = this.#classes.findIndex((each) => each.urgency < urgency);
    this.#classes.splice(place < 0 ? this.#classes.length : place, 0, { urgency, scheduler });
    return scheduler;
  }

  #dropEmpty(found: UrgencyClass): void {
    if (found.scheduler.size === 0) this.#classes.splice(this.#classes.indexOf(found), 1);
  }

  #createScheduler(): Scheduler<Waiting> {
    const { discipline, capacity } = this.#settings;
    if (discipline === 'fifo') return new FifoScheduler({ capacity });
    const lookup = ({ dispatch }: Waiting): PromptReuse => dispatch.context()?.reuse() ?? UNKNOWN_REUSE;
    return new CacheAwareScheduler({ capacity, window: MAX_OVERTAKEN, lookup });
  }
}
