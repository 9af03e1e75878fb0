import type { Document } from '../document.js';
import type { SentDocument, SentTurn } from './sent-turn.js';

/** The documents that a conversation holds in full, in the messages that this very request sends. */
export interface VisibleDocuments {
  /** The document of exactly this title and content, under the label that it was sent with. */
  find(document: Pick<Document, 'title' | 'content'>, print: string): SentDocument | undefined;
  /** Whether the conversation calls some document so. */
  hasLabel(label: string): boolean;
}

/** A conversation that holds nothing: only what one request brings twice is found. */
export const NOTHING_VISIBLE: VisibleDocuments = { find: () => undefined, hasLabel: () => false };

/** The documents of these turns. O(documents). */
export function visibleIn(turns: readonly Pick<SentTurn, 'documents'>[]): VisibleDocuments {
  const byPrint = new Map<string, SentDocument>();
  const labels = new Set<string>();
  for (const { documents } of turns) {
    for (const document of documents) {
      byPrint.set(document.print, document);
      labels.add(document.label);
    }
  }
  return {
    find: ({ title, content }, print) => {
      const sent = byPrint.get(print);
      // Prints can be made to collide on purpose; a document must not vanish because of that.
      return sent !== undefined && sent.content === content && (sent.title ?? '') === (title ?? '') ? sent : undefined;
    },
    hasLabel: (label) => labels.has(label),
  };
}
