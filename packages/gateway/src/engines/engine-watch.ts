import type { FastifyBaseLogger } from 'fastify';
import type { EngineReport } from './engine-probe.js';

/** Milliseconds until the second question; each further wait is twice as long, up to the longest. */
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15_000;

export interface EngineWatchOptions {
  /** Hears of every change. */
  readonly tell: (report: EngineReport) => void;
  /** Hears every answer. */
  readonly heard: (report: EngineReport) => void;
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
    const { tell, heard } = this.#options;
    const againMs = this.#options.againMs();
    heard(report);
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

/** Writes a report into the log: the operator sees the address, which clients never do. */
export function logReport(log: FastifyBaseLogger, { url, state, problem, remedy }: EngineReport): void {
  if (problem === undefined) log.info({ engine: url }, 'engine up');
  else log.warn({ engine: url, state, problem, remedy }, 'engine not ready');
}
