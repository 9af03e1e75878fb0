import { checkCount } from './queue.js';

/** Requests that a window looks at. */
const FEWEST_REQUESTS = 8;
const MOST_REQUESTS = 1_024;
/** Of these, so many at each end do not count, and so many need not have begun. */
const TRIMMED_SHARE = 0.1;
/** What the engine may hold waiting, so that it never runs dry: of the requests that it computes. */
const HEADROOM_SHARE = 0.12;
/** Windows without waiting after which the limit grows by more than its headroom. */
const PATIENCE = 5;
/** One and this share of the requests, and what seems to wait is believed only by a fresh reference. */
const SURPRISING_SHARE = 0.25;
/** Windows between two quiet ones, at most; and the change of the reference after which the next one comes soon. */
const FEWEST_WINDOWS = 1;
const MOST_WINDOWS = 32;
const REFERENCE_CHANGE = 0.15;
/** Of the requests that there were, so many are let through in a quiet window: no slot is waited for then. */
const QUIET_SHARE = 0.8;
/** So many times the usual time of a request without a word: the engine may be stuck with what it has. */
const STALL = 8;
/** A quiet window ends after so many times the usual time to the first token. */
const QUIET_PATIENCE = 8;
/**
 * Milliseconds until first tokens below which nothing is held up: what waits that short in the engine would wait as
 * long here, and times as short tell more of sockets and event loops than of the engine.
 */
const UNNOTICED_MS = 50;
/** Weight of the reference's past, in samples; and how much longer than expected a sample of it may count. */
const REFERENCE_SAMPLES = 64;
const LONGEST_REFERENCE = 4;

/** A request that the engine has. */
export interface SentRequest {
  readonly sentAt: number;
  /** Requests that had not begun when it was sent, itself among them; 0 if it will not tell when it begins. */
  readonly level: number;
  /** Requests that the engine had then, itself among them. */
  readonly inFlight: number;
  /** The window that looks at it; 0 for none. */
  readonly window: number;
  hasEnded: boolean;
  /** What its first token took, and tokens that were computed for it; there from that token on. */
  began: { readonly ms: number; readonly newTokens: number } | undefined;
}

/** Requests that the engine may have, and those of them that have not begun, for nothing to wait inside of it. */
interface QuietBounds {
  readonly level: number;
  readonly inFlight: number;
}

interface Sample {
  readonly level: number;
  readonly inFlight: number;
  readonly ms: number;
  readonly newTokens: number;
}

/**
 * Learns how many requests an engine takes before they wait inside of it, so that they wait where they can still be
 * ordered. Its caller says when requests are sent, begin and end; by windows of them it estimates what waits in
 * the engine (Little's law: requests a millisecond, times the mean of what first tokens took longer than computing
 * their prompts does) and sets the limit to what is left, plus a headroom of 12 %, at most the root. How long an answer
 * is has no influence. What computing alone takes is learned from requests that few others were ahead of; under lasting
 * load, quiet windows make such requests (Envoy's gradient controller re-measures its minimum likewise).
 *
 * An engine in which all requests have begun gets one above the limit: it has nothing to prefill. So does one that
 * makes no progress for long: one request that is stuck must not hold up all others.
 *
 * Starts at `max`: a limit is learned from waiting, never assumed. Deterministic; times are the caller's milliseconds.
 * Cost: O(1) a call, O(samples log samples) at the end of a window.
 */
export class ConcurrencyLimiter {
  readonly #max: number;
  readonly #reference = new PrefillReference();
  /** With a fraction, which is made up for over windows. */
  #estimate: number;
  #limit: number;
  #fraction = 0;
  #inFlight = 0;
  #prefilling = 0;
  #window = 0;
  #isOpen = false;
  #openedAt = 0;
  #measuredAt = 0;
  /** When a request last began or ended. */
  #progressAt = 0;
  /** Milliseconds times requests in flight. */
  #area = 0;
  #peak = 0;
  /** That of the last window that was not quiet. */
  #usualPeak = 0;
  #sent = 0;
  /** The first requests that were sent in the window, how many that will be, and of how many all is known. */
  #looksAt: SentRequest[] = [];
  #count = FEWEST_REQUESTS;
  #known = 0;
  #reports = 0;
  #reported = 0;
  #waiting = 0;
  /** Requests that were last estimated to be computed. */
  #busy = Number.POSITIVE_INFINITY;
  #residenceMs: number | undefined;
  #firstTokenMs: number | undefined;
  #level = 1;
  /** What no request may exceed, in a quiet window. */
  #quiet: QuietBounds | undefined;
  #windowsSinceQuiet = 0;
  #interval = FEWEST_WINDOWS;
  #calmWindows = 0;

  /** `max`: more are never let through. Error: `WARMPATH_INVALID_REQUEST` if it is no whole number above 0. */
  constructor(max: number) {
    checkCount(max, 'max');
    this.#max = max;
    this.#estimate = max;
    this.#limit = max;
  }

  /** Requests that the engine may have at once, from 1 to `max`. */
  get limit(): number {
    return this.#limit;
  }

  /** Requests that the engine has. */
  get inFlight(): number {
    return this.#inFlight;
  }

  /** Of these, those that were last estimated to wait inside of it. */
  get waiting(): number {
    return this.#waiting;
  }

  /** Mean milliseconds of late until the first token of a request that was sent; 0 as long as nothing is known. */
  get firstTokenMs(): number {
    return this.#firstTokenMs ?? 0;
  }

  /** Whether one more may be sent. */
  hasRoom(now: number): boolean {
    const stalls = this.#stalls(now);
    if (this.#quiet !== undefined && stalls === 0)
      return isWithin(this.#quiet, this.#prefilling + 1, this.#inFlight + 1);
    if (this.#inFlight < Math.min(this.#max, this.#limit + stalls)) return true;
    const hasNothingToPrefill = this.#prefilling === 0 && this.#firstTokenMs !== undefined;
    return hasNothingToPrefill && this.#inFlight === this.#limit && this.#limit < this.#max;
  }

  /** When there will be room for one more though nothing else happens until then; `undefined` for never. */
  roomAt(now: number): number | undefined {
    if (this.#inFlight >= this.#max || this.#stallMs === 0) return undefined;
    return this.#progressAt + (this.#stalls(now) + 1) * this.#stallMs;
  }

  /** A request is sent. `tells`: whether `began` will say when its answer begins, before it ends. */
  sent(now: number, tells: boolean): SentRequest {
    if (!this.#isOpen) this.#open(now);
    this.#measure(now);
    if (this.#inFlight === 0) this.#progressAt = now;
    this.#inFlight++;
    this.#sent++;
    if (tells) this.#prefilling++;
    this.#peak = Math.max(this.#peak, this.#inFlight);
    const isLookedAt = this.#looksAt.length < this.#count;
    const request: SentRequest = {
      sentAt: now,
      level: tells ? this.#prefilling : 0,
      inFlight: this.#inFlight,
      window: isLookedAt ? this.#window : 0,
      hasEnded: false,
      began: undefined,
    };
    if (isLookedAt) this.#looksAt.push(request);
    return request;
  }

  /** The first token of a request has come. `newTokens`: estimated tokens of its prompt that were not cached. */
  began(request: SentRequest, now: number, newTokens: number): void {
    if (request.level === 0 || request.began !== undefined || request.hasEnded) return;
    this.#prefilling--;
    const ms = Math.max(0, now - request.sentAt);
    request.began = { ms, newTokens: Math.max(0, newTokens) };
    this.#firstTokenMs = average(this.#firstTokenMs, ms);
    this.#progress(request, now);
  }

  /** A request is over, whatever became of it. */
  ended(request: SentRequest, now: number): void {
    if (request.hasEnded) return;
    this.#measure(now);
    request.hasEnded = true;
    this.#inFlight--;
    if (request.level > 0 && request.began === undefined) this.#prefilling--;
    this.#residenceMs = average(this.#residenceMs, Math.max(0, now - request.sentAt));
    this.#progressAt = now;
    if (request.began === undefined) this.#progress(request, now);
  }

  /** The engine says how many requests wait inside of it. */
  reported(waiting: number): void {
    if (!this.#isOpen || !(waiting >= 0)) return;
    this.#reports++;
    this.#reported += waiting;
  }

  #open(now: number): void {
    this.#isOpen = true;
    this.#window++;
    this.#openedAt = now;
    this.#measuredAt = now;
    this.#area = 0;
    this.#peak = this.#inFlight;
    this.#sent = 0;
    this.#looksAt = [];
    // After a quiet window, the engine fills again first.
    const usual = this.#quiet?.level ?? Math.max(this.#inFlight, Math.min(this.#limit, this.#usualPeak));
    this.#count = Math.min(MOST_REQUESTS, Math.max(FEWEST_REQUESTS, usual));
    this.#known = 0;
    this.#reports = 0;
    this.#reported = 0;
  }

  /** Milliseconds without a word from the engine after which what it has may be stuck; 0 as long as it is not known. */
  get #stallMs(): number {
    return STALL * Math.max(this.#residenceMs ?? 0, this.#firstTokenMs ?? 0);
  }

  /** How often it has made no progress for that long: so many requests do not count, or all would wait for them. */
  #stalls(now: number): number {
    const ms = this.#stallMs;
    return ms === 0 || this.#inFlight === 0 ? 0 : Math.max(0, Math.floor((now - this.#progressAt) / ms));
  }

  #measure(now: number): void {
    this.#area += Math.max(0, now - this.#measuredAt) * this.#inFlight;
    this.#measuredAt = now;
  }

  #progress(request: SentRequest, now: number): void {
    this.#progressAt = now;
    // Any progress may be what a window waits for, such as time.
    if (!this.#isOpen) return;
    if (request.window === this.#window) this.#known++;
    if (this.#quiet !== undefined) this.#maybeEndQuiet(now);
    else this.#maybeEnd(now);
  }

  /** What first tokens took; of requests that have none yet, what they have taken so far. */
  #samples(now: number): Sample[] {
    const begun: Sample[] = [];
    const late: SentRequest[] = [];
    let tokens = 0;
    for (const request of this.#looksAt) {
      if (request.began !== undefined) {
        begun.push({ level: request.level, inFlight: request.inFlight, ...request.began });
        tokens += request.began.newTokens;
      } else if (request.level > 0 && !request.hasEnded) late.push(request);
    }
    if (begun.length === 0) return begun;
    const newTokens = tokens / begun.length;
    for (const { level, inFlight, sentAt } of late) {
      begun.push({ level, inFlight, ms: Math.max(0, now - sentAt), newTokens });
    }
    return begun;
  }

  #maybeEndQuiet(now: number): void {
    const isLate = now - this.#openedAt > QUIET_PATIENCE * (this.#firstTokenMs ?? 0);
    if (this.#known < this.#count && !isLate) return;
    const change = this.#reference.replace(this.#samples(now), REFERENCE_CHANGE);
    this.#interval = change > REFERENCE_CHANGE ? FEWEST_WINDOWS : Math.min(MOST_WINDOWS, 2 * this.#interval);
    this.#windowsSinceQuiet = 0;
    this.#quiet = undefined;
    this.#isOpen = false;
  }

  #maybeEnd(now: number): void {
    const ms = now - this.#openedAt;
    this.#measure(now);
    if (this.#known < (1 - TRIMMED_SHARE) * this.#count) return;
    if (!(ms > 0) || ms < (this.#residenceMs ?? 0)) return;
    const inFlight = this.#area / ms;
    this.#isOpen = false;
    this.#usualPeak = this.#peak;
    const samples = this.#samples(now);
    this.#learnReference(samples);
    const reportedWaiting = this.#reports > 0 ? this.#reported / this.#reports : 0;
    const isNoticed = (this.#firstTokenMs ?? 0) >= UNNOTICED_MS;
    const estimated = isNoticed ? (this.#sent / ms) * this.#excess(samples) : 0;
    const waiting = Math.min(inFlight, Math.max(0, reportedWaiting, estimated));
    this.#waiting = waiting;
    this.#busy = Math.max(1, inFlight - waiting);
    if (samples.length === 0 && this.#reports === 0) return;
    const isSurprising = waiting > 1 + SURPRISING_SHARE * inFlight && waiting > reportedWaiting;
    if (isSurprising && this.#windowsSinceQuiet > 1) this.#beQuiet();
    else {
      this.#adjust(inFlight, waiting);
      if (isNoticed && samples.length > 0 && this.#windowsSinceQuiet >= this.#interval) this.#beQuiet();
    }
  }

  /** From requests that few were ahead of, where there were such. */
  #learnReference(samples: readonly Sample[]): void {
    this.#windowsSinceQuiet++;
    if (samples.length === 0) return;
    this.#level = samples.reduce((sum, { level }) => sum + level, 0) / samples.length;
    const quiet = this.#quietBounds();
    const known = samples.filter(({ level, inFlight }) => isWithin(quiet, level, inFlight));
    if (known.length === 0) return;
    this.#reference.learn(known);
    if (known.length * 2 >= FEWEST_REQUESTS) this.#windowsSinceQuiet = 0;
  }

  #quietBounds(): QuietBounds {
    const inFlight = QUIET_SHARE * Math.min(this.#limit, this.#peak, this.#busy);
    const level = Math.min(this.#level / 2, inFlight);
    return { level: Math.max(1, Math.floor(level)), inFlight: Math.max(1, Math.floor(inFlight)) };
  }

  /** The next window has requests that few are ahead of. */
  #beQuiet(): void {
    this.#quiet = this.#quietBounds();
  }

  /** Mean milliseconds that first tokens took longer than computing does. */
  #excess(samples: readonly Sample[]): number {
    const excess: number[] = [];
    for (const { ms, newTokens } of samples) {
      const expected = this.#reference.expected(newTokens);
      if (expected === undefined) return 0;
      excess.push(ms - expected);
    }
    excess.sort((a, b) => a - b);
    const trimmed = Math.floor(excess.length * TRIMMED_SHARE);
    const counted = excess.slice(trimmed, excess.length - trimmed);
    return counted.reduce((sum, ms) => sum + ms, 0) / Math.max(1, counted.length);
  }

  #adjust(inFlight: number, waiting: number): void {
    const isBinding = this.#peak >= this.#limit;
    const effective = Math.min(this.#estimate, Math.max(inFlight, this.#peak));
    const busy = this.#busy;
    const headroom = headroomOf(busy);
    if (waiting > headroom) {
      this.#calmWindows = 0;
      const gain = waiting > 2 * headroom ? 1 : 0.5;
      this.#set(effective + gain * (Math.min(effective, busy + headroom) - effective));
    } else if (isBinding) {
      // One at a time never waits: that says nothing about two.
      this.#calmWindows = this.#limit > 1 && waiting < headroom / 2 ? this.#calmWindows + 1 : 0;
      const growth = headroom * 2 ** Math.max(0, this.#calmWindows - PATIENCE);
      const goal = this.#limit === 1 ? 1 + headroom : Math.min(2 * this.#limit, busy + growth);
      this.#set(Math.max(this.#estimate, goal));
    }
  }

  #set(estimate: number): void {
    this.#estimate = Math.min(this.#max, Math.max(1, estimate));
    const whole = Math.floor(this.#estimate);
    this.#fraction += this.#estimate - whole;
    const isUp = this.#fraction >= 1;
    if (isUp) this.#fraction -= 1;
    this.#limit = Math.min(this.#max, whole + Number(isUp));
  }
}

function isWithin(bounds: QuietBounds, level: number, inFlight: number): boolean {
  return level <= bounds.level && inFlight <= bounds.inFlight;
}

function headroomOf(busy: number): number {
  return Math.min(HEADROOM_SHARE * busy, Math.sqrt(busy));
}

function average(mean: number | undefined, value: number): number {
  return mean === undefined ? value : mean + (value - mean) / FEWEST_REQUESTS;
}

/** What the first token of a prompt takes that waits for nothing: linear in its new tokens, by least squares. */
class PrefillReference {
  #weight = 0;
  #tokens = 0;
  #ms = 0;
  #tokensTokens = 0;
  #tokensMs = 0;

  /** `undefined` as long as nothing is known. */
  expected(newTokens: number): number | undefined {
    if (this.#weight === 0) return undefined;
    const tokens = this.#tokens / this.#weight;
    const ms = this.#ms / this.#weight;
    const variance = this.#tokensTokens / this.#weight - tokens * tokens;
    const covariance = this.#tokensMs / this.#weight - tokens * ms;
    // A slope between none and one through the origin: neither tokens nor a prompt take less than no time.
    const steepest = tokens > 0 ? ms / tokens : 0;
    const slope = variance > 1e-9 * tokens * tokens ? Math.min(steepest, Math.max(0, covariance / variance)) : 0;
    return ms + slope * (newTokens - tokens);
  }

  /**
   * Takes samples in that waited for less than those before: where they took less time by that share, the others are
   * forgotten. Answers by what share expectations changed.
   */
  replace(samples: readonly Sample[], share: number): number {
    if (samples.length === 0) return 0;
    const before = this.#expectedOf(samples);
    const took = samples.reduce((sum, { ms }) => sum + ms, 0);
    if (before !== undefined && took < (1 - share) * before) this.#keep(0);
    this.learn(samples);
    if (before === undefined || before === 0) return Number.POSITIVE_INFINITY;
    return Math.abs(this.#expectedOf(samples)! / before - 1);
  }

  /** Takes samples in; what was known counts as much as they do at most. */
  learn(samples: readonly Sample[]): void {
    this.#keep(Math.min(samples.length, REFERENCE_SAMPLES));
    for (const { ms, newTokens } of samples) {
      const expected = this.expected(newTokens);
      const counted = expected === undefined || expected === 0 ? ms : Math.min(ms, LONGEST_REFERENCE * expected);
      this.#weight++;
      this.#tokens += newTokens;
      this.#ms += counted;
      this.#tokensTokens += newTokens * newTokens;
      this.#tokensMs += newTokens * counted;
    }
    this.#keep(REFERENCE_SAMPLES);
  }

  #expectedOf(samples: readonly Sample[]): number | undefined {
    let sum = 0;
    for (const { newTokens } of samples) {
      const expected = this.expected(newTokens);
      if (expected === undefined) return undefined;
      sum += expected;
    }
    return sum;
  }

  #keep(weight: number): void {
    if (this.#weight <= weight) return;
    const share = weight / this.#weight;
    this.#weight *= share;
    this.#tokens *= share;
    this.#ms *= share;
    this.#tokensTokens *= share;
    this.#tokensMs *= share;
  }
}
