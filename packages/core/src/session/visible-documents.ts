import type { Document } from '../document.js';
import type { SentDocument, SentTurn } from './sent-turn.js';

/** The documents that a conversation holds in full, in the messages that this very request sends. */
export interface VisibleDocuments {
  /** The document of exactly this title and content, under the label that it was sent with. */
  find(document: Pick<Document, 'title' | 'content'>, hash: string): SentDocument | undefined;
  /** Whether the conversation calls another text by this label. O(documents of that label). */
  namesOther(label: string, document: Pick<Document, 'title' | 'content'>): boolean;
}

/** A conversation that holds nothing: only what one request brings twice is found. */
export const NOTHING_VISIBLE: VisibleDocuments = { find: () => undefined, namesOther: () => false };

/** The documents of these turns. O(documents). */
export function visibleIn(turns: readonly Pick<SentTurn, 'documents'>[]): VisibleDocuments {
  const byHash = new Map<string, SentDocument>();
  const byLabel = new Map<string, SentDocument[]>();
  for (const { documents } of turns) {
    for (const document of documents) {
      byHash.set(document.print, document);
      const named = byLabel.get(document.label);
      if (named === undefined) byLabel.set(document.label, [document]);
      else named.push(document);
    }
  }
  return {
    find: ({ title, content }, hash) => {
      const sent = byHash.get(hash);
      // Hashes can be made to collide on purpose; a document must not vanish because of that.
      return sent !== undefined && isSameText(sent, { title, content }) ? sent : undefined;
    },
    namesOther: (label, document) => byLabel.get(label)?.some((sent) => !isSameText(sent, document)) ?? false,
  };
}

function isSameText(
  one: Pick<Document, 'title' | 'content'>,
  { title, content }: Pick<Document, 'title' | 'content'>,
): boolean {
  return one.content === content && (one.title ?? '') === (title ?? '');
}
