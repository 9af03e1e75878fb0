import type { ConcurrencyLimiter, SentRequest } from '../src/index.js';

/** What an engine in virtual time is like. Times in milliseconds. */
export interface SimulatedEngineOptions {
  /** Requests that it works on at once; others wait inside of it, in order of arrival. */
  readonly slots: number;
  /** Whether prompts are computed one after the other, as on one GPU, and not side by side. */
  readonly isSerial?: boolean;
  readonly prefillMs: (newTokens: number) => number;
  readonly answerMs: (random: () => number) => number;
  /** Factor of each prefill's time. */
  readonly noise?: (random: () => number) => number;
  /** What the limiter is told of a prompt's new tokens, of what they are. */
  readonly estimate?: (newTokens: number, random: () => number) => number;
  /** Whether answers are streams. Default true. */
  readonly tells?: boolean;
}

interface Event {
  readonly at: number;
  readonly run: () => void;
}

/** Numbers from 0 to 1, the same for the same seed. */
function randomOf(seed: number): () => number {
  let state = (seed ^ 0x9e3779b9) >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A normal deviate, for times that scatter by some share. */
export function scattered(share: number): (random: () => number) => number {
  return (random) => {
    const normal = Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
    return Math.exp(share * normal - (share * share) / 2);
  };
}

/** An engine in virtual time behind a limiter; what it has no room for waits in front. */
export class SimulatedEngine {
  options: SimulatedEngineOptions;
  now = 0;
  /** Requests that wait in front of the limiter, and those that were answered. */
  waiting = 0;
  served = 0;
  readonly #limiter: ConcurrencyLimiter;
  readonly #random: () => number;
  readonly #events: Event[] = [];
  readonly #inside: (() => void)[] = [];
  #running = 0;
  readonly #prefills: (() => void)[] = [];
  #isPrefilling = false;
  #limitArea = 0;
  #insideArea = 0;
  #areaFrom = 0;
  #countedAt = 0;
  /** Clients that send the next request when they have an answer. */
  isClosed = true;

  constructor(limiter: ConcurrencyLimiter, options: SimulatedEngineOptions, seed: number) {
    this.#limiter = limiter;
    this.options = options;
    this.#random = randomOf(seed);
  }

  /** Requests that wait inside of it. */
  get inside(): number {
    return this.#inside.length;
  }

  /** Requests come, all at once. */
  arrive(count: number): void {
    this.waiting += count;
    this.#fill();
  }

  /** Lets something happen after some time. */
  later(ms: number, run: () => void): void {
    const at = this.now + ms;
    let place = this.#events.length;
    while (place > 0 && this.#events[place - 1]!.at <= at) place--;
    this.#events.splice(place, 0, { at, run });
  }

  /** Requests that come at random, so many in a second, for ever. */
  arriveAtRandom(perSecond: number): void {
    this.isClosed = false;
    const next = (): void => {
      this.later((-Math.log(1 - this.#random()) * 1_000) / perSecond, () => {
        this.arrive(1);
        next();
      });
    };
    next();
  }

  /** Goes on until so many more were answered. Answers the limit's mean over time, and of what waited inside. */
  serve(count: number): { readonly limit: number; readonly waitingInside: number; readonly perSecond: number } {
    const until = this.served + count;
    [this.#limitArea, this.#insideArea, this.#areaFrom] = [0, 0, this.now];
    this.#countedAt = this.now;
    while (this.served < until) {
      const event = this.#events.pop();
      if (event === undefined) throw new Error('nothing happens any more');
      this.now = event.at;
      this.#count();
      event.run();
    }
    const ms = this.now - this.#areaFrom;
    return { limit: this.#limitArea / ms, waitingInside: this.#insideArea / ms, perSecond: (1_000 * count) / ms };
  }

  #count(): void {
    const ms = this.now - this.#countedAt;
    this.#limitArea += ms * this.#limiter.limit;
    this.#insideArea += ms * this.#inside.length;
    this.#countedAt = this.now;
  }

  #fill(): void {
    while (this.waiting > 0 && this.#limiter.hasRoom(this.now)) {
      this.waiting--;
      this.#send();
    }
  }

  #send(): void {
    const sent = this.#limiter.sent(this.now, this.options.tells !== false);
    const newTokens = 100 + Math.floor(2_000 * this.#random());
    const work = (): void => {
      this.#running++;
      this.#prefill(newTokens, () => {
        const told = this.options.estimate?.(newTokens, this.#random) ?? newTokens;
        this.#limiter.began(sent, this.now, told);
        this.later(this.options.answerMs(this.#random), () => this.#end(sent));
        this.#fill();
      });
    };
    if (this.#running < this.options.slots) work();
    else this.#inside.push(work);
  }

  #prefill(newTokens: number, done: () => void): void {
    const ms = this.options.prefillMs(newTokens) * (this.options.noise?.(this.#random) ?? 1);
    if (!this.options.isSerial) {
      this.later(ms, done);
      return;
    }
    const run = (): void => {
      this.#isPrefilling = true;
      this.later(ms, () => {
        done();
        const next = this.#prefills.shift();
        if (next === undefined) this.#isPrefilling = false;
        else next();
      });
    };
    if (this.#isPrefilling) this.#prefills.push(run);
    else run();
  }

  #end(sent: SentRequest): void {
    this.#running--;
    this.served++;
    this.#limiter.ended(sent, this.now);
    if (this.#running < this.options.slots) this.#inside.shift()?.();
    if (this.isClosed) this.waiting++;
    this.#fill();
  }
}
