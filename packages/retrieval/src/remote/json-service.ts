import { setTimeout as wait } from 'node:timers/promises';
import { WarmpathError } from '@warmpath/core';
import { Pool } from 'undici';

export interface JsonServiceOptions {
  /** Base URL; paths are put behind it. */
  readonly url: string;
  /** Sent as `Authorization: Bearer`. */
  readonly apiKey?: string;
  /** Sent with every request. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Milliseconds for one exchange, tries included; 30,000 by default. */
  readonly timeoutMs?: number;
  /** Exchanges at once; others wait. 4 by default. */
  readonly concurrency?: number;
  /** Times that a request is sent again after 429, 502, 503, 504 or a lost connection; 2 by default. */
  readonly retries?: number;
}

/** What a server that retrieval needs may answer at most. */
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;
const RETRIED = new Set([429, 502, 503, 504]);
/** Milliseconds before the first new try where the server names none; doubled for each next one. */
const FIRST_WAIT_MS = 250;
/** Characters of a server's own words that an error repeats. */
const MAX_QUOTED = 200;

/**
 * A server that takes JSON and answers JSON: embeddings, reranking, vector databases. Its answers are bounded in bytes
 * and time, and every failure has a code of the error table, the URL, and nothing of what was sent.
 */
export class JsonService {
  /** Its address as errors name it, without a password. */
  readonly name: string;
  readonly #base: string;
  readonly #pool: Pool;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #timeoutMs: number;
  readonly #retries: number;

  constructor({ url, apiKey, headers, timeoutMs = 30_000, concurrency = 4, retries = 2 }: JsonServiceOptions) {
    let parsed: URL;
    try {
      parsed = new URL(url);
    } catch (cause) {
      throw new WarmpathError('WARMPATH_CONFIG_INVALID', { path: 'url', detail: `${url} is no URL.`, cause });
    }
    this.#base = parsed.pathname.replace(/\/$/, '');
    this.#pool = new Pool(parsed.origin, { connections: concurrency, headersTimeout: 0, bodyTimeout: 0 });
    const basic =
      parsed.username && Buffer.from(`${decodeURIComponent(parsed.username)}:${decodeURIComponent(parsed.password)}`);
    this.#headers = {
      'content-type': 'application/json',
      accept: 'application/json',
      ...(basic && { authorization: `Basic ${basic.toString('base64')}` }),
      ...(apiKey !== undefined && { authorization: `Bearer ${apiKey}` }),
      ...headers,
    };
    this.#timeoutMs = timeoutMs;
    this.#retries = retries;
    this.name = `${parsed.origin}${this.#base}`;
  }

  /**
   * Posts a body and returns the answer, parsed.
   * @throws WARMPATH_RETRIEVAL_UNREACHABLE, _TIMEOUT or _ERROR; the signal's reason.
   */
  async post(path: string, body: unknown, signal: AbortSignal): Promise<unknown> {
    signal.throwIfAborted();
    const text = JSON.stringify(body);
    const end = new AbortController();
    const abort = () => end.abort(signal.reason);
    signal.addEventListener('abort', abort);
    const timeout = new WarmpathError('WARMPATH_RETRIEVAL_TIMEOUT', {
      path: `${this.name}${path}`,
      detail: `no answer within ${this.#timeoutMs} ms.`,
    });
    const timer = setTimeout(() => end.abort(timeout), this.#timeoutMs);
    try {
      for (let attempt = 0; ; attempt++) {
        const outcome = await this.#try(path, text, end.signal);
        if (!('error' in outcome)) return outcome.answer;
        if (!outcome.isPassing || attempt === this.#retries) throw outcome.error;
        const waitMs = outcome.waitMs ?? FIRST_WAIT_MS * 2 ** attempt;
        // A server that wants to be left alone for longer than there is time has said no.
        if (waitMs >= this.#timeoutMs) throw outcome.error;
        await wait(waitMs, undefined, { signal: end.signal });
      }
    } catch (error) {
      throw end.signal.aborted ? end.signal.reason : error;
    } finally {
      clearTimeout(timer);
      signal.removeEventListener('abort', abort);
    }
  }

  async close(): Promise<void> {
    await this.#pool.destroy();
  }

  async #try(path: string, body: string, signal: AbortSignal): Promise<Outcome> {
    const at = `${this.name}${path}`;
    try {
      const response = await this.#pool.request({
        method: 'POST',
        path: `${this.#base}${path}`,
        headers: this.#headers,
        body,
        signal,
      });
      const { statusCode } = response;
      const chunks: Buffer[] = [];
      let bytes = 0;
      for await (const chunk of response.body as AsyncIterable<Buffer>) {
        bytes += chunk.length;
        if (bytes > MAX_ANSWER_BYTES) {
          return {
            error: answerError(at, `the answer is larger than ${MAX_ANSWER_BYTES >> 20} MiB.`),
            isPassing: false,
          };
        }
        chunks.push(chunk);
      }
      const text = Buffer.concat(chunks).toString();
      if (statusCode !== 200) {
        const error = answerError(at, `status ${statusCode}${quoted(text)}`, new StatusError(statusCode));
        return { error, isPassing: RETRIED.has(statusCode), waitMs: retryAfterMs(response.headers['retry-after']) };
      }
      try {
        return { answer: JSON.parse(text) };
      } catch (cause) {
        return { error: answerError(at, 'the answer is no JSON.', cause), isPassing: false };
      }
    } catch (cause) {
      if (signal.aborted) throw cause;
      const { code } = cause as { readonly code?: string };
      const detail = `the connection failed (${code ?? 'for a reason that is not known'}).`;
      return {
        error: new WarmpathError('WARMPATH_RETRIEVAL_UNREACHABLE', { path: at, detail, cause }),
        isPassing: true,
      };
    }
  }
}

/** Why an answer counts as failed: its status. */
class StatusError extends Error {
  readonly status: number;

  constructor(status: number) {
    super(`status ${status}`);
    this.status = status;
  }
}

/** The status that a server refused a request with, where that is what an error says. */
export function refusalStatus({ cause }: WarmpathError): number | undefined {
  return cause instanceof StatusError ? cause.status : undefined;
}

type Outcome =
  | { readonly answer: unknown }
  | { readonly error: WarmpathError; readonly isPassing: boolean; readonly waitMs?: number | undefined };

function answerError(path: string, detail: string, cause?: unknown): WarmpathError {
  return new WarmpathError('WARMPATH_RETRIEVAL_ERROR', { path, detail, cause });
}

/** What a server says of its error, where OpenAI, Cohere, Qdrant and OpenSearch say it. */
function quoted(text: string): string {
  let words: unknown;
  try {
    const body = JSON.parse(text) as Record<string, unknown>;
    const nested = (body.error ?? body.status ?? {}) as Record<string, unknown>;
    words = nested.message ?? nested.reason ?? nested.error ?? body.message ?? body.detail;
  } catch {
    words = undefined;
  }
  return typeof words === 'string' ? `: ${words.slice(0, MAX_QUOTED)}` : '.';
}

/** Milliseconds that `Retry-After` asks for: seconds or a date. */
function retryAfterMs(header: string | string[] | undefined): number | undefined {
  if (typeof header !== 'string') return undefined;
  const seconds = Number(header);
  const ms = Number.isFinite(seconds) ? 1000 * seconds : Date.parse(header) - Date.now();
  return Number.isNaN(ms) ? undefined : Math.max(0, ms);
}
