import { WarmpathError } from '../errors.js';

/** Default bound of a scheduler's queue. */
const DEFAULT_QUEUE_CAPACITY = 65_536;

/** Below this many vacated places at the front, it is not worth moving the rest. */
const COMPACT_FROM = 64;

/**
 * Requests in order of arrival, each with the number of later ones that were taken before it. Taking from place `p`
 * costs O(p), so the head costs O(1) amortised.
 */
export class ArrivalQueue<Request> {
  readonly #capacity: number;
  #requests: (Request | undefined)[] = [];
  #overtaken: number[] = [];
  #head = 0;

  /** Error: `WARMPATH_INVALID_REQUEST` for a capacity that is no whole number above 0. */
  constructor(capacity: number = DEFAULT_QUEUE_CAPACITY) {
    checkCount(capacity, 'capacity');
    this.#capacity = capacity;
  }

  get size(): number {
    return this.#requests.length - this.#head;
  }

  /** Error: `WARMPATH_OVERLOADED` if the queue is full. */
  push(request: Request): void {
    if (this.size >= this.#capacity) throw new WarmpathError('WARMPATH_OVERLOADED');
    this.#requests.push(request);
    this.#overtaken.push(0);
  }

  /** The request at a place, 0 for the one that came first. */
  at(place: number): Request {
    return this.#requests[this.#head + place] as Request;
  }

  /** How often the request at a place was overtaken. Never less than any behind it. */
  overtakenAt(place: number): number {
    return this.#overtaken[this.#head + place]!;
  }

  /** Takes the request at a place out and counts that it overtook those before it. */
  overtake(place: number): Request {
    for (let before = this.#head; before < this.#head + place; before++) this.#overtaken[before]!++;
    return this.#take(place);
  }

  /** Takes a request out without a word about the others; false if it is not here. */
  remove(request: Request): boolean {
    const found = this.#requests.indexOf(request, this.#head);
    if (found < 0) return false;
    this.#take(found - this.#head);
    return true;
  }

  *[Symbol.iterator](): IterableIterator<Request> {
    for (let place = this.#head; place < this.#requests.length; place++) yield this.#requests[place] as Request;
  }

  #take(place: number): Request {
    const taken = this.at(place);
    // Those before the gap move up, for they are the fewer: candidates stand near the front.
    for (let at = this.#head + place; at > this.#head; at--) {
      this.#requests[at] = this.#requests[at - 1];
      this.#overtaken[at] = this.#overtaken[at - 1]!;
    }
    this.#requests[this.#head++] = undefined;
    if (this.#head >= COMPACT_FROM && this.#head * 2 >= this.#requests.length) this.#compact();
    return taken;
  }

  #compact(): void {
    this.#requests = this.#requests.slice(this.#head);
    this.#overtaken = this.#overtaken.slice(this.#head);
    this.#head = 0;
  }
}

/** Error: `WARMPATH_INVALID_REQUEST` at `path` for anything but a whole number above 0. */
export function checkCount(value: number, path: string): void {
  if (Number.isSafeInteger(value) && value > 0) return;
  throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path, detail: 'A whole number above 0 was expected.' });
}
