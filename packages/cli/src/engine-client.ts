import { readServerSentEvents } from '@warmpath/client';
import { ERROR_TABLE, type ErrorCode, WarmpathError } from '@warmpath/core';
import { type Dispatcher, Pool } from 'undici';

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

interface Chunk {
  readonly choices?: readonly {
    readonly delta?: { readonly content?: string | null; readonly reasoning_content?: string | null };
  }[];
  readonly usage?: Usage | null;
  readonly error?: unknown;
}

/** What OpenAI, llama-server and vLLM say of a prompt that does not fit. */
const TOO_LONG = /context_length_exceeded|exceed_context_size_error|maximum (?:context|model) length/;

/** Milliseconds until the response begins: queueing and prefill of a long prompt on a slow machine. */
const HEADERS_TIMEOUT_MS = 300_000;

/**
 * A client of OpenAI-compatible servers that measures. Errors: the code that the server named, if it is one of the
 * table; `WARMPATH_UPSTREAM_UNREACHABLE`, `WARMPATH_UPSTREAM_TIMEOUT`, `WARMPATH_UPSTREAM_CUT`, or
 * `WARMPATH_UPSTREAM_ERROR`.
 */
export class EngineClient {
  readonly #pool: Pool;
  readonly #base: string;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #now: () => number;

  constructor({ url, apiKey }: EngineAddress, now: () => number = () => performance.now()) {
    const { origin, pathname } = parseUrl(url);
    this.#pool = new Pool(origin, { headersTimeout: HEADERS_TIMEOUT_MS, bodyTimeout: HEADERS_TIMEOUT_MS });
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

  /** POST of JSON, answering parsed JSON. */
  async post(path: string, body: object, signal: AbortSignal): Promise<unknown> {
    return readJson(await this.#send({ method: 'POST', path, signal, body: JSON.stringify(body) }), path);
  }

  /** The names of the models that the server offers, in its order. */
  async models(signal: AbortSignal): Promise<readonly ServedModel[]> {
    const { data } = (await this.get('/v1/models', signal)) as { data?: readonly ServedModel[] };
    return Array.isArray(data) ? data : [];
  }

  /** Sends a chat completion with `stream: true` and usage asked for, reads it to its end, and measures. */
  async measureChat(body: object, signal: AbortSignal): Promise<MeasuredAnswer> {
    const path = '/v1/chat/completions';
    const streaming = JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } });
    const sentAt = this.#now();
    const response = await this.#send({ method: 'POST', path, signal, body: streaming });
    let firstContentAt: number | undefined;
    let text = '';
    let usage: Usage | undefined;
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
        const delta = chunk.choices?.[0]?.delta;
        if (delta?.content || delta?.reasoning_content) firstContentAt ??= this.#now();
        text += delta?.content ?? '';
        usage = chunk.usage ?? usage;
      }
    } catch (error) {
      if (WarmpathError.isInstance(error) || signal.aborted) throw error;
      throw new WarmpathError('WARMPATH_UPSTREAM_CUT', { path, cause: error });
    }
    if (!complete) throw new WarmpathError('WARMPATH_UPSTREAM_CUT', { path });
    return {
      text,
      ttftMs: (firstContentAt ?? this.#now()) - sentAt,
      promptTokens: usage?.prompt_tokens,
      cachedTokens: cachedTokensOf(usage),
      headers: response.headers,
    };
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
      const timedOut = (error as { code?: unknown }).code === 'UND_ERR_HEADERS_TIMEOUT';
      const code = timedOut ? 'WARMPATH_UPSTREAM_TIMEOUT' : 'WARMPATH_UPSTREAM_UNREACHABLE';
      throw new WarmpathError(code, { path: options.path, cause: error });
    }
    if (response.statusCode < 300) return response;
    throw toError(await readErrorBody(response), options.path, response.statusCode);
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
    return await response.body.json();
  } catch (cause) {
    throw new WarmpathError('WARMPATH_UPSTREAM_ERROR', { path, detail: 'the answer is not JSON', cause });
  }
}

async function readErrorBody(response: Dispatcher.ResponseData): Promise<unknown> {
  try {
    return JSON.parse(await response.body.text());
  } catch {
    return undefined;
  }
}

/** The server's own code where it speaks ours, and its message where it speaks OpenAI's shape. */
function toError(body: unknown, path: string, status?: number): WarmpathError {
  const error = (body as { error?: { code?: unknown; type?: unknown; message?: unknown } } | undefined)?.error;
  const code = typeof error?.code === 'string' && Object.hasOwn(ERROR_TABLE, error.code) ? error.code : undefined;
  const message = typeof error?.message === 'string' ? error.message : undefined;
  const detail = [status === undefined ? undefined : `status ${status}`, message].filter(Boolean).join(', ');
  const isTooLong = [error?.code, error?.type, message].some((word) => typeof word === 'string' && TOO_LONG.test(word));
  const otherwise = isTooLong ? 'WARMPATH_CONTEXT_TOO_LONG' : 'WARMPATH_UPSTREAM_ERROR';
  return new WarmpathError((code as ErrorCode | undefined) ?? otherwise, { path, detail });
}
