import { type Document, type Preamble, WarmpathError } from '@warmpath/core';
import type { GatewayConfig } from '../config/schema.js';
import { type ColdPrefix, LeadingPrompts } from './leading-prompts.js';
import { type Dispatch, type EnginePlace, TenantQueue, type Waiting } from './tenant-queue.js';

export interface DispatchQueueParts {
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
  /** Called with the milliseconds that each dispatched prompt waited. */
  readonly waited: (ms: number) => void;
  /** Whether the engine computes a shared beginning once for each prompt of a burst. */
  readonly needsLeader: () => boolean;
}

/** Waiting contexts that an ordering policy is given, at most. */
const MAX_CONTEXTS = 64;
/** Milliseconds that a prompt follows a leader, at most. */
const MAX_FOLLOW_MS = 10_000;
/** Milliseconds of one turn of the event loop that are spent on starting prompts. */
const MAX_FILL_MS = 10;
/** Dispatches that are averaged, and needed before the pace of the queue is used. */
const PACE_SAMPLES = 16;
const MIN_PACE_SAMPLES = 8;
/** Seconds in `Retry-After`, at most. */
const MAX_RETRY_S = 60;
/** Prompts that may wait inside the engine, as a share of those it has; at least one. */
const HEADROOM_SHARE = 1 / 8;

/**
 * Prompts for one engine. It has `limit` of them at most; the others wait here. The tenant with the fewest prompts in
 * the engine goes next; among equals, tenants take turns. Within a tenant, `TenantQueue` decides. When the queue is
 * full, the latest prompt of the tenant with most waiting is refused in favour of a tenant with fewer.
 */
export class DispatchQueue {
  readonly #max: number;
  readonly #settings: GatewayConfig['queue'];
  readonly #parts: DispatchQueueParts;
  readonly #leading = new LeadingPrompts();
  /** Tenants with waiting prompts; the first one has the next turn. */
  readonly #tenants = new Map<string, TenantQueue>();
  /** Prompts that the engine has, by tenant. */
  readonly #underWayOf = new Map<string, number>();
  #limit: number;
  #underWay = 0;
  #waitingInside = 0;
  #depth = 0;
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
    return this.#depth;
  }

  /** Whether one more prompt would be refused, or displace another one. */
  get isFull(): boolean {
    return this.#depth >= this.#settings.capacity;
  }

  /** Prompts that the engine has. */
  get underWay(): number {
    return this.#underWay;
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
    if (this.#hasRoom && this.#nextTenant() === undefined && !this.#isLed(dispatch)) {
      this.#start(dispatch, 0);
      return undefined;
    }
    const now = this.#parts.now();
    const { maxWaitMs, capacity } = this.#settings;
    const allowedMs = Math.max(0, Math.min(maxWaitMs, (dispatch.deadline ?? Number.POSITIVE_INFINITY) - now));
    this.#refuseLate(dispatch, allowedMs);
    if (this.#depth >= capacity) this.#makeRoomFor(dispatch.tenant);
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
    const queue = this.#tenants.get(dispatch.tenant) ?? new TenantQueue(this.#settings);
    queue.push(waiting);
    this.#tenants.set(dispatch.tenant, queue);
    this.#depth++;
    this.#fill();
    return waiting;
  }

  /** Removes a prompt; false if its wait is over. O(prompts of its tenant). */
  leave(waiting: Waiting): boolean {
    if (waiting.isOver) return false;
    const { tenant } = waiting.dispatch;
    const queue = this.#tenants.get(tenant)!;
    queue.remove(waiting);
    if (queue.size === 0) this.#tenants.delete(tenant);
    this.#endWait(waiting);
    return true;
  }

  /** Removes all prompts that wait, and returns them in order of arrival. O(waiting * log waiting). */
  takeAll(): Dispatch[] {
    const all = [...this.#tenants.values()].flatMap((queue) => [...queue]).sort((a, b) => a.number - b.number);
    this.#tenants.clear();
    for (const waiting of all) this.#endWait(waiting);
    return all.map(({ dispatch }) => dispatch);
  }

  /**
   * Documents of a tenant's prompts that wait behind this preamble, in the order in which they will go: the input of
   * an ordering policy. At most 64. O(prompts of the tenant).
   */
  waitingBehind(preamble: Preamble, tenant: string): readonly (readonly Document[])[] {
    const contexts: (readonly Document[])[] = [];
    for (const { dispatch } of this.#tenants.get(tenant) ?? []) {
      const context = dispatch.context();
      if (context?.preamble.key !== preamble.key) continue;
      if (contexts.push(context.documents) === MAX_CONTEXTS) break;
    }
    return contexts;
  }

  get #hasRoom(): boolean {
    return this.#underWay < this.#limit;
  }

  /** Doubles a full limit while nothing waits inside the engine; lowers it, by half at most, to what it computes. */
  #limitFor(waiting: number): number {
    const underWay = this.#underWay;
    if (waiting === 0) return underWay < this.#limit ? this.#limit : Math.min(this.#max, 2 * this.#limit);
    const headroom = Math.max(1, Math.floor(HEADROOM_SHARE * underWay));
    if (waiting <= headroom) return this.#limit;
    const lower = Math.max(1, Math.ceil(underWay / 2), underWay - waiting + headroom);
    return Math.min(this.#limit, lower);
  }

  /** Refuses a prompt that would wait too long, by the pace of the queue. */
  #refuseLate({ tenant }: Dispatch, allowedMs: number): void {
    const own = this.#tenants.get(tenant)?.size ?? 0;
    let before = own;
    // Tenants take turns.
    for (const [other, queue] of this.#tenants) if (other !== tenant) before += Math.min(queue.size, own + 1);
    const waitMs = (before + 1) * this.#paceMs;
    // Where nothing waits, the pace may be an old one.
    const isLate = allowedMs === 0 || (before > 0 && this.#paces >= MIN_PACE_SAMPLES && waitMs > allowedMs);
    if (!isLate) return;
    const seconds = (ms: number) => (ms / 1_000).toFixed(1);
    const detail =
      `${before} requests wait before this one, ${seconds(waitMs)} s by estimate; it may wait for ` +
      `${seconds(allowedMs)} s (\`queue.maxWaitMs\`, or the client's own timeout).`;
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
    return this.#depth * this.#paceMs;
  }

  /** Removes the latest prompt of the tenant with most waiting, unless the new prompt's tenant has as many. */
  #makeRoomFor(tenant: string): void {
    let most: TenantQueue | undefined;
    for (const queue of this.#tenants.values()) if (queue.size > (most?.size ?? 0)) most = queue;
    const own = this.#tenants.get(tenant)?.size ?? 0;
    if (most === undefined || most.size <= own + 1) throw this.#full(own);
    const latest = [...most].reduce((last, each) => (each.number > last.number ? each : last));
    const error = this.#full(most.size - 1);
    this.leave(latest);
    latest.dispatch.refuse(error);
  }

  /** @param own Prompts of the refused prompt's tenant that wait. */
  #full(own: number): WarmpathError {
    const { capacity } = this.#settings;
    const detail =
      own >= capacity
        ? `Queue full: this tenant already has ${own} requests waiting (limit ${capacity}).`
        : `Queue full: this tenant has ${own} requests waiting, other tenants ${capacity - own} (limit ${capacity} in all).`;
    return overloaded(detail, this.#drainMs);
  }

  /** The tenant with the fewest prompts in the engine; among equals, the one whose turn it is. O(waiting tenants). */
  #nextTenant(): string | undefined {
    let next: string | undefined;
    let fewest = Number.POSITIVE_INFINITY;
    for (const [tenant, queue] of this.#tenants) {
      if (queue.ready === 0) continue;
      const underWay = this.#underWayOf.get(tenant) ?? 0;
      if (underWay >= fewest) continue;
      next = tenant;
      fewest = underWay;
      if (underWay === 0) break;
    }
    return next;
  }

  /** False where the engine has no room, or all prompts follow leaders. */
  #startNext(): boolean {
    const tenant = this.#hasRoom ? this.#nextTenant() : undefined;
    if (tenant === undefined) return false;
    const queue = this.#tenants.get(tenant)!;
    const now = this.#parts.now();
    const waiting = queue.next(now, (each) => this.#follows(each));
    // A Map iterates in insertion order: all other tenants have their turn first.
    this.#tenants.delete(tenant);
    if (queue.size > 0) this.#tenants.set(tenant, queue);
    if (waiting === undefined) return true;
    this.#endWait(waiting);
    const queuedMs = now - waiting.since;
    this.#parts.waited(queuedMs);
    this.#start(waiting.dispatch, queuedMs);
    return true;
  }

  #isLed(dispatch: Dispatch): boolean {
    if (this.#leading.size === 0 || !this.#parts.needsLeader()) return false;
    const { tenant } = dispatch;
    const context = dispatch.context();
    return context === undefined
      ? this.#leading.isLedBytes(tenant, dispatch.beginnings())
      : this.#leading.isLed(tenant, context);
  }

  /** Whether a prompt must wait for its leader; starts the timer that bounds this wait. */
  #follows(waiting: Waiting): boolean {
    if (waiting.hasFollowed || !this.#isLed(waiting.dispatch)) return false;
    waiting.followTimer ??= setTimeout(() => {
      waiting.hasFollowed = true;
      this.#returnFollowers();
    }, MAX_FOLLOW_MS);
    return true;
  }

  #returnFollowers(): void {
    for (const queue of this.#tenants.values()) {
      if (queue.following > 0) queue.comeBack((each) => !each.hasFollowed && this.#isLed(each.dispatch));
    }
    this.#fill();
  }

  #start(dispatch: Dispatch, queuedMs: number): void {
    const { tenant } = dispatch;
    const now = this.#parts.now();
    if (queuedMs > 0 && this.#lastStart !== undefined) {
      this.#paces++;
      this.#paceMs += (now - this.#lastStart - this.#paceMs) / Math.min(this.#paces, PACE_SAMPLES);
    }
    this.#lastStart = now;
    this.#addUnderWay(tenant, 1);
    dispatch.start(queuedMs, this.#place(tenant, now));
  }

  /** The room of one prompt in the engine. */
  #place(tenant: string, startedAt: number): EnginePlace {
    let hasEnded = false;
    let hasBegun = false;
    let beginnings: readonly string[] = [];
    let endLead: (() => void) | undefined;
    const canLead = () => !hasEnded && this.#parts.needsLeader();
    const computed = () => this.#leading.computedBytes(tenant, beginnings, this.#parts.now());
    const freeFollowers = () => {
      if (endLead === undefined) return this.#fill();
      endLead();
      endLead = undefined;
      this.#returnFollowers();
    };
    return {
      leads: (prefix) => {
        if (canLead()) endLead ??= this.#leading.lead(tenant, prefix);
      },
      leadsBytes: (hashes) => {
        if (!canLead()) return false;
        beginnings = hashes;
        const cold: ColdPrefix | undefined = this.#leading.coldBytes(tenant, hashes, startedAt);
        if (cold !== undefined) endLead ??= this.#leading.lead(tenant, cold);
        return cold !== undefined;
      },
      began: () => {
        if (hasBegun || hasEnded) return;
        hasBegun = true;
        computed();
        freeFollowers();
      },
      release: (isComputed) => {
        if (hasEnded) return;
        hasEnded = true;
        if (isComputed) computed();
        this.#addUnderWay(tenant, -1);
        freeFollowers();
      },
    };
  }

  #fill(): void {
    // A prompt that fails while it is being started gives its place back at once.
    if (this.#isFilling) return;
    this.#isFilling = true;
    const since = this.#parts.now();
    while (this.#depth > 0 && this.#startNext()) {
      if (this.#parts.now() - since < MAX_FILL_MS) continue;
      // Later calls in this turn of the event loop start nothing, either.
      setImmediate(() => {
        this.#isFilling = false;
        this.#fill();
      });
      return;
    }
    this.#isFilling = false;
    // Nothing waits for room: the time until the next dispatch says nothing about the pace.
    if (this.#nextTenant() === undefined) this.#lastStart = undefined;
  }

  #addUnderWay(tenant: string, prompts: number): void {
    this.#underWay += prompts;
    const underWay = (this.#underWayOf.get(tenant) ?? 0) + prompts;
    if (underWay > 0) this.#underWayOf.set(tenant, underWay);
    else this.#underWayOf.delete(tenant);
  }

  #endWait(waiting: Waiting): void {
    clearTimeout(waiting.timer);
    clearTimeout(waiting.followTimer);
    waiting.isOver = true;
    this.#depth--;
  }
}

/** @param retryMs Milliseconds after which there may be room. */
function overloaded(detail: string, retryMs: number): WarmpathError {
  const retryAfterS = Math.min(MAX_RETRY_S, Math.max(1, Math.ceil(retryMs / 1_000)));
  return new WarmpathError('WARMPATH_OVERLOADED', { detail, retryAfterS });
}
