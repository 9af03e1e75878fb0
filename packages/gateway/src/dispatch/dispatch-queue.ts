import { ConcurrencyLimiter, type Document, type Preamble, type SentRequest, WarmpathError } from '@warmpath/core';
import type { GatewayConfig } from '../config/schema.js';
import { type ColdPrefix, LeadingPrompts } from './leading-prompts.js';
import { type Dispatch, type EnginePlace, TenantQueue, type Waiting } from './tenant-queue.js';

export interface DispatchQueueParts {
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
  /** Hears how long each dispatched request waited, in milliseconds. */
  readonly waited: (ms: number) => void;
  /** Whether requests that begin alike are each computed unless one goes ahead. */
  readonly needsLeader: () => boolean;
}

/** Waiting requests that a policy is given; it reads no more. */
const MAX_CONTEXTS = 64;
/** Milliseconds that a request follows another one at most. */
const LONGEST_FOLLOW_MS = 10_000;
/**
 * Milliseconds of one turn of the event loop in which requests are started that waited: hundreds may have followed the
 * same one, and answers under way would stand still for as long as all of them take.
 */
const FILL_MS = 10;
/** Dispatches after which it is known how fast the queue moves. */
const KNOWN_PACE = 8;
/**
 * Of the engine's places, those that are kept for tenants with fewer than an even share: an eighth of at least four.
 */
const KEPT_SHARE = 1 / 8;
const LEAST_SHARED_PLACES = 4;
/** Milliseconds after its last request in which a tenant counts as one that may come back. */
const COMES_BACK_MS = 60_000;
/** Seconds after which a refused client may try again, at most. */
const LONGEST_RETRY_S = 60;

const NONE: readonly never[] = [];

/**
 * Requests for one engine, of which so many are under way as it takes before they wait inside of it: `limit` at most,
 * and where the limit adapts what core's `ConcurrencyLimiter` learns. The others wait here. Tenants take turns, so that
 * none waits behind the whole of another's queue: the one with the fewest under way is next, which shares the engine
 * among them. Nor may one tenant have all of the engine: see `#mayStart`. Where all places in the queue are taken, the
 * latest request of the tenant that has most of them gives way to one of a tenant that has fewer. One that would wait
 * longer than it may is refused at once. While there is room, a request passes straight through.
 */
export class DispatchQueue {
  readonly #max: number;
  readonly #settings: GatewayConfig['queue'];
  readonly #parts: DispatchQueueParts;
  readonly #limiter: ConcurrencyLimiter;
  readonly #leading = new LeadingPrompts();
  readonly #places: PlaceParts;
  /** Only tenants with waiting requests, in turn. */
  readonly #tenants = new Map<string, TenantQueue>();
  /** Requests that the engine has, of each tenant that has any there. */
  readonly #underWayOf = new Map<string, number>();
  /** Whose the latest request is, when it came, and when the latest one before it of any other tenant. */
  #latest: string | undefined;
  #latestAt = Number.NEGATIVE_INFINITY;
  #latestOtherAt = Number.NEGATIVE_INFINITY;
  #depth = 0;
  #arrivals = 0;
  #filling = false;
  #again: NodeJS.Timeout | undefined;
  /** Mean milliseconds between two dispatches while requests wait, over so many of them. */
  #paceMs = 0;
  #paces = 0;
  #lastStart: number | undefined;

  /** `limit`: requests under way at once, at most. */
  constructor(limit: number, settings: GatewayConfig['queue'], parts: DispatchQueueParts) {
    this.#max = limit;
    this.#settings = settings;
    this.#parts = parts;
    this.#limiter = new ConcurrencyLimiter(limit);
    this.#places = {
      now: parts.now,
      needsLeader: parts.needsLeader,
      limiter: this.#limiter,
      leading: this.#leading,
      begun: (hasLed) => this.#mayGoOn(hasLed),
      over: (tenant, hasLed) => {
        this.#addUnderWay(tenant, -1);
        this.#mayGoOn(hasLed);
      },
    };
  }

  /** Requests that wait. */
  get depth(): number {
    return this.#depth;
  }

  /** Whether one more would be refused, or cost another one its place. */
  get isFull(): boolean {
    return this.#depth >= this.#settings.capacity;
  }

  /** Requests that the engine has. */
  get underWay(): number {
    return this.#limiter.inFlight;
  }

  /** Requests that it may have at once. */
  get limit(): number {
    return this.#settings.adaptive ? this.#limiter.limit : this.#max;
  }

  /** Requests that were last estimated to wait inside of the engine. */
  get waitingInside(): number {
    return this.#limiter.waiting;
  }

  /** The engine says how many requests wait inside of it. */
  reported(waiting: number): void {
    this.#limiter.reported(waiting);
  }

  /**
   * Starts a request, or lets it wait: then it answers what `leave` takes. Error: `WARMPATH_OVERLOADED` when there is
   * no place for it, or its turn would come too late. O(tenants that wait); O(waiting) when the queue is full.
   */
  enter(dispatch: Dispatch): Waiting | undefined {
    const now = this.#parts.now();
    this.#came(dispatch.tenant, now);
    if (this.#isNext(dispatch.tenant) && this.#mayStart(dispatch.tenant) && !this.#isLed(dispatch)) {
      this.#start(dispatch, 0);
      return undefined;
    }
    const allowedMs = this.#allowedMs(dispatch, now);
    this.#refuseLate(dispatch, allowedMs);
    const { capacity } = this.#settings;
    if (this.#depth >= capacity) this.#makeRoomFor(dispatch.tenant);
    const queue = this.#tenants.get(dispatch.tenant) ?? new TenantQueue(this.#settings);
    const waiting: Waiting = {
      dispatch,
      number: this.#arrivals++,
      since: now,
      urgency: dispatch.urgency(),
      timer: undefined,
      followTimer: undefined,
      followsNobody: false,
      isOver: false,
    };
    waiting.timer = setTimeout(() => this.#expire(waiting, allowedMs), allowedMs);
    queue.push(waiting);
    this.#tenants.set(dispatch.tenant, queue);
    this.#depth++;
    this.#fill();
    return waiting;
  }

  /** Takes a request out that is not wanted any more; false if its wait is over. O(requests of its tenant). */
  leave(waiting: Waiting): boolean {
    if (waiting.isOver) return false;
    const { tenant } = waiting.dispatch;
    const queue = this.#tenants.get(tenant)!;
    queue.remove(waiting);
    if (queue.size === 0) this.#tenants.delete(tenant);
    this.#forget(waiting);
    return true;
  }

  /** Takes all out that wait, in order of arrival. O(waiting * log waiting). */
  takeAll(): Dispatch[] {
    const all = [...this.#tenants.values()].flatMap((queue) => [...queue]).sort((a, b) => a.number - b.number);
    this.#tenants.clear();
    for (const waiting of all) this.#forget(waiting);
    return all.map(({ dispatch }) => dispatch);
  }

  /**
   * The documents of a tenant's requests that wait behind this preamble, in the order in which they will go: what may
   * be shown to an ordering policy. At most 64. O(requests of the tenant).
   */
  waitingBehind(preamble: Preamble, tenant: string): readonly (readonly Document[])[] {
    const queue = this.#tenants.get(tenant);
    if (queue === undefined) return NONE;
    const contexts: (readonly Document[])[] = [];
    for (const { dispatch } of queue) {
      const context = dispatch.context();
      if (context?.preamble.key !== preamble.key) continue;
      if (contexts.push(context.documents) === MAX_CONTEXTS) break;
    }
    return contexts;
  }

  get #hasRoom(): boolean {
    if (this.#settings.adaptive) return this.#limiter.hasRoom(this.#parts.now());
    return this.#limiter.inFlight < this.#max;
  }

  /**
   * Whether a tenant may have one more request under way. Where one tenant has more than half of them, others get their
   * first ones up to an eighth above the limit that was learned, so that they need not wait for the end of its long
   * answers. The last eighth of `maxConcurrent` goes to nobody beyond an even share among the tenants that are about; a
   * tenant that is alone has all of it. O(1) while there is room, else O(tenants).
   */
  #mayStart(tenant: string): boolean {
    const { inFlight } = this.#limiter;
    const own = this.#underWayOf.get(tenant) ?? 0;
    if (this.#hasRoom) {
      const kept = this.#max < LEAST_SHARED_PLACES ? 0 : Math.max(1, Math.floor(KEPT_SHARE * this.#max));
      return inFlight < this.#max - kept || own < Math.max(1, Math.floor(this.#max / this.#tenantsAbout(tenant)));
    }
    const { limit } = this;
    const most = Math.min(this.#max, limit + Math.max(1, Math.floor(KEPT_SHARE * limit)));
    return own === 0 && inFlight < most && this.#isUnevenlyShared;
  }

  /** Whether one tenant has more than half of what is under way, and not just one request. */
  get #isUnevenlyShared(): boolean {
    const most = Math.max(2, this.#limiter.inFlight / 2 + 0.5);
    for (const underWay of this.#underWayOf.values()) if (underWay >= most) return true;
    return false;
  }

  /** Whether nobody waits who goes before this tenant: its first request goes before further ones of others. */
  #isNext(tenant: string): boolean {
    if (this.#depth === 0) return true;
    if (this.#underWayOf.has(tenant)) return false;
    const next = this.#nextTenant();
    return next === undefined || this.#underWayOf.has(next);
  }

  /** Tenants that have requests here, and one more for any that has come of late; `tenant` is among them. */
  #tenantsAbout(tenant: string): number {
    let count = this.#underWayOf.size;
    for (const waiting of this.#tenants.keys()) if (!this.#underWayOf.has(waiting)) count++;
    return Math.max(count, this.#parts.now() < this.#aloneAt(tenant) ? 2 : 1);
  }

  /** When a tenant counts as the only one, if no other comes. */
  #aloneAt(tenant: string): number {
    return (this.#latest === tenant ? this.#latestOtherAt : this.#latestAt) + COMES_BACK_MS;
  }

  #came(tenant: string, now: number): void {
    if (tenant !== this.#latest) {
      this.#latestOtherAt = this.#latestAt;
      this.#latest = tenant;
    }
    this.#latestAt = now;
  }

  /** Milliseconds that a request may wait: until its client has no answer in time any more, too. */
  #allowedMs({ deadline }: Dispatch, now: number): number {
    const { maxWaitMs } = this.#settings;
    if (deadline === undefined) return maxWaitMs;
    return Math.max(0, Math.min(maxWaitMs, deadline - now - this.#limiter.firstTokenMs));
  }

  /** A wait that is known to be too long is of no use to anybody. */
  #refuseLate({ tenant }: Dispatch, allowedMs: number): void {
    const own = this.#tenants.get(tenant)?.size ?? 0;
    let before = own;
    // Tenants take turns.
    for (const [other, queue] of this.#tenants) if (other !== tenant) before += Math.min(queue.size, own + 1);
    const waitMs = (before + 1) * this.#paceMs;
    // Where nobody waits, the pace may be an old one.
    const isLate = allowedMs === 0 || (before > 0 && this.#paces >= KNOWN_PACE && waitMs > allowedMs);
    if (!isLate) return;
    const seconds = (ms: number) => (ms / 1_000).toFixed(1);
    const detail =
      `${before} requests wait before this one, ${seconds(waitMs)} s by estimate; it may wait for ` +
      `${seconds(allowedMs)} s (\`queue.maxWaitMs\`, or the client's own timeout).`;
    throw overloaded(detail, waitMs - allowedMs);
  }

  #expire(waiting: Waiting, allowedMs: number): void {
    if (!this.leave(waiting)) return;
    const { maxWaitMs } = this.#settings;
    const why = allowedMs < maxWaitMs ? "the client's own timeout" : '`queue.maxWaitMs`';
    const detail = `No room in the engine within ${Math.round(allowedMs)} ms (${why}).`;
    waiting.dispatch.refuse(overloaded(detail, this.#drainMs));
  }

  /** Milliseconds until all that wait now have gone, as far as that is known. */
  get #drainMs(): number {
    return this.#depth * this.#paceMs;
  }

  /** The tenant with the fewest requests under way, of equals the one whose turn it is. O(waiting tenants). */
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

  /** The latest request of the tenant that has most gives way, unless the newcomer's tenant has as many. */
  #makeRoomFor(tenant: string): void {
    let most: TenantQueue | undefined;
    for (const queue of this.#tenants.values()) if (queue.size > (most?.size ?? 0)) most = queue;
    const own = this.#tenants.get(tenant)?.size ?? 0;
    const error = overloaded(
      `${this.#depth} requests wait for the engine, ${own} of them yours (\`queue.capacity\`).`,
      this.#drainMs,
    );
    if (most === undefined || most.size <= own + 1) throw error;
    const latest = [...most].at(-1)!;
    this.leave(latest);
    latest.dispatch.refuse(overloaded('Requests of others, who have fewer, wait in its place.', this.#drainMs));
  }

  /** False where nobody may go: the engine has no room for whoever is next, or all that wait follow others. */
  #startNext(): boolean {
    const tenant = this.#nextTenant();
    if (tenant === undefined || !this.#mayStart(tenant)) return false;
    const queue = this.#tenants.get(tenant)!;
    const now = this.#parts.now();
    const waiting = queue.next(now, (each) => this.#stepsAside(each));
    // A Map iterates in insertion order: this tenant's next turn comes after all the others'.
    this.#tenants.delete(tenant);
    if (queue.size > 0) this.#tenants.set(tenant, queue);
    if (waiting === undefined) return true;
    this.#forget(waiting);
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

  /** Whether a request waits for another one, which is computing what it begins with. */
  #stepsAside(waiting: Waiting): boolean {
    if (waiting.followsNobody || !this.#isLed(waiting.dispatch)) return false;
    waiting.followTimer ??= setTimeout(() => {
      waiting.followsNobody = true;
      this.#comeBack();
    }, LONGEST_FOLLOW_MS);
    return true;
  }

  #comeBack(): void {
    for (const queue of this.#tenants.values()) {
      if (queue.following > 0) queue.comeBack((each) => !each.followsNobody && this.#isLed(each.dispatch));
    }
    this.#fill();
  }

  #start(dispatch: Dispatch, queuedMs: number): void {
    const { tenant, tells } = dispatch;
    const now = this.#parts.now();
    if (queuedMs > 0 && this.#lastStart !== undefined) {
      this.#paces++;
      this.#paceMs += (now - this.#lastStart - this.#paceMs) / Math.min(this.#paces, 2 * KNOWN_PACE);
    }
    this.#lastStart = now;
    const sent = this.#limiter.sent(now, tells);
    this.#addUnderWay(tenant, 1);
    dispatch.start(queuedMs, new GivenPlace(tenant, sent, this.#places));
  }

  /** A request has begun to answer, or is over. `hasLed`: others may have waited for just this one. */
  #mayGoOn(hasLed: boolean): void {
    if (hasLed) this.#comeBack();
    else this.#fill();
  }

  #fill(): void {
    // A request that fails at once gives its place back while it is being started.
    if (this.#filling) return;
    this.#filling = true;
    const since = this.#parts.now();
    while (this.#depth > 0 && this.#startNext()) {
      if (this.#parts.now() - since < FILL_MS) continue;
      // What else comes in this turn of the event loop starts nobody, either.
      setImmediate(() => {
        this.#filling = false;
        this.#fill();
      });
      return;
    }
    this.#filling = false;
    const next = this.#depth === 0 ? undefined : this.#nextTenant();
    // Nobody waits for room any more: what comes later says nothing about the pace.
    if (next === undefined) this.#lastStart = undefined;
    else this.#lookAgain(next);
  }

  /**
   * What the engine has may be stuck, or places are kept for a tenant that does not come back: then nothing else would
   * let the others go.
   */
  #lookAgain(next: string): void {
    if (this.#again !== undefined) return;
    const now = this.#parts.now();
    const roomAt = this.#hasRoom
      ? this.#aloneAt(next)
      : this.#settings.adaptive
        ? this.#limiter.roomAt(now)
        : undefined;
    if (roomAt === undefined || !(roomAt > now)) return;
    this.#again = setTimeout(
      () => {
        this.#again = undefined;
        this.#fill();
      },
      Math.max(1, Math.ceil(roomAt - now)),
    );
    this.#again.unref();
  }

  #addUnderWay(tenant: string, requests: number): void {
    const underWay = (this.#underWayOf.get(tenant) ?? 0) + requests;
    if (underWay > 0) this.#underWayOf.set(tenant, underWay);
    else this.#underWayOf.delete(tenant);
  }

  #forget(waiting: Waiting): void {
    clearTimeout(waiting.timer);
    clearTimeout(waiting.followTimer);
    waiting.isOver = true;
    this.#depth--;
  }
}

/** What the places of a queue share, and who hears of them. */
interface PlaceParts extends Pick<DispatchQueueParts, 'now' | 'needsLeader'> {
  readonly limiter: ConcurrencyLimiter;
  readonly leading: LeadingPrompts;
  readonly begun: (hasLed: boolean) => void;
  readonly over: (tenant: string, hasLed: boolean) => void;
}

/** The room that a request has in the engine until it is over. */
class GivenPlace implements EnginePlace {
  readonly #tenant: string;
  readonly #sent: SentRequest;
  readonly #parts: PlaceParts;
  #beginnings: readonly string[] = NONE;
  #endLead: (() => void) | undefined;

  constructor(tenant: string, sent: SentRequest, parts: PlaceParts) {
    this.#tenant = tenant;
    this.#sent = sent;
    this.#parts = parts;
  }

  leads(prefix: ColdPrefix): void {
    const { leading, needsLeader } = this.#parts;
    if (!this.#sent.hasEnded && needsLeader()) this.#endLead ??= leading.lead(this.#tenant, prefix);
  }

  leadsBytes(beginnings: readonly string[]): boolean {
    const { leading, needsLeader } = this.#parts;
    if (this.#sent.hasEnded || !needsLeader()) return false;
    this.#beginnings = beginnings;
    const cold = leading.coldBytes(this.#tenant, beginnings, this.#sent.sentAt);
    if (cold !== undefined) this.#endLead ??= leading.lead(this.#tenant, cold);
    return cold !== undefined;
  }

  began(newTokens: number): void {
    if (this.#sent.began !== undefined || this.#sent.hasEnded) return;
    const { leading, limiter, now, begun } = this.#parts;
    leading.computedBytes(this.#tenant, this.#beginnings, now());
    limiter.began(this.#sent, now(), newTokens);
    begun(this.#endsLead());
  }

  release(isComputed: boolean): void {
    if (this.#sent.hasEnded) return;
    const { leading, limiter, now, over } = this.#parts;
    if (isComputed) leading.computedBytes(this.#tenant, this.#beginnings, now());
    limiter.ended(this.#sent, now());
    over(this.#tenant, this.#endsLead());
  }

  /** Ends its lead; answers whether it had one. */
  #endsLead(): boolean {
    const end = this.#endLead;
    this.#endLead = undefined;
    end?.();
    return end !== undefined;
  }
}

/** `retryMs`: when it may be worth trying again. */
function overloaded(detail: string, retryMs: number): WarmpathError {
  const retryAfterS = Math.min(LONGEST_RETRY_S, Math.max(1, Math.ceil(retryMs / 1_000)));
  return new WarmpathError('WARMPATH_OVERLOADED', { detail, retryAfterS });
}
