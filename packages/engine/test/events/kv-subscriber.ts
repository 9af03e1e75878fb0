import { decode } from '@msgpack/msgpack';
import { Dealer, Subscriber } from 'zeromq';
import type { KvEvent, KvMedium } from '../../src/events/kv-event.js';

/** A batch as it came. */
export interface ReceivedBatch {
  readonly topic: string;
  readonly sequence: number;
  readonly timestamp: number;
  readonly rank: unknown;
  readonly events: readonly KvEvent[];
  /** The events as they were written. */
  readonly wire: readonly unknown[];
}

/** Listens to live batches, in the order in which they come. Close it. */
export class KvSubscriber {
  readonly batches: ReceivedBatch[] = [];
  readonly #socket: Subscriber;
  #arrived: () => void = () => undefined;

  /** @param connect Whether the publisher is the one that is bound. */
  private constructor(socket: Subscriber) {
    this.#socket = socket;
    void this.#listen();
  }

  static connect(endpoint: string, topic = ''): KvSubscriber {
    const socket = new Subscriber({ linger: 0 });
    socket.subscribe(topic);
    socket.connect(endpoint);
    return new KvSubscriber(socket);
  }

  /** Waits for a publisher to connect. */
  static async bind(endpoint: string): Promise<{ subscriber: KvSubscriber; endpoint: string }> {
    const socket = new Subscriber({ linger: 0 });
    socket.subscribe();
    await socket.bind(endpoint);
    return { subscriber: new KvSubscriber(socket), endpoint: socket.lastEndpoint! };
  }

  /** Waits until what has arrived is enough. */
  async until(isEnough: (batches: readonly ReceivedBatch[]) => boolean): Promise<void> {
    while (!isEnough(this.batches)) {
      await new Promise<void>((resolve) => {
        this.#arrived = resolve;
      });
    }
  }

  close(): void {
    this.#socket.close();
  }

  async #listen(): Promise<void> {
    for await (const [topic, sequence, payload, ...more] of this.#socket) {
      if (more.length > 0) {
        throw new Error('A message has more than three frames');
      }
      this.batches.push(received(topic!.toString(), sequence!, payload!));
      this.#arrived();
    }
  }
}

/** Asks for all batches from a sequence number on. */
export async function replay(
  endpoint: string,
  first: number,
  frames: (sequence: Buffer) => readonly (Buffer | string)[] = (sequence) => ['', sequence],
): Promise<ReceivedBatch[]> {
  const socket = new Dealer({ linger: 0 });
  socket.connect(endpoint);
  const sequence = Buffer.alloc(8);
  sequence.writeBigInt64BE(BigInt(first));
  await socket.send([...frames(sequence)]);
  const batches: ReceivedBatch[] = [];
  try {
    for await (const [empty, ...rest] of socket) {
      if (empty!.length !== 0) {
        throw new Error('A reply does not begin with an empty frame');
      }
      const [payload, number, topic] = rest.toReversed();
      if (number!.readBigInt64BE() === -1n) {
        return batches;
      }
      batches.push(received(topic?.toString() ?? 'no topic', number!, payload!));
    }
  } finally {
    socket.close();
  }
  throw new Error('A replay has no end');
}

function received(topic: string, sequence: Buffer, payload: Buffer): ReceivedBatch {
  const [timestamp, wire, rank] = decode(payload, { useBigInt64: true }) as [number, unknown[], unknown];
  return {
    topic,
    sequence: Number(sequence.readBigUInt64BE()),
    timestamp,
    rank,
    wire,
    events: wire.map((event) => (Array.isArray(event) ? fromPositional(event) : fromTagged(event as TaggedEvent))),
  };
}

interface TaggedEvent {
  readonly type: string;
  readonly block_hashes: readonly bigint[];
  readonly parent_block_hash: bigint | null;
  readonly token_ids: readonly number[];
  readonly block_size: number;
  readonly medium: KvMedium;
  readonly extra_keys?: readonly (readonly [string] | null)[];
}

function fromTagged(event: TaggedEvent): KvEvent {
  switch (event.type) {
    case 'BlockStored': {
      const salt = event.extra_keys?.[0]?.[0];
      return {
        type: 'stored',
        medium: event.medium,
        blockHashes: event.block_hashes.map(toHash),
        parentBlockHash: event.parent_block_hash === null ? null : toHash(event.parent_block_hash),
        tokenIds: event.token_ids,
        blockSize: event.block_size,
        ...(salt !== undefined && { salt }),
      };
    }
    case 'BlockRemoved':
      return { type: 'removed', medium: event.medium, blockHashes: event.block_hashes.map(toHash) };
    case 'AllBlocksCleared':
      return { type: 'cleared' };
    default:
      throw new Error(`What is ${event.type}?`);
  }
}

function fromPositional([type, hashes, second, tokens, size, _lora, medium, _name, keys]: readonly unknown[]): KvEvent {
  return fromTagged({
    type,
    block_hashes: hashes,
    parent_block_hash: second,
    token_ids: tokens,
    block_size: size,
    medium: type === 'BlockRemoved' ? second : medium,
    extra_keys: keys,
  } as TaggedEvent);
}

function toHash(number: bigint): string {
  return number.toString(16).padStart(16, '0');
}
