import { readServerSentEvents } from '@warmpath/client/internal';
import { WarmpathError } from '@warmpath/core';
import type { SessionList } from '@warmpath/gateway';
import { type Dispatcher, Pool } from 'undici';
import { errorOfServer } from './server-error.js';

/** How an OpenAI-compatible server is reached. */
export interface EngineAddress {
  /** With or without `/v1` at its end. */
  readonly url: string;
  /** Sent as a bearer token. */
  readonly apiKey?: string | undefined;
}

/** What one streamed answer was like, measured at the client. */
export interface MeasuredAnswer {
  readonly text: string;
  /** Milliseconds from sending the request to the first chunk with content; to the end, if the answer is empty. */
  readonly ttftMs: number;
  /** `undefined` where the engine does not report usage. */
  readonly promptTokens: number | undefined;
  /** `undefined` where the engine does not report cached tokens. */
  readonly cachedTokens: number | undefined;
  /** The response's headers, names in lower case. */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
}

interface Usage {
  readonly prompt_tokens?: number;
  readonly prompt_tokens_details?: { readonly cached_tokens?: number } | null;
}

/** One event of a streamed answer. */
interface Chunk {
  /** The engine's name of the model. */
  readonly model?: string;
  readonly choices?: readonly {
    readonly delta?: { readonly content?: string | null; readonly reasoning_content?: string | null };
  }[];
  readonly usage?: Usage | null;
  readonly error?: unknown;
  /** A gateway's own. */
  readonly warmpath?: unknown;
}

/** A streamed answer that has begun. */
interface ChatStream {
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly chunks: AsyncIterable<Chunk>;
}

/** What OpenAI, llama-server and vLLM say of a prompt that does not fit. */
const TOO_LONG = /context_length_exceeded|exceed_context_size_error|maximum (?:context|model) length/;

/** Milliseconds until the response begins: queueing and prefill of a long prompt on a slow machine. */
const TIMEOUT_MS = 300_000;
/** Milliseconds to open a connection. */
const CONNECT_MS = 10_000;

export interface EngineClientOptions {
  /** The monotonic clock; `performance.now` by default. */
  readonly now?: () => number;
  /** Milliseconds until a response begins, and between two pieces of it. Five minutes by default. */
  readonly timeoutMs?: number;
}

/**
 * A client of OpenAI-compatible servers that measures. Errors: the code that the server named, if it is one of the
 * table; `WARMPATH_UPSTREAM_UNREACHABLE`, `WARMPATH_UPSTREAM_TIMEOUT`, `WARMPATH_UPSTREAM_CUT`, or
 * `WARMPATH_UPSTREAM_ERROR`.
 */
export class EngineClient {
  readonly #pool: Pool;
  readonly #origin: string;
  readonly #base: string;
  readonly #timeoutMs: number;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #now: () => number;

  constructor({ url, apiKey }: EngineAddress, options: EngineClientOptions = {}) {
    const { now = () => performance.now(), timeoutMs = TIMEOUT_MS } = options;
    const { origin, pathname } = parseUrl(url);
    this.#pool = new Pool(origin, {
      headersTimeout: timeoutMs,
      bodyTimeout: timeoutMs,
      connect: { timeout: Math.min(CONNECT_MS, timeoutMs) },
    });
    this.#origin = origin;
    this.#timeoutMs = timeoutMs;
    this.#base = pathname.replace(/\/+$/, '').replace(/\/v1$/, '');
    this.#headers = {
      'content-type': 'application/json',
      ...(apiKey !== undefined && { authorization: `Bearer ${apiKey}` }),
    };
    this.#now = now;
  }

  /** GET, answering parsed JSON. */
  async get(path: string, signal: AbortSignal): Promise<unknown> {
    return readJson(await this.#send({ method: 'GET', path, signal }), path);
  }

  /** GET, answering the text as it comes. */
  async getText(path: string, signal: AbortSignal): Promise<string> {
    return (await this.#send({ method: 'GET', path, signal })).body.text();
  }

  /** POST of JSON, answering parsed JSON. */
  async post(path: string, body: object, signal: AbortSignal): Promise<unknown> {
    return readJson(await this.#send({ method: 'POST', path, signal, body: JSON.stringify(body) }), path);
  }

  /** The names of the models that the server offers, in its order. */
  async models(signal: AbortSignal): Promise<readonly ServedModel[]> {
    const { data } = (await this.get('/v1/models', signal)) as { data?: readonly ServedModel[] };
    return Array.isArray(data) ? data : [];
  }

  /** The sessions whose tokens a gateway counts. */
  sessions(signal: AbortSignal): Promise<SessionList> {
    return this.get('/v1/sessions', signal) as Promise<SessionList>;
  }

  /** Sends a chat completion with `stream: true` and usage asked for, reads it to its end, and measures. */
  async measureChat(body: object, signal: AbortSignal): Promise<MeasuredAnswer> {
    const sentAt = this.#now();
    let firstContentAt: number | undefined;
    let text = '';
    let usage: Usage | undefined;
    const { headers, chunks } = await this.streamChat({ ...body, stream_options: { include_usage: true } }, signal);
    for await (const chunk of chunks) {
      const delta = chunk.choices?.[0]?.delta;
      if (delta?.content || delta?.reasoning_content) firstContentAt ??= this.#now();
      text += delta?.content ?? '';
      usage = chunk.usage ?? usage;
    }
    return {
      text,
      ttftMs: (firstContentAt ?? this.#now()) - sentAt,
      promptTokens: usage?.prompt_tokens,
      cachedTokens: cachedTokensOf(usage),
      headers,
    };
  }

  /** Sends a chat completion with `stream: true`; its chunks come as they arrive, to the last or an error. */
  async streamChat(body: object, signal: AbortSignal): Promise<ChatStream> {
    const path = '/v1/chat/completions';
    const response = await this.#send({
      method: 'POST',
      path,
      signal,
      body: JSON.stringify({ ...body, stream: true }),
    });
    return { headers: response.headers, chunks: this.#chunksOf(response, path, signal) };
  }

  async *#chunksOf(response: Dispatcher.ResponseData, path: string, signal: AbortSignal): AsyncGenerator<Chunk> {
    let complete = false;
    try {
      for await (const data of readServerSentEvents(response.body)) {
        // Read on to the end, so that the connection can be used again.
        if (data === '[DONE]') {
          complete = true;
          continue;
        }
        const chunk = JSON.parse(data) as Chunk;
        if (chunk.error !== undefined) throw toError(chunk, path);
        yield chunk;
      }
    } catch (error) {
      if (WarmpathError.isInstance(error) || signal.aborted) throw error;
      if (reasonOf(error) === 'UND_ERR_BODY_TIMEOUT') throw this.#noAnswer({ code: 'UND_ERR_HEADERS_TIMEOUT' }, path);
      throw new WarmpathError('WARMPATH_UPSTREAM_CUT', { path, cause: error });
    }
    if (!complete) throw new WarmpathError('WARMPATH_UPSTREAM_CUT', { path });
  }

  /** Closes all connections. */
  close(): Promise<void> {
    return this.#pool.destroy();
  }

  async #send(options: Dispatcher.RequestOptions): Promise<Dispatcher.ResponseData> {
    let response: Dispatcher.ResponseData;
    const path = `${this.#base}${options.path}`;
    try {
      response = await this.#pool.request({ ...options, path, headers: this.#headers });
    } catch (error) {
      if (options.signal instanceof AbortSignal && options.signal.aborted) throw error;
      throw this.#noAnswer(error, options.path);
    }
    if (response.statusCode < 300) return response;
    throw toError(await readErrorBody(response), options.path, response.statusCode);
  }

  /** Why no answer began. */
  #noAnswer(error: unknown, path: string): WarmpathError {
    const code = reasonOf(error);
    const where = `${this.#origin}${this.#base}`;
    if (code === 'UND_ERR_HEADERS_TIMEOUT') {
      const detail = `${where} did not answer within ${this.#timeoutMs / 1_000} s; is it busy, or stuck?`;
      return new WarmpathError('WARMPATH_UPSTREAM_TIMEOUT', { path, detail, cause: error });
    }
    const detail = `${where} cannot be reached (${code}); does an engine listen there?`;
    return new WarmpathError('WARMPATH_UPSTREAM_UNREACHABLE', { detail, cause: error });
  }
}

/** A row of `/v1/models`. */
export interface ServedModel {
  readonly id: string;
  readonly owned_by?: string;
  readonly [field: string]: unknown;
}

/** Cached tokens of a usage object; `undefined` if the engine does not say. */
export function cachedTokensOf(usage: unknown): number | undefined {
  const tokens = (usage as Usage | undefined)?.prompt_tokens_details?.cached_tokens;
  return typeof tokens === 'number' ? tokens : undefined;
}

function parseUrl(url: string): URL {
  try {
    const parsed = new URL(url);
    if (parsed.protocol === 'http:' || parsed.protocol === 'https:') return parsed;
  } catch {
    // Falls through to the one error below.
  }
  throw new WarmpathError('WARMPATH_USAGE', { path: '--engine', detail: 'an http:// or https:// URL was expected' });
}

async function readJson(response: Dispatcher.ResponseData, path: string): Promise<unknown> {
  try {
    const text = await response.body.text();
    if (/^\s*</.test(text)) throw new WarmpathError('WARMPATH_UPSTREAM_ERROR', { path, detail: IS_PAGE });
    return JSON.parse(text);
  } catch (cause) {
    if (WarmpathError.isInstance(cause)) throw cause;
    throw new WarmpathError('WARMPATH_UPSTREAM_ERROR', { path, detail: `the answer is not JSON: ${BASE_URL}`, cause });
  }
}

async function readErrorBody(response: Dispatcher.ResponseData): Promise<unknown> {
  try {
    return JSON.parse(await response.body.text());
  } catch {
    return undefined;
  }
}

const NAME_KEY = 'give it with --key-env NAME, the name of an environment variable that holds it';
const BASE_URL = "give the base URL of the engine's OpenAI API with --engine, such as http://127.0.0.1:8000";
const IS_PAGE = `the answer is a page of HTML: ${BASE_URL}`;

function reasonOf(error: unknown): string {
  const { code, errors: [first] = [], message } = error as Partial<AggregateError> & { readonly code?: string };
  return code ?? (first as { readonly code?: string } | undefined)?.code ?? message ?? 'no reason given';
}

/** The server's own code where it speaks ours, and its message where it speaks OpenAI's shape. */
function toError(body: unknown, path: string, status?: number): WarmpathError {
  const own = errorOfServer(body);
  if (own !== undefined) return own;
  const error = (body as { error?: { code?: unknown; type?: unknown; message?: unknown } } | undefined)?.error;
  const message = typeof error?.message === 'string' ? error.message : undefined;
  const detail = [status === undefined ? undefined : `status ${status}`, message].filter(Boolean).join(', ');
  if (status === 401 || status === 403) {
    return new WarmpathError('WARMPATH_UNAUTHORIZED', {
      path,
      detail: `the engine wants a key (${detail}): ${NAME_KEY}`,
    });
  }
  if (status === 404 && path === '/v1/models') {
    return new WarmpathError('WARMPATH_UPSTREAM_ERROR', { path, detail: `there is nothing (status 404): ${BASE_URL}` });
  }
  const isTooLong = [error?.code, error?.type, message].some((word) => typeof word === 'string' && TOO_LONG.test(word));
  return new WarmpathError(isTooLong ? 'WARMPATH_CONTEXT_TOO_LONG' : 'WARMPATH_UPSTREAM_ERROR', { path, detail });
}
