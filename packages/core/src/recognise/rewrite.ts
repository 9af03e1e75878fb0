import type { Document } from '../document.js';
import { fingerprint } from '../fingerprint.js';
import { HINT_PLACE } from '../render/prompt.js';
import { estimateTokens } from '../token-estimate.js';
import type { DocumentBlock, DocumentSpan } from './block.js';

/** How a block is written back. */
export interface BlockRewrite {
  readonly block: DocumentBlock;
  /** `order[place]` is the rank of the document that stands there: a permutation of the block's documents. */
  readonly order: readonly number[];
  /**
   * Wording of a hint that states the order in which the documents were given, on a line behind the last one where
   * another order stands there and each has a name; `{documents}` stands for the names. None if left out.
   */
  readonly hint?: string | undefined;
}

/**
 * The text with its blocks in another order. Everything outside the documents keeps its place, white space and commas
 * between them included; a document moves as it is written, with its label. In the order of the text, the very text,
 * and no hint. Blocks must be of this text, in its order. O(text).
 */
export function rewriteText(text: string, rewrites: readonly BlockRewrite[]): string {
  const parts: string[] = [];
  let from = 0;
  for (const rewrite of rewrites) {
    const { block, order } = rewrite;
    if (isInOrder(order)) continue;
    for (const [place, rank] of order.entries()) {
      const slot = block.documents[place]!;
      parts.push(text.slice(from, slot.start), text.slice(block.documents[rank]!.start, block.documents[rank]!.end));
      from = slot.end;
    }
    parts.push(hintFor(text, rewrite));
  }
  if (from === 0) return text;
  parts.push(text.slice(from));
  return parts.join('');
}

/** `[start, end)` of a text becomes what stands at `[from, to)` of it. */
export interface TextMove {
  readonly start: number;
  readonly end: number;
  readonly from: number;
  readonly to: number;
}

/**
 * What `rewriteText` would move, for whoever moves it in another form of the text; `undefined` where a hint would be
 * written. O(documents).
 */
export function textMoves(text: string, rewrites: readonly BlockRewrite[]): readonly TextMove[] | undefined {
  const moves: TextMove[] = [];
  for (const rewrite of rewrites) {
    const { block, order } = rewrite;
    if (!isInOrder(order) && hintFor(text, rewrite) !== '') return undefined;
    for (const [place, rank] of order.entries()) {
      if (rank === place) continue;
      const { start, end } = block.documents[place]!;
      const { start: from, end: to } = block.documents[rank]!;
      moves.push({ start, end, from, to });
    }
  }
  return moves;
}

function isInOrder(order: readonly number[]): boolean {
  return order.every((rank, place) => rank === place);
}

/** Whether a label counts each document of a block. */
export function isCounted({ documents }: DocumentBlock): boolean {
  return documents.every(({ labels }) => labels.length > 0);
}

/** Forms in which a line behind the documents would belong to them, or break them. */
const CLOSED: ReadonlySet<DocumentBlock['format']> = new Set(['json', 'python', 'result']);
/** Characters of a name in a hint: longer ones are texts. */
const NAME_LENGTH = 200;

/** The line that states the given order; empty where none is wanted, or a document has no name. */
function hintFor(text: string, { block, hint }: BlockRewrite): string {
  if (hint === undefined || CLOSED.has(block.format)) return '';
  const names = block.documents.map((span) => nameOf(text, block, span));
  if (names.some((name) => name === undefined || name.length > NAME_LENGTH || name.includes('\n'))) return '';
  if (new Set(names).size < names.length) return '';
  return `\n${hint.replace(HINT_PLACE, () => names.join(' > '))}`;
}

/** What the prompt calls a document where it now stands: its label, or its title or id. */
function nameOf(text: string, block: DocumentBlock, { labels, title, id }: DocumentSpan): string | undefined {
  const [label] = labels;
  return label === undefined || !isCounted(block) ? (title ?? id) : `[${text.slice(label.start, label.end)}]`;
}

/**
 * A block's documents as `arrange` takes them, in the order of the text. Their key follows from all of their bytes, the
 * label included. Two of the same text stay two. O(length of the block).
 */
export function blockDocuments(text: string, block: DocumentBlock): readonly Document[] {
  const seen = new Map<string, number>();
  return block.documents.map((span) => {
    const content = text.slice(span.start, span.end);
    const hash = fingerprint([content]);
    const earlier = seen.get(hash) ?? 0;
    seen.set(hash, earlier + 1);
    const key = earlier === 0 ? `span#${hash}` : `span#${hash}#${earlier + 1}`;
    const id = span.id ?? key;
    return { id, key, label: id, title: span.title, content, metadata: undefined, tokens: estimateTokens(content) };
  });
}
