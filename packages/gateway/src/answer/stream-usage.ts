import type { WarmpathError } from '@warmpath/core';
import type { PromptApi } from '../apis/prompt-view.js';
import type { ResponseBody, ResponseHead } from '../apis/response-body.js';
import type { Dialect } from '../dialects/dialects.js';
import { applyEdits, BodyView } from '../json/json-body.js';
import { isObject } from '../json/json-scanner.js';
import { EventSplitter } from './event-splitter.js';
import { asObject } from './read-answer.js';

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
  readonly #events = new EventSplitter();

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
    return this.#pass(this.#events.take(chunk).map((event) => this.#event(event)));
  }

  end(): { readonly head?: ResponseHead; readonly rest: string } {
    const rest = this.#pass([this.#event(this.#events.rest())]).toString();
    const end = this.#inner.end();
    return { ...end, rest: rest + end.rest };
  }

  broken(error: WarmpathError): string {
    return this.#pass([this.#events.rest()]).toString() + this.#inner.broken(error);
  }

  #pass(events: readonly Buffer[]): Buffer | string {
    const bytes = Buffer.concat(events);
    return bytes.length === 0 ? NOTHING : this.#inner.data(bytes);
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
