import { WarmpathError, type Warning } from '@warmpath/core';
import { isObject } from '../intake/apis/content-texts.js';
import { type JsonObject, type JsonPath, pathName } from '../intake/apis/request-texts.js';
import { JsonView } from '../intake/json-view.js';
import { type JsonText, RawJson } from './raw-json.js';

/** Characters from which on looking a text up in the body takes less than writing it anew. */
const LONG = 200;

/** A request that is being translated: its values, its text, and what could not be said. */
export class RequestSource {
  readonly body: JsonObject;
  readonly #view: JsonView;
  readonly #leftOut: Warning[] = [];

  /** `body`: what `JSON.parse` made of `text`. */
  constructor(text: string, body: JsonObject) {
    this.body = body;
    this.#view = new JsonView(text);
  }

  /** What was left out; nothing of it belongs to the conversation. */
  get leftOut(): readonly Warning[] {
    return this.#leftOut;
  }

  /** The value at that place as the client wrote it, for `writeJson`. */
  raw(place: JsonPath): RawJson | undefined {
    const view = this.#view.at(place);
    return view === undefined ? undefined : new RawJson(view.raw);
  }

  /** The text that stands at that place. Error: `WARMPATH_INVALID_REQUEST` if `value`, which stands there, is none. */
  text(value: unknown, place: JsonPath): JsonText {
    const text = stringAt(value, place);
    return text.length < LONG ? text : this.raw(place)!;
  }

  /** A wish that has no equivalent, and without which the answer is still an answer: it is left out, and said to be. */
  leaveOut(place: JsonPath): void {
    const path = pathName(place);
    const message = 'Chat completions have no equivalent; it was left out.';
    this.#leftOut.push({ code: 'WARMPATH_NOT_TRANSLATABLE', path, message });
  }

  /** Leaves a member out unless it says nothing. */
  leaveOutIfGiven(key: string): void {
    if (isGiven(this.body[key])) this.leaveOut([key]);
  }

  /** Refuses a member unless it says nothing. Error: `WARMPATH_NOT_TRANSLATABLE`. */
  refuseIfGiven(key: string): void {
    if (isGiven(this.body[key])) throw notTranslatable([key]);
  }

  /** Members that mean the same in both APIs, or that only the engine knows, as the client wrote them. */
  others(known: ReadonlySet<string>): Readonly<Record<string, RawJson | undefined>> {
    const keys = Object.keys(this.body).filter((key) => !known.has(key));
    return Object.fromEntries(keys.map((key) => [key, this.raw([key])]));
  }
}

/** A part of the conversation, or a wish that the answer hangs on, for which chat completions have no equivalent. */
export function notTranslatable(place: JsonPath, what?: string): WarmpathError {
  const detail = `${what ?? 'Chat completions have no equivalent for this'}, and the engine speaks nothing else.`;
  return new WarmpathError('WARMPATH_NOT_TRANSLATABLE', { path: pathName(place), detail });
}

/** Error: `WARMPATH_INVALID_REQUEST` where an object was expected. */
export function objectAt(value: unknown, place: JsonPath): JsonObject {
  if (isObject(value)) return value;
  throw wrongType(place, 'an object');
}

/** Error: `WARMPATH_INVALID_REQUEST` where a string was expected. */
export function stringAt(value: unknown, place: JsonPath): string {
  if (typeof value === 'string') return value;
  throw wrongType(place, 'a string');
}

/** Nothing, if it was not given. Error: `WARMPATH_INVALID_REQUEST` where an array was expected. */
export function arrayAt(value: unknown, place: JsonPath): readonly unknown[] {
  if (value === undefined || value === null) return [];
  if (Array.isArray(value)) return value;
  throw wrongType(place, 'an array');
}

export function wrongType(place: JsonPath, expected: string): WarmpathError {
  return new WarmpathError('WARMPATH_INVALID_REQUEST', { path: pathName(place), detail: `${expected} was expected` });
}

/** Whether a value asks for something: not what stands for nothing. */
export function isGiven(value: unknown): boolean {
  if (value === undefined || value === null || value === false || value === '') return false;
  return !Array.isArray(value) || value.length > 0;
}
