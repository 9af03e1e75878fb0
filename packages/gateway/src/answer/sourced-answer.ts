import type { Arrangement, WarmpathError } from '@warmpath/core';
import { isStreamHead, type ResponseBody, type ResponseHead } from '../apis/prompt-apis.js';
import type { ApiName } from '../apis/prompt-view.js';
import { applyEdits, BodyView } from '../json/json-body.js';
import type { Sources } from '../shapes/shapes.js';
import { EventSplitter } from './event-splitter.js';

/** The line by which the last event of a stream is known. The sources stand before this event, or in it. */
const LAST_EVENT: Readonly<Record<ApiName, RegExp>> = {
  chat: /^data: ?\[DONE\]/m,
  completions: /^data: ?\[DONE\]/m,
  messages: /^event: ?message_stop/m,
  responses: /^event: ?response\.(?:completed|incomplete|failed)/m,
};
/** Event type for Messages, whose clients skip unknown types. */
const SOURCES_EVENT = 'warmpath.sources';
const NOTHING = Buffer.alloc(0);

/**
 * Adds the retrieved passages to an answer as `warmpath.sources`; all other bytes stay. In a stream they stand where
 * unaware clients skip them: in an event without choices (chat completions), in an event of an unknown type (Messages),
 * or in the response of the last event (Responses, whose official client fails at unknown types).
 */
export class SourcedAnswer implements ResponseBody {
  readonly #answer: ResponseBody;
  readonly #api: ApiName;
  readonly #sources: Sources;
  /** Labels in the prompt, by document id. */
  readonly #labels: ReadonlyMap<string, string>;
  #kind: 'untouched' | 'stream' | 'object' = 'untouched';
  #head: ResponseHead = { status: 0, headers: {} };
  readonly #events = new EventSplitter();
  /** All of an object. */
  readonly #parts: Buffer[] = [];
  #hasSources = false;

  /** @param answer Turns the engine's answer into the client's API first. */
  constructor(
    answer: ResponseBody,
    { api, sources, arrangements }: { api: ApiName; sources: Sources; arrangements: readonly Arrangement[] },
  ) {
    this.#answer = answer;
    this.#api = api;
    this.#sources = sources;
    this.#labels = new Map(arrangements.flatMap(({ documents }) => documents.map(({ id, label }) => [id, label])));
  }

  head(head: ResponseHead): ResponseHead | undefined {
    const own = this.#answer.head(head);
    if (own === undefined) {
      this.#kind = 'object';
      return undefined;
    }
    const type = own.headers['content-type'] ?? '';
    const isReadable = own.status === 200 && own.headers['content-encoding'] === undefined;
    if (isReadable && isStreamHead(own)) this.#kind = 'stream';
    if (isReadable && type.startsWith('application/json')) this.#kind = 'object';
    this.#head = own;
    return this.#kind === 'object' ? undefined : own;
  }

  data(chunk: Buffer): Buffer | string {
    const own = this.#answer.data(chunk);
    if (this.#kind === 'untouched' || own.length === 0) return own;
    const bytes = typeof own === 'string' ? Buffer.from(own) : own;
    if (this.#kind === 'object') {
      this.#parts.push(bytes);
      return NOTHING;
    }
    return this.#stream(bytes);
  }

  end(): { readonly head?: ResponseHead; readonly rest: string } {
    const { head = this.#head, rest } = this.#answer.end();
    if (this.#kind === 'object') {
      const { status, headers } = head;
      const whole = Buffer.concat([...this.#parts, Buffer.from(rest)]);
      const body = status === 200 ? this.#extend(whole) : whole;
      return {
        head: { status, headers: { ...headers, 'content-length': String(body.length) } },
        rest: body.toString(),
      };
    }
    if (this.#kind === 'untouched') return { rest };
    const last = Buffer.concat([this.#stream(Buffer.from(rest)), this.#event(this.#events.rest())]);
    const isAdded = this.#hasSources || this.#api === 'responses';
    return { rest: isAdded ? last.toString() : last.toString() + this.#sourcesEvent() };
  }

  broken(error: WarmpathError): string {
    return this.#events.rest().toString() + this.#answer.broken(error);
  }

  #stream(bytes: Buffer): Buffer {
    return Buffer.concat(this.#events.take(bytes).map((event) => this.#event(event)));
  }

  /** Adds the sources to the last event. */
  #event(event: Buffer): Buffer {
    if (this.#hasSources || !LAST_EVENT[this.#api].test(event.toString('latin1'))) return event;
    this.#hasSources = true;
    if (this.#api === 'responses') return this.#withSources(event);
    return Buffer.concat([Buffer.from(this.#sourcesEvent()), event]);
  }

  /** The last event with the sources in its response; unchanged if it has no response. */
  #withSources(event: Buffer): Buffer {
    const line = /^data: ?(\{.*\})\r?$/m.exec(event.toString('latin1'));
    if (line === null) return event;
    const from = line.index + line[0].indexOf('{');
    const data = event.subarray(from, from + line[1]!.length);
    try {
      const view = new BodyView(data);
      const response = view.value('response');
      if (response === undefined || !view.scan.isObject(response)) return event;
      const extended = this.#extend(data.subarray(response.start, response.end));
      const whole = applyEdits(data, [{ ...response, pieces: [extended] }]);
      return Buffer.concat([event.subarray(0, from), whole, event.subarray(from + data.length)]);
    } catch {
      return event;
    }
  }

  #sourcesJson(): string {
    const sources = this.#sources.passages.map(({ id, title, content, metadata, score }) => {
      const { source, sources, pages, lines } = metadata ?? {};
      return { id, label: this.#labels.get(id.slice(-500)), title, score, source, sources, pages, lines, content };
    });
    return JSON.stringify({ sources, ...this.#sources.clientWarnings });
  }

  #sourcesEvent(): string {
    const field = `"warmpath":${this.#sourcesJson()}`;
    if (this.#api === 'messages') {
      return `event: ${SOURCES_EVENT}\ndata: {"type":"${SOURCES_EVENT}",${field}}\n\n`;
    }
    return `data: {"id":"sources","object":"chat.completion.chunk","created":0,"model":"","choices":[],${field}}\n\n`;
  }

  #extend(body: Buffer): Buffer {
    try {
      return applyEdits(body, [new BodyView(body).with('warmpath', this.#sourcesJson())]);
    } catch {
      return body;
    }
  }
}
