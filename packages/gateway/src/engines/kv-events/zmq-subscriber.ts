import { WarmpathError } from '@warmpath/core';
import type { Dealer, Subscriber } from 'zeromq';
import { type EventSink, EventStream, type NumberedBatch } from './event-stream.js';

export interface SubscriberOptions {
  /** Where the engine publishes, such as `tcp://127.0.0.1:5557`. */
  readonly endpoint: string;
  /** Address for replays, such as `tcp://127.0.0.1:5558`. Without it, each gap is a loss. */
  readonly replayEndpoint: string | undefined;
  readonly sink: EventSink;
  /** Called with the first message that is no batch: the length of each frame. */
  readonly unreadable: (frameBytes: readonly number[]) => void;
  /** Called when the engine is connected, and when the connection broke. */
  readonly connection: (state: 'up' | 'broken') => void;
}

/** Milliseconds between two batches of a replay, at most. */
const REPLAY_SILENCE_MS = 5_000;
/** Milliseconds between two attempts to connect, at most. */
const MAX_RECONNECT_MS = 5_000;
const SEQUENCE_BYTES = 8;
/** A number with the publisher's id behind it, as vLLM writes it where it publishes snapshots. */
const IDENTIFIED_SEQUENCE_BYTES = 24;
/** Ends a replay: -1. */
const END_OF_REPLAY = 0xffff_ffff_ffff_ffffn;
/**
 * Batches (twice vLLM's default) and bytes of one replay, at most. The stream requests the rest afterwards. ZeroMQ's
 * own limit of 1,000 waiting messages is less than vLLM sends at once, and vLLM drops what does not fit.
 */
const MAX_REPLAYED = 20_000;
const MAX_REPLAYED_BYTES = 32 * 1024 * 1024;
const EMPTY = Buffer.alloc(0);

/**
 * Receives the KV events of one engine over ZeroMQ, as vLLM, SGLang and the embedded engine publish them: SUB for live
 * batches `[topic, number, payload]`, DEALER for replays, with or without a topic (vllm-project/vllm#45177). Reconnects
 * by itself.
 */
export class ZmqSubscriber {
  readonly stream: EventStream;
  readonly #subscriber: Subscriber;
  readonly #replays = new Set<Dealer>();
  readonly #reading: Promise<void>;
  readonly #unreadable: SubscriberOptions['unreadable'];
  #unreadableMessages = 0;
  #isClosed = false;

  private constructor(zmq: typeof import('zeromq'), options: SubscriberOptions) {
    const { endpoint, replayEndpoint, sink, unreadable, connection } = options;
    this.#unreadable = unreadable;
    this.stream = new EventStream({
      sink,
      replay: replayEndpoint === undefined ? undefined : (from) => this.#replay(zmq, replayEndpoint, from),
    });
    this.#subscriber = new zmq.Subscriber({ linger: 0, reconnectMaxInterval: MAX_RECONNECT_MS });
    this.#subscriber.events.on('handshake', () => {
      connection('up');
      this.stream.connected();
    });
    this.#subscriber.events.on('disconnect', () => {
      this.stream.disconnected();
      connection('broken');
    });
    this.#subscriber.connect(endpoint);
    this.#subscriber.subscribe();
    this.#reading = this.#read();
  }

  /** @throws WarmpathError `WARMPATH_CONFIG_INVALID` when `zeromq` is not installed, or an endpoint is none. */
  static async open(options: SubscriberOptions): Promise<ZmqSubscriber> {
    const zmq = await loadZmq();
    try {
      return new ZmqSubscriber(zmq, options);
    } catch (cause) {
      throw new WarmpathError('WARMPATH_CONFIG_INVALID', {
        path: 'upstream.kvEvents.endpoint',
        detail: 'This is not a ZeroMQ endpoint such as tcp://127.0.0.1:5557.',
        cause,
      });
    }
  }

  /** Messages that are no batch, since the start. */
  get unreadableMessages(): number {
    return this.#unreadableMessages;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#subscriber.close();
    for (const dealer of this.#replays) dealer.close();
    await this.#reading;
  }

  async #read(): Promise<void> {
    for await (const frames of this.#subscriber) {
      const batch = numberedBatch(frames);
      if (batch !== undefined) this.stream.receive(batch);
      else if (this.#unreadableMessages++ === 0) this.#unreadable(frames.map(({ length }) => length));
    }
  }

  /** Ends at a hole: the publisher drops what the sockets have no room for, also the end of the replay. */
  async #replay(zmq: typeof import('zeromq'), endpoint: string, from: number): Promise<NumberedBatch[]> {
    if (this.#isClosed) throw new Error('closed');
    const batches: NumberedBatch[] = [];
    const dealer = new zmq.Dealer({
      linger: 0,
      receiveTimeout: REPLAY_SILENCE_MS,
      sendTimeout: REPLAY_SILENCE_MS,
      receiveHighWaterMark: MAX_REPLAYED,
    });
    this.#replays.add(dealer);
    try {
      dealer.connect(endpoint);
      const first = Buffer.alloc(SEQUENCE_BYTES);
      first.writeBigUInt64BE(BigInt(from));
      await dealer.send([EMPTY, first]);
      let bytes = 0;
      while (batches.length < MAX_REPLAYED && bytes < MAX_REPLAYED_BYTES) {
        const frames = await dealer.receive();
        if (sequenceOf(frames.at(-2)) === END_OF_REPLAY) break;
        const batch = numberedBatch(frames);
        if (batch === undefined) continue;
        const last = batches.at(-1);
        if (last !== undefined && batch.sequence !== last.sequence + 1) break;
        batches.push(batch);
        bytes += batch.payload.length;
      }
    } catch (error) {
      if (batches.length === 0) throw error;
    } finally {
      this.#replays.delete(dealer);
      dealer.close();
    }
    return batches;
  }
}

/** Number and payload are the last two frames. */
function numberedBatch(frames: readonly Buffer[]): NumberedBatch | undefined {
  const [number, payload] = frames.slice(-2);
  const sequence = payload === undefined ? undefined : Number(sequenceOf(number));
  return Number.isSafeInteger(sequence) ? { sequence: sequence!, payload: payload! } : undefined;
}

function sequenceOf(frame: Buffer | undefined): bigint | undefined {
  const isNumber = frame?.length === SEQUENCE_BYTES || frame?.length === IDENTIFIED_SEQUENCE_BYTES;
  return isNumber ? frame!.readBigUInt64BE() : undefined;
}

/** Whether the library for KV events is installed and loads on this machine. */
export async function canHearKvEvents(): Promise<boolean> {
  return loadZmq().then(
    () => true,
    () => false,
  );
}

async function loadZmq(): Promise<typeof import('zeromq')> {
  try {
    const zmq = await import('zeromq');
    // The process ends without waiting for unsent messages.
    zmq.context.blocky = false;
    return zmq;
  } catch (cause) {
    throw new WarmpathError('WARMPATH_CONFIG_INVALID', {
      path: 'upstream.kvEvents',
      detail: 'The library zeromq, which receives KV events, cannot be loaded. Run: npm install zeromq@6',
      cause,
    });
  }
}
