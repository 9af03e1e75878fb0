import { WarmpathError } from '@warmpath/core';
import type { ResponseBody, ResponseHead } from '../answer/response-body.js';
import type { ErrorShape } from '../intake/apis/error-shape.js';
import { AnswerAssembly, type AnswerWriter } from './answer-assembly.js';
import { type ChatDelta, chatDeltas } from './chat-deltas.js';
import { SseReader } from './sse.js';

/** What says how long a body is, or in which form; the translation is another one. */
const OF_THE_ORIGINAL = ['content-length', 'content-encoding', 'content-type', 'etag', 'content-md5'];

const DONE = '[DONE]';

export interface TranslatedBodyOptions {
  /** Whether the client asked for a stream. */
  readonly streamed: boolean;
  readonly errors: ErrorShape;
  readonly requestId: string;
  /** Longest answer that is taken, in bytes: all of it is kept until its end. */
  readonly limitBytes: number;
}

/**
 * A response of chat completions in the words of another API. A client that asked for a stream gets one, and any other gets
 * one object, whichever of the two the engine sends.
 */
export class TranslatedBody implements ResponseBody {
  readonly #options: TranslatedBodyOptions;
  readonly #assembly: AnswerAssembly;
  readonly #events: SseReader;
  #head: ResponseHead = { status: 0, headers: {} };
  #form: 'stream' | 'whole' | 'error' = 'whole';
  #held: Buffer[] = [];
  #heldBytes = 0;
  #written: string[] = [];
  #isDone = false;

  constructor(writer: AnswerWriter, options: TranslatedBodyOptions) {
    this.#options = options;
    this.#assembly = new AnswerAssembly(writer);
    this.#events = new SseReader(
      (data) => this.#read(data),
      // Engines keep a connection alive by comments.
      () => this.#written.push(':\n\n'),
    );
  }

  head(head: ResponseHead): ResponseHead | undefined {
    this.#head = head;
    const { status, headers } = head;
    const encoding = headers['content-encoding'];
    if (encoding !== undefined && encoding !== 'identity') {
      throw upstreamError('The engine compressed an answer that has to be translated.');
    }
    const type = headers['content-type'] ?? '';
    if (status >= 300) this.#form = 'error';
    else if (type.startsWith('text/event-stream')) this.#form = 'stream';
    else if (!type.startsWith('application/json'))
      throw upstreamError('The engine answered with neither JSON nor a stream.');
    const follows = this.#form === 'stream' && this.#options.streamed;
    return follows ? this.#clientHead('text/event-stream; charset=utf-8') : undefined;
  }

  data(chunk: Buffer): string {
    if (this.#form === 'stream') this.#events.read(chunk);
    else {
      this.#held.push(chunk);
      this.#heldBytes += chunk.length;
    }
    const kept = this.#heldBytes + this.#events.heldBytes + this.#assembly.length;
    if (kept > this.#options.limitBytes) {
      throw upstreamError(`The answer is longer than the ${this.#options.limitBytes} bytes that a translation takes.`);
    }
    // Of an answer in one piece, what its stream would have said is not kept.
    const written = this.#take();
    return this.#form === 'stream' && this.#options.streamed ? written : '';
  }

  end(): { readonly head?: ResponseHead; readonly rest: string } {
    const { streamed, errors, requestId } = this.#options;
    const text = Buffer.concat(this.#held).toString('utf8');
    this.#held = [];
    if (this.#form === 'error') return this.#whole(errors.translated(this.#head.status, text, requestId));
    if (this.#form === 'stream') this.#events.end();
    else this.#readWhole(text);
    if (!this.#isDone && !this.#assembly.isFinished) {
      throw new WarmpathError('WARMPATH_UPSTREAM_CUT', { detail: 'The stream ended before the answer did.' });
    }
    this.#written.push(this.#assembly.end());
    if (!streamed) return this.#whole(this.#assembly.whole());
    const rest = this.#take();
    return this.#form === 'stream' ? { rest } : { head: this.#clientHead('text/event-stream; charset=utf-8'), rest };
  }

  broken({ message, code }: WarmpathError): string {
    return this.#assembly.fail({ message, code });
  }

  #readWhole(text: string): void {
    this.#read(text);
    this.#isDone = true;
  }

  #read(data: string): void {
    if (data === DONE) {
      this.#isDone = true;
      return;
    }
    for (const delta of chatDeltas(parse(data))) {
      if (delta.kind === 'error') throw toldByEngine(delta);
      this.#written.push(this.#assembly.take(delta));
    }
  }

  #take(): string {
    const written = this.#written.join('');
    this.#written = [];
    return written;
  }

  #whole(rest: string): { readonly head: ResponseHead; readonly rest: string } {
    const head = this.#clientHead('application/json; charset=utf-8');
    return { head: { ...head, headers: { ...head.headers, 'content-length': String(Buffer.byteLength(rest)) } }, rest };
  }

  #clientHead(type: string): ResponseHead {
    const headers = { ...this.#head.headers };
    for (const name of OF_THE_ORIGINAL) delete headers[name];
    return { status: this.#head.status, headers: { ...headers, 'content-type': type } };
  }
}

function parse(data: string): unknown {
  try {
    return JSON.parse(data);
  } catch {
    throw upstreamError('The engine sent what is not JSON.');
  }
}

function toldByEngine({ message }: Extract<ChatDelta, { kind: 'error' }>): WarmpathError {
  return upstreamError(message);
}

function upstreamError(detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_UPSTREAM_ERROR', { detail });
}
