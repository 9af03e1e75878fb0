import {
  CacheAwareScheduler,
  type Document,
  FifoScheduler,
  type Preamble,
  type PromptReuse,
  type Scheduler,
  WarmpathError,
} from '@warmpath/core';
import type { GatewayConfig } from '../config/schema.js';

/** With `cache-aware`, how often a prompt may be overtaken before it goes next. */
const MAX_OVERTAKEN = 32;

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
  /** Asked for only once the request waits; `undefined` for one without documents. Must not throw. */
  context(): WaitingContext | undefined;
  /**
   * Sends it; called once, when the engine has room. Calls `release` when the engine is done with it. Must not throw.
   */
  start(queuedMs: number, release: () => void): void;
  /** Waited for too long. */
  refuse(error: WarmpathError): void;
  /** The engine takes nothing more: the request goes elsewhere. Must not throw. */
  moved(): void;
}

interface Waiting {
  readonly dispatch: Dispatch;
  readonly since: number;
  readonly timer: NodeJS.Timeout;
}

/** Nothing is cached of a request that names no documents, and how much there is to compute only the engine knows. */
const UNKNOWN_REUSE: PromptReuse = { cachedTokens: 0, hostTokens: 0, computeTokens: 1 };

/** Waiting requests that a policy is given; it reads no more. */
const MAX_CONTEXTS = 64;

const NONE: readonly never[] = [];

/**
 * Requests for one engine, of which a limited number is under way at once; the others wait here. Tenants take turns, so
 * that none waits behind the whole of another's queue: the one with the fewest under way is next. Among a tenant's own
 * requests core's scheduler decides. Where all places are taken, the latest request of the tenant that has most of them
 * gives way to one of a tenant that has fewer. While there is room, a request passes straight through.
 */
export class DispatchQueue {
  readonly #limit: number;
  readonly #settings: GatewayConfig['queue'];
  readonly #now: () => number;
  readonly #waited: (ms: number) => void;
  /** Only tenants with waiting requests, in turn. */
  readonly #tenants = new Map<string, Scheduler<Waiting>>();
  readonly #places = new Map<Dispatch, Waiting>();
  readonly #underWayOf = new Map<string, number>();
  #underWay = 0;
  #filling = false;

  /** `limit`: requests under way at once. `waited` hears how long each dispatched request waited, in milliseconds. */
  constructor(
    limit: number,
    settings: GatewayConfig['queue'],
    { now, waited }: { readonly now: () => number; readonly waited: (ms: number) => void },
  ) {
    this.#limit = limit;
    this.#settings = settings;
    this.#now = now;
    this.#waited = waited;
  }

  /** Requests that wait. */
  get depth(): number {
    return this.#places.size;
  }

  /** Whether one more would be refused, or cost another one its place. */
  get isFull(): boolean {
    return this.#places.size >= this.#settings.capacity;
  }

  /** Requests that the engine has. */
  get underWay(): number {
    return this.#underWay;
  }

  /**
   * Starts a request, or lets it wait. Error: `WARMPATH_OVERLOADED` when there is no place for it. O(1); O(waiting)
   * when the queue is full.
   */
  enter(dispatch: Dispatch): void {
    if (this.#underWay < this.#limit && this.#places.size === 0) {
      this.#start(dispatch, 0);
      return;
    }
    const { capacity, maxWaitMs } = this.#settings;
    if (this.#places.size >= capacity) this.#makeRoomFor(dispatch.tenant);
    const scheduler = this.#tenants.get(dispatch.tenant) ?? this.#createScheduler();
    const timer = setTimeout(() => {
      if (this.leave(dispatch))
        dispatch.refuse(overloaded(`No room in the engine within ${maxWaitMs} ms (\`queue.maxWaitMs\`).`));
    }, maxWaitMs);
    const waiting: Waiting = { dispatch, since: this.#now(), timer };
    scheduler.push(waiting);
    this.#tenants.set(dispatch.tenant, scheduler);
    this.#places.set(dispatch, waiting);
  }

  /** Takes a request out that is not wanted any more; false if it does not wait. O(requests of its tenant). */
  leave(dispatch: Dispatch): boolean {
    const waiting = this.#places.get(dispatch);
    if (waiting === undefined) return false;
    const scheduler = this.#tenants.get(dispatch.tenant)!;
    scheduler.remove(waiting);
    if (scheduler.size === 0) this.#tenants.delete(dispatch.tenant);
    this.#forget(waiting);
    return true;
  }

  /** Takes all out that wait, in order of arrival. O(waiting). */
  takeAll(): Dispatch[] {
    const dispatches = [...this.#places.keys()];
    for (const dispatch of dispatches) this.leave(dispatch);
    return dispatches;
  }

  /**
   * The documents of a tenant's requests that wait behind this preamble, in order of arrival: what may be shown to an
   * ordering policy. At most 64. O(requests of the tenant).
   */
  waitingBehind(preamble: Preamble, tenant: string): readonly (readonly Document[])[] {
    const scheduler = this.#tenants.get(tenant);
    if (scheduler === undefined) return NONE;
    const contexts: (readonly Document[])[] = [];
    for (const { dispatch } of scheduler) {
      const context = dispatch.context();
      if (context?.preamble.key !== preamble.key) continue;
      if (contexts.push(context.documents) === MAX_CONTEXTS) break;
    }
    return contexts;
  }

  /** The tenant with the fewest requests under way, of equals the one whose turn it is. O(waiting tenants). */
  #nextTenant(): string {
    let next: string | undefined;
    let fewest = Number.POSITIVE_INFINITY;
    for (const tenant of this.#tenants.keys()) {
      const underWay = this.#underWayOf.get(tenant) ?? 0;
      if (underWay >= fewest) continue;
      next = tenant;
      fewest = underWay;
      if (underWay === 0) break;
    }
    return next!;
  }

  /** The latest request of the tenant that has most gives way, unless the newcomer's tenant has as many. */
  #makeRoomFor(tenant: string): void {
    let most: Scheduler<Waiting> | undefined;
    for (const scheduler of this.#tenants.values()) if (scheduler.size > (most?.size ?? 0)) most = scheduler;
    const own = this.#tenants.get(tenant)?.size ?? 0;
    const error = overloaded(
      `${this.#places.size} requests wait for the engine, ${own} of them yours (\`queue.capacity\`).`,
    );
    if (most === undefined || most.size <= own + 1) throw error;
    const latest = [...most].at(-1)!.dispatch;
    this.leave(latest);
    latest.refuse(overloaded('Requests of others, who have fewer, wait in its place.'));
  }

  #startNext(): void {
    const tenant = this.#nextTenant();
    const scheduler = this.#tenants.get(tenant)!;
    const now = this.#now();
    const waiting = scheduler.next(now)!;
    // A Map iterates in insertion order: this tenant's next turn comes after all the others'.
    this.#tenants.delete(tenant);
    if (scheduler.size > 0) this.#tenants.set(tenant, scheduler);
    this.#forget(waiting);
    const queuedMs = now - waiting.since;
    this.#waited(queuedMs);
    this.#start(waiting.dispatch, queuedMs);
  }

  #start(dispatch: Dispatch, queuedMs: number): void {
    const { tenant } = dispatch;
    this.#underWay++;
    this.#underWayOf.set(tenant, (this.#underWayOf.get(tenant) ?? 0) + 1);
    let isOver = false;
    dispatch.start(queuedMs, () => {
      if (isOver) return;
      isOver = true;
      this.#underWay--;
      const left = this.#underWayOf.get(tenant)! - 1;
      if (left > 0) this.#underWayOf.set(tenant, left);
      else this.#underWayOf.delete(tenant);
      this.#fill();
    });
  }

  #fill(): void {
    // A request that fails at once gives its place back while it is being started.
    if (this.#filling) return;
    this.#filling = true;
    while (this.#underWay < this.#limit && this.#places.size > 0) this.#startNext();
    this.#filling = false;
  }

  #forget({ dispatch, timer }: Waiting): void {
    clearTimeout(timer);
    this.#places.delete(dispatch);
  }

  #createScheduler(): Scheduler<Waiting> {
    const { discipline, capacity } = this.#settings;
    if (discipline === 'fifo') return new FifoScheduler({ capacity });
    const lookup = ({ dispatch }: Waiting): PromptReuse => dispatch.context()?.reuse() ?? UNKNOWN_REUSE;
    return new CacheAwareScheduler({ capacity, window: MAX_OVERTAKEN, lookup });
  }
}

function overloaded(detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_OVERLOADED', { detail });
}
