/** Batches of an engine, in the order of their numbers. What reads them hears of each batch once. */
export interface EventSink {
  /** The engine's cache is empty, and the next batch is its first. */
  began(): void;
  batch(payload: Uint8Array): void;
  /** Batches are gone for good. */
  lost(): void;
}

/** A batch with its number, as it came over the wire. */
export interface NumberedBatch {
  readonly sequence: number;
  readonly payload: Uint8Array;
}

export interface EventStreamOptions {
  readonly sink: EventSink;
  /**
   * Asks the engine for what it keeps from a number on: the batches, the oldest first. `undefined` where engines are
   * not asked. Rejects when the engine does not answer.
   */
  readonly replay: ((from: number) => Promise<readonly NumberedBatch[]>) | undefined;
}

/** Figures of a stream, since the start. */
export interface EventStreamCounts {
  batches: number;
  /** Breaks in the numbers, and batches that replays brought. */
  gaps: number;
  replayed: number;
  /** Batches that came again. */
  duplicates: number;
  /** Engines that began to count anew. */
  restarts: number;
  /** Times that batches were gone for good. */
  losses: number;
}

/** Live batches that wait for a replay, and their bytes; beyond, the replay is given up. */
const MAX_WAITING = 10_000;
const MAX_WAITING_BYTES = 32 * 1024 * 1024;

/**
 * Puts the batches of one publisher in order. Publishers count from 0 on and begin anew when the engine restarts, with
 * an empty cache (llm-d/llm-d-router#2853), which shows in a lower number or, behind a gap or a broken connection, in
 * another batch under a number that was delivered. A gap, or a first batch that is not number 0, is asked for again;
 * what the engine does not keep any more is lost, and the sink learns it. Live batches wait meanwhile. Nothing here
 * knows sockets or clocks.
 */
export class EventStream {
  readonly counts: EventStreamCounts = { batches: 0, gaps: 0, replayed: 0, duplicates: 0, restarts: 0, losses: 0 };
  readonly #sink: EventSink;
  readonly #replay: EventStreamOptions['replay'];
  /** The number of the next batch for the sink. */
  #next = 0;
  /** The highest number that came live; lower ones mean that the engine began anew. */
  #latest = -1;
  /** What came under that number: the same again is no new engine. */
  #latestPayload: Uint8Array | undefined;
  #hasBegun = false;
  /** The batch delivered last: a publisher that keeps another one under its number has begun anew. */
  #last: Uint8Array | undefined;
  /** Whether the connection broke since the last batch. */
  #isSuspect = false;
  /** Live batches behind a gap that is being asked for; `undefined` while there is none. */
  #waiting: NumberedBatch[] | undefined;
  #waitingBytes = 0;
  /** Rises with each engine, so that late answers to an earlier one are dropped. */
  #epoch = 0;

  constructor({ sink, replay }: EventStreamOptions) {
    this.#sink = sink;
    this.#replay = replay;
  }

  /** The number of the batch that is awaited. */
  get next(): number {
    return this.#next;
  }

  /** A batch came live. */
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

  /** The connection broke: the engine may have begun anew, and got as far as it was before. */
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

  /** Asks for what is missing before these batches. */
  #askBefore(waiting: NumberedBatch[]): void {
    this.counts.gaps++;
    this.#waiting = waiting;
    this.#waitingBytes = waiting.reduce((sum, { payload }) => sum + payload.length, 0);
    if (this.#replay === undefined) {
      this.#goOn([]);
      return;
    }
    const epoch = this.#epoch;
    // With the one before, which tells whether it is still the same engine.
    this.#replay(Math.max(0, this.#next - 1)).then(
      (batches) => {
        if (epoch === this.#epoch) this.#goOn(batches);
      },
      () => {
        if (epoch === this.#epoch) this.#goOn([]);
      },
    );
  }

  /**
   * The replay has ended: what it brought, then what waited. What it did not bring is lost, but for what was sent
   * behind its end, which is asked for again.
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
