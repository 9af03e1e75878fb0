import type { Arrangement } from '../arrangement.js';
import type { Document } from '../document.js';
import type { TemplateName } from './prompt.js';
import { documentName } from './template.js';

/**
 * The order hint of RAGBoost §5.3: tells the model the retrieval order after the documents were moved. Empty when the
 * arrangement carries no hint. The wording is fixed: the demo model was trained on it. O(documents).
 */
export function renderHint(arrangement: Arrangement, template: TemplateName): string {
  if (arrangement.hint === undefined) return '';
  const byRank: Document[] = new Array(arrangement.order.length);
  for (let place = 0; place < byRank.length; place++) byRank[arrangement.order[place]!] = arrangement.documents[place]!;
  const names = byRank.map((document) => `[${documentName(document, template)}]`);
  return `Read the documents in this order of relevance: ${names.join(' > ')}.\n`;
}
