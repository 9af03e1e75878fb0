/**
 * Events in virtual time: the earliest first, and of several at the same time the one that was added first. A binary
 * heap: O(log n).
 */
export class EventQueue<Event> {
  readonly #times: number[] = [];
  readonly #numbers: number[] = [];
  readonly #events: Event[] = [];
  #added = 0;

  get size(): number {
    return this.#times.length;
  }

  /** Time of the next event; infinite if there is none. */
  get nextTime(): number {
    return this.#times[0] ?? Number.POSITIVE_INFINITY;
  }

  add(time: number, event: Event): void {
    let place = this.#times.length;
    this.#put(place, time, this.#added++, event);
    while (place > 0) {
      const parent = (place - 1) >> 1;
      if (!this.#isBefore(place, parent)) return;
      this.#swap(place, parent);
      place = parent;
    }
  }

  /** Takes the next event out; undefined if there is none. */
  take(): Event | undefined {
    const last = this.#times.length - 1;
    if (last < 0) return undefined;
    this.#swap(0, last);
    this.#times.pop();
    this.#numbers.pop();
    const event = this.#events.pop();
    let place = 0;
    for (;;) {
      const left = 2 * place + 1;
      if (left >= last) return event;
      const right = left + 1;
      const least = right < last && this.#isBefore(right, left) ? right : left;
      if (!this.#isBefore(least, place)) return event;
      this.#swap(least, place);
      place = least;
    }
  }

  #isBefore(a: number, b: number): boolean {
    const [timeA, timeB] = [this.#times[a]!, this.#times[b]!];
    return timeA < timeB || (timeA === timeB && this.#numbers[a]! < this.#numbers[b]!);
  }

  #swap(a: number, b: number): void {
    const [time, number, event] = [this.#times[a]!, this.#numbers[a]!, this.#events[a]!];
    this.#put(a, this.#times[b]!, this.#numbers[b]!, this.#events[b]!);
    this.#put(b, time, number, event);
  }

  #put(place: number, time: number, number: number, event: Event): void {
    this.#times[place] = time;
    this.#numbers[place] = number;
    this.#events[place] = event;
  }
}
