import { checkCount } from './queue.js';

/** Samples of a window, at least, and those that are kept of one. */
const WINDOW_SAMPLES = 8;
const MAX_SAMPLES = 1_024;
/** Of the samples of a window, so many at each end do not count. */
const TRIMMED_SHARE = 0.1;
/** What the engine may hold waiting, so that it never runs dry: of the requests that it computes. */
const HEADROOM_SHARE = 0.12;
/** Windows without waiting after which the limit grows by more than its headroom. */
const PATIENCE = 5;
/** From this share of the requests on, what seems to wait is believed only by a fresh reference. */
const SURPRISING_SHARE = 0.25;
/** Windows between two quiet ones, at most; and the change of the reference after which the next one comes soon. */
const FEWEST_WINDOWS = 2;
const MOST_WINDOWS = 32;
const REFERENCE_CHANGE = 0.15;
/** A quiet window ends after so many times the usual time to the first token. */
const QUIET_PATIENCE = 8;
/** Weight of the reference's past, in samples; and how much longer than expected a sample of it may count. */
const REFERENCE_SAMPLES = 64;
const LONGEST_REFERENCE = 4;

/** A request that the engine has. */
export interface SentRequest {
  readonly sentAt: number;
  /** Requests that had not begun to answer when it was sent, itself among them; 0 if it will not tell when it begins. */
  readonly level: number;
  readonly window: number;
  hasBegun: boolean;
  hasEnded: boolean;
}

interface Sample {
  readonly level: number;
  readonly ms: number;
  readonly newTokens: number;
}

/**
 * Learns how many requests an engine takes before they wait inside of it, so that they wait where they can still be
 * ordered. Told when requests are sent, begin to answer and end; by windows of them it estimates what waits in the
 * engine (Little's law: requests a millisecond, times the mean of what first tokens took longer than computing their
 * prompts does) and sets the limit to what is left, plus a headroom of 15 %, at most the root. How long an answer is
 * has no influence. What computing alone takes is learned from requests that few others were ahead of; under lasting
 * load, quiet windows make such requests (Envoy's gradient controller re-measures its minimum likewise).
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
  #countedAt = 0;
  /** Milliseconds times requests in flight. */
  #area = 0;
  #peak = 0;
  #sent = 0;
  #heard = 0;
  #samples: Sample[] = [];
  #reports = 0;
  #reported = 0;
  #waiting = 0;
  #residenceMs: number | undefined;
  #firstTokenMs: number | undefined;
  #level = 1;
  /** Level that no request may exceed, in a quiet window. */
  #quiet: number | undefined;
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

  /** Whether one more may be sent now. */
  get hasRoom(): boolean {
    if (this.#inFlight >= this.#limit) return false;
    return this.#quiet === undefined || this.#prefilling < this.#quiet;
  }

  /** A request is sent. `tells`: whether `began` will say when its answer begins, before it ends. */
  sent(now: number, tells: boolean): SentRequest {
    if (!this.#isOpen) this.#open(now);
    this.#count(now);
    this.#inFlight++;
    this.#sent++;
    if (tells) this.#prefilling++;
    this.#peak = Math.max(this.#peak, this.#inFlight);
    const level = tells ? this.#prefilling : 0;
    return { sentAt: now, level, window: this.#window, hasBegun: false, hasEnded: false };
  }

  /** The first token of a request has come. `newTokens`: estimated tokens of its prompt that were not cached. */
  began(request: SentRequest, now: number, newTokens: number): void {
    if (request.level === 0 || request.hasBegun || request.hasEnded) return;
    request.hasBegun = true;
    this.#prefilling--;
    const ms = Math.max(0, now - request.sentAt);
    this.#firstTokenMs = average(this.#firstTokenMs, ms);
    if (request.window === this.#window && this.#samples.length < MAX_SAMPLES) {
      this.#samples.push({ level: request.level, ms, newTokens: Math.max(0, newTokens) });
    }
    this.#hear(request, now);
  }

  /** A request is over, whatever became of it. */
  ended(request: SentRequest, now: number): void {
    if (request.hasEnded) return;
    this.#count(now);
    request.hasEnded = true;
    this.#inFlight--;
    if (request.level > 0 && !request.hasBegun) this.#prefilling--;
    this.#residenceMs = average(this.#residenceMs, Math.max(0, now - request.sentAt));
    if (!request.hasBegun) this.#hear(request, now);
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
    this.#countedAt = now;
    this.#area = 0;
    this.#peak = this.#inFlight;
    this.#sent = 0;
    this.#heard = 0;
    this.#samples = [];
    this.#reports = 0;
    this.#reported = 0;
  }

  #count(now: number): void {
    this.#area += Math.max(0, now - this.#countedAt) * this.#inFlight;
    this.#countedAt = now;
  }

  #hear(request: SentRequest, now: number): void {
    if (!this.#isOpen || request.window !== this.#window) return;
    this.#heard++;
    if (this.#quiet !== undefined) this.#maybeEndQuiet(now, this.#quiet);
    else this.#maybeEnd(now);
  }

  #maybeEndQuiet(now: number, level: number): void {
    const isLate = now - this.#openedAt > QUIET_PATIENCE * (this.#firstTokenMs ?? 0);
    if (this.#samples.length < Math.max(WINDOW_SAMPLES, level) && !isLate) return;
    const change = this.#reference.learn(this.#samples);
    this.#interval = change > REFERENCE_CHANGE ? FEWEST_WINDOWS : Math.min(MOST_WINDOWS, 2 * this.#interval);
    this.#windowsSinceQuiet = 0;
    this.#quiet = undefined;
    this.#isOpen = false;
  }

  #maybeEnd(now: number): void {
    const ms = now - this.#openedAt;
    this.#count(now);
    if (!(ms > 0) || ms < (this.#residenceMs ?? 0)) return;
    const inFlight = this.#area / ms;
    if (this.#heard < Math.max(WINDOW_SAMPLES, Math.min(inFlight, MAX_SAMPLES))) return;
    this.#isOpen = false;
    this.#learnReference();
    const told = this.#reports > 0 ? this.#reported / this.#reports : 0;
    const estimated = ((this.#sent / ms) * this.#excess()) || 0;
    const waiting = Math.min(inFlight, Math.max(0, told, estimated));
    this.#waiting = waiting;
    if (this.#samples.length === 0 && this.#reports === 0) return;
    const isSurprising = waiting > SURPRISING_SHARE * inFlight && waiting > told;
    if (isSurprising && this.#windowsSinceQuiet > 1) this.#beQuiet();
    else {
      this.#adjust(inFlight, waiting);
      if (this.#samples.length > 0 && this.#windowsSinceQuiet >= this.#interval) this.#beQuiet();
    }
  }

  /** From requests that few were ahead of, where there were such. */
  #learnReference(): void {
    this.#windowsSinceQuiet++;
    const { length } = this.#samples;
    if (length === 0) return;
    const mean = this.#samples.reduce((sum, { level }) => sum + level, 0) / length;
    this.#level = mean;
    const quiet = this.#quietLevel();
    const known = this.#samples.filter(({ level }) => level <= quiet);
    if (known.length === 0) return;
    this.#reference.learn(known);
    if (known.length * 2 >= WINDOW_SAMPLES) this.#windowsSinceQuiet = 0;
  }

  #quietLevel(): number {
    return Math.max(1, Math.floor(this.#level / 2));
  }

  /** The next window has requests that few are ahead of. */
  #beQuiet(): void {
    this.#quiet = this.#quietLevel();
  }

  /** Mean milliseconds that first tokens took longer than computing does. */
  #excess(): number {
    const excess: number[] = [];
    for (const { ms, newTokens } of this.#samples) {
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
    const busy = Math.max(1, inFlight - waiting);
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

function headroomOf(busy: number): number {
  return Math.min(HEADROOM_SHARE * busy, Math.sqrt(busy));
}

function average(mean: number | undefined, value: number): number {
  return mean === undefined ? value : mean + (value - mean) / WINDOW_SAMPLES;
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

  /** Takes samples in; what was known counts as much as they do at most. Answers by what share expectations changed. */
  learn(samples: readonly Sample[]): number {
    if (samples.length === 0) return 0;
    const before = this.#expectedOf(samples);
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
    if (before === undefined || before === 0) return Number.POSITIVE_INFINITY;
    return Math.abs(this.#expectedOf(samples)! / before - 1);
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
