/** The blank line behind an event. */
const EVENT_END = /\r\n\r\n|\n\r?\n|\r\r/g;
/** Bytes of an event that is held until it is complete. A longer one passes as it comes. */
const MAX_EVENT_BYTES = 16_777_216;

const NOTHING = Buffer.alloc(0);

/** Divides a stream into its events, each with the blank line behind it. */
export class EventSplitter {
  /** The beginning of an event that is not complete. */
  #held: Buffer = NOTHING;

  /** The events that are complete now. O(bytes). */
  take(chunk: Buffer): readonly Buffer[] {
    const bytes = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    const events: Buffer[] = [];
    let from = 0;
    for (const { index, 0: end } of bytes.toString('latin1').matchAll(EVENT_END)) {
      events.push(bytes.subarray(from, index + end.length));
      from = index + end.length;
    }
    this.#held = bytes.subarray(from);
    if (this.#held.length > MAX_EVENT_BYTES) events.push(this.rest());
    return events;
  }

  /** The beginning of an event that did not end. It is held no longer. */
  rest(): Buffer {
    const rest = this.#held;
    this.#held = NOTHING;
    return rest;
  }
}
