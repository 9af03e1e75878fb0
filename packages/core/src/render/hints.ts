import type { Arrangement } from '../arrangement.js';
import type { Document } from '../document.js';
import { estimateTokens } from '../token-estimate.js';
import { DEFAULT_HINT_WORDING, HINT_PLACE, type HintWording } from './hint-wording.js';
import type { TemplateName } from './prompt.js';
import { documentName } from './template.js';

/**
 * The hints of an arrangement: where the documents stand that are not repeated (RAGBoost §6), then the retrieval order
 * of the documents that stand elsewhere (RAGBoost §5.3). They go behind the documents, so that no document's tokens
 * depend on them, and in front of the question. Empty when there is nothing to say. O(documents).
 */
export function renderHint(
  arrangement: Arrangement,
  template: TemplateName,
  wording: HintWording = DEFAULT_HINT_WORDING,
): string {
  const { references, hint, locationHint, order: places } = arrangement;
  const location = locationHint ? references.map(({ document }) => named(document, template)).join(', ') : '';
  const order =
    hint === undefined
      ? ''
      : inRetrievalOrder(arrangement)
          .slice(...(references.length === 0 ? movedRanks(places) : []))
          .map((one) => named(one, template))
          .join(' > ');
  return line(wording.location, location) + line(wording.order, order);
}

/**
 * The ranks that an order hint names: from the first place that changed to the last. Before and behind them documents
 * stand as they were retrieved, so nothing is left open. Both 0 if nothing moved. O(k).
 */
export function movedRanks(order: readonly number[]): readonly [start: number, end: number] {
  let start = 0;
  while (start < order.length && order[start] === start) start++;
  if (start === order.length) return [0, 0];
  let end = order.length;
  while (order[end - 1] === end - 1) end--;
  return [start, end];
}

const WORDING_TOKENS = estimateTokens(DEFAULT_HINT_WORDING.order.replace(HINT_PLACE, '\n'));

/** Tokens of the order hint, estimated in its usual wording and with labels for names. O(k). */
export function hintTokens(documents: readonly Document[], order: readonly number[]): number {
  const [start, end] = movedRanks(order);
  if (start === end) return 0;
  let tokens = WORDING_TOKENS;
  for (let rank = start; rank < end; rank++) tokens += estimateTokens(`[${documents[rank]!.label}] > `);
  return tokens;
}

/** All documents of the request, the references among them. */
function inRetrievalOrder({ documents, order, references }: Arrangement): readonly Document[] {
  const all: (Document | undefined)[] = new Array(documents.length + references.length).fill(undefined);
  for (const { document, rank } of references) all[rank] = document;
  const byRank: Document[] = new Array(documents.length);
  for (const [place, rank] of order.entries()) byRank[rank] = documents[place]!;
  let next = 0;
  return all.map((document) => document ?? byRank[next++]!);
}

function named(document: Document, template: TemplateName): string {
  return `[${documentName(document, template)}]`;
}

function line(wording: string, names: string): string {
  return names === '' ? '' : `${wording.replace(HINT_PLACE, () => names)}\n`;
}
