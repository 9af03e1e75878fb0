import type { EngineReport } from './engine-probe.js';
import type { ExchangeEnd } from './upstream.js';

/** Milliseconds until the second question; each further wait is twice as long, up to the longest. */
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15_000;

export interface EngineWatchOptions {
  /** Hears of every change. */
  readonly tell: (report: EngineReport) => void;
  /** Hears every answer. */
  readonly reported: (report: EngineReport) => void;
  /** Milliseconds between two questions while the engine is up; none are asked then where it says nothing. */
  readonly againMs: () => number | undefined;
}

/**
 * Asks for the engine until it is there, and tells of every change: at the start, and again after a request found it
 * gone. While the engine is up, nothing is asked, unless its health is to be checked.
 */
export class EngineWatch {
  readonly #probe: () => Promise<EngineReport>;
  readonly #options: EngineWatchOptions;
  #timer: NodeJS.Timeout | undefined;
  #isAsking = false;
  #closed = false;
  #last: Pick<EngineReport, 'state' | 'problem'> | undefined;

  constructor(probe: () => Promise<EngineReport>, options: EngineWatchOptions) {
    this.#probe = probe;
    this.#options = options;
  }

  /** Begins to ask, if that is not under way. */
  look(): void {
    if (this.#isAsking || this.#closed) return;
    this.#isAsking = true;
    void this.#ask(FIRST_WAIT_MS);
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  async #ask(nextWaitMs: number): Promise<void> {
    const report = await this.#probe();
    if (this.#closed) return;
    const { tell, reported } = this.#options;
    const againMs = this.#options.againMs();
    reported(report);
    const { state, problem } = report;
    if (state !== this.#last?.state || problem !== this.#last.problem) tell(report);
    this.#last = { state, problem };
    const isUp = state === 'up' || state === 'wants-key';
    if (isUp && againMs === undefined) {
      this.#isAsking = false;
      return;
    }
    const waitMs = isUp ? againMs! : Math.min(nextWaitMs, againMs ?? nextWaitMs);
    const laterMs = isUp ? FIRST_WAIT_MS : Math.min(2 * nextWaitMs, LONGEST_WAIT_MS);
    this.#timer = setTimeout(() => void this.#ask(laterMs), waitMs);
    // Nobody waits for the answer.
    this.#timer.unref();
  }
}

/** When an engine gets no requests, where there are several. */
export interface HealthSettings {
  /** Milliseconds between two checks of an engine. */
  readonly checkMs: number;
  /** Failures in a row that eject an engine. */
  readonly failures: number;
  /** Milliseconds of the first ejection. */
  readonly ejectMs: number;
}

export const HEALTH_SETTINGS: HealthSettings = { checkMs: 5_000, failures: 3, ejectMs: 5_000 };

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
  readonly #settings: HealthSettings;
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

  constructor(settings: HealthSettings, parts: EngineHealthParts) {
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
