import type { GatewayConfig } from '../config/schema.js';
import type { ExchangeEnd } from '../dispatch/upstream.js';

/** `up`: it gets requests. `ejected`: it gets none for a while. `trial`: that is over, and one request tries it. */
export type HealthState = 'up' | 'ejected' | 'trial';

export interface EngineHealthParts {
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
  /** Whether another engine is there to do its work: the last one is never ejected. */
  readonly isSpare: () => boolean;
  /** Hears of every change. */
  readonly changed: (state: 'up' | 'ejected', reason: string) => void;
}

const LONGEST_EJECTION_MS = 300_000;

/**
 * Whether an engine gets requests. Failures in a row eject it, for a time that doubles while it goes on failing. When
 * the time is over one request at a time tries it; the first that is served brings it back, the next failure ejects it
 * again. Where it could not be reached at all, a check that reaches it brings it back, too.
 */
export class EngineHealth {
  readonly #settings: GatewayConfig['health'];
  readonly #parts: EngineHealthParts;
  #failures = 0;
  #isEjected = false;
  #ejections = 0;
  #lastMs = 0;
  #until = 0;
  #trialUntil = 0;
  #returnedAt = Number.NEGATIVE_INFINITY;
  /** Whether it answered at its last failure: then a check, which asks for little, proves nothing. */
  #answered = false;
  #reason: string | undefined;

  constructor(settings: GatewayConfig['health'], parts: EngineHealthParts) {
    this.#settings = settings;
    this.#parts = parts;
  }

  get state(): HealthState {
    if (!this.#isEjected) return 'up';
    return this.#parts.now() < this.#until ? 'ejected' : 'trial';
  }

  /** Ejections since the start. */
  get ejections(): number {
    return this.#ejections;
  }

  /** Why it failed last, as long as it has served nothing since. */
  get reason(): string | undefined {
    return this.#reason;
  }

  /** Whether a request may go to it now. */
  get isAvailable(): boolean {
    if (!this.#isEjected) return true;
    const now = this.#parts.now();
    return now >= this.#until && now >= this.#trialUntil;
  }

  /** A request goes to it: on trial, it is the only one for a while. */
  took(): void {
    if (this.#isEjected) this.#trialUntil = this.#parts.now() + this.#settings.ejectMs;
  }

  ended(end: ExchangeEnd): void {
    if (end.kind === 'failed') this.#failed(end.reason, end.answered);
    else if (!this.#isEjected) {
      this.#failures = 0;
      this.#reason = undefined;
    } else if (this.state === 'trial') this.#return('a request was served');
  }

  /** A check has ended; `problem` says why the engine is not ready. */
  checked(problem: string | undefined): void {
    if (problem === undefined) {
      if (this.state === 'trial' && !this.#answered) this.#return('it answers again');
      return;
    }
    this.#failed(problem, false);
    // No request is spent on finding out what is known.
    if (this.#isEjected) this.#until = Math.max(this.#until, this.#parts.now() + this.#settings.ejectMs);
  }

  #failed(reason: string, answered: boolean): void {
    this.#reason = reason;
    this.#answered = answered;
    this.#failures++;
    if (this.#isEjected ? this.state === 'trial' : this.#failures >= this.#settings.failures) this.#eject(reason);
  }

  #eject(reason: string): void {
    if (!this.#parts.isSpare()) return;
    const now = this.#parts.now();
    const isAgain = this.#isEjected || now - this.#returnedAt < 2 * this.#lastMs;
    const wasEjected = this.#isEjected;
    this.#lastMs = isAgain ? Math.min(2 * this.#lastMs, LONGEST_EJECTION_MS) : this.#settings.ejectMs;
    this.#isEjected = true;
    this.#ejections++;
    this.#until = now + this.#lastMs;
    this.#trialUntil = 0;
    if (!wasEjected) this.#parts.changed('ejected', reason);
  }

  #return(reason: string): void {
    this.#isEjected = false;
    this.#failures = 0;
    this.#reason = undefined;
    this.#returnedAt = this.#parts.now();
    this.#parts.changed('up', reason);
  }
}
