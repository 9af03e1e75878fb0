import {
  type Arrangement,
  type ArrangeRequest,
  type BlockRewrite,
  blockDocuments,
  type DocumentBlock,
  estimateTokens,
  fingerprint,
  type Preamble,
  rewriteText,
} from '@warmpath/core';
import { rewriteTexts } from '../apis/request-texts.js';
import type { RecognisedMessage, RecognisedRequest } from './recognised-request.js';
import type { SentOrder, SentOrders } from './sent-orders.js';

/** A block of a request, and what became of its documents. */
export interface PlacedBlock {
  readonly block: DocumentBlock;
  readonly sent: SentOrder;
  /** `replayed`: sent before, sent the same. `fixed`: the prompt forbids it. `history`: no longer new, and never seen. */
  readonly decided: 'arranged' | 'replayed' | 'fixed' | 'history';
  /** For arranged ones. */
  readonly arrangement: Arrangement | undefined;
}

/** A request with its documents in their places. */
export interface InPlace {
  readonly body: string;
  readonly blocks: readonly PlacedBlock[];
  /** The whole prompt's texts, in estimated tokens. */
  readonly estimatedTokens: number;
}

/** What arranges one block: core's `arrange` with the policy, the dial and the view of this tenant and model. */
export type ArrangeBlock = (request: Pick<ArrangeRequest, 'documents' | 'preamble'>) => Arrangement;

/**
 * Orders the documents of a request where they stand, one block after the other in the order of the prompt, because what stands
 * before a block decides which of its documents are cached. A message that was sent before is sent the same. Only texts in which
 * something moves are written anew; if nothing does, the body is the very same. O(body).
 */
export function arrangeInPlace(
  request: RecognisedRequest,
  { tenant, orders, arrange }: { readonly tenant: string; readonly orders: SentOrders; readonly arrange: ArrangeBlock },
): InPlace {
  const placed: PlacedBlock[] = [];
  const changes: { readonly place: RecognisedRequest['texts'][number]['place']; readonly text: string }[] = [];
  const prompt = new PromptSoFar(request.scope);
  const byText = blocksByText(request, tenant, orders);
  for (const [index, { role, text, place }] of request.texts.entries()) {
    const rewrites: BlockRewrite[] = [];
    for (const { block, recalled, isNew, message } of byText.get(index) ?? []) {
      const before = rewriteText(text.slice(0, block.start), rewrites);
      const one = decide(block, {
        recalled,
        isNew,
        text,
        arrange,
        preamble: () => prompt.preamble(message, role, before),
      });
      placed.push(one);
      rewrites.push({ block: { ...block, labels: rule(block, one.sent) }, order: one.sent.order });
      prompt.place(one.sent);
    }
    const written = rewriteText(text, rewrites);
    if (written !== request.given[index]!.text) changes.push({ place, text: written });
    prompt.add(written);
  }
  return { body: rewriteTexts(request.body, changes), blocks: placed, estimatedTokens: prompt.tokens };
}

/** Remembers how each message of a request goes out; call it when the request does. */
export function rememberOrders(
  request: RecognisedRequest,
  {
    tenant,
    orders,
    blocks,
  }: { readonly tenant: string; readonly orders: SentOrders; readonly blocks: readonly PlacedBlock[] },
): void {
  const sentOf = new Map(blocks.map(({ block, sent }) => [block, sent]));
  for (const message of request.messages) {
    orders.sent(
      tenant,
      message.link,
      message.blocks.map((block) => sentOf.get(block)!),
    );
  }
}

interface OpenBlock {
  readonly block: DocumentBlock;
  readonly recalled: SentOrder | undefined;
  readonly isNew: boolean;
  readonly message: RecognisedMessage;
}

function blocksByText(
  request: RecognisedRequest,
  tenant: string,
  orders: SentOrders,
): ReadonlyMap<number, OpenBlock[]> {
  const byText = new Map<number, OpenBlock[]>();
  for (const message of request.messages) {
    const { link, blocks, isNew } = message;
    const recalled = orders.of(tenant, link, blocks);
    for (const [i, block] of blocks.entries()) {
      const known = byText.get(block.text) ?? [];
      known.push({ block, recalled: recalled?.[i], isNew, message });
      byText.set(block.text, known);
    }
  }
  return byText;
}

function decide(
  block: DocumentBlock,
  {
    recalled,
    isNew,
    text,
    arrange,
    preamble,
  }: Pick<OpenBlock, 'recalled' | 'isNew'> & {
    readonly text: string;
    readonly arrange: ArrangeBlock;
    preamble(): Preamble;
  },
): PlacedBlock {
  if (recalled !== undefined) return { block, sent: recalled, decided: 'replayed', arrangement: undefined };
  const inOrder = { order: block.documents.map((_, rank) => rank), relabelled: false };
  if (!isNew) return { block, sent: inOrder, decided: 'history', arrangement: undefined };
  if (block.fixed !== undefined) return { block, sent: inOrder, decided: 'fixed', arrangement: undefined };
  const arrangement = arrange({ documents: blockDocuments(text, block), preamble: preamble() });
  return {
    block,
    sent: { order: arrangement.order, relabelled: block.labels === 'free' },
    decided: 'arranged',
    arrangement,
  };
}

/** The rule that the labels were written by when this order was sent. */
function rule({ labels }: DocumentBlock, { relabelled }: SentOrder): DocumentBlock['labels'] {
  if (labels === 'none') return labels;
  return relabelled ? 'free' : 'referred';
}

/**
 * What stands before a point of the prompt, as one key, and its tokens. The hash chain stands for the messages before as the client
 * wrote them, and the orders of their documents for what became of them: together they say what was sent without reading it again.
 */
class PromptSoFar {
  readonly #scope: string;
  readonly #written: string[] = [];
  #orders = '';
  tokens: number;

  constructor(scope: string) {
    this.#scope = scope;
    this.tokens = estimateTokens(scope);
  }

  /** What stands before documents in a text of this message that begins with `before`. */
  preamble({ linkBefore, firstText }: RecognisedMessage, role: string, before: string): Preamble {
    const own = this.#written.slice(firstText);
    const key = fingerprint([this.#scope, linkBefore, this.#orders, role, ...own, before]);
    return { key: `in-place#${key}`, tokens: this.tokens + (before === '' ? 0 : estimateTokens(before)) };
  }

  /** A block has its order. */
  place({ order, relabelled }: SentOrder): void {
    this.#orders += `${order.join()}${relabelled ? 'r' : ''};`;
  }

  add(text: string): void {
    this.#written.push(text);
    if (text !== '') this.tokens += estimateTokens(text);
  }
}
