import type { Arrangement } from '../arrangement.js';
import type { Document } from '../document.js';
import { DEFAULT_HINT_WORDING, HINT_PLACE, type HintWording } from './hint-wording.js';
import type { TemplateName } from './prompt.js';
import { documentName } from './template.js';

/**
 * The hints of an arrangement: where the documents stand that are not repeated (RAGBoost §6), then the retrieval order,
 * if it differs from what the prompt shows (RAGBoost §5.3). They go behind the documents, so that no document's tokens
 * depend on them, and in front of the question. Empty when there is nothing to say. O(documents).
 */
export function renderHint(
  arrangement: Arrangement,
  template: TemplateName,
  wording: HintWording = DEFAULT_HINT_WORDING,
): string {
  const { references, hint, locationHint } = arrangement;
  const location = locationHint ? references.map(({ document }) => named(document, template)).join(', ') : '';
  const order =
    hint === undefined
      ? ''
      : inRetrievalOrder(arrangement)
          .map((one) => named(one, template))
          .join(' > ');
  return line(wording.location, location) + line(wording.order, order);
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
