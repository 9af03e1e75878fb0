import type { WarmpathError } from '@warmpath/core';
import type { PromptApi } from '../apis/prompt-api.js';
import type { ResponseBody, ResponseHead } from '../apis/response-body.js';
import type { Dialect } from '../dialects/dialects.js';
import { applyEdits, BodyView } from '../json/json-body.js';
import { isObject } from '../json/json-scanner.js';
import { asObject } from './read-answer.js';

/** Bytes of an event that is held until it is complete. A longer one passes as it comes. */
const MAX_EVENT_BYTES = 1_048_576;

const USAGE = '"usage"';
const NULL_USAGE = /,\s*"usage"\s*:\s*null(?=\s*[,}])/;
const NOTHING = Buffer.alloc(0);

/**
 * The body that asks for the counts of a stream whose client did not ask. `undefined` for what is no such stream, and
 * for what cannot be read. O(body) for streams.
 */
export function askingForUsage(body: Buffer, api: PromptApi, dialect: Dialect): Buffer | undefined {
  if (dialect.streamUsage === undefined || (api.name !== 'chat' && api.name !== 'completions')) return undefined;
  if (!body.includes('"stream"')) return undefined;
  try {
    const view = new BodyView(body);
    const options = view.parse('stream_options') ?? {};
    if (view.parse('stream') !== true || !isObject(options) || options['include_usage'] === true) return undefined;
    return applyEdits(body, [view.with('stream_options', JSON.stringify({ ...options, include_usage: true }))]);
  } catch {
    return undefined;
  }
}

/**
 * Takes out of a stream what the engine added because the gateway asked for its counts: the event with them, and
 * `"usage":null` in the others where the engine writes that. All other bytes stay. An event is passed on when it is
 * complete.
 */
export class WithoutUsage implements ResponseBody {
  readonly #inner: ResponseBody;
  readonly #hasNulls: boolean;
  #isStream = false;
  #isAsked = true;
  #held: Buffer = NOTHING;

  constructor(inner: ResponseBody, { streamUsage }: Dialect) {
    this.#inner = inner;
    this.#hasNulls = streamUsage === 'event-and-nulls';
  }

  /** The engine was asked without it after all. */
  withdraw(): void {
    this.#isAsked = false;
  }

  head(head: ResponseHead): ResponseHead | undefined {
    const { status, headers } = head;
    const coding = headers['content-encoding'] ?? 'identity';
    this.#isStream =
      this.#isAsked &&
      status === 200 &&
      coding === 'identity' &&
      headers['content-type']?.startsWith('text/event-stream') === true;
    if (!this.#isStream) return this.#inner.head(head);
    const { 'content-length': _length, ...others } = headers;
    return this.#inner.head({ status, headers: others });
  }

  data(chunk: Buffer): Buffer | string {
    if (!this.#isStream) return this.#inner.data(chunk);
    const bytes = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    const end = bytes.length > MAX_EVENT_BYTES ? bytes.length : lastEventEnd(bytes);
    this.#held = bytes.subarray(end);
    const passed = this.#without(bytes.subarray(0, end));
    return passed.length === 0 ? NOTHING : this.#inner.data(passed);
  }

  end(): { readonly head?: ResponseHead; readonly rest: string } {
    const rest = this.#rest(true);
    const end = this.#inner.end();
    return { ...end, rest: rest + end.rest };
  }

  broken(error: WarmpathError): string {
    return this.#rest(false) + this.#inner.broken(error);
  }

  /** What is held of an event that did not end. */
  #rest(isWhole: boolean): string {
    const rest = isWhole ? this.#without(this.#held) : this.#held;
    this.#held = NOTHING;
    return rest.length === 0 ? '' : this.#inner.data(rest).toString();
  }

  /** Events without what was asked for. O(bytes), native where no event has counts. */
  #without(bytes: Buffer): Buffer {
    if (!bytes.includes(USAGE)) return bytes;
    const kept: Buffer[] = [];
    for (let from = 0; from < bytes.length; ) {
      const end = nextEventEnd(bytes, from);
      kept.push(this.#event(bytes.subarray(from, end)));
      from = end;
    }
    return Buffer.concat(kept);
  }

  #event(event: Buffer): Buffer {
    if (!event.includes(USAGE)) return event;
    const text = event.toString();
    const data = text.match(/^data:.*$/gm)?.map((line) => line.slice('data:'.length));
    const object = data && asObject(data.join('\n'));
    if (object === undefined) return event;
    const { usage, choices } = object;
    if (isObject(usage) && Array.isArray(choices) && choices.length === 0) return NOTHING;
    return usage === null && this.#hasNulls ? Buffer.from(text.replace(NULL_USAGE, '')) : event;
  }
}

const LF = 0x0a;
const CR = 0x0d;

/** Where the event that begins at `from` ends, its blank line included; the end of the bytes where it does not. */
function nextEventEnd(bytes: Buffer, from: number): number {
  for (let at = from; at < bytes.length; at++) {
    if (bytes[at] !== LF && bytes[at] !== CR) continue;
    const next = lineEnd(bytes, at);
    if (next < bytes.length && (bytes[next] === LF || bytes[next] === CR)) return lineEnd(bytes, next);
    at = next - 1;
  }
  return bytes.length;
}

/** Behind the end of a line that begins at `at`. */
function lineEnd(bytes: Buffer, at: number): number {
  return bytes[at] === CR && bytes[at + 1] === LF ? at + 2 : at + 1;
}

/** Where the last complete event ends; 0 where none is complete. */
function lastEventEnd(bytes: Buffer): number {
  for (let at = bytes.length - 1; at > 0; at--) {
    if (bytes[at] !== LF && bytes[at] !== CR) continue;
    const before = bytes[at - 1];
    // `\n\n`, `\r\r` and `\r\n\r\n` end an event; `\r\n` ends a line.
    if (before === bytes[at]) return at + 1;
    if (bytes[at] === LF && before === CR && bytes[at - 2] === LF) return at + 1;
  }
  return 0;
}
