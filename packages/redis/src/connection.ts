import { performance } from 'node:perf_hooks';
import { WarmpathError } from '@warmpath/core';
import type { ConversationStoreListener, StoreFailure, StoreOperation } from '@warmpath/core/internal';
import { CONNECT_MS, type Connect, connector, type ServerAddress, type ServerClient } from './client.js';
import type { ScriptCall } from './stored-turns.js';

/** What a request does with the outcome of its look-up. */
export interface FindHandlers {
  /** Called with the server's reply, even if it comes after the request went on without it. */
  answered(reply: unknown): void;
  /** Called at most once, with why the request went on without a reply. */
  missed(failure: StoreFailure): void;
}

/** Milliseconds for commands that are under way at the end. */
const CLOSE_MS = 1_000;
/** Milliseconds before another try to connect; doubled with each, up to the last. */
const FIRST_RETRY_MS = 100;
const LAST_RETRY_MS = 10_000;
/** Replies in a row that come too late before the server counts as away. */
const MAX_LATE = 3;
/** Commands without a reply, and characters of them. */
const MAX_PENDING = 1_024;
const MAX_PENDING_CHARACTERS = 67_108_864;
/** Keys that a server looks at in one step of a scan. */
const SCAN_COUNT = '500';
/**
 * Errors of a server that is there and of no use for now: a replica, one that still loads, one that lost the others.
 */
const UNUSABLE: ReadonlySet<string> = new Set(['READONLY', 'LOADING', 'MASTERDOWN', 'CLUSTERDOWN']);

/**
 * The connection to a server that speaks Redis's protocol. While the server is away, nothing is sent, nothing waits,
 * and a request costs a look at one field. A server that closes the connection, or is too slow several times in a row,
 * counts as away. It is tried again in the background, ever more rarely, and is there again when it lets this gateway
 * write: a replica does not count.
 */
export class Connection {
  readonly #timeoutMs: number;
  readonly #probe: ScriptCall;
  readonly #listener: ConversationStoreListener;
  readonly #connectClient: Connect;
  #client: ServerClient | undefined;
  #retry: NodeJS.Timeout | undefined;
  #tries = 0;
  #late = 0;
  #pending = 0;
  #pendingCharacters = 0;
  #isClosed = false;

  private constructor(
    timeoutMs: number,
    probe: ScriptCall,
    { listener, connect }: { readonly listener: ConversationStoreListener; readonly connect: Connect },
  ) {
    this.#timeoutMs = timeoutMs;
    this.#probe = probe;
    this.#listener = listener;
    this.#connectClient = connect;
  }

  /**
   * Tries to connect, once; a server that is away is tried again later.
   *
   * @param probe a call that succeeds only where this gateway may write.
   * @throws WarmpathError `WARMPATH_CONFIG_INVALID` where a PEM file cannot be read.
   */
  static async open(
    address: ServerAddress,
    probe: ScriptCall,
    listener: ConversationStoreListener,
  ): Promise<Connection> {
    const connect = await connector(address);
    const connection = new Connection(address.timeoutMs, probe, { listener, connect });
    await connection.#connect();
    return connection;
  }

  get isUp(): boolean {
    return this.#client !== undefined;
  }

  /**
   * Runs a script for a request, or in turns of its own. Settles with the reply, with a failure, or when the time is
   * up; `undefined` where nothing was sent. Never rejects.
   */
  find(
    operation: 'find' | 'exchange',
    call: ScriptCall,
    { answered, missed }: FindHandlers,
  ): Promise<void> | undefined {
    const client = this.#client;
    const refusal = this.#refuse(operation, call);
    if (client === undefined || refusal !== undefined) {
      missed(refusal ?? 'down');
      return undefined;
    }
    const reply = this.#send(operation, client, call);
    return new Promise((resolve) => {
      let state: 'waiting' | 'late' | 'over' = 'waiting';
      const giveUp = () => {
        if (state === 'over') return;
        state = 'late';
        this.#listener.failed(operation, 'timeout');
        missed('timeout');
        // Only what requests wait for says that they wait too long.
        if (operation === 'find' && ++this.#late >= MAX_LATE) this.#lost(client, 'too slow');
        resolve();
      };
      // Where this process was busy, a reply may lie unread: it is read first.
      const timer = setTimeout(() => setImmediate(giveUp), this.#timeoutMs);
      const failed = (error: unknown) => {
        if (state === 'waiting') missed(this.#failed(operation, client, error));
      };
      void reply.then(answered, failed).finally(() => {
        state = 'over';
        clearTimeout(timer);
        resolve();
      });
    });
  }

  /**
   * Runs a script.
   *
   * @throws WarmpathError `WARMPATH_STORE_UNAVAILABLE` where the server is away, refuses, or has too many commands
   * before it.
   */
  async run(operation: StoreOperation, call: ScriptCall): Promise<unknown> {
    const client = this.#client;
    const refusal = this.#refuse(operation, call);
    if (client === undefined || refusal !== undefined) throw unavailable(refusal ?? 'down');
    try {
      return await this.#send(operation, client, call);
    } catch (error) {
      this.#failed(operation, client, error);
      throw unavailable(reasonOf(error), error);
    }
  }

  /** Runs a script that nobody waits for; `undefined` if that failed. Never rejects. */
  async attempt(operation: StoreOperation, call: ScriptCall): Promise<unknown> {
    if (this.#client !== undefined) return this.run(operation, call).catch(() => undefined);
    // The cheap way: no error is made for nobody.
    this.#listener.failed(operation, 'down');
    return undefined;
  }

  /**
   * The keys that match a pattern, some at a time. A key that is there all the while is found, perhaps twice.
   *
   * @throws WarmpathError `WARMPATH_STORE_UNAVAILABLE`.
   */
  async *keys(pattern: string): AsyncGenerator<readonly string[]> {
    const client = this.#client;
    if (client === undefined) throw unavailable('down');
    for (const node of client.nodes) {
      let cursor = '0';
      do {
        const reply = await node(['SCAN', cursor, 'MATCH', pattern, 'COUNT', SCAN_COUNT]).catch((error: unknown) => {
          throw unavailable(reasonOf(error), error);
        });
        const [next, keys] = reply as [unknown, readonly unknown[]];
        cursor = String(next);
        if (keys.length > 0) yield keys.map(String);
      } while (cursor !== '0');
    }
  }

  /** Waits up to a second for what is under way, then disconnects. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#retry);
    const client = this.#client;
    this.#client = undefined;
    if (client === undefined) return;
    await settledWithin(client.close(), CLOSE_MS);
    destroy(client);
  }

  /** Reports why a call may not be sent; `undefined` where it may. */
  #refuse(operation: StoreOperation, call: ScriptCall): StoreFailure | undefined {
    const isFull =
      this.#pending >= MAX_PENDING || this.#pendingCharacters + charactersOf(call) > MAX_PENDING_CHARACTERS;
    const failure = this.#client === undefined ? 'down' : isFull ? 'overflow' : undefined;
    if (failure !== undefined) this.#listener.failed(operation, failure);
    return failure;
  }

  async #send(operation: StoreOperation, client: ServerClient, call: ScriptCall): Promise<unknown> {
    const characters = charactersOf(call);
    this.#pending++;
    this.#pendingCharacters += characters;
    const since = performance.now();
    try {
      const reply = await execute(client, call);
      const ms = performance.now() - since;
      this.#listener.done(operation, ms);
      if (ms <= this.#timeoutMs) {
        this.#late = 0;
        this.#tries = 0;
      }
      return reply;
    } finally {
      this.#pending--;
      this.#pendingCharacters -= characters;
    }
  }

  #failed(operation: StoreOperation, client: ServerClient, error: unknown): StoreFailure {
    const failure = client === this.#client ? 'refused' : 'down';
    this.#listener.failed(operation, failure);
    const reason = reasonOf(error);
    if (UNUSABLE.has(reason)) this.#lost(client, reason);
    return failure;
  }

  /** One try. Never rejects. */
  async #connect(): Promise<void> {
    let reason = 'too slow';
    let isOver = false;
    let client: ServerClient | undefined;
    const attempt = this.#connectWritable().then(
      (connected) => {
        if (isOver) destroy(connected);
        else client = connected;
      },
      (error: unknown) => {
        reason = reasonOf(error);
      },
    );
    await settledWithin(attempt, CONNECT_MS);
    isOver = true;
    if (this.#isClosed) {
      if (client !== undefined) destroy(client);
    } else if (client === undefined) {
      this.#listener.changed(false, reason);
      this.#retryLater();
    } else {
      this.#client = client;
      this.#late = 0;
      this.#listener.changed(true, 'connected');
    }
  }

  /**
   * A client of a server that runs scripts on keys of this store and may be written to. Rejects with the server's
   * error.
   */
  async #connectWritable(): Promise<ServerClient> {
    let connected: ServerClient | undefined;
    const client = await this.#connectClient((error) => {
      if (connected !== undefined) this.#lost(connected, error === undefined ? 'closed' : reasonOf(error));
    });
    connected = client;
    try {
      await execute(client, this.#probe);
      return client;
    } catch (error) {
      destroy(client);
      throw error;
    }
  }

  #lost(client: ServerClient, reason: string): void {
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

/** Runs a script by its hash; a server that does not know it yet is sent the text. */
async function execute(client: ServerClient, { script, keys, values }: ScriptCall): Promise<unknown> {
  const key = keys[0] ?? '';
  const operands = [`${keys.length}`, ...keys, ...values];
  try {
    return await client.send(key, ['EVALSHA', script.sha1, ...operands]);
  } catch (error) {
    if (!(error instanceof Error && error.message.startsWith('NOSCRIPT'))) throw error;
    return client.send(key, ['EVAL', script.text, ...operands]);
  }
}

function charactersOf({ keys, values }: ScriptCall): number {
  let characters = 0;
  for (const { length } of keys) characters += length;
  for (const { length } of values) characters += length;
  return characters;
}

function unavailable(reason: string, cause?: unknown): WarmpathError {
  return new WarmpathError('WARMPATH_STORE_UNAVAILABLE', { detail: `the store of conversations: ${reason}`, cause });
}

/** Waits until a promise settles, at most so many milliseconds. Never rejects. */
async function settledWithin(promise: Promise<unknown>, ms: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  await Promise.race([promise.catch(() => {}), timeout]);
  clearTimeout(timer);
}

function destroy(client: ServerClient): void {
  try {
    client.destroy();
  } catch {
    // It was closed already.
  }
}

/**
 * A system's code (`ECONNREFUSED`), the first word of a server's refusal (`WRONGPASS`), or the error's class. Holds no
 * secret.
 */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown';
  const { code } = error as { readonly code?: unknown };
  if (typeof code === 'string') return code;
  return /^[A-Z]{4,}\b/.exec(error.message)?.[0] ?? error.constructor.name;
}
