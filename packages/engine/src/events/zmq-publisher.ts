import { setImmediate as nextTurn } from 'node:timers/promises';
import { WarmpathError } from '@warmpath/core';
import type { Publisher, Router } from 'zeromq';
import type { KvEventBatch } from './kv-event.js';
import { encodeBatch } from './wire-format.js';

export interface ZmqPublisherOptions {
  /**
   * Where events go: bound when it names every address, any port or a file (`*`, `::`, `ipc://`), else connected to.
   */
  readonly endpoint: string;
  /** Where batches can be asked for again; always bound. Without one, nothing can. */
  readonly replayEndpoint?: string;
}

/** Most batches that are kept for replay, and their bytes: many steps of large prompts stay bounded. */
const MAX_BUFFERED_BATCHES = 10_000;
const MAX_BUFFERED_BYTES = 64 * 1024 * 1024;
/** Most messages that wait for one slow subscriber; it misses those beyond. */
const MAX_WAITING_MESSAGES = 100_000;
/** How long, at the end, what is under way to subscribers may take, in milliseconds. */
const LINGER_MS = 1_000;
/** How long a client that asked for a replay may leave its socket full, in milliseconds. */
const REPLAY_STALL_MS = 1_000;
/** Batches that are replayed before everything else gets its turn. */
const REPLAY_CHUNK = 64;
const SEQUENCE_BYTES = 8;
/** Ends a replay: -1. */
const END_OF_REPLAY = Buffer.alloc(SEQUENCE_BYTES, 0xff);
const EMPTY = Buffer.alloc(0);

/** What a {@link ReplayBuffer} may hold; the oldest batches go when either is exceeded. */
export interface ReplayBufferLimits {
  readonly steps: number;
  /** Most bytes of all batches together; the newest one stays however large it is. */
  readonly bytes: number;
}

/** The last batches, as they were sent, by sequence number. Every operation is O(1), dropped batches not counted. */
export class ReplayBuffer {
  readonly #limits: ReplayBufferLimits;
  readonly #payloads = new Map<number, Uint8Array>();
  #next = 0;
  #bytes = 0;

  constructor(limits: ReplayBufferLimits) {
    this.#limits = limits;
  }

  get next(): number {
    return this.#next;
  }

  /** The oldest sequence number that is there, or the next one when nothing is. */
  get oldest(): number {
    return this.#next - this.#payloads.size;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Appends a batch and drops the oldest ones beyond the limits. */
  push(payload: Uint8Array): void {
    this.#payloads.set(this.#next++, payload);
    this.#bytes += payload.length;
    while (this.#payloads.size > 1 && (this.#payloads.size > this.#limits.steps || this.#bytes > this.#limits.bytes)) {
      const { oldest } = this;
      this.#bytes -= this.#payloads.get(oldest)!.length;
      this.#payloads.delete(oldest);
    }
  }

  /** @returns A batch, or `undefined` when it was dropped or is still to come. */
  get(sequence: number): Uint8Array | undefined {
    return this.#payloads.get(sequence);
  }
}

/**
 * Publishes batches as vLLM does (`vllm/distributed/kv_events.py`): a PUB socket sends an empty topic, the sequence
 * number (8 bytes, big endian) and MessagePack. A ROUTER socket answers `["", first number]` with `["", "", number,
 * payload]` for every kept batch, and -1 at the end. One bounded buffer holds what is to be sent and can be replayed.
 */
export class ZmqKvEventPublisher {
  readonly #options: ZmqPublisherOptions;
  readonly #publisher: Publisher;
  readonly #router: Router | undefined;
  readonly #buffer: ReplayBuffer;
  /** The sequence number that is sent next. */
  #sendNext = 0;
  #sending: Promise<void> | undefined;
  #failures = 0;
  #closing: Promise<void> | undefined;

  private constructor(options: ZmqPublisherOptions, publisher: Publisher, router: Router | undefined) {
    this.#options = options;
    this.#publisher = publisher;
    this.#router = router;
    this.#buffer = new ReplayBuffer({ steps: MAX_BUFFERED_BATCHES, bytes: MAX_BUFFERED_BYTES });
    if (router !== undefined) void this.#serveReplays(router);
  }

  /**
   * Opens the sockets.
   *
   * @throws WARMPATH_CONFIG_INVALID when `zeromq` is not installed or an endpoint cannot be used.
   */
  static async open(options: ZmqPublisherOptions): Promise<ZmqKvEventPublisher> {
    const zmq = await loadZmq();
    const publisher = new zmq.Publisher({ sendHighWaterMark: MAX_WAITING_MESSAGES, linger: LINGER_MS });
    const { endpoint, replayEndpoint } = options;
    // A whole replay fits; a client that asks again and again without reading is left alone.
    const routerOptions = {
      sendHighWaterMark: MAX_BUFFERED_BATCHES + 1,
      mandatory: true,
      sendTimeout: REPLAY_STALL_MS,
      linger: 0,
    };
    const router = replayEndpoint === undefined ? undefined : new zmq.Router(routerOptions);
    try {
      await configured('kvEvents', endpoint, async () =>
        isBound(endpoint) ? publisher.bind(endpoint) : publisher.connect(endpoint),
      );
      if (replayEndpoint !== undefined) {
        await configured('kvEventsReplay', replayEndpoint, async () => router?.bind(replayEndpoint));
      }
    } catch (error) {
      publisher.close();
      router?.close();
      throw error;
    }
    return new ZmqKvEventPublisher(options, publisher, router);
  }

  /** `endpoint`: with the port that was found. `failures`: batches that the socket refused; subscribers see a gap. */
  get stats() {
    const { next, oldest, bytes } = this.#buffer;
    return {
      endpoint: this.#publisher.lastEndpoint ?? this.#options.endpoint,
      replayEndpoint: this.#router?.lastEndpoint ?? this.#options.replayEndpoint,
      nextSequence: next,
      bufferedSteps: next - oldest,
      bufferedBytes: bytes,
      failures: this.#failures,
    };
  }

  /** Takes a batch; returns at once, never throws, and drops what cannot be sent to anybody any more. */
  publish(batch: KvEventBatch): void {
    if (this.#closing === undefined) {
      this.#buffer.push(encodeBatch(batch));
      this.#sending ??= this.#sendAll();
    }
  }

  /** Sends what is left and ends. Safe to call again. */
  close(): Promise<void> {
    this.#closing ??= (async () => {
      await this.#sending;
      this.#publisher.close();
      this.#router?.close();
    })();
    return this.#closing;
  }

  /** Sends what has not been sent. What the buffer has dropped meanwhile is skipped. */
  async #sendAll(): Promise<void> {
    while (this.#sendNext < this.#buffer.next) {
      const sequence = Math.max(this.#sendNext, this.#buffer.oldest);
      this.#sendNext = sequence + 1;
      try {
        await this.#publisher.send([EMPTY, sequenceBytes(sequence), this.#buffer.get(sequence)!]);
      } catch {
        this.#failures++;
      }
    }
    this.#sending = undefined;
  }

  async #serveReplays(router: Router): Promise<void> {
    for await (const [client, , first, ...more] of router) {
      if (first?.length === SEQUENCE_BYTES && more.length === 0) {
        try {
          await this.#replay(router, client!, Number(first.readBigUInt64BE()));
        } catch {
          // It has gone away, or does not read what it asked for: it sees that the end is missing and can ask again.
        }
      }
    }
  }

  async #replay(router: Router, client: Buffer, first: number): Promise<void> {
    const head = [client, EMPTY, EMPTY];
    const end = this.#buffer.next;
    for (let sequence = Math.max(first, this.#buffer.oldest); sequence < end; sequence++) {
      const payload = this.#buffer.get(sequence);
      if (payload !== undefined) await router.send([...head, sequenceBytes(sequence), payload]);
      if (sequence % REPLAY_CHUNK === 0) await nextTurn();
    }
    await router.send([...head, END_OF_REPLAY, EMPTY]);
  }
}

async function loadZmq(): Promise<typeof import('zeromq')> {
  try {
    return await import('zeromq');
  } catch (cause) {
    throw new WarmpathError('WARMPATH_CONFIG_INVALID', {
      path: 'kvEvents',
      detail: 'The library zeromq, which sends KV events, cannot be loaded. Run: npm install zeromq@6',
      cause,
    });
  }
}

/** vLLM's rule: what is stable binds, what comes and goes connects. */
function isBound(endpoint: string): boolean {
  return endpoint.includes('*') || endpoint.includes('::') || endpoint.startsWith('ipc://');
}

async function configured(path: string, endpoint: string, use: () => Promise<void>): Promise<void> {
  try {
    await use();
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code ?? 'unknown error';
    throw new WarmpathError('WARMPATH_CONFIG_INVALID', { path, detail: `Cannot use ${endpoint} (${code})`, cause });
  }
}

function sequenceBytes(sequence: number): Buffer {
  const bytes = Buffer.allocUnsafe(SEQUENCE_BYTES);
  bytes.writeBigUInt64BE(BigInt(sequence));
  return bytes;
}
