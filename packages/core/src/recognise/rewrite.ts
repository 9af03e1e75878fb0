import type { Document } from '../document.js';
import { fingerprint } from '../fingerprint.js';
import { estimateTokens } from '../token-estimate.js';
import type { DocumentBlock } from './block.js';

/** How a block is written back. */
export interface BlockRewrite {
  readonly block: DocumentBlock;
  /** `order[place]` is the rank of the document that stands there: a permutation of the block's documents. */
  readonly order: readonly number[];
}

/**
 * The text with its blocks in another order. Everything outside the documents keeps its place, white space and commas
 * between them included; a document moves as it is written, with its label. In the order of the text, the very text.
 * Blocks must be of this text, in its order. O(text).
 */
export function rewriteText(text: string, rewrites: readonly BlockRewrite[]): string {
  const parts: string[] = [];
  let from = 0;
  for (const { block, order } of rewrites) {
    if (order.every((rank, place) => rank === place)) continue;
    for (const [place, rank] of order.entries()) {
      const slot = block.documents[place]!;
      parts.push(text.slice(from, slot.start), text.slice(block.documents[rank]!.start, block.documents[rank]!.end));
      from = slot.end;
    }
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

/** What `rewriteText` moves, to move it in another form of the text. O(documents). */
export function textMoves(rewrites: readonly BlockRewrite[]): readonly TextMove[] {
  const moves: TextMove[] = [];
  for (const { block, order } of rewrites) {
    for (const [place, rank] of order.entries()) {
      if (rank === place) continue;
      const { start, end } = block.documents[place]!;
      const { start: from, end: to } = block.documents[rank]!;
      moves.push({ start, end, from, to });
    }
  }
  return moves;
}

/** Whether a label counts each document of a block. */
export function isCounted({ documents }: DocumentBlock): boolean {
  return documents.every(({ labels }) => labels.length > 0);
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
