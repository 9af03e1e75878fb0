import type { Document } from '../document.js';
import type { PathStep } from '../preamble.js';
import type { ChatEdit } from '../render/prompt.js';

/** A document of a prompt that was sent: in full, or with references for parts. */
export interface SentDocument {
  /** Fingerprint of title and content. */
  readonly hash: string;
  /** What the prompt calls it. */
  readonly label: string;
  readonly title: string | undefined;
  readonly content: string;
  /** The text in the prompt, if parts of it are references. */
  readonly shown?: string;
}

/** Renderings remembered of one request: retries with other documents. */
export const MAX_RENDERINGS = 32;
/** Answers remembered of one rendering. */
export const MAX_ANSWERS = 8;

/** Names a turn: its link in the hash chain, and its rendering there. */
export interface TurnName {
  /** Link of the last message of the request. */
  readonly link: string;
  readonly id: string;
}

/**
 * What one request added to the client's messages. Immutable plain data that survives JSON. A turn is only replayed
 * together with all turns before it (`parent`).
 */
export interface SentTurn extends TurnName {
  /** Messages of the client's request. */
  readonly length: number;
  /** The turn before that added something; this rendering continues it. */
  readonly parent: TurnName | undefined;
  /** Hash of the request: documents in retrieval order, and all that decides how they are written. */
  readonly supplied: string;
  /** Labels of the documents sent, in prompt order. */
  readonly order: readonly string[];
  /** The edits of this turn alone. */
  readonly edits: readonly ChatEdit[];
  /** Documents whose full text is in `edits`. */
  readonly documents: readonly SentDocument[];
  /** Path steps behind those of `parent`. */
  readonly steps: readonly PathStep[];
  /** Tokens behind the last step. */
  readonly tail: number;
  /** Hashes of its answers (`answerHash`), the latest last. */
  readonly answers: readonly string[];
}

/** The documents that the messages of a request contain in full. */
export interface VisibleDocuments {
  /** The document with exactly this title and content, under the label that it was sent with. */
  find(document: Pick<Document, 'title' | 'content'>, hash: string): SentDocument | undefined;
  /** Whether this label names another text. O(documents of that label). */
  namesOther(label: string, document: Pick<Document, 'title' | 'content'>): boolean;
}

/** Contains no document, so only documents that come twice in a request are found. */
export const NOTHING_VISIBLE: VisibleDocuments = { find: () => undefined, namesOther: () => false };

/** The documents of these turns. O(documents). */
export function visibleIn(turns: readonly Pick<SentTurn, 'documents'>[]): VisibleDocuments {
  const byHash = new Map<string, SentDocument>();
  const byLabel = new Map<string, SentDocument[]>();
  for (const { documents } of turns) {
    for (const document of documents) {
      byHash.set(document.hash, document);
      const named = byLabel.get(document.label);
      if (named === undefined) byLabel.set(document.label, [document]);
      else named.push(document);
    }
  }
  return {
    find: ({ title, content }, hash) => {
      const sent = byHash.get(hash);
      // Hashes can be made to collide. A document must not be lost because of that.
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
