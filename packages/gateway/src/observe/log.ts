import { write, writeSync } from 'node:fs';
import { WarmpathError } from '@warmpath/core';
import { printableJson } from '@warmpath/core/internal';
import { type Logger, pino } from 'pino';
import type { Engine, EngineChange } from '../engines/engine.js';
import type { EngineReport } from '../engines/engine-probe.js';
import type { Fallback } from '../shapes/shapes.js';
import type { Metrics } from './metrics.js';
import type { ReportBuilder } from './report.js';

/** Characters of lines that wait to be written; what comes on top of them is lost. */
const MAX_WAITING_CHARACTERS = 1_048_576;
/** Milliseconds until what could not be written is tried again. */
const RETRY_MS = 20;
/** How often a reader that is late is waited for when the process ends. */
const LAST_TRIES = 25;

/**
 * Where lines of the log go: a file descriptor, written to in the order of the lines and without holding up anything
 * else. Where it takes none (the disk is full, nobody reads), lines wait for it up to a bound, and what exceeds that is
 * lost and counted: a log never ends or slows the process that writes it.
 */
export class LogDestination {
  readonly #descriptor: number;
  /** What is being written, or could not be. */
  #batch: Buffer = Buffer.alloc(0);
  #lines: string[] = [];
  #waiting = 0;
  #isWriting = false;
  #retry: NodeJS.Timeout | undefined;
  #lost = 0;

  constructor(descriptor: number) {
    this.#descriptor = descriptor;
    process.once('exit', () => this.#writeRest());
  }

  /** Lines that were lost since the start. */
  get linesLost(): number {
    return this.#lost;
  }

  write(text: string): void {
    const line = printableJson(text);
    if (this.#waiting + line.length > MAX_WAITING_CHARACTERS) {
      this.#lost++;
      return;
    }
    this.#lines.push(line);
    this.#waiting += line.length;
    if (!this.#isWriting && this.#retry === undefined) this.#writeNext();
  }

  #writeNext(): void {
    this.#take();
    if (this.#batch.length === 0) return;
    this.#isWriting = true;
    write(this.#descriptor, this.#batch, (error, written) => {
      this.#isWriting = false;
      if (error === null) {
        this.#batch = this.#batch.subarray(written);
        this.#writeNext();
        return;
      }
      this.#retry = setTimeout(() => {
        this.#retry = undefined;
        this.#writeNext();
      }, RETRY_MS).unref();
    });
  }

  /** A line that was written in part comes first. */
  #take(): void {
    if (this.#batch.length > 0 || this.#lines.length === 0) return;
    this.#batch = Buffer.from(this.#lines.join(''));
    this.#lines = [];
    this.#waiting = 0;
  }

  /** The process ends: a reader that is late gets a moment, everything else one try. */
  #writeRest(): void {
    // The batch is on its way already.
    if (this.#isWriting) this.#batch = Buffer.alloc(0);
    const pause = new Int32Array(new SharedArrayBuffer(4));
    for (let tries = 0; tries < LAST_TRIES; ) {
      this.#take();
      if (this.#batch.length === 0) return;
      try {
        this.#batch = this.#batch.subarray(writeSync(this.#descriptor, this.#batch));
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') return;
        tries++;
        Atomics.wait(pause, 0, 0, RETRY_MS);
      }
    }
  }
}

/** One for the process: lines of two gateways must not be written into each other. */
let standardOutput: LogDestination | undefined;

/** The standard output of this process. */
export function logDestination(): LogDestination {
  // Node makes a pipe non-blocking when it is first asked for: a stalled reader must not hold up a thread, nor the end.
  standardOutput ??= new LogDestination((process.stdout as { readonly fd?: number }).fd ?? 1);
  return standardOutput;
}

/** JSON lines on the standard output, each with what it is about: counts, times and names, no text of a request. */
export type Log = Logger;

/** A gateway's log. Fastify gets none: it would listen to each answer, for a line that it is not to write. */
export function openLog(level: string): Log {
  return pino({ level, base: null }, logDestination());
}

const WORDS: Readonly<Record<EngineChange['kind'], string>> = {
  added: 'engine added',
  removed: 'engine removed',
  changed: 'weight or models of the engine changed',
  draining: 'engine gets no new requests',
  resumed: 'engine gets requests again',
  ejected: 'engine failed: it gets no requests for a while',
  up: 'engine gets requests again',
  'events-exact': 'KV events of the engine are followed',
  'events-lost':
    'KV events of the engine were lost: what it holds is estimated until all of its blocks are known again',
  'events-unreadable': 'the socket of KV events has messages that are none',
  'events-unavailable': 'the engine publishes KV events that the gateway does not follow',
};

const WORTH_A_WARNING: ReadonlySet<EngineChange['kind']> = new Set(['ejected', 'events-lost', 'events-unreadable']);

/** One line for a change of an engine. */
export function logChange(log: Log, { name, url }: Engine, { kind, reason }: EngineChange): void {
  const level = WORTH_A_WARNING.has(kind) ? 'warn' : 'info';
  log[level]({ name, engine: url, ...(reason !== undefined && { reason }) }, WORDS[kind]);
}

/** Writes a report into the log: the operator sees the address, which clients never do. */
export function logReport(log: Log, { url, state, problem, remedy }: EngineReport): void {
  if (problem === undefined) log.info({ engine: url }, 'engine up');
  else log.warn({ engine: url, state, problem, remedy }, 'engine not ready');
}

/** Lost tokens from which on the log warns: the shortest prefix that most hosted APIs cache. */
const ALARM_TOKENS = 1_024;

/** Warns of a session that lost much of the cache: where and why, and no text. */
export function logSessionBreak(log: Log, { requestId, session, sessionBreak }: ReportBuilder): void {
  if (sessionBreak === undefined || sessionBreak.lostTokens < ALARM_TOKENS) return;
  log.warn({ requestId, session, ...sessionBreak }, 'session lost cached tokens');
}

/** Counts, records and logs a defect that cost an order, not an answer. */
export type FailOpen = (report: ReportBuilder, fallback: Fallback, defect: unknown) => void;

export function failOpenTo({ metrics, log }: { readonly metrics: Metrics; readonly log: Log }): FailOpen {
  return (report, fallback, defect) => {
    metrics.failedOpen(fallback);
    const reason = WarmpathError.isInstance(defect) ? defect.code : describeDefect(defect).name;
    report.wentWithout({ fallback, reason });
    log.error({ requestId: report.requestId, fallback, ...describeDefect(defect) }, 'failed open');
  };
}

/** Where a defect is, without its message, which may quote the request. */
export function describeDefect(defect: unknown): { name: string; at: string | undefined } {
  if (!(defect instanceof Error)) return { name: typeof defect, at: undefined };
  const frames = defect.stack?.split('\n').filter((line) => line.startsWith('    at '));
  return { name: defect.name, at: frames?.[0]?.trim() };
}
