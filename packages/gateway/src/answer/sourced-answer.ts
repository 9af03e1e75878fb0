import type { Arrangement, WarmpathError } from '@warmpath/core';
import type { ApiName } from '../apis/prompt-api.js';
import type { ResponseBody, ResponseHead } from '../apis/response-body.js';
import { applyEdits, BodyView } from '../json/json-body.js';
import type { Sources } from '../shapes/shapes.js';

/** Beginnings of the line that ends a stream. The sources stand before it, or in its event. */
const LAST_LINES: Readonly<Record<ApiName, readonly string[]>> = {
  chat: ['data: [DONE]', 'data:[DONE]'],
  completions: ['data: [DONE]', 'data:[DONE]'],
  messages: ['event: message_stop', 'event:message_stop'],
  responses: ['completed', 'incomplete', 'failed'].flatMap((end) => [
    `event: response.${end}`,
    `event:response.${end}`,
  ]),
};
/** Bytes of a line that tell whether it is the last. */
const MAX_LAST_LINE_BYTES = Math.max(
  ...Object.values(LAST_LINES).flatMap((lines) => lines.map(({ length }) => length)),
);
/** Event type for Messages, whose clients skip unknown types. */
const SOURCES_EVENT = 'warmpath.sources';
const NOTHING = Buffer.alloc(0);
const NEWLINE = 10;

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
  /** All of an object; of a stream, the beginning of a line that may be its last. */
  #held: Buffer[] = [];
  #isLineStart = true;
  #hasSources = false;
  /** Whether the held bytes are the last event. */
  #holdsLast = false;

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
    if (isReadable && type.startsWith('text/event-stream')) this.#kind = 'stream';
    if (isReadable && type.startsWith('application/json')) this.#kind = 'object';
    this.#head = own;
    return this.#kind === 'object' ? undefined : own;
  }

  data(chunk: Buffer): Buffer | string {
    const own = this.#answer.data(chunk);
    if (this.#kind === 'untouched' || this.#hasSources || own.length === 0) return own;
    const bytes = typeof own === 'string' ? Buffer.from(own) : own;
    if (this.#kind === 'object') {
      this.#held.push(bytes);
      return NOTHING;
    }
    return this.#stream(this.#held.length === 0 ? bytes : Buffer.concat([...this.#held.splice(0), bytes]));
  }

  end(): { readonly head?: ResponseHead; readonly rest: string } {
    const { head = this.#head, rest } = this.#answer.end();
    if (this.#kind === 'object') {
      const { status, headers } = head;
      const whole = Buffer.concat([...this.#held, Buffer.from(rest)]);
      const body = status === 200 ? this.#extend(whole) : whole;
      return {
        head: { status, headers: { ...headers, 'content-length': String(body.length) } },
        rest: body.toString(),
      };
    }
    if (this.#kind === 'untouched' || this.#hasSources) return { rest };
    const passed = this.#stream(Buffer.concat([...this.#held.splice(0), Buffer.from(rest)])).toString();
    const held = Buffer.concat(this.#held);
    if (this.#hasSources) return { rest: passed };
    if (this.#api === 'responses') return { rest: `${passed}${this.#withSources(held).toString()}` };
    return { rest: `${passed}${held.toString()}${this.#sourcesEvent()}` };
  }

  broken(error: WarmpathError): string {
    return this.#answer.broken(error);
  }

  /** Passes lines on until the last one, and adds the sources there. */
  #stream(bytes: Buffer): Buffer {
    if (this.#holdsLast) return this.#holdLastEvent(bytes);
    let at = 0;
    for (;;) {
      if (this.#isLineStart) {
        const line = bytes.toString('latin1', at, at + MAX_LAST_LINE_BYTES);
        const last = LAST_LINES[this.#api];
        if (last.some((beginning) => line.startsWith(beginning))) {
          if (this.#api === 'responses') {
            this.#holdsLast = true;
            return Buffer.concat([bytes.subarray(0, at), this.#holdLastEvent(bytes.subarray(at))]);
          }
          this.#hasSources = true;
          return Buffer.concat([bytes.subarray(0, at), Buffer.from(this.#sourcesEvent()), bytes.subarray(at)]);
        }
        if (last.some((beginning) => beginning.startsWith(line))) {
          this.#held = [bytes.subarray(at)];
          return bytes.subarray(0, at);
        }
      }
      const end = bytes.indexOf(NEWLINE, at);
      this.#isLineStart = end >= 0;
      if (end < 0) return bytes;
      at = end + 1;
    }
  }

  /** Holds the last event until it is complete. */
  #holdLastEvent(bytes: Buffer): Buffer {
    const ends = ['\n\n', '\r\n\r\n'].map((end) => ({ at: bytes.indexOf(end), length: end.length }));
    const end = ends.find(({ at }) => at >= 0);
    if (end === undefined) {
      this.#held = [bytes];
      return NOTHING;
    }
    this.#hasSources = true;
    const behind = end.at + end.length;
    return Buffer.concat([this.#withSources(bytes.subarray(0, behind)), bytes.subarray(behind)]);
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
      return { id, label: this.#labels.get(id.slice(-500)), title, score, source: metadata?.['source'], content };
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
