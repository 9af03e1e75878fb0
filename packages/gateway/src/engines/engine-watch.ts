import type { FastifyBaseLogger } from 'fastify';
import type { EngineReport } from './engine-probe.js';

/** Milliseconds until the second question; each further wait is twice as long, up to the longest. */
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15_000;

/**
 * Asks for the engine until it is there, and tells of every change: at the start, and again after a request found it
 * gone. While the engine is up, nothing is asked.
 */
export class EngineWatch {
  readonly #probe: () => Promise<EngineReport>;
  readonly #tell: (report: EngineReport) => void;
  #timer: NodeJS.Timeout | undefined;
  #isAsking = false;
  #closed = false;
  #last: Pick<EngineReport, 'state' | 'problem'> | undefined;

  constructor(probe: () => Promise<EngineReport>, tell: (report: EngineReport) => void) {
    this.#probe = probe;
    this.#tell = tell;
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
    const { state, problem } = report;
    if (state !== this.#last?.state || problem !== this.#last.problem) this.#tell(report);
    this.#last = { state, problem };
    if (state === 'up' || state === 'wants-key') {
      this.#isAsking = false;
      return;
    }
    this.#timer = setTimeout(() => void this.#ask(Math.min(2 * nextWaitMs, LONGEST_WAIT_MS)), nextWaitMs);
    // Nobody waits for the answer.
    this.#timer.unref();
  }
}

/** Writes a report into the log: the operator sees the address, which clients never do. */
export function logReport(log: FastifyBaseLogger, { url, state, problem, remedy }: EngineReport): void {
  if (problem === undefined) log.info({ engine: url }, 'engine up');
  else log.warn({ engine: url, state, problem, remedy }, 'engine not ready');
}
