import { type ErrorCode, WarmpathError } from '@warmpath/core';
import { ERROR_TABLE } from '@warmpath/core/internal';

/** How requests are sent: the platform's `fetch`, or one like it (undici's costs a server less). */
export type Fetch = typeof globalThis.fetch;

/** Where a gateway is and how it is asked. */
export interface TransportOptions {
  /** The gateway, with or without `/v1` at its end, for instance `http://127.0.0.1:8080`. */
  readonly baseURL: string;
  /** Sent as a bearer token; a gateway keeps the state of different tokens apart. */
  readonly apiKey?: string;
  /** Sent with every request. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Default: the platform's. */
  readonly fetch?: Fetch;
}

/**
 * JSON over HTTP to one gateway. Errors: the gateway's own code if it sent one; `WARMPATH_GATEWAY_UNREACHABLE`;
 * `WARMPATH_UPSTREAM_ERROR` for an engine's error and for an answer that is not JSON. A call that is aborted rejects
 * with the signal's reason.
 */
export class Transport {
  readonly #base: string;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #fetch: Fetch;

  constructor({ baseURL, apiKey, headers, fetch }: TransportOptions) {
    this.#base = readBase(baseURL);
    this.#headers = {
      'content-type': 'application/json',
      ...headers,
      ...(apiKey !== undefined && { authorization: `Bearer ${apiKey}` }),
    };
    // Called as a free function: browsers refuse `fetch` with another `this`.
    this.#fetch = fetch ?? ((input, init) => globalThis.fetch(input, init));
  }

  /** POST of JSON; the answer's head, its body yet to be read. */
  async post(path: string, body: object, signal: AbortSignal | undefined): Promise<Response> {
    let response: Response;
    try {
      response = await this.#fetch(`${this.#base}${path}`, {
        method: 'POST',
        headers: this.#headers,
        body: JSON.stringify(body),
        ...(signal !== undefined && { signal }),
      });
    } catch (cause) {
      if (signal?.aborted) throw signal.reason;
      throw new WarmpathError('WARMPATH_GATEWAY_UNREACHABLE', { path, cause });
    }
    if (response.ok) return response;
    throw toError(await readJson(response), path, response.status);
  }

  /** POST of JSON, answering parsed JSON. */
  async postJson(path: string, body: object, signal: AbortSignal | undefined): Promise<JsonAnswer> {
    const response = await this.post(path, body, signal);
    const value = await readJson(response);
    if (typeof value === 'object' && value !== null) return { value: value as JsonAnswer['value'], response };
    if (signal?.aborted) throw signal.reason;
    throw new WarmpathError('WARMPATH_UPSTREAM_ERROR', { path, detail: 'The answer is not a JSON object.' });
  }
}

export interface JsonAnswer {
  readonly value: Readonly<Record<string, unknown>>;
  readonly response: Response;
}

function readBase(baseURL: string): string {
  let url: URL;
  try {
    url = new URL(baseURL);
  } catch (cause) {
    throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'baseURL', detail: 'This is not a URL.', cause });
  }
  const path = url.pathname.replace(/\/+$/, '').replace(/\/v1$/, '');
  return `${url.origin}${path}`;
}

async function readJson(response: Response): Promise<unknown> {
  try {
    return (await response.json()) as unknown;
  } catch {
    return undefined;
  }
}

/** What an error body says, in the gateway's own code where it speaks ours. */
export function toError(body: unknown, path: string, status?: number): WarmpathError {
  const error = (body as { error?: { code?: unknown; message?: unknown } | null } | null | undefined)?.error;
  const code = typeof error?.code === 'string' && Object.hasOwn(ERROR_TABLE, error.code) ? error.code : undefined;
  const message = typeof error?.message === 'string' ? error.message : undefined;
  const detail = [status === undefined ? undefined : `Status ${status}`, message].filter(Boolean).join(': ');
  return new WarmpathError((code as ErrorCode | undefined) ?? 'WARMPATH_UPSTREAM_ERROR', {
    path,
    ...(detail !== '' && { detail }),
  });
}
