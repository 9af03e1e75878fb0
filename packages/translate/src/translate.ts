import { ByteBuffer, SseReader } from '@warmpath/core/internal';
import { AnswerAssembly, type AnswerWriter, chatDeltas, NO_EVENTS } from './answer-assembly.js';
import { type AnswerFailure, engineError, TranslateError } from './errors.js';
import { messagesToChat } from './messages-request.js';
import { messagesWriter } from './messages-writer.js';
import { RequestValue } from './request-value.js';
import { responsesToChat } from './responses-request.js';
import { ResponsesWriter } from './responses-writer.js';

/** The APIs that are translated: Anthropic's Messages and OpenAI's Responses. */
export type TranslatedApi = 'messages' | 'responses';

export interface TranslateRequest {
  /** The API that the client speaks. */
  readonly api: TranslatedApi;
  /** The body of its request: JSON. */
  readonly body: Buffer;
  /** The client's name for the request; errors of Messages repeat it as `request_id`. */
  readonly requestId?: string;
  /** The longest answer that is translated, in bytes; all of an answer is kept until its end. 32 MiB by default. */
  readonly limitBytes?: number;
  /** Whether system messages behind the first message keep their role; by default, they become the user's. */
  readonly keepSystem?: boolean;
}

/** A member of the request that chat completions have no equivalent for, and that was left out. */
export interface TranslateWarning {
  readonly code: 'WARMPATH_NOT_TRANSLATABLE';
  /** Its place in the body, for instance `reasoning.summary`. */
  readonly path: string;
  readonly message: string;
}

export interface Translation {
  /** The request for the engine: the body of `POST /v1/chat/completions`, JSON. */
  readonly body: string;
  /** What was left out: preferences, and what only the maker of a conversation can read. Each kind once. */
  readonly warnings: readonly TranslateWarning[];
  /** System messages that became the user's, in their place. */
  readonly movedSystem: number;
  /** The way back, for one answer to this request. */
  readonly answer: TranslatedAnswer;
}

/** What an engine's response says before its body. */
export interface EngineResponse {
  readonly status: number;
  /** `content-type`. */
  readonly contentType: string | undefined;
  /** `content-encoding`. */
  readonly contentEncoding?: string | undefined;
}

/** What the client's response says before its body; its status is the engine's. */
export interface ClientResponse {
  readonly contentType: string;
  /** Whether `write` returns text as the engine sends it; otherwise `end` returns all of it. */
  readonly isStreamed: boolean;
}

/**
 * Translates the engine's answer into the client's API: `start` once, `write` for every chunk, then `end`. Each may
 * throw a `TranslateError`; then, and when the connection to the engine breaks, `fail` says so to the client, in its
 * API.
 */
export interface TranslatedAnswer {
  start(response: EngineResponse): ClientResponse;
  /** Text for the client; empty if there is none yet. */
  write(chunk: Buffer): string;
  /** The engine's answer is complete: the rest of the text, or all of it. */
  end(): string;
  /** In place of `end`: the last events of a stream, or a body with the error. */
  fail(failure: Pick<AnswerFailure, 'code' | 'message'>): string;
}

const DEFAULT_LIMIT_BYTES = 33_554_432;

/**
 * Translates a request into chat completions, and prepares the way back. Members that nobody knows are copied as they
 * were written. O(body).
 *
 * @throws TranslateError with a path into the body: `WARMPATH_INVALID_JSON`, `WARMPATH_INVALID_REQUEST`, and
 *   `WARMPATH_NOT_TRANSLATABLE` for what changes the answer and has no equivalent.
 */
export function translate({ api, body, requestId, limitBytes, keepSystem = false }: TranslateRequest): Translation {
  const request = RequestValue.parse(body.toString('utf8'));
  const toChat = api === 'messages' ? messagesToChat : responsesToChat;
  const { body: chat, leftOut, movedSystem, callForms } = toChat(request, { keepSystem });
  const writer = api === 'messages' ? messagesWriter() : new ResponsesWriter(request.object(), callForms);
  const answer = new ChatAnswer(writer, {
    wantsStream: request.get('stream').value === true,
    requestId,
    limitBytes: limitBytes ?? DEFAULT_LIMIT_BYTES,
  });
  return { body: chat, warnings: warningsOf(leftOut), movedSystem, answer };
}

/** The first of each kind: a long session may have hundreds. */
function warningsOf(leftOut: readonly RequestValue[]): readonly TranslateWarning[] {
  const paths = new Map<string, string>();
  for (const { path, value } of leftOut) {
    const kind = `${path.replace(/\[\d+\]/g, '[]')} ${path.endsWith('.type') ? value : ''}`;
    if (!paths.has(kind)) paths.set(kind, path);
  }
  return [...paths.values()].map((path) => {
    const message = 'Chat completions have no equivalent; it was left out.';
    return { code: 'WARMPATH_NOT_TRANSLATABLE', path, message };
  });
}

interface ChatAnswerOptions {
  /**
   * A client that asked for a stream gets one, and any other gets one object, whichever of the two the engine sends.
   */
  readonly wantsStream: boolean;
  readonly requestId: string | undefined;
  readonly limitBytes: number;
}

const DONE = '[DONE]';
const JSON_TYPE = 'application/json; charset=utf-8';
const STREAM_TYPE = 'text/event-stream; charset=utf-8';

class ChatAnswer implements TranslatedAnswer {
  readonly #writer: AnswerWriter;
  readonly #options: ChatAnswerOptions;
  readonly #assembly: AnswerAssembly;
  readonly #events: SseReader;
  /** The body of an answer that is no stream. */
  readonly #body = new ByteBuffer();
  #status = 0;
  #form: 'stream' | 'whole' | 'error' = 'whole';
  #isStreamed = false;
  /** Events that the client has not got. */
  #written: string[] = [];
  /** Whether the engine has said that nothing follows. */
  #isDone = false;

  constructor(writer: AnswerWriter, options: ChatAnswerOptions) {
    this.#writer = writer;
    this.#options = options;
    this.#assembly = new AnswerAssembly(options.wantsStream ? writer : NO_EVENTS);
    const handler = {
      onData: (data: Uint8Array) => this.#readData(textOf(data)),
      onComment: () => this.#keepAlive(),
      onTooLong: () => this.#refuseLength(),
    };
    this.#events = new SseReader(handler, options.limitBytes);
  }

  start({ status, contentType = '', contentEncoding = 'identity' }: EngineResponse): ClientResponse {
    const { wantsStream } = this.#options;
    this.#status = status;
    if (contentEncoding !== 'identity') {
      throw engineError('The engine compressed an answer that has to be translated.');
    }
    if (status >= 300) this.#form = 'error';
    else if (contentType.startsWith('text/event-stream')) this.#form = 'stream';
    else if (!contentType.startsWith('application/json')) {
      throw engineError('The engine answered with neither JSON nor a stream.');
    }
    this.#isStreamed = wantsStream && this.#form === 'stream';
    const getsEvents = wantsStream && this.#form !== 'error';
    return { contentType: getsEvents ? STREAM_TYPE : JSON_TYPE, isStreamed: this.#isStreamed };
  }

  write(chunk: Buffer): string {
    if (this.#form === 'stream') this.#events.read(chunk);
    else {
      if (this.#body.length + chunk.length > this.#options.limitBytes) this.#refuseLength();
      this.#body.append(chunk, 0, chunk.length);
    }
    return this.#isStreamed ? this.#takeWritten() : '';
  }

  end(): string {
    if (this.#form === 'error') {
      return this.#writer.engineError(textOf(this.#body.bytes), this.#status, this.#options.requestId);
    }
    if (this.#form === 'stream') this.#events.end();
    else {
      this.#readData(textOf(this.#body.bytes));
      this.#isDone = true;
    }
    if (!this.#isDone && !this.#assembly.isFinished) {
      throw new TranslateError('WARMPATH_UPSTREAM_CUT', 'The stream ended before the answer did.');
    }
    this.#written.push(this.#assembly.end());
    return this.#options.wantsStream ? this.#takeWritten() : this.#writer.whole(this.#assembly.answer());
  }

  fail(failure: Pick<AnswerFailure, 'code' | 'message'>): string {
    if (!this.#isStreamed) return this.#writer.error(failure, this.#options.requestId);
    this.#written.push(this.#assembly.fail(failure));
    return this.#takeWritten();
  }

  #readData(data: string): void {
    if (data === DONE) {
      this.#isDone = true;
      return;
    }
    for (const delta of chatDeltas(parseChunk(data))) {
      const events = this.#assembly.add(delta);
      if (events !== '') this.#written.push(events);
      if (this.#assembly.size > this.#options.limitBytes) this.#refuseLength();
    }
  }

  #keepAlive(): void {
    if (this.#isStreamed) this.#written.push(':\n\n');
  }

  #refuseLength(): never {
    throw engineError(`The answer is longer than the ${this.#options.limitBytes} bytes that a translation takes.`);
  }

  #takeWritten(): string {
    const text = this.#written.join('');
    this.#written = [];
    return text;
  }
}

/** `Buffer` decodes short texts in a third of the time that `TextDecoder` takes. */
function textOf(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('utf8');
}

function parseChunk(data: string): unknown {
  try {
    return JSON.parse(data);
  } catch {
    throw engineError('The engine sent what is not JSON.');
  }
}
