import { performance } from 'node:perf_hooks';
import { WarmpathError } from '@warmpath/core';
import type { SessionStoreListener, StoreFailure, StoreOperation } from '../session-store.js';
import { CONNECT_MS, type StoreAddress, type StoreClient, type StoreClients, storeClients } from './store-client.js';
import type { StoreKeys } from './store-keys.js';
import { PROBE, type StoreScript } from './store-scripts.js';

/** A script, the keys that it works on, all of them of one conversation, and what it is given besides. */
export interface StoreCall {
  readonly script: StoreScript;
  readonly keys: readonly string[];
  readonly values: readonly string[];
}

/** What a request wants to hear. */
export interface Asker {
  /** What the server answered, whenever that is. */
  take(reply: unknown): void;
  /** Once, why the request went on without. */
  missed(failure: StoreFailure): void;
}

/** Milliseconds for what is under way at the end. */
const CLOSE_MS = 1_000;
/** Milliseconds before another try to connect; doubled with each, up to the most. */
const FIRST_RETRY_MS = 100;
const LAST_RETRY_MS = 10_000;
/** Answers that came too late, one after the other, before the server counts as away. */
const MAX_LATE = 3;
/** Commands without an answer, and characters of them. */
const MAX_PENDING = 1_024;
const MAX_PENDING_CHARACTERS = 67_108_864;
/** Keys that a server looks at in one step of a walk over all of them. */
const SCAN_COUNT = '500';

/** Where the server is, and what its keys begin with. */
export interface StorePlace {
  readonly address: StoreAddress;
  readonly keys: StoreKeys;
}

/** What a server says that is there and of no use for now: it follows another, it still loads, it has lost the others. */
const UNUSABLE: ReadonlySet<string> = new Set(['READONLY', 'LOADING', 'MASTERDOWN', 'CLUSTERDOWN']);

/**
 * The connection to a server that speaks Redis's protocol. It is there or it is not, and while it is not, nothing is sent, nothing
 * waits, and a request costs a look at one field. A server that closes the connection or is too slow several times in a row
 * counts as away; it is tried again in the background, ever more rarely, and is there again when it
 * lets this gateway write: a replica that nobody has promoted yet does not count.
 */
export class StoreConnection {
  readonly #address: StoreAddress;
  readonly #listener: SessionStoreListener;
  readonly #clients: StoreClients;
  readonly #probeKey: string;
  #client: StoreClient | undefined;
  #retry: NodeJS.Timeout | undefined;
  #tries = 0;
  #late = 0;
  #pending = 0;
  #pendingCharacters = 0;
  #isClosed = false;

  private constructor(
    { address, keys }: StorePlace,
    { listener, clients }: { readonly listener: SessionStoreListener; readonly clients: StoreClients },
  ) {
    this.#address = address;
    this.#probeKey = keys.probe;
    this.#listener = listener;
    this.#clients = clients;
  }

  /**
   * Loads the library and tries to connect, once; a server that is away is tried again later. Error:
   * `WARMPATH_CONFIG_INVALID` where the library is not installed or a file of certificates cannot be read.
   */
  static async open(place: StorePlace, listener: SessionStoreListener): Promise<StoreConnection> {
    const connection = new StoreConnection(place, { listener, clients: await storeClients(place.address) });
    await connection.#connect();
    return connection;
  }

  get isUp(): boolean {
    return this.#client !== undefined;
  }

  /**
   * Runs a script for a request and hands what it answers to `take`, whenever that is. Settles with that, with a failure, or when the
   * time is up; `undefined` where nothing was asked. Never rejects; failures are the listener's, and the request's own `missed` hears
   * what it went without.
   */
  ask(call: StoreCall, { take, missed }: Asker): Promise<void> | undefined {
    const client = this.#client;
    const refusal = this.#refusal('find', call);
    if (client === undefined || refusal !== undefined) {
      missed(refusal ?? 'down');
      return undefined;
    }
    const reply = this.#run('find', client, call);
    return new Promise((resolve) => {
      let state: 'waiting' | 'late' | 'over' = 'waiting';
      const giveUp = () => {
        if (state === 'over') return;
        state = 'late';
        this.#listener.failed('find', 'timeout');
        missed('timeout');
        if (++this.#late >= MAX_LATE) this.#lost(client, 'too slow');
        resolve();
      };
      // Where it was this process that was busy, an answer may lie unread: it gets its turn first.
      const timer = setTimeout(() => setImmediate(giveUp), this.#address.timeoutMs);
      const failed = (error: unknown) => {
        if (state === 'waiting') missed(this.#failed('find', client, error));
      };
      void reply.then(take, failed).finally(() => {
        state = 'over';
        clearTimeout(timer);
        resolve();
      });
    });
  }

  /** Runs a script that nobody waits for. Settles with what it answers, `undefined` if that failed. Never rejects. */
  async tell(call: StoreCall, operation: StoreOperation = 'keep'): Promise<unknown> {
    const client = this.#client;
    if (client === undefined || this.#refusal(operation, call) !== undefined) return undefined;
    try {
      return await this.#run(operation, client, call);
    } catch (error) {
      this.#failed(operation, client, error);
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

  /**
   * Runs a script for the operator, who hears of every failure. Error: `WARMPATH_STORE_UNAVAILABLE` where the server is away, has too much
   * before it, or refuses.
   */
  async require(call: StoreCall, operation: StoreOperation = 'keep'): Promise<unknown> {
    const client = this.#client;
    const refusal = this.#refusal(operation, call);
    if (client === undefined || refusal !== undefined) throw unavailable(refusal ?? 'down');
    try {
      return await this.#run(operation, client, call);
    } catch (error) {
      this.#failed(operation, client, error);
      throw unavailable(reasonOf(error), error);
    }
  }

  /**
   * The keys of this pattern, some at a time, as the servers come upon them: one that stands there all the while is among them, perhaps
   * twice. Error: `WARMPATH_STORE_UNAVAILABLE`.
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

  /** Why it may not be sent, told to the listener; `undefined` where it may. */
  #refusal(operation: StoreOperation, { keys, values }: StoreCall): StoreFailure | undefined {
    const isFull =
      this.#pending >= MAX_PENDING || this.#pendingCharacters + charactersOf(keys, values) > MAX_PENDING_CHARACTERS;
    const failure = this.#client === undefined ? 'down' : isFull ? 'overflow' : undefined;
    if (failure !== undefined) this.#listener.failed(operation, failure);
    return failure;
  }

  async #run(operation: StoreOperation, client: StoreClient, { script, keys, values }: StoreCall): Promise<unknown> {
    const characters = charactersOf(keys, values);
    this.#pending++;
    this.#pendingCharacters += characters;
    const since = performance.now();
    try {
      const reply = await execute(client, script, {
        key: keys[0] ?? '',
        operands: [`${keys.length}`, ...keys, ...values],
      });
      this.#answered(operation, performance.now() - since);
      return reply;
    } finally {
      this.#pending--;
      this.#pendingCharacters -= characters;
    }
  }

  #answered(operation: StoreOperation, ms: number): void {
    this.#listener.done(operation, ms);
    if (ms > this.#address.timeoutMs) return;
    this.#late = 0;
    this.#tries = 0;
  }

  #failed(operation: StoreOperation, client: StoreClient | undefined, error: unknown): StoreFailure {
    const failure = client === this.#client ? 'refused' : 'down';
    this.#listener.failed(operation, failure);
    const reason = reasonOf(error);
    if (client !== undefined && UNUSABLE.has(reason)) this.#lost(client, reason);
    return failure;
  }

  /** One try. Never rejects. */
  async #connect(): Promise<void> {
    let reason = 'too slow';
    let isOver = false;
    let client: StoreClient | undefined;
    const greeting = this.#greet().then(
      (greeted) => {
        if (isOver) destroy(greeted);
        else client = greeted;
      },
      (error: unknown) => {
        reason = reasonOf(error);
      },
    );
    await settledWithin(greeting, CONNECT_MS);
    isOver = true;
    if (this.#isClosed || client === undefined) {
      if (client !== undefined) destroy(client);
      if (this.#isClosed) return;
      this.#listener.changed(false, reason);
      this.#retryLater();
      return;
    }
    this.#client = client;
    this.#late = 0;
    this.#listener.changed(true, 'connected');
  }

  /** A client of a server that runs scripts, on keys of this prefix, and may be written to. */
  async #greet(): Promise<StoreClient> {
    const client = await this.#clients.connect((lost, error) =>
      this.#lost(lost, error === undefined ? 'closed' : reasonOf(error)),
    );
    try {
      await execute(client, PROBE, { key: this.#probeKey, operands: ['1', this.#probeKey] });
      return client;
    } catch (error) {
      destroy(client);
      throw error;
    }
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

/** By the script's digest; a server that does not know it yet is sent the text. */
async function execute(
  client: StoreClient,
  script: StoreScript,
  { key, operands }: { readonly key: string; readonly operands: readonly string[] },
): Promise<unknown> {
  try {
    return await client.send(key, ['EVALSHA', script.digest, ...operands]);
  } catch (error) {
    if (!(error instanceof Error && error.message.startsWith('NOSCRIPT'))) throw error;
    return client.send(key, ['EVAL', script.text, ...operands]);
  }
}

function charactersOf(keys: readonly string[], values: readonly string[]): number {
  let characters = 0;
  for (const { length } of keys) characters += length;
  for (const { length } of values) characters += length;
  return characters;
}

function unavailable(reason: string, cause?: unknown): WarmpathError {
  return new WarmpathError('WARMPATH_STORE_UNAVAILABLE', { detail: `the store of conversations: ${reason}`, cause });
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
