import { type DocumentBlock, estimateTokens, type Preamble, rewriteText } from '@warmpath/core';
import { type BlockRewrite, fingerprint } from '@warmpath/core/internal';
import { TenantCache } from '../memory/tenant-cache.js';
import type { RecognisedMessage, SentOrder } from '../shapes/shapes.js';
import { isOrdered } from './find-documents.js';

/** How a message was sent, and where that is remembered. */
export interface SentMessage {
  readonly tenant: string;
  /** Link of the hash chain over the client's messages up to this one. */
  readonly link: string;
  readonly orders: readonly SentOrder[];
}

/** Bytes of one order beside its numbers, and of one number. Generous. */
const ORDER_BYTES = 200;
const NUMBER_BYTES = 8;

/**
 * In which order the documents of a message went to the engine, so that the message is sent the same when it comes
 * again: bytes that the engine has had never change. Found by tenant and by the hash chain of the client's own messages
 * up to this one. Holds no text: what it says of another message with the same link is only an order of that message's
 * own documents. What is forgotten is sent as the client wrote it. All O(log tenants).
 */
export class SentOrders {
  readonly #orders: TenantCache<readonly SentOrder[]>;

  constructor(maxBytes: number) {
    this.#orders = new TenantCache(maxBytes);
  }

  get size(): number {
    return this.#orders.size;
  }

  get bytes(): number {
    return this.#orders.bytes;
  }

  /** How the message at this link was sent; `undefined` if it is new, or was recognised differently. Counts as used. */
  of(tenant: string, link: string, blocks: readonly DocumentBlock[]): readonly SentOrder[] | undefined {
    const orders = this.#orders.get(tenant, link);
    const fits =
      orders?.length === blocks.length && orders.every(({ order }, i) => order.length === blocks[i]!.documents.length);
    return fits ? orders : undefined;
  }

  /** The message goes out like this, now or once more. */
  sent({ tenant, link, orders }: SentMessage): void {
    let bytes = 0;
    for (const { order, references, shortened } of orders) {
      bytes += ORDER_BYTES + NUMBER_BYTES * (order.length + references.length + shortened.length);
    }
    this.#orders.set(tenant, link, orders, bytes);
  }
}

/**
 * What stands before a point of the prompt, as one key, and its tokens. The hash chain stands for the messages before
 * as the client wrote them, and the orders of their documents for what became of them: together they say what was sent
 * without reading it again.
 */
export class PromptSoFar {
  readonly #scope: string;
  readonly #texts: { readonly text: string; readonly rewrites: readonly BlockRewrite[] }[] = [];
  #orders = '';
  /** Estimated. */
  tokens: number;

  constructor(scope: string) {
    this.#scope = scope;
    this.tokens = estimateTokens(scope);
  }

  /** What stands before documents in a text of this message that begins with `before`. */
  preamble({ linkBefore, firstText }: RecognisedMessage, role: string, before: string): Preamble {
    const own = this.#texts.slice(firstText).map(({ text, rewrites }) => rewriteText(text, rewrites));
    const key = fingerprint([this.#scope, linkBefore, this.#orders, role, ...own, before]);
    return { key: `in-place#${key}`, tokens: this.tokens + (before === '' ? 0 : estimateTokens(before)) };
  }

  /** A block has its order. */
  place(block: DocumentBlock, { order, references, shortened }: SentOrder): void {
    if (!isOrdered(block) && references.length + shortened.length === 0) return;
    const replaced = references.length > 0 ? `d${references.join()}` : '';
    const parts = shortened.length > 0 ? `p${shortened.join()}` : '';
    this.#orders += `${order.join()}${replaced}${parts};`;
  }

  /** A text goes out with its blocks like this. It is written only for blocks behind it in the same message. */
  add(text: string, rewrites: readonly BlockRewrite[]): void {
    this.#texts.push({ text, rewrites });
    if (text !== '') this.tokens += estimateTokens(text);
  }
}
