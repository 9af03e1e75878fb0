import type { Arrangement, WarmpathError } from '@warmpath/core';
import type { ScoredDocument } from '@warmpath/retrieval';
import type { ResponseBody, ResponseHead } from '../answer/response-body.js';
import { chatApi } from '../intake/apis/chat-api.js';
import { errorShapeOf } from '../intake/apis/error-shape.js';
import { BodyView } from '../intake/body-view.js';
import { applyEdits } from '../intake/json-scanner.js';

/** The passages that an answer is made from, best first. A later stage of the search may rank them anew. */
export interface Sources {
  passages: readonly ScoredDocument[];
}

/** What ends a stream of chat completions. */
const DONE = ['data: [DONE]', 'data:[DONE]'];
const NOTHING = Buffer.alloc(0);
const NEWLINE = 10;

/**
 * The engine's answer with the passages it was made from: as `warmpath.sources` of the answer, or of one more event of
 * a stream, without a choice, which clients that do not know it pass over. Every other byte is the engine's.
 */
export class SourcedAnswer implements ResponseBody {
  readonly #sources: Sources;
  /** What the prompt calls each document. */
  readonly #labels: ReadonlyMap<string, string>;
  #kind: 'untouched' | 'stream' | 'object' = 'untouched';
  #head: ResponseHead = { status: 0, headers: {} };
  /** Of an object all of it; of a stream the beginning of a line that may be its last. */
  #held: Buffer[] = [];
  #isLineStart = true;
  #isSaid = false;

  constructor(sources: Sources, arrangements: readonly Arrangement[]) {
    this.#sources = sources;
    this.#labels = new Map(arrangements.flatMap(({ documents }) => documents.map(({ id, label }) => [id, label])));
  }

  head(head: ResponseHead): ResponseHead | undefined {
    const type = head.headers['content-type'] ?? '';
    const isReadable = head.status === 200 && head.headers['content-encoding'] === undefined;
    if (isReadable && type.startsWith('text/event-stream')) this.#kind = 'stream';
    if (isReadable && type.startsWith('application/json')) this.#kind = 'object';
    this.#head = head;
    return this.#kind === 'object' ? undefined : head;
  }

  data(chunk: Buffer): Buffer {
    if (this.#kind === 'untouched' || this.#isSaid) return chunk;
    if (this.#kind === 'object') {
      this.#held.push(chunk);
      return NOTHING;
    }
    return this.#stream(this.#held.length === 0 ? chunk : Buffer.concat([...this.#held.splice(0), chunk]));
  }

  end(): { readonly head?: ResponseHead; readonly rest: string } {
    const held = Buffer.concat(this.#held);
    if (this.#kind === 'object') {
      const body = this.#extended(held);
      const { status, headers } = this.#head;
      return {
        head: { status, headers: { ...headers, 'content-length': String(body.length) } },
        rest: body.toString(),
      };
    }
    if (this.#kind === 'untouched' || this.#isSaid) return { rest: '' };
    return { rest: `${held.toString()}${this.#event()}` };
  }

  broken(error: WarmpathError): string {
    return errorShapeOf(chatApi.path).event(error);
  }

  /** Passes lines on until the one that ends the stream, before which the event stands. */
  #stream(bytes: Buffer): Buffer {
    let at = 0;
    for (;;) {
      if (this.#isLineStart) {
        const line = bytes.toString('latin1', at, at + DONE[0]!.length);
        if (DONE.some((done) => line.startsWith(done))) {
          this.#isSaid = true;
          return Buffer.concat([bytes.subarray(0, at), Buffer.from(this.#event()), bytes.subarray(at)]);
        }
        if (DONE.some((done) => done.startsWith(line))) {
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

  #said(): string {
    const sources = this.#sources.passages.map(({ id, title, content, metadata, score }) => {
      return { id, label: this.#labels.get(id.slice(-500)), title, score, source: metadata?.['source'], content };
    });
    return JSON.stringify({ sources });
  }

  #event(): string {
    const event = `{"id":"sources","object":"chat.completion.chunk","created":0,"model":"","choices":[],"warmpath":${this.#said()}}`;
    return `data: ${event}\n\n`;
  }

  #extended(body: Buffer): Buffer {
    try {
      return applyEdits(body, [new BodyView(body).with('warmpath', this.#said())]);
    } catch {
      return body;
    }
  }
}
