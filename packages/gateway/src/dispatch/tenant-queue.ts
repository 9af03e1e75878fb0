import {
  CacheAwareScheduler,
  type Document,
  FifoScheduler,
  type Preamble,
  type PromptReuse,
  type Scheduler,
  type WarmpathError,
} from '@warmpath/core';
import type { GatewayConfig } from '../config/schema.js';
import type { ColdPrefix } from './leading-prompts.js';

/** What is known of the documents of a request before it is dispatched. */
export interface WaitingContext {
  /** Tells models apart, too. */
  readonly preamble: Preamble;
  readonly documents: readonly Document[];
  /** What the engine is believed to hold of it now. */
  reuse(): PromptReuse;
}

/** A request on its way to the engine. */
export interface Dispatch {
  readonly tenant: string;
  /** Whether the answer is a stream, which says when it begins. */
  readonly tells: boolean;
  /** When its client waits no longer, on the queue's clock; `undefined` for nobody knows. */
  readonly deadline: number | undefined;
  /**
   * Asked for only once the request waits, or may follow another one; `undefined` for one without documents. Must not
   * throw.
   */
  context(): WaitingContext | undefined;
  /**
   * Hashes of what the body of a prompt begins with in which nothing is arranged, the shortest first; none of others.
   * Asked for only where one of a burst goes ahead. Must not throw.
   */
  beginnings(): readonly string[];
  /** What it goes by among its tenant's own: the higher the sooner. Asked for only once it waits. Must not throw. */
  urgency(): number;
  /** Sends it; called once, when the engine has room. Must not throw. */
  start(queuedMs: number, place: EnginePlace): void;
  /** Waited for too long. */
  refuse(error: WarmpathError): void;
  /** The engine takes nothing more: the request goes elsewhere. Must not throw. */
  moved(): void;
}

/** The room that a request was given in the engine. */
export interface EnginePlace {
  /** It is the first to compute what others may begin with; they wait until it has begun to answer, or is over. */
  leads(prefix: ColdPrefix): void;
  /** The same of a body in which nothing is arranged. Answers whether others wait for it. */
  leadsBytes(beginnings: readonly string[]): boolean;
  /** The first token of its answer has come; so many tokens of its prompt had to be computed, by estimate. */
  began(newTokens: number): void;
  /** The engine is done with it; `isComputed`: it has computed the prompt. */
  release(isComputed: boolean): void;
}

/** With `cache-aware`, how often a prompt may be overtaken before it goes next. */
const MAX_OVERTAKEN = 32;

/** Nothing is cached of a request that names no documents, and how much there is to compute only the engine knows. */
const UNKNOWN_REUSE: PromptReuse = { cachedTokens: 0, hostTokens: 0, computeTokens: 1 };

/** A request that waits. */
export interface Waiting {
  readonly dispatch: Dispatch;
  /** In order of arrival. */
  readonly number: number;
  readonly since: number;
  /** What it goes by among its tenant's own: the higher the sooner. */
  readonly urgency: number;
  /** Ends its wait. */
  timer: NodeJS.Timeout | undefined;
  /** Ends its wait for another one that goes ahead. */
  followTimer: NodeJS.Timeout | undefined;
  /** It has waited for another one as long as it may. */
  followsNobody: boolean;
  /** It waits no longer: it has started, or left. */
  isOver: boolean;
}

interface UrgencyClass {
  readonly urgency: number;
  readonly scheduler: Scheduler<Waiting>;
}

/**
 * The requests of one tenant that wait for an engine: the most urgent first, among equals as core's scheduler says.
 * Those that follow another one, which is computing what they begin with, stand aside until it has, and then go before
 * all others.
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

  /** Those that stand aside. */
  get following(): number {
    return this.#following.size;
  }

  /** Those that may go. */
  get ready(): number {
    return this.#classes.reduce((sum, { scheduler }) => sum + scheduler.size, this.#returned.length);
  }

  push(waiting: Waiting): void {
    this.#classOf(waiting.urgency).push(waiting);
  }

  /** Takes out the request that goes next; those that `follows` says so of step aside on the way. */
  next(now: number, follows: (waiting: Waiting) => boolean): Waiting | undefined {
    for (let waiting = this.#take(now); waiting !== undefined; waiting = this.#take(now)) {
      if (!follows(waiting)) return waiting;
      this.#following.add(waiting);
    }
    return undefined;
  }

  /** Lets those come back, in order of arrival, that follow nobody any more. */
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

  /** In the order in which they will go, as far as that is known. */
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
