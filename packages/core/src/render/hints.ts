import type { Arrangement } from '../arrangement.js';
import type { Document } from '../document.js';
import { costOfText, estimateTokens, tokensOfCost } from '../token-estimate.js';
import { DEFAULT_HINT_WORDING, HINT_PLACE, type HintWording, type TemplateName } from './prompt.js';
import { documentName } from './template.js';

/**
 * The hints of an arrangement: where referenced documents are (RAGBoost §6), then the retrieval order of moved
 * documents (RAGBoost §5.3). They come after the documents, so the tokens of documents do not depend on them. Empty if
 * not needed. O(documents).
 */
export function renderHint(
  arrangement: Arrangement,
  template: TemplateName,
  wording: HintWording = DEFAULT_HINT_WORDING,
): string {
  const { references, hint, locationHint, order: places } = arrangement;
  const location = locationHint ? references.map(({ document }) => named(document, template)).join(', ') : '';
  let order = '';
  if (hint !== undefined) {
    const names = inRetrievalOrder(arrangement).map((one) => named(one, template));
    const chains = references.length === 0 ? movedChains(places) : [[...names.keys()]];
    order = chains.map((chain) => chain.map((rank) => names[rank]!).join(' > ')).join(', ');
  }
  return line(wording.location, location) + line(wording.order, order);
}

/**
 * The moved documents by rank, in chains. A chain begins with a document that did not move; each other one belongs
 * directly behind the one before it. As few documents as possible count as moved, never the most relevant one. Empty if
 * nothing moved. O(k log k).
 */
export function movedChains(order: readonly number[]): readonly (readonly number[])[] {
  if (isRetrievalOrder(order)) return [];
  const stays = stayingRanks(order);
  const chains: number[][] = [];
  for (let rank = 1; rank < order.length; rank++) {
    if (stays[rank] === 1) continue;
    if (stays[rank - 1] === 1) chains.push([rank - 1]);
    chains.at(-1)!.push(rank);
  }
  return chains;
}

function isRetrievalOrder(order: readonly number[]): boolean {
  for (let place = 0; place < order.length; place++) if (order[place] !== place) return false;
  return true;
}

/** By rank: 1 for a longest rising subsequence of the order that begins with rank 0. O(k log k). */
function stayingRanks(order: readonly number[]): readonly number[] {
  const stays: number[] = new Array(order.length).fill(0);
  /** By length - 1: the place of the lowest rank that ends a subsequence of that length. */
  const ends: number[] = new Array(order.length).fill(-1);
  const before: number[] = new Array(order.length).fill(-1);
  let longest = 0;
  for (let place = order.indexOf(0); place < order.length; place++) {
    let low = 0;
    let high = longest;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (order[ends[middle]!]! < order[place]!) low = middle + 1;
      else high = middle;
    }
    if (low > 0) before[place] = ends[low - 1]!;
    ends[low] = place;
    if (low === longest) longest++;
  }
  for (let place = ends[longest - 1]!; place >= 0; place = before[place]!) stays[order[place]!] = 1;
  return stays;
}

const WORDING_TOKENS = estimateTokens(DEFAULT_HINT_WORDING.order.replace(HINT_PLACE, '\n'));

/** Cost of the characters around a name. */
const LINK_COST = costOfText('[] > ');

/** Estimated tokens of the order hint, in the default wording and with labels as names. O(k log k). */
export function hintTokens(documents: readonly Document[], order: readonly number[]): number {
  if (isRetrievalOrder(order)) return 0;
  const stays = stayingRanks(order);
  let tokens = WORDING_TOKENS;
  for (let rank = 0; rank < order.length; rank++) {
    // `movedChains` names the documents that moved, and those before a chain.
    const isNamed = stays[rank] === 0 || (rank + 1 < order.length && stays[rank + 1] === 0);
    if (isNamed) tokens += tokensOfCost(LINK_COST + costOfText(documents[rank]!.label));
  }
  return tokens;
}

/** All documents of the request, references included. */
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
