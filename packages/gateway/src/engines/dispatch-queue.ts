import { type Document, type Preamble, WarmpathError } from '@warmpath/core';
import { type PromptReuse, RequestScheduler } from '@warmpath/core/internal';
import type { GatewayConfig } from '../config/schema.js';
import { type EventLoopBudget, TenantShares } from '../limits/load.js';
import { bytesStart, type ColdPrefix, LeadingPrompts } from './leading-prompts.js';

/** The documents of a waiting prompt. */
export interface WaitingContext {
  /** Its key differs by model, too. */
  readonly preamble: Preamble;
  readonly documents: readonly Document[];
  /** What the engine is believed to hold of it now. */
  reuse(): PromptReuse;
}

/** A prompt on its way to the engine. None of its functions may throw. */
export interface Dispatch {
  readonly tenant: string;
  /** When its client gives up, on the queue's clock; `undefined` where the client does not say. */
  readonly deadline: number | undefined;
  /** `undefined` for a prompt without documents. Called only when it waits or may follow a leader. */
  context(): WaitingContext | undefined;
  /** Hashes of the body's beginnings, the shortest first; none with documents. Called when it may follow a leader. */
  beginnings(): readonly string[];
  /** Higher goes first within its tenant. Called only when it waits. */
  urgency(): number;
  /** Sends the prompt; called once, when the engine has room. */
  start(queuedMs: number, place: EnginePlace): void;
  /** It waited too long, or was displaced. */
  refuse(error: WarmpathError): void;
  /** The engine takes no more prompts: this one goes to another. */
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

/** A prompt that waits. */
export interface Waiting {
  readonly dispatch: Dispatch;
  /** In order of arrival. */
  readonly number: number;
  readonly since: number;
  readonly urgency: number;
  /** Ends its wait. */
  readonly timer: NodeJS.Timeout;
  /** Ends its wait for leaders. */
  followTimer: NodeJS.Timeout | undefined;
  /** It followed leaders for as long as it may. */
  hasFollowed: boolean;
  /** It has started or left. */
  isOver: boolean;
}

export interface DispatchQueueParts {
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
  readonly eventLoopBudget: EventLoopBudget;
  /** Called with the milliseconds that each dispatched prompt waited. */
  readonly waited: (ms: number) => void;
  /** Whether the engine computes a shared beginning once for each prompt of a burst. */
  readonly needsLeader: () => boolean;
}

/** Waiting contexts that an ordering policy is given, at most. */
const MAX_CONTEXTS = 64;
/** Milliseconds that a prompt follows leaders, at most. */
const MAX_FOLLOW_MS = 10_000;
/** Dispatches that are averaged, and needed before the pace of the queue is used. */
const PACE_SAMPLES = 16;
const MIN_PACE_SAMPLES = 8;
/** Seconds in `Retry-After`, at most. */
const MAX_RETRY_S = 60;
/** Prompts that may wait inside the engine, as a share of those it has; at least one. */
const HEADROOM_SHARE = 1 / 8;
/** The queue itself bounds the prompts of all tenants. */
const UNBOUNDED = { capacity: Number.MAX_SAFE_INTEGER };
/** The reuse of a prompt without documents. */
const UNKNOWN_REUSE: PromptReuse = { cachedTokens: 0, computeTokens: 1 };

/**
 * Prompts for one engine. It has `limit` of them at most; the others wait here. The tenant with the fewest prompts in
 * the engine goes next; equal tenants take turns. Within a tenant, core's scheduler decides. Prompts that share a cold
 * prefix with a leader wait until it is computed, then go before their equals. When the queue is full, the latest
 * prompt of the tenant with most waiting is refused in favour of a tenant with fewer.
 */
export class DispatchQueue {
  readonly #max: number;
  readonly #settings: GatewayConfig['queue'];
  readonly #parts: DispatchQueueParts;
  readonly #leading = new LeadingPrompts();
  /** Prompts that may go, by tenant; the first tenant has the next turn. */
  readonly #ready = new Map<string, RequestScheduler<Waiting>>();
  /** Prompts that wait for a leader. */
  readonly #following = new Set<Waiting>();
  readonly #waiting = new TenantShares();
  readonly #underWay = new TenantShares();
  #limit: number;
  #waitingInside = 0;
  #arrivals = 0;
  #isFilling = false;
  /** Mean milliseconds between two dispatches while prompts wait, over so many of them. */
  #paceMs = 0;
  #paces = 0;
  #lastStart: number | undefined;

  /** @param max Prompts that the engine may have at once, whatever it reports. */
  constructor(max: number, settings: GatewayConfig['queue'], parts: DispatchQueueParts) {
    this.#max = max;
    this.#limit = max;
    this.#settings = settings;
    this.#parts = parts;
  }

  /** Prompts that wait here. */
  get depth(): number {
    return this.#waiting.total;
  }

  /** Whether one more prompt would be refused, or displace another one. */
  get isFull(): boolean {
    return this.depth >= this.#settings.capacity;
  }

  /** Prompts that the engine has. */
  get underWay(): number {
    return this.#underWay.total;
  }

  /** Prompts that the engine may have at once. */
  get limit(): number {
    return this.#limit;
  }

  /** Prompts that wait inside the engine, as it last reported. */
  get waitingInside(): number {
    return this.#waitingInside;
  }

  /** Sets the limit from the engine's own count of waiting prompts; `undefined`: the engine does not say. */
  reported(waiting: number | undefined): void {
    this.#waitingInside = waiting ?? 0;
    this.#limit = waiting === undefined ? this.#max : this.#limitFor(waiting);
    this.#fill();
  }

  /**
   * Starts a prompt, or lets it wait and returns what `leave` takes. O(waiting tenants); O(waiting) when full.
   * @throws WarmpathError `WARMPATH_OVERLOADED` when the queue is full or the wait would be too long.
   */
  enter(dispatch: Dispatch): Waiting | undefined {
    if (this.underWay < this.#limit && this.#ready.size === 0 && !this.#isLed(dispatch)) {
      this.#start(dispatch, 0);
      return undefined;
    }
    const now = this.#parts.now();
    const untilDeadline = (dispatch.deadline ?? Number.POSITIVE_INFINITY) - now;
    const allowedMs = Math.max(0, Math.min(this.#settings.maxWaitMs, untilDeadline));
    this.#refuseLate(dispatch, allowedMs);
    if (this.isFull) this.#makeRoomFor(dispatch.tenant);
    const waiting: Waiting = {
      dispatch,
      number: this.#arrivals++,
      since: now,
      urgency: dispatch.urgency(),
      timer: setTimeout(() => this.#expire(waiting, allowedMs), allowedMs),
      followTimer: undefined,
      hasFollowed: false,
      isOver: false,
    };
    this.#readyOf(dispatch.tenant).push(waiting, waiting.urgency);
    this.#waiting.add(dispatch.tenant, 1);
    this.#fill();
    return waiting;
  }

  /** Removes a prompt; false if its wait is over. O(prompts of its tenant). */
  leave(waiting: Waiting): boolean {
    if (waiting.isOver) return false;
    const { tenant } = waiting.dispatch;
    if (!this.#following.delete(waiting)) {
      const ready = this.#readyOf(tenant);
      ready.remove(waiting);
      if (ready.size === 0) this.#ready.delete(tenant);
    }
    this.#endWait(waiting);
    return true;
  }

  /** Removes all prompts that wait, and returns them in order of arrival. O(waiting * log waiting). */
  takeAll(): Dispatch[] {
    const ready = [...this.#ready.values()].flatMap((each) => [...each]);
    const all = [...ready, ...this.#following].sort((a, b) => a.number - b.number);
    this.#ready.clear();
    this.#following.clear();
    for (const waiting of all) this.#endWait(waiting);
    return all.map(({ dispatch }) => dispatch);
  }

  /**
   * Documents of a tenant's prompts that wait behind this preamble, at most 64: the input of an ordering policy. In the
   * order in which they will go; followers first. O(followers + prompts of the tenant).
   */
  waitingBehind(preamble: Preamble, tenant: string): readonly (readonly Document[])[] {
    const contexts: (readonly Document[])[] = [];
    for (const { dispatch } of this.#waitingOf(tenant)) {
      const context = dispatch.context();
      if (context?.preamble.key !== preamble.key) continue;
      if (contexts.push(context.documents) === MAX_CONTEXTS) break;
    }
    return contexts;
  }

  /** Doubles a full limit while nothing waits inside the engine; lowers it, by half at most, to what it computes. */
  #limitFor(waiting: number): number {
    const { underWay } = this;
    if (waiting === 0) return underWay < this.#limit ? this.#limit : Math.min(this.#max, 2 * this.#limit);
    const headroom = Math.max(1, Math.floor(HEADROOM_SHARE * underWay));
    if (waiting <= headroom) return this.#limit;
    const lower = Math.max(1, Math.ceil(underWay / 2), underWay - waiting + headroom);
    return Math.min(this.#limit, lower);
  }

  *#waitingOf(tenant: string): Generator<Waiting> {
    for (const waiting of this.#following) if (waiting.dispatch.tenant === tenant) yield waiting;
    yield* this.#ready.get(tenant) ?? [];
  }

  #readyOf(tenant: string): RequestScheduler<Waiting> {
    const known = this.#ready.get(tenant);
    if (known !== undefined) return known;
    const lookup = ({ dispatch }: Waiting): PromptReuse => dispatch.context()?.reuse() ?? UNKNOWN_REUSE;
    const added = new RequestScheduler(this.#settings.discipline === 'fifo' ? UNBOUNDED : { ...UNBOUNDED, lookup });
    this.#ready.set(tenant, added);
    return added;
  }

  /** Refuses a prompt that would wait too long, by the pace of the queue. */
  #refuseLate({ tenant }: Dispatch, allowedMs: number): void {
    const own = this.#waiting.of(tenant);
    let before = own;
    // Tenants take turns.
    for (const [other, prompts] of this.#waiting) if (other !== tenant) before += Math.min(prompts, own + 1);
    const waitMs = (before + 1) * this.#paceMs;
    // Where nothing waits, the pace may be an old one.
    const isLate = allowedMs === 0 || (before > 0 && this.#paces >= MIN_PACE_SAMPLES && waitMs > allowedMs);
    if (!isLate) return;
    const detail =
      `Queue too long: with ${requests(before)} before it, this request would wait about ${seconds(waitMs)}. ` +
      `It may wait ${seconds(allowedMs)} (\`queue.maxWaitMs\`, or the client's own timeout).`;
    throw overloaded(detail, waitMs - allowedMs);
  }

  #expire(waiting: Waiting, allowedMs: number): void {
    if (!this.leave(waiting)) return;
    const why = allowedMs < this.#settings.maxWaitMs ? "the client's own timeout" : '`queue.maxWaitMs`';
    const detail = `No room in the engine within ${Math.round(allowedMs)} ms (${why}).`;
    waiting.dispatch.refuse(overloaded(detail, this.#drainMs));
  }

  /** Estimated milliseconds until all prompts that wait now have gone. */
  get #drainMs(): number {
    return this.depth * this.#paceMs;
  }

  /** Removes the latest prompt of the tenant with most waiting, unless the new prompt's tenant has as many. */
  #makeRoomFor(tenant: string): void {
    const largest = this.#waiting.largest;
    const own = this.#waiting.of(tenant);
    if (largest === undefined || this.#waiting.of(largest) <= own + 1) throw this.#full(tenant);
    const latest = [...this.#waitingOf(largest)].reduce((last, each) => (each.number > last.number ? each : last));
    this.leave(latest);
    latest.dispatch.refuse(this.#full(largest, tenant));
  }

  /** @param entering A tenant whose prompt takes the place of the refused one. */
  #full(tenant: string, entering?: string): WarmpathError {
    const { capacity } = this.#settings;
    const own = this.#waiting.of(tenant);
    const others = this.depth - own + (entering === undefined ? 0 : 1);
    const counts =
      others === 0
        ? `this tenant already has ${requests(own)} waiting (limit ${capacity})`
        : `this tenant has ${requests(own)} waiting, other tenants ${others} (limit ${capacity} in all)`;
    return overloaded(`Queue full: ${counts}.`, this.#drainMs);
  }

  /** The tenant with the fewest prompts in the engine; among equals, the one whose turn it is. O(waiting tenants). */
  #nextTenant(): string | undefined {
    let next: string | undefined;
    let fewest = Number.POSITIVE_INFINITY;
    for (const tenant of this.#ready.keys()) {
      const underWay = this.#underWay.of(tenant);
      if (underWay >= fewest) continue;
      next = tenant;
      fewest = underWay;
      if (underWay === 0) break;
    }
    return next;
  }

  /** Starts or sets aside the prompt that goes next; false where the engine has no room or no prompt may go. */
  #startNext(): boolean {
    const tenant = this.#nextTenant();
    if (tenant === undefined || this.underWay >= this.#limit) return false;
    const ready = this.#ready.get(tenant)!;
    const now = this.#parts.now();
    const waiting = ready.next(now)!;
    const isSetAside = this.#follows(waiting);
    if (ready.size === 0 || !isSetAside) this.#ready.delete(tenant);
    if (isSetAside) {
      this.#following.add(waiting);
      return true;
    }
    // A Map iterates in insertion order: all other tenants have their turn first.
    if (ready.size > 0) this.#ready.set(tenant, ready);
    this.#endWait(waiting);
    const queuedMs = now - waiting.since;
    this.#parts.waited(queuedMs);
    this.#start(waiting.dispatch, queuedMs);
    return true;
  }

  #isLed(dispatch: Dispatch): boolean {
    if (!this.#parts.needsLeader() || this.#leading.isEmpty) return false;
    const start = dispatch.context() ?? bytesStart(dispatch.beginnings());
    return start !== undefined && this.#leading.isLed(dispatch.tenant, start);
  }

  /** Whether a prompt must wait for its leader; starts the timer that bounds this wait. */
  #follows(waiting: Waiting): boolean {
    if (waiting.hasFollowed || !this.#isLed(waiting.dispatch)) return false;
    waiting.followTimer ??= setTimeout(() => {
      waiting.hasFollowed = true;
      this.#returnFollowers();
      this.#fill();
    }, MAX_FOLLOW_MS);
    return true;
  }

  /** Returns followers without a leader to their tenants' queues, in the order in which they were set aside. */
  #returnFollowers(): void {
    for (const waiting of [...this.#following].reverse()) {
      if (!waiting.hasFollowed && this.#isLed(waiting.dispatch)) continue;
      this.#following.delete(waiting);
      this.#readyOf(waiting.dispatch.tenant).putBack(waiting, waiting.urgency);
    }
  }

  #start(dispatch: Dispatch, queuedMs: number): void {
    const { tenant } = dispatch;
    const now = this.#parts.now();
    if (queuedMs > 0 && this.#lastStart !== undefined) {
      this.#paces++;
      this.#paceMs += (now - this.#lastStart - this.#paceMs) / Math.min(this.#paces, PACE_SAMPLES);
    }
    this.#lastStart = now;
    this.#underWay.add(tenant, 1);
    dispatch.start(queuedMs, this.#place(tenant, now));
  }

  /** The room of one prompt in the engine. */
  #place(tenant: string, startedAt: number): EnginePlace {
    let isReleased = false;
    let beginnings: readonly string[] = [];
    let endLead: (() => void) | undefined;
    const computed = () => {
      if (beginnings.length > 0) this.#leading.computedBytes(tenant, beginnings, this.#parts.now());
    };
    const freeFollowers = () => {
      if (endLead !== undefined) {
        endLead();
        endLead = undefined;
        this.#returnFollowers();
      }
      this.#fill();
    };
    return {
      leads: (prefix) => {
        endLead ??= this.#leading.lead(tenant, prefix);
      },
      leadsBytes: (hashes) => {
        beginnings = hashes;
        const cold = this.#leading.coldBytes(tenant, hashes, startedAt);
        if (cold !== undefined) endLead ??= this.#leading.lead(tenant, cold);
        return cold !== undefined;
      },
      began: () => {
        computed();
        freeFollowers();
      },
      release: (isComputed) => {
        if (isReleased) return;
        isReleased = true;
        if (isComputed) computed();
        this.#underWay.add(tenant, -1);
        freeFollowers();
      },
    };
  }

  #fill(): void {
    // A prompt that fails while it is being started gives its place back at once.
    if (this.#isFilling) return;
    this.#isFilling = true;
    this.#parts.eventLoopBudget.repeat(() => {
      if (this.#startNext()) return true;
      this.#isFilling = false;
      // No prompt waits for room: the time until the next dispatch says nothing about the pace.
      if (this.#ready.size === 0) this.#lastStart = undefined;
      return false;
    });
  }

  #endWait(waiting: Waiting): void {
    clearTimeout(waiting.timer);
    clearTimeout(waiting.followTimer);
    waiting.isOver = true;
    this.#waiting.add(waiting.dispatch.tenant, -1);
  }
}

function requests(count: number): string {
  return count === 1 ? '1 request' : `${count} requests`;
}

function seconds(ms: number): string {
  return `${(ms / 1_000).toFixed(1)} s`;
}

/** @param retryMs Milliseconds after which there may be room. */
function overloaded(detail: string, retryMs: number): WarmpathError {
  const retryAfterS = Math.min(MAX_RETRY_S, Math.max(1, Math.ceil(retryMs / 1_000)));
  return new WarmpathError('WARMPATH_OVERLOADED', { detail, retryAfterS });
}
