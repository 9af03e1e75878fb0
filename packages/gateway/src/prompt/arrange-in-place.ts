import {
  type Arrangement,
  type ArrangeRequest,
  blockDocuments,
  type Document,
  type DocumentBlock,
  estimateTokens,
  type Preamble,
  rewriteText,
  SeenDocuments,
  withReferences,
} from '@warmpath/core';
import { type BlockRewrite, fingerprint, isCounted, type RepeatedDocument, textMoves } from '@warmpath/core/internal';
import { type TextChange, textEdits } from '../apis/request-texts.js';
import type { ConversationMemory } from '../conversation/conversation-memory.js';
import { applyEdits } from '../json/json-body.js';
import type {
  DecidedSlot,
  InPlace,
  PlacedBlock,
  RecognisedMessage,
  RecognisedRequest,
  SentOrder,
} from '../shapes/shapes.js';
import { isOrdered } from './find-documents.js';

/** What is told of a block. */
export function slotOf({ block, decided, sent, references }: PlacedBlock): DecidedSlot {
  return {
    format: block.format,
    documents: block.documents.length,
    decided,
    order: sent.order,
    labels: sent.labels,
    references: ranksOf(references, false),
    shortened: ranksOf(references, true),
  };
}

function ranksOf(references: PlacedBlock['references'], partly: boolean): readonly number[] {
  return references.filter((reference) => reference.partly === partly).map(({ rank }) => rank);
}

/** Whether there is something to tell of a block: a result that stays as it is holds no documents. */
export function isReported({ block, references }: PlacedBlock): boolean {
  return isOrdered(block) || references.length > 0;
}

/** What arranges one block: core's `arrange` with the policy, the switches and the view of this tenant and model. */
type ArrangeBlock = (request: Pick<ArrangeRequest, 'documents' | 'preamble' | 'policy'>) => Arrangement;

/** What decides about a request beside its own text. */
export interface InPlaceOptions {
  readonly tenant: string;
  readonly memory: ConversationMemory;
  readonly arrange: ArrangeBlock;
  /** Whether a document that stands farther up in full is referred to. */
  readonly deduplicate: boolean;
  /** Whether parts that documents have in common are referred to, where documents are. */
  readonly blocks: boolean;
}

/**
 * Refers to documents that the prompt shows already, and orders the others where they stand, one block after the other
 * in the order of the prompt, because what stands before a block decides which of its documents are cached. A message
 * that was sent before is sent the same. O(body).
 *
 * References hang on nothing but the messages up to theirs, so a history that nobody remembers (another gateway served
 * it, the record of it is gone) gets the same ones again. What was sent whole while de-duplication was off stays whole.
 */
export function arrangeInPlace(request: RecognisedRequest, options: InPlaceOptions): InPlace {
  const placed: PlacedBlock[] = [];
  const changes: TextChange[] = [...(request.mapped?.changes ?? [])];
  const prompt = new PromptSoFar(request);
  const byText = blocksByText(request, options);
  const repeats = new Repeats(byText, options);
  for (const [index, given] of request.texts.entries()) {
    const open = byText.get(index) ?? [];
    const references = repeats.in(given, open);
    const { text, blocks } = withReferences(
      given.text,
      open.map(({ block }, i) => ({ block, repeats: references[i]! })),
    );
    const rewrites: BlockRewrite[] = [];
    for (const [i, each] of open.entries()) {
      const { block, message } = each;
      const shown = blocks[i]!;
      const decided = decide(shown, labelsOf(request, block), {
        // Field by field: in a conversation of many blocks, spreading an object showed in the profile.
        recalled: each.recalled,
        isNew: each.isNew,
        text,
        references: references[i]!,
        arrange: options.arrange,
        preamble: () => prompt.preamble(message, given.role, rewriteText(text.slice(0, shown.start), rewrites)),
      });
      const { sent } = decided;
      placed.push({
        block,
        references: references[i]!,
        sent,
        decided: decided.decided,
        arrangement: decided.arrangement,
      });
      rewrites.push({ block: shown, order: sent.order });
      prompt.place(block, sent);
    }
    const change = changeOf(request, index, text, rewrites);
    if (change !== undefined) changes.push(change);
    prompt.add(text, rewrites);
  }
  return {
    changes,
    blocks: placed,
    estimatedTokens: prompt.tokens,
  };
}

/** The body with these changes; the very same where there are none. O(body). */
export function permuted({ view }: RecognisedRequest, changes: readonly TextChange[]): Buffer {
  return applyEdits(view.bytes, textEdits(view, changes));
}

/**
 * How a text of the request becomes this one with its blocks in their order: its own bytes are moved where nothing else
 * changes, because writing all of it as JSON took a seventh of the time of a prompt. `undefined` where nothing changes.
 */
function changeOf(
  { given, view }: RecognisedRequest,
  index: number,
  text: string,
  rewrites: readonly BlockRewrite[],
): TextChange | undefined {
  const { text: before, place, kind } = given[index]!;
  const moves = text === before && kind === undefined ? textMoves(rewrites) : undefined;
  if (moves?.length === 0) return undefined;
  if (moves !== undefined && view.isUtf8) return { place, moves, length: text.length };
  const written = rewriteText(text, rewrites);
  return written === before ? undefined : { place, text: written };
}

/**
 * The body with messages that were sent before as they were sent, and everything else as it came: for a request whose
 * own documents are arranged, so that nothing new is looked for in its prompt. O(body).
 */
export function replayInPlace(request: RecognisedRequest, options: Pick<InPlaceOptions, 'tenant' | 'memory'>): Buffer {
  const messages = request.messages.map((message) => ({ ...message, isNew: false }));
  const arrange = () => {
    throw new Error('Nothing is arranged in history.');
  };
  const replayed = { ...request, messages };
  const { changes } = arrangeInPlace(replayed, { ...options, arrange, deduplicate: false, blocks: false });
  return permuted(replayed, changes);
}

/**
 * The documents of a request whose order is open and before which nothing else is decided: what other requests with the
 * same beginning can be known while it waits. `undefined` where its first block is history, or must stay as it is.
 * O(text up to the block's end).
 */
export function firstOpenDocuments(
  request: RecognisedRequest,
  options: Omit<InPlaceOptions, 'arrange'>,
): { readonly documents: readonly Document[]; readonly preamble: Preamble } | undefined {
  const message = request.messages.find(({ blocks }) => blocks.some(isOrdered));
  const block = message?.blocks.find(isOrdered);
  if (message === undefined || block === undefined || !message.isNew || block.fixed !== undefined) return undefined;
  const recalled = options.memory.ordersOf(options.tenant, message);
  if (recalled !== undefined) return undefined;
  const byText = blocksByText(request, options);
  const repeats = new Repeats(byText, options);
  const prompt = new PromptSoFar(request);
  for (const [index, given] of request.texts.slice(0, block.text + 1).entries()) {
    const [first] = byText.get(index) ?? [];
    const [references = NO_REPEATS] = repeats.in(given, first === undefined ? [] : [first]);
    const { text, blocks } = withReferences(
      given.text,
      first === undefined ? [] : [{ block: first.block, repeats: references }],
    );
    if (index < block.text) {
      if (first !== undefined)
        prompt.place(first.block, sentInOrder(first.block, labelsOf(request, first.block), references));
      prompt.add(text, []);
      continue;
    }
    const preamble = prompt.preamble(message, given.role, text.slice(0, block.start));
    return { documents: blockDocuments(text, blocks[0]!), preamble };
  }
  return undefined;
}

/** Remembers how the documents of each message are sent. */
export function rememberOrders(
  { messages }: RecognisedRequest,
  blocks: readonly PlacedBlock[],
  { tenant, memory }: Pick<InPlaceOptions, 'tenant' | 'memory'>,
): void {
  const sentOf = new Map(blocks.map(({ block, sent }) => [block, sent]));
  for (const message of messages) {
    memory.sentInOrder(
      tenant,
      message,
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
  { tenant, memory }: Pick<InPlaceOptions, 'tenant' | 'memory'>,
): ReadonlyMap<number, readonly OpenBlock[]> {
  const byText = new Map<number, OpenBlock[]>();
  for (const message of request.messages) {
    const { blocks, isNew } = message;
    const recalled = memory.ordersOf(tenant, message);
    for (const [i, block] of blocks.entries()) {
      const known = byText.get(block.text) ?? [];
      known.push({ block, recalled: recalled?.[i], isNew, message });
      byText.set(block.text, known);
    }
  }
  return byText;
}

/** Which documents are referred to: texts must be asked for in the order of the prompt. */
class Repeats {
  /** All are seen, referred to or not: a message that was sent may hold references though new ones are not wanted. */
  readonly seen: SeenDocuments;
  readonly #deduplicate: boolean;
  readonly #blocks: boolean;

  constructor(
    byText: ReadonlyMap<number, readonly OpenBlock[]>,
    { deduplicate, blocks }: Pick<InPlaceOptions, 'deduplicate' | 'blocks'>,
  ) {
    this.#deduplicate = deduplicate;
    this.#blocks = blocks;
    const known = [...byText.values()].flatMap((open) => open.flatMap(({ recalled }) => recalled ?? []));
    // What was shortened once is shortened again, whatever is asked for now.
    const looksAtParts = (deduplicate && blocks) || known.some(({ shortened }) => shortened.length > 0);
    this.seen = new SeenDocuments({ blocks: looksAtParts });
  }

  /** For each block of a text, in their order. */
  in({ role, text }: RecognisedRequest['texts'][number], open: readonly OpenBlock[]): (readonly RepeatedDocument[])[] {
    const { seen } = this;
    let from = 0;
    const repeats = open.map((each) => {
      seen.addText(text.slice(from, each.block.start));
      from = each.block.end;
      return this.#of(seen.add(text, each.block), each);
    });
    // What the model said may be quoted wrongly.
    if (role !== 'assistant') seen.addText(text.slice(from));
    return repeats;
  }

  #of(repeats: readonly RepeatedDocument[], { recalled }: OpenBlock): readonly RepeatedDocument[] {
    // A record never makes a reference of what does not stand farther up in this very request.
    if (recalled !== undefined) {
      return repeats.filter(({ rank, partly }) => (partly ? recalled.shortened : recalled.references).includes(rank));
    }
    if (!this.#deduplicate) return NO_REPEATS;
    return this.#blocks ? repeats : repeats.filter(({ partly }) => !partly);
  }
}

const NO_REPEATS: readonly never[] = [];

function labelsOf({ mapped }: RecognisedRequest, block: DocumentBlock): DecidedSlot['labels'] {
  if (mapped?.labels.has(block)) return 'mapped';
  return isCounted(block) ? 'kept' : 'none';
}

function decide(
  block: DocumentBlock,
  labels: DecidedSlot['labels'],
  {
    recalled,
    isNew,
    text,
    references,
    arrange,
    preamble,
  }: Pick<OpenBlock, 'recalled' | 'isNew'> & {
    readonly text: string;
    readonly references: readonly RepeatedDocument[];
    readonly arrange: ArrangeBlock;
    preamble(): Preamble;
  },
): Pick<PlacedBlock, 'sent' | 'decided' | 'arrangement'> {
  if (recalled !== undefined) return { sent: recalled, decided: 'replayed', arrangement: undefined };
  const inOrder = sentInOrder(block, labels, references);
  if (!isNew) return { sent: inOrder, decided: 'history', arrangement: undefined };
  if (block.fixed !== undefined || !isOrdered(block))
    return { sent: inOrder, decided: 'fixed', arrangement: undefined };
  const asked = { documents: blockDocuments(text, block), preamble: preamble() };
  const free = arrange(asked);
  const arrangement = keepsBehind(free.order, references) ? free : arrange({ ...asked, policy: 'retrieval' });
  return {
    sent: { ...inOrder, order: arrangement.order },
    decided: 'arranged',
    arrangement,
  };
}

function sentInOrder(
  { documents }: DocumentBlock,
  labels: DecidedSlot['labels'],
  references: readonly RepeatedDocument[],
): SentOrder {
  return {
    order: documents.map((_, rank) => rank),
    labels,
    references: ranksOf(references, false),
    shortened: ranksOf(references, true),
  };
}

/** Whether each reference to a document of the same block stands behind it. */
function keepsBehind(order: readonly number[], references: readonly RepeatedDocument[]): boolean {
  return references.every(({ rank, behind }) => behind === undefined || order.indexOf(behind) < order.indexOf(rank));
}

/**
 * What stands before a point of the prompt, as one key, and its tokens. The hash chain stands for the messages before
 * as the client wrote them, and the orders of their documents for what became of them: together they say what was sent
 * without reading it again.
 */
class PromptSoFar {
  readonly #request: RecognisedRequest;
  readonly #texts: { readonly text: string; readonly rewrites: readonly BlockRewrite[] }[] = [];
  #orders = '';
  /** Estimated. */
  tokens: number;

  constructor(request: RecognisedRequest) {
    this.#request = request;
    this.tokens = estimateTokens(request.scope);
  }

  /** What stands before documents in a text of this message that begins with `before`. */
  preamble({ linkBefore, firstText }: RecognisedMessage, role: string, before: string): Preamble {
    const own = this.#texts.slice(firstText).map(({ text, rewrites }) => rewriteText(text, rewrites));
    const key = fingerprint([this.#request.scope, linkBefore, this.#orders, role, ...own, before]);
    return { key: `in-place#${key}`, tokens: this.tokens + (before === '' ? 0 : estimateTokens(before)) };
  }

  /** A block has its order. */
  place(block: DocumentBlock, { order, references, shortened }: SentOrder): void {
    if (!isOrdered(block) && references.length + shortened.length === 0) return;
    const labels = this.#request.mapped?.labels.get(block);
    const replaced = references.length > 0 ? `d${references.join()}` : '';
    const parts = shortened.length > 0 ? `p${shortened.join()}` : '';
    const mapped = labels === undefined ? '' : `l${labels}`;
    this.#orders += `${order.join()}${replaced}${parts}${mapped};`;
  }

  /** A text goes out with its blocks like this. It is written only for blocks behind it in the same message. */
  add(text: string, rewrites: readonly BlockRewrite[]): void {
    this.#texts.push({ text, rewrites });
    if (text !== '') this.tokens += estimateTokens(text);
  }
}
