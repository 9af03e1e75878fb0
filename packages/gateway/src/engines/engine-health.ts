import type { EngineReport } from './engine-probe.js';
import type { ExchangeEnd } from './upstream.js';

/** Milliseconds until the second check. Each further wait doubles, up to the maximum. */
const FIRST_WAIT_MS = 500;
const MAX_WAIT_MS = 15_000;

export interface EngineWatchOptions {
  /** Called with every change. */
  readonly changed: (report: EngineReport) => void;
  /** Called with every report. */
  readonly reported: (report: EngineReport) => void;
  /** Milliseconds between two checks while the engine is up; no checks then if left out. */
  readonly againMs: () => number | undefined;
}

/**
 * Checks the engine until it is up, and reports every change. Starts again after a request could not reach it. An
 * engine that is up is checked only for its health.
 */
export class EngineWatch {
  readonly #probe: () => Promise<EngineReport>;
  readonly #options: EngineWatchOptions;
  #timer: NodeJS.Timeout | undefined;
  #isChecking = false;
  #closed = false;
  #last: Pick<EngineReport, 'state' | 'problem'> | undefined;

  constructor(probe: () => Promise<EngineReport>, options: EngineWatchOptions) {
    this.#probe = probe;
    this.#options = options;
  }

  /** Starts checking, unless checks are under way. */
  start(): void {
    if (this.#isChecking || this.#closed) return;
    this.#isChecking = true;
    void this.#check(FIRST_WAIT_MS);
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  async #check(nextWaitMs: number): Promise<void> {
    const report = await this.#probe();
    if (this.#closed) return;
    const { changed, reported } = this.#options;
    const againMs = this.#options.againMs();
    reported(report);
    const { state, problem } = report;
    if (state !== this.#last?.state || problem !== this.#last.problem) changed(report);
    this.#last = { state, problem };
    const isUp = state === 'up' || state === 'wants-key';
    if (isUp && againMs === undefined) {
      this.#isChecking = false;
      return;
    }
    const waitMs = isUp ? againMs! : Math.min(nextWaitMs, againMs ?? nextWaitMs);
    const laterMs = isUp ? FIRST_WAIT_MS : Math.min(2 * nextWaitMs, MAX_WAIT_MS);
    this.#timer = setTimeout(() => void this.#check(laterMs), waitMs);
    this.#timer.unref();
  }
}

/** When one of several engines gets no requests. */
export interface HealthSettings {
  /** Milliseconds between two checks of an engine. */
  readonly checkMs: number;
  /** Consecutive failures that eject an engine. */
  readonly failures: number;
  /** Milliseconds of the first ejection. */
  readonly ejectMs: number;
}

export const HEALTH_SETTINGS: HealthSettings = { checkMs: 5_000, failures: 3, ejectMs: 5_000 };

/** `up`: gets requests. `ejected`: gets none for a while. `trial`: gets one request after an ejection. */
export type HealthState = 'up' | 'ejected' | 'trial';

export interface EngineHealthParts {
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
  /** Whether another engine can take over its work. The last one is never ejected. */
  readonly hasReplacement: () => boolean;
  /** Called with every change. */
  readonly changed: (state: 'up' | 'ejected', reason: string) => void;
}

const LONGEST_EJECTION_MS = 300_000;

/**
 * Decides whether an engine gets requests. Consecutive failures eject it, for a time that doubles with each further
 * failure. Then it gets one request at a time: the first success brings it back, a failure ejects it again. An engine
 * that was unreachable also comes back when a check reaches it.
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
  /** Whether it answered at its last failure. Then a successful check proves nothing. */
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

  /** Reason of the last failure, until it serves a request. */
  get reason(): string | undefined {
    return this.#reason;
  }

  /** Whether it may get a request now. */
  get isAvailable(): boolean {
    if (!this.#isEjected) return true;
    const now = this.#parts.now();
    return now >= this.#until && now >= this.#trialUntil;
  }

  /** It gets a request. On trial, no other request follows until this one ends. */
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
    if (this.#isEjected) this.#until = Math.max(this.#until, this.#parts.now() + this.#settings.ejectMs);
  }

  #failed(reason: string, answered: boolean): void {
    this.#reason = reason;
    this.#answered = answered;
    this.#failures++;
    if (this.#isEjected ? this.state === 'trial' : this.#failures >= this.#settings.failures) this.#eject(reason);
  }

  #eject(reason: string): void {
    if (!this.#parts.hasReplacement()) return;
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
