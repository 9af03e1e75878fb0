import type { Upstream } from '../dispatch/upstream.js';
import type { Dialect } from './dialects/dialects.js';
import { askText } from './engine-probe.js';

/** The engine that is asked. */
interface AskedEngine {
  readonly upstream: Upstream;
  readonly dialect: Dialect;
  readonly queue: { readonly underWay: number; reported(waiting: number): void };
  headers(): Record<string, string | string[]>;
}

/** Milliseconds between two questions, and after one that was not answered. */
const ASK_MS = 1_000;
const AGAIN_MS = 60_000;
/** Bytes of an engine's metrics that are read. */
const METRICS_BYTES = 4_194_304;
/** Fewer requests do not wait for each other. */
const FEWEST_REQUESTS = 2;

/**
 * Asks an engine for the length of its own queue, once a second while it has requests, where its kind has a metric for
 * that. An engine that does not answer with it is asked again after a minute.
 */
export class QueueReports {
  readonly #engine: AskedEngine;
  readonly #now: () => number;
  readonly #timer: NodeJS.Timeout;
  #isAsking = false;
  #notBefore = Number.NEGATIVE_INFINITY;

  /** @param now The monotonic clock, in milliseconds. */
  constructor(engine: AskedEngine, now: () => number) {
    this.#engine = engine;
    this.#now = now;
    this.#timer = setInterval(() => void this.ask(), ASK_MS);
    this.#timer.unref();
  }

  close(): void {
    clearInterval(this.#timer);
  }

  /** Asks now, unless there is nothing to ask, or a question is under way. Never rejects. */
  async ask(): Promise<void> {
    const { upstream, queue, dialect } = this.#engine;
    const metric = dialect.waiting;
    if (metric === undefined || queue.underWay < FEWEST_REQUESTS) return;
    if (this.#isAsking || this.#now() < this.#notBefore) return;
    this.#isAsking = true;
    const headers = { ...this.#engine.headers(), 'accept-encoding': 'identity' };
    const bounds = { totalMs: upstream.connectMs, limitBytes: METRICS_BYTES };
    const answer = await askText(upstream, { path: '/metrics', headers }, bounds);
    this.#isAsking = false;
    const waiting = 'code' in answer || answer.status !== 200 ? undefined : sumOfMetric(answer.text, metric);
    if (waiting === undefined) this.#notBefore = this.#now() + AGAIN_MS;
    else queue.reported(waiting);
  }
}

/** The sum of a metric's samples in Prometheus text, over all labels; `undefined` where there is none. O(text). */
export function sumOfMetric(text: string, name: string): number | undefined {
  let sum: number | undefined;
  for (let at = text.indexOf(name); at >= 0; at = text.indexOf(name, at + name.length)) {
    if (at > 0 && text[at - 1] !== '\n') continue;
    const end = text.indexOf('\n', at);
    const line = text.slice(at + name.length, end < 0 ? text.length : end);
    // A label's value may hold a brace, and a time may stand behind the value.
    const value = /^(?:\{.*\})?\s+(\S+)/.exec(line)?.[1];
    if (value === undefined || !Number.isFinite(Number(value))) continue;
    sum = (sum ?? 0) + Number(value);
  }
  return sum;
}
