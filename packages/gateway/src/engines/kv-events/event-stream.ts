/** Receives the batches of an engine once each, in the order of their numbers. */
export interface EventSink {
  /** The engine restarted: its cache is empty. */
  began(): void;
  batch(payload: Uint8Array): void;
  /** Batches are lost. */
  lost(): void;
}

/** A received batch with its number. */
export interface NumberedBatch {
  readonly sequence: number;
  readonly payload: Uint8Array;
}

export interface EventStreamOptions {
  readonly sink: EventSink;
  /**
   * Requests the batches that the engine keeps from a number on, oldest first and without a hole, as far as they come;
   * `undefined` if engines are not asked. Rejects if the engine does not answer.
   */
  readonly replay: ((from: number) => Promise<readonly NumberedBatch[]>) | undefined;
}

/** Figures of a stream, since the start. */
export interface EventStreamCounts {
  batches: number;
  /** Gaps in the numbers, and batches received by replays. */
  gaps: number;
  replayed: number;
  /** Batches received twice. */
  duplicates: number;
  /** Restarts of the engine. */
  restarts: number;
  /** Times that batches were lost. */
  losses: number;
}

/** Batches that wait for a replay, and their bytes. Beyond that, the replay is given up. */
const MAX_WAITING = 10_000;
const MAX_WAITING_BYTES = 32 * 1024 * 1024;

/**
 * Puts the batches of one publisher in order, without sockets or clocks.
 *
 * Publishers count from 0. A restarted engine counts anew, with an empty cache (llm-d/llm-d-router#2853): seen by a
 * lower number, or after a gap or a broken connection by another batch under a delivered number. Missing batches are
 * requested again, while live ones wait. The sink is told about lost ones.
 */
export class EventStream {
  readonly counts: EventStreamCounts = { batches: 0, gaps: 0, replayed: 0, duplicates: 0, restarts: 0, losses: 0 };
  readonly #sink: EventSink;
  readonly #replay: EventStreamOptions['replay'];
  /** Number of the next batch for the sink. */
  #next = 0;
  /** The highest live number. A lower one means a restart. */
  #latest = -1;
  /** The batch with that number. The same batch again is no restart. */
  #latestPayload: Uint8Array | undefined;
  #hasBegun = false;
  /** The last delivered batch. A publisher with another batch under its number has restarted. */
  #last: Uint8Array | undefined;
  /** Whether the connection broke since the last batch. */
  #isSuspect = false;
  /** Live batches behind a requested gap; `undefined` without one. */
  #waiting: NumberedBatch[] | undefined;
  #waitingBytes = 0;
  /** Rises with each restart, so that late answers to earlier requests are dropped. */
  #epoch = 0;

  constructor({ sink, replay }: EventStreamOptions) {
    this.#sink = sink;
    this.#replay = replay;
  }

  /** Number of the next expected batch. */
  get next(): number {
    return this.#next;
  }

  /** Receives a live batch. */
  receive(batch: NumberedBatch): void {
    const { sequence, payload } = batch;
    if (sequence === this.#latest && this.#latestPayload !== undefined && !this.#isSuspect) {
      if (Buffer.compare(payload, this.#latestPayload) === 0) {
        this.counts.duplicates++;
        return;
      }
    }
    if (sequence <= this.#latest) this.#restart();
    this.#latestPayload = payload;
    this.#latest = sequence;
    const isSuspect = this.#isSuspect && this.#replay !== undefined;
    this.#isSuspect = false;
    if (this.#waiting !== undefined) this.#wait(batch);
    else if (isSuspect) this.#askBefore([batch]);
    else if (sequence < this.#next) this.counts.duplicates++;
    else if (sequence === this.#next) this.#deliver(batch);
    else this.#askBefore([batch]);
  }

  /** The connection broke. The engine may have restarted and reached the same number. */
  disconnected(): void {
    this.#isSuspect = true;
  }

  #restart(): void {
    this.counts.restarts++;
    this.#epoch++;
    this.#waiting = undefined;
    this.#next = 0;
    this.#hasBegun = false;
    this.#last = undefined;
  }

  #wait(batch: NumberedBatch): void {
    this.#waiting!.push(batch);
    this.#waitingBytes += batch.payload.length;
    if (this.#waiting!.length <= MAX_WAITING && this.#waitingBytes <= MAX_WAITING_BYTES) return;
    this.#epoch++;
    this.#goOn([]);
  }

  /** Connected: requests what the engine has published before. An idle engine publishes nothing to notice that by. */
  connected(): void {
    if (this.#replay !== undefined && this.#waiting === undefined) this.#ask([]);
  }

  /** Requests the batches that are missing before these. */
  #askBefore(waiting: NumberedBatch[]): void {
    this.counts.gaps++;
    this.#ask(waiting);
  }

  #ask(waiting: NumberedBatch[]): void {
    this.#waiting = waiting;
    this.#waitingBytes = waiting.reduce((sum, { payload }) => sum + payload.length, 0);
    if (this.#replay === undefined) {
      this.#goOn([]);
      return;
    }
    const epoch = this.#epoch;
    // Includes the batch before: it shows whether the engine has restarted.
    this.#replay(Math.max(0, this.#next - 1)).then(
      (batches) => {
        if (epoch !== this.#epoch) return;
        if (batches.length === 0 && this.#waiting!.length === 0) this.#goOnEmpty();
        else this.#goOn(batches);
      },
      () => {
        if (epoch === this.#epoch) this.#goOn([]);
      },
    );
  }

  /** The engine keeps no batch, so it has published none since its start. */
  #goOnEmpty(): void {
    this.#waiting = undefined;
    this.#isSuspect = false;
    if (this.#next > 0) {
      this.#restart();
      this.#latest = -1;
    }
    this.#begin();
  }

  /**
   * Ends a replay: delivers its batches, then those that waited. Missing ones are lost, except those sent after its
   * end, which are requested again.
   */
  #goOn(replayed: readonly NumberedBatch[]): void {
    const waiting = this.#waiting!;
    this.#waiting = undefined;
    const again = replayed.find(({ sequence }) => sequence === this.#next - 1);
    if (again !== undefined && this.#last !== undefined && Buffer.compare(again.payload, this.#last) !== 0) {
      this.#restart();
      this.#askBefore(waiting);
      return;
    }
    const before = this.#next;
    for (const batch of replayed) {
      if (batch.sequence < this.#next) continue;
      this.counts.replayed++;
      this.#deliverBehindGap(batch);
    }
    const hasBrought = this.#next > before;
    if (hasBrought && waiting.length === 0) this.#ask([]);
    for (const [place, batch] of waiting.entries()) {
      if (batch.sequence > this.#next && hasBrought) {
        this.#askBefore(waiting.slice(place));
        return;
      }
      if (batch.sequence < this.#next) this.counts.duplicates++;
      else this.#deliverBehindGap(batch);
    }
  }

  #deliverBehindGap(batch: NumberedBatch): void {
    this.#begin();
    if (batch.sequence > this.#next) {
      this.counts.losses++;
      this.#sink.lost();
    }
    this.#deliver(batch);
  }

  #begin(): void {
    if (this.#hasBegun) return;
    this.#hasBegun = true;
    this.#sink.began();
  }

  #deliver({ sequence, payload }: NumberedBatch): void {
    this.#begin();
    this.#next = sequence + 1;
    this.#last = payload;
    this.counts.batches++;
    this.#sink.batch(payload);
  }
}
