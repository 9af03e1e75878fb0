import type { Readable } from 'node:stream';
import { WarmpathError } from '@warmpath/core';
import { Client } from 'undici';
import { errorOfServer } from './server-error.js';

/** Where a running gateway listens to its operator. */
export interface AdminAddress {
  readonly socket?: string;
  readonly config?: string;
}

/**
 * The socket that the command line names, or the configuration does. Errors: `WARMPATH_USAGE`, those of `loadConfig`.
 */
export async function adminSocket({ socket, config }: AdminAddress, environment: NodeJS.ProcessEnv): Promise<string> {
  const named = socket ?? (config === undefined ? undefined : await configuredSocket(config, environment));
  if (named !== undefined) return named;
  const detail = 'name the socket of the gateway with --socket, or with --config a file that has admin.socket';
  throw new WarmpathError('WARMPATH_USAGE', { path: '--socket', detail });
}

async function configuredSocket(file: string, environment: NodeJS.ProcessEnv): Promise<string | undefined> {
  // Most command lines name the socket, and start sooner without the gateway's code.
  const { loadConfig } = await import('@warmpath/gateway');
  return (await loadConfig(file, environment)).admin.socket;
}

/** Talks to a running gateway as its operator. Errors: the gateway's own, and `WARMPATH_GATEWAY_UNREACHABLE`. */
export class AdminClient {
  readonly #client: Client;
  readonly #socket: string;

  constructor(socket: string) {
    this.#socket = socket;
    // Exports and imports take as long as they take.
    this.#client = new Client('http://localhost', { socketPath: socket, headersTimeout: 0, bodyTimeout: 0 });
  }

  /** The body of an answer, as it comes. */
  async get(path: string, headers: Readonly<Record<string, string>>): Promise<Readable> {
    const { statusCode, body } = await this.#request('GET', path, headers);
    if (statusCode !== 200) throw refusalOf(await body.json());
    return body;
  }

  /** The JSON of an answer. */
  async send(
    method: 'POST' | 'DELETE',
    path: string,
    headers: Readonly<Record<string, string>>,
    input?: Readable,
  ): Promise<unknown> {
    const { statusCode, body } = await this.#request(method, path, headers, input);
    const answer: unknown = await body.json();
    if (statusCode !== 200) throw refusalOf(answer);
    return answer;
  }

  async close(): Promise<void> {
    await this.#client.destroy();
  }

  async #request(
    method: 'GET' | 'POST' | 'DELETE',
    path: string,
    headers: Readonly<Record<string, string>>,
    input?: Readable,
  ) {
    try {
      const type = input === undefined ? {} : { 'content-type': 'application/x-ndjson' };
      return await this.#client.request({ method, path, headers: { ...headers, ...type }, body: input ?? null });
    } catch (cause) {
      const { path: file, code } = cause as NodeJS.ErrnoException;
      // What could not be read is the input, where it is not the socket.
      if (file !== undefined && file !== this.#socket) {
        throw new WarmpathError('WARMPATH_USAGE', { path: 'file', detail: `cannot read ${file}`, cause });
      }
      const detail = `no gateway listens at the socket ${this.#socket} (${String(code)}).`;
      throw new WarmpathError('WARMPATH_GATEWAY_UNREACHABLE', { detail, cause });
    }
  }
}

function refusalOf(answer: unknown): WarmpathError {
  const detail = 'what listens at the socket is no gateway of this version.';
  return errorOfServer(answer) ?? new WarmpathError('WARMPATH_GATEWAY_UNREACHABLE', { detail });
}
