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
  let order = '';
  if (hint !== undefined) {
    const names = inRetrievalOrder(arrangement).map((one) => named(one, template));
    const chains = references.length === 0 ? movedChains(places) : [[...names.keys()]];
    order = chains.map((chain) => chain.map((rank) => names[rank]!).join(' > ')).join(', ');
  }
  return line(wording.location, location) + line(wording.order, order);
}

/**
 * What an order hint says, by rank: the documents that moved, in chains. A chain begins with a document that stands
 * right among those that are not named; each other one of it belongs directly behind the one before it. As many
 * documents as can be count as not moved, the most relevant one among them. Empty if nothing moved. O(k log k).
 */
export function movedChains(order: readonly number[]): readonly (readonly number[])[] {
  if (order.every((rank, place) => rank === place)) return [];
  const stays = longestRise(order.slice(order.indexOf(0)));
  const chains: number[][] = [];
  for (let rank = 1; rank < order.length; rank++) {
    if (stays.has(rank)) continue;
    if (stays.has(rank - 1)) chains.push([rank - 1]);
    chains.at(-1)!.push(rank);
  }
  return chains;
}

/** The members of a longest rising subsequence that begins with the first number, which is the least. O(n log n). */
function longestRise(numbers: readonly number[]): ReadonlySet<number> {
  /** By length less one: the place of the least number that ends a subsequence of that length. */
  const ends: number[] = [];
  const before: (number | undefined)[] = [];
  for (const [place, number] of numbers.entries()) {
    let low = 0;
    let high = ends.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (numbers[ends[middle]!]! < number) low = middle + 1;
      else high = middle;
    }
    before[place] = ends[low - 1];
    ends[low] = place;
  }
  const rise = new Set<number>();
  for (let place = ends.at(-1); place !== undefined; place = before[place]) rise.add(numbers[place]!);
  return rise;
}

const WORDING_TOKENS = estimateTokens(DEFAULT_HINT_WORDING.order.replace(HINT_PLACE, '\n'));

/** Tokens of the order hint, estimated in its usual wording and with labels for names. O(k log k). */
export function hintTokens(documents: readonly Document[], order: readonly number[]): number {
  const chains = movedChains(order);
  if (chains.length === 0) return 0;
  let tokens = WORDING_TOKENS;
  for (const rank of chains.flat()) tokens += estimateTokens(`[${documents[rank]!.label}] > `);
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
