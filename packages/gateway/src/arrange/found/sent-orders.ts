import type { DocumentBlock } from '@warmpath/core';

/** How the documents of one block were sent. */
export interface SentOrder {
  /** `order[place]` is the rank of the document that stood there. */
  readonly order: readonly number[];
  /** Whether labels were counted anew. */
  readonly relabelled: boolean;
  /** Ranks of the documents that a reference stood for. */
  readonly references: readonly number[];
  /** Ranks of the documents of which parts were references. */
  readonly shortened: readonly number[];
}

/** How a message was sent, and where that is remembered. */
export interface SentMessage {
  readonly key: string;
  readonly orders: readonly SentOrder[];
}

/**
 * In which order the documents of a message went to the engine, so that the message is sent the same when it comes again as
 * history: bytes that the engine has had never change. Found by tenant and by the hash chain of the client's own messages up
 * to this one. Holds no text. Bounded: the least recently used message goes first, and is then sent as the client wrote it. All O(1).
 */
export class SentOrders {
  readonly #capacity: number;
  readonly #orders = new Map<string, readonly SentOrder[]>();

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  get size(): number {
    return this.#orders.size;
  }

  /** How the message at this link was sent; `undefined` if it is new, or was recognised differently then. */
  of(tenant: string, link: string, blocks: readonly DocumentBlock[]): readonly SentOrder[] | undefined {
    const key = `${tenant}\n${link}`;
    const orders = this.#orders.get(key);
    if (orders === undefined) return undefined;
    const fits =
      orders.length === blocks.length && orders.every(({ order }, i) => order.length === blocks[i]!.documents.length);
    if (!fits) return undefined;
    this.#orders.delete(key);
    this.#orders.set(key, orders);
    return orders;
  }

  /** Whether a message that was sent would be sent the same again. To the order of use, it is as if it had been asked for. */
  isCurrent({ key, orders: sent }: SentMessage): boolean {
    const orders = this.#orders.get(key);
    if (orders === undefined || orders.length !== sent.length) return false;
    if (orders !== sent && !orders.every((order, i) => order === sent[i])) return false;
    this.#orders.delete(key);
    this.#orders.set(key, orders);
    return true;
  }

  /** The message goes out like this. */
  sent(tenant: string, link: string, orders: readonly SentOrder[]): SentMessage {
    const message = { key: `${tenant}\n${link}`, orders };
    this.sentAgain(message);
    return message;
  }

  /** The message goes out as it did before. */
  sentAgain({ key, orders }: SentMessage): void {
    this.#orders.delete(key);
    if (this.#orders.size >= this.#capacity) this.#orders.delete(this.#orders.keys().next().value!);
    this.#orders.set(key, orders);
  }
}
