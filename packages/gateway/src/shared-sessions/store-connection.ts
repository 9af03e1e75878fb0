import { performance } from 'node:perf_hooks';
import { WarmpathError } from '@warmpath/core';
import type { SessionStoreListener, StoreOperation } from '../session-store.js';
import type { StoreScript } from './store-scripts.js';

/** Where the server is. */
export interface StoreAddress {
  /** `redis://` or `rediss://`, perhaps with a user, a password and a database. Never logged. */
  readonly url: string;
  /** Goes before the URL's. */
  readonly password?: string | undefined;
  /** Milliseconds that a request waits for what it asked. */
  readonly timeoutMs: number;
}

/** A script, the keys that it works on, and what it is given besides. */
export interface StoreCall {
  readonly script: StoreScript;
  readonly keys: readonly string[];
  readonly values: readonly string[];
}

/** What is used of the library's client. */
interface StoreClient {
  connect(): Promise<unknown>;
  sendCommand(command: readonly string[]): Promise<unknown>;
  close(): Promise<void>;
  destroy(): void;
  on(event: 'error' | 'end', listener: (error?: unknown) => void): unknown;
}

/** Milliseconds to connect, and for what is under way at the end. */
const CONNECT_MS = 5_000;
const CLOSE_MS = 1_000;
/** Milliseconds before another try to connect; doubled with each, up to the most. */
const FIRST_RETRY_MS = 100;
const LAST_RETRY_MS = 10_000;
/** Answers that came too late, one after the other, before the server counts as away. */
const MAX_LATE = 3;
/** Commands without an answer, and characters of them. */
const MAX_PENDING = 1_024;
const MAX_PENDING_CHARACTERS = 67_108_864;

/**
 * The connection to a server that speaks Redis's protocol. It is there or it is not, and while it is not, nothing is sent, nothing
 * waits, and a request costs a look at one field. A server that closes the connection or is too slow several times in a row
 * counts as away; it is tried again in the background, ever more rarely, and is there again when it answers a `PING`.
 */
export class StoreConnection {
  readonly #address: StoreAddress;
  readonly #listener: SessionStoreListener;
  readonly #createClient: () => StoreClient;
  #client: StoreClient | undefined;
  #retry: NodeJS.Timeout | undefined;
  #tries = 0;
  #late = 0;
  #pending = 0;
  #pendingCharacters = 0;
  #isClosed = false;

  private constructor(address: StoreAddress, listener: SessionStoreListener, createClient: () => StoreClient) {
    this.#address = address;
    this.#listener = listener;
    this.#createClient = createClient;
  }

  /**
   * Loads the library and tries to connect, once; a server that is away is tried again later. Error:
   * `WARMPATH_CONFIG_INVALID` where the library is not installed.
   */
  static async open(address: StoreAddress, listener: SessionStoreListener): Promise<StoreConnection> {
    const { createClient } = await loadLibrary();
    const url = withPassword(address);
    const connection = new StoreConnection(address, listener, () =>
      createClient({
        url,
        // The oldest servers speak it, and so does every other that knows the protocol.
        RESP: 2,
        disableOfflineQueue: true,
        socket: { connectTimeout: CONNECT_MS, reconnectStrategy: false },
      }),
    );
    await connection.#connect();
    return connection;
  }

  get isUp(): boolean {
    return this.#client !== undefined;
  }

  /**
   * Runs a script for a request and hands what it answers to `take`, whenever that is. Settles with that, with a failure, or when the
   * time is up; `undefined` where nothing was asked. Never rejects; failures are the listener's.
   */
  ask(call: StoreCall, take: (reply: unknown) => void): Promise<void> | undefined {
    const client = this.#client;
    const reply = this.#run('find', call);
    if (client === undefined || reply === undefined) return undefined;
    return new Promise((resolve) => {
      let state: 'waiting' | 'late' | 'over' = 'waiting';
      const giveUp = () => {
        if (state === 'over') return;
        state = 'late';
        this.#listener.failed('find', 'timeout');
        if (++this.#late >= MAX_LATE) this.#lost(client, 'too slow');
        resolve();
      };
      // Where it was this process that was busy, an answer may lie unread: it gets its turn first.
      const timer = setTimeout(() => setImmediate(giveUp), this.#address.timeoutMs);
      const failed = () => {
        if (state === 'waiting') this.#failed('find', client);
      };
      void reply.then(take, failed).finally(() => {
        state = 'over';
        clearTimeout(timer);
        resolve();
      });
    });
  }

  /** Runs a script that nobody waits for. Settles with what it answers, `undefined` if that failed. Never rejects. */
  async tell(call: StoreCall): Promise<unknown> {
    const client = this.#client;
    try {
      return await this.#run('keep', call);
    } catch {
      this.#failed('keep', client);
      return undefined;
    }
  }

  /** Ends it, with what is under way finished within a second or given up. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#retry);
    const client = this.#client;
    this.#client = undefined;
    if (client === undefined) return;
    await settledWithin(client.close(), CLOSE_MS);
    destroy(client);
  }

  /** `undefined` where it may not be sent. */
  #run(operation: StoreOperation, { script, keys, values }: StoreCall): Promise<unknown> | undefined {
    const client = this.#client;
    if (client === undefined) {
      this.#listener.failed(operation, 'down');
      return undefined;
    }
    const operands = [String(keys.length), ...keys, ...values];
    const characters = operands.reduce((sum, { length }) => sum + length, 0);
    if (this.#pending >= MAX_PENDING || this.#pendingCharacters + characters > MAX_PENDING_CHARACTERS) {
      this.#listener.failed(operation, 'overflow');
      return undefined;
    }
    this.#pending++;
    this.#pendingCharacters += characters;
    const since = performance.now();
    return execute(client, script, operands)
      .then((reply) => {
        this.#answered(operation, performance.now() - since);
        return reply;
      })
      .finally(() => {
        this.#pending--;
        this.#pendingCharacters -= characters;
      });
  }

  #answered(operation: StoreOperation, ms: number): void {
    this.#listener.done(operation, ms);
    if (ms > this.#address.timeoutMs) return;
    this.#late = 0;
    this.#tries = 0;
  }

  #failed(operation: StoreOperation, client: StoreClient | undefined): void {
    this.#listener.failed(operation, client === this.#client ? 'refused' : 'down');
  }

  /** One try. Never rejects. */
  async #connect(): Promise<void> {
    const client = this.#createClient();
    let reason = 'too slow';
    client.on('error', (error) => this.#lost(client, reasonOf(error)));
    client.on('end', () => this.#lost(client, 'closed'));
    const greeting = client.connect().then(() => client.sendCommand(['PING']));
    greeting.catch((error: unknown) => {
      reason = reasonOf(error);
    });
    const isThere = await settledWithin(greeting, CONNECT_MS);
    if (this.#isClosed || !isThere) {
      destroy(client);
      if (this.#isClosed) return;
      this.#listener.changed(false, reason);
      this.#retryLater();
      return;
    }
    this.#client = client;
    this.#late = 0;
    this.#listener.changed(true, 'connected');
  }

  #lost(client: StoreClient, reason: string): void {
    if (client !== this.#client) return;
    this.#client = undefined;
    destroy(client);
    this.#listener.changed(false, reason);
    this.#retryLater();
  }

  #retryLater(): void {
    const longest = Math.min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** this.#tries);
    this.#tries++;
    // Gateways that lost the same server do not all come back at the same moment.
    const delay = longest * (0.5 + Math.random() / 2);
    this.#retry = setTimeout(() => void this.#connect(), delay);
    this.#retry.unref();
  }
}

async function loadLibrary(): Promise<typeof import('@redis/client')> {
  try {
    return await import('@redis/client');
  } catch (cause) {
    throw new WarmpathError('WARMPATH_CONFIG_INVALID', {
      path: 'session.store.kind',
      detail: 'The library @redis/client, which talks to the store, cannot be loaded. Run: npm install @redis/client@6',
      cause,
    });
  }
}

/** By the script's digest; a server that does not know it yet is sent the text. */
async function execute(client: StoreClient, script: StoreScript, operands: readonly string[]): Promise<unknown> {
  try {
    return await client.sendCommand(['EVALSHA', script.digest, ...operands]);
  } catch (error) {
    if (!(error instanceof Error && error.message.startsWith('NOSCRIPT'))) throw error;
    return client.sendCommand(['EVAL', script.text, ...operands]);
  }
}

function withPassword({ url, password }: StoreAddress): string {
  if (password === undefined) return url;
  const whole = new URL(url);
  whole.password = encodeURIComponent(password);
  return whole.href;
}

/** Whether a promise was kept within so many milliseconds. Never rejects. */
function settledWithin(promise: Promise<unknown>, ms: number): Promise<boolean> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(false), ms);
    promise
      .then(
        () => resolve(true),
        () => resolve(false),
      )
      .finally(() => clearTimeout(timer));
  });
}

function destroy(client: StoreClient): void {
  try {
    client.destroy();
  } catch {
    // It was closed already.
  }
}

/** A system's code (`ECONNREFUSED`), the first word of a server's refusal (`WRONGPASS`), or the name of the error. Holds no secret. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown';
  const { code } = error as { readonly code?: unknown };
  if (typeof code === 'string') return code;
  return /^[A-Z]{4,}\b/.exec(error.message)?.[0] ?? error.constructor.name;
}
