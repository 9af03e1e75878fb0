import { estimateTokens } from '@warmpath/core';
import {
  type AnswerFailure,
  AnswerStepReader,
  ByteBuffer,
  bodyStart,
  failureOfText,
  SseReader,
} from '@warmpath/core/internal';
import { AnswerAssembly, type AnswerWriter, chatDeltas, NO_EVENTS } from './answer-assembly.js';
import { engineError, TranslateError } from './errors.js';
import { messagesToChat } from './messages-request.js';
import { messagesWriter } from './messages-writer.js';
import { RequestValue } from './request-value.js';
import { responsesToChat } from './responses-request.js';
import { ResponsesWriter, type StoredAs } from './responses-writer.js';

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
  /** How the response is stored, where it is. */
  readonly stored?: StoredAs | undefined;
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
  /** The whole answer as JSON, behind `end`, whether it was streamed or not. */
  whole(): string;
  /** In place of `end`: the last events of a stream, or a body with the error. An error of the engine goes before. */
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
export function translate({
  api,
  body,
  requestId,
  limitBytes,
  stored,
  keepSystem = false,
}: TranslateRequest): Translation {
  const request = RequestValue.parse(body.toString('utf8'));
  const toChat = api === 'messages' ? messagesToChat : responsesToChat;
  const { body: chat, leftOut, movedSystem, callForms } = toChat(request, { keepSystem });
  const wantsStream = request.get('stream').value === true;
  const promptTokens = wantsStream && api === 'messages' ? estimateTokens(chat) : undefined;
  const writer =
    api === 'messages' ? messagesWriter(promptTokens) : new ResponsesWriter(request.object(), callForms, stored);
  const model = request.get('model').value;
  const answer = new ChatAnswer(writer, {
    wantsStream,
    requestId,
    limitBytes: limitBytes ?? DEFAULT_LIMIT_BYTES,
    model: typeof model === 'string' ? model : '',
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
  /** Of the request. */
  readonly model: string;
}

const DONE = '[DONE]';
/** Characters of the engine's own words in an error of ours. */
const MAX_QUOTED_LENGTH = 200;
const JSON_TYPE = 'application/json; charset=utf-8';
const STREAM_TYPE = 'text/event-stream; charset=utf-8';

const OPEN_BRACE = 0x7b;
const LESS_THAN = 0x3c;

class ChatAnswer implements TranslatedAnswer {
  readonly #writer: AnswerWriter;
  readonly #options: ChatAnswerOptions;
  readonly #assembly: AnswerAssembly;
  readonly #steps = new AnswerStepReader();
  readonly #events: SseReader;
  /** The body of an answer that is no stream. */
  readonly #body = new ByteBuffer();
  #status = 0;
  /** Known from the first byte, because content types may be wrong. */
  #form: 'unknown' | 'stream' | 'whole' | 'error' = 'unknown';
  #isStreamed = false;
  /** Events that the client has not got. */
  #written: string[] = [];
  /** What the engine said in place of an answer. */
  #failure: AnswerFailure | undefined;
  /** A finish reason that is an error. */
  #badEnd: string | undefined;

  constructor(writer: AnswerWriter, options: ChatAnswerOptions) {
    this.#writer = writer;
    this.#options = options;
    this.#assembly = new AnswerAssembly(options.wantsStream ? writer : NO_EVENTS, options.model);
    const handler = {
      onData: (data: Uint8Array, isError: boolean) => this.#readData(textOf(data), isError),
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
    else if (/^text\/html\b/i.test(contentType)) throw neitherForm();
    const getsEvents = wantsStream && this.#form !== 'error';
    // What may be no stream keeps its status until its end.
    this.#isStreamed = getsEvents && !/^application\/json\b/i.test(contentType);
    return { contentType: getsEvents ? STREAM_TYPE : JSON_TYPE, isStreamed: this.#isStreamed };
  }

  write(chunk: Buffer): string {
    const bytes = this.#form === 'unknown' ? this.#begin(chunk) : chunk;
    if (this.#form === 'stream') this.#events.read(bytes);
    else {
      if (this.#body.length + bytes.length > this.#options.limitBytes) this.#refuseLength();
      this.#body.append(bytes, 0, bytes.length);
    }
    return this.#isStreamed ? this.#takeWritten() : '';
  }

  end(): string {
    if (this.#form === 'error') {
      return this.#writer.engineError(textOf(this.#body.bytes), this.#status, this.#options.requestId);
    }
    if (this.#form === 'whole') this.#readData(textOf(this.#body.bytes), false);
    else this.#events.end();
    if (this.#badEnd !== undefined) this.#fail(endedBy(this.#badEnd));
    if (!this.#assembly.isFinished && (this.#form !== 'whole' || !this.#assembly.hasContent)) {
      throw new TranslateError('WARMPATH_UPSTREAM_CUT', 'The stream ended before the answer did.');
    }
    this.#written.push(this.#assembly.end());
    return this.#options.wantsStream ? this.#takeWritten() : this.whole();
  }

  whole(): string {
    return this.#writer.whole(this.#assembly.answer());
  }

  fail(failure: Pick<AnswerFailure, 'code' | 'message'>): string {
    const told = this.#failure ?? failure;
    if (!this.#isStreamed) return this.#writer.error(told, this.#options.requestId);
    this.#written.push(this.#assembly.fail(told));
    return this.#takeWritten();
  }

  /** The part of the first chunks that means something. */
  #begin(chunk: Buffer): Buffer {
    const bytes = chunk.subarray(bodyStart(chunk));
    const [first] = bytes;
    if (first === LESS_THAN) throw neitherForm();
    if (first !== undefined) this.#form = first === OPEN_BRACE ? 'whole' : 'stream';
    return bytes;
  }

  #readData(data: string, isError: boolean): void {
    if (data === DONE) return;
    const chunk = parseChunk(data);
    if (chunk === undefined) this.#fail(isError ? failureOfText(data) : notJson(data));
    for (const delta of chatDeltas(chunk, this.#steps)) {
      if (delta.kind === 'failure') this.#fail(delta.failure);
      // An error that says more may follow.
      else if (delta.kind === 'unfinished') this.#badEnd = delta.reason;
      else this.#written.push(this.#assembly.add(delta));
      if (this.#assembly.size > this.#options.limitBytes) this.#refuseLength();
    }
    if (isError) this.#fail(failureOfText(data));
  }

  #fail(failure: AnswerFailure): never {
    this.#failure = failure;
    throw engineError(failure.message, failure);
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

function neitherForm(): TranslateError {
  return engineError('The engine answered with neither JSON nor a stream.');
}

function endedBy(reason: string): AnswerFailure {
  const told = reason.slice(0, MAX_QUOTED_LENGTH);
  return { message: `The engine ended the answer with the finish reason \`${told}\`.`, code: null };
}

function notJson(data: string): AnswerFailure {
  return { message: `The engine sent what is not JSON: ${data.slice(0, MAX_QUOTED_LENGTH)}`, code: null };
}

/** `Buffer` decodes short texts in a third of the time that `TextDecoder` takes. */
function textOf(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('utf8');
}

function parseChunk(data: string): unknown {
  try {
    return JSON.parse(data);
  } catch {
    return undefined;
  }
}
