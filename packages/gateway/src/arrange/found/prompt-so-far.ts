import {
  type BlockRewrite,
  type DocumentBlock,
  estimateTokens,
  fingerprint,
  type Preamble,
  rewriteText,
  type SeenDocuments,
} from '@warmpath/core';
import type { TextChange } from '../../intake/apis/request-texts.js';
import { isOrdered, type RecognisedMessage } from './recognised-request.js';
import type { SentOrder } from './sent-orders.js';

/** What became of messages, as far as it matters to those behind them. */
export interface SentPrompt {
  /** Their documents. */
  readonly seen: SeenDocuments;
  /** In which order each block was sent, as `PromptSoFar` writes it. */
  readonly orders: string;
  /** Estimated, without what decides the prompt's beginning beside messages. */
  readonly tokens: number;
  /** Other texts for what the API puts before the messages. */
  readonly opening: readonly TextChange[];
}

/**
 * What stands before a point of the prompt, as one key, and its tokens. The hash chain stands for the messages before
 * as the client wrote them, and the orders of their documents for what became of them: together they say what was sent
 * without reading it again.
 */
export class PromptSoFar {
  readonly #scope: string;
  readonly #scopeTokens: number;
  readonly #texts: { readonly text: string; readonly rewrites: readonly BlockRewrite[] }[] = [];
  orders: string;
  /** Of the messages alone. */
  messageTokens: number;

  constructor(scope: string, before?: SentPrompt) {
    this.#scope = scope;
    this.#scopeTokens = estimateTokens(scope);
    this.orders = before?.orders ?? '';
    this.messageTokens = before?.tokens ?? 0;
  }

  get tokens(): number {
    return this.#scopeTokens + this.messageTokens;
  }

  /** What stands before documents in a text of this message that begins with `before`. */
  preamble({ linkBefore, firstText }: RecognisedMessage, role: string, before: string): Preamble {
    const own = this.#texts.slice(firstText).map(({ text, rewrites }) => rewriteText(text, rewrites));
    const key = fingerprint([this.#scope, linkBefore, this.orders, role, ...own, before]);
    return { key: `in-place#${key}`, tokens: this.tokens + (before === '' ? 0 : estimateTokens(before)) };
  }

  /** A block has its order. */
  place(block: DocumentBlock, { order, relabelled, references, shortened }: SentOrder): void {
    if (!isOrdered(block) && references.length + shortened.length === 0) return;
    const replaced = references.length > 0 ? `d${references.join()}` : '';
    const parts = shortened.length > 0 ? `p${shortened.join()}` : '';
    this.orders += `${order.join()}${relabelled ? 'r' : ''}${replaced}${parts};`;
  }

  /** A text goes out with its blocks like this. It is written only for blocks behind it in the same message. */
  add(text: string, rewrites: readonly BlockRewrite[]): void {
    this.#texts.push({ text, rewrites });
    if (text !== '') this.messageTokens += estimateTokens(text);
  }
}
