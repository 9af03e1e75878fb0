import type { Document } from '../document.js';
import type { PathStep } from '../preamble.js';
import type { ChatEdit } from '../render/prompt.js';

/**
 * A document whose text stands in a prompt that was sent: in full, or with references for parts that stand before it.
 */
export interface SentDocument {
  /** Fingerprint of title and content. */
  readonly hash: string;
  /** What the prompt calls it. */
  readonly label: string;
  readonly title: string | undefined;
  readonly content: string;
  /** What the prompt has in its place, where parts of it are references. */
  readonly shown?: string;
}

/** Renderings remembered of one and the same request: retries with other documents. */
export const MAX_RENDERINGS = 32;
/** Answers remembered of one rendering. */
export const MAX_ANSWERS = 8;

/** Which turn: where it stands in the hash chain, and which of the renderings that were sent there. */
export interface TurnName {
  /** Link of the chain for the last message of the request. */
  readonly link: string;
  readonly id: string;
}

/**
 * What was added to the client's messages in one request. Immutable plain data that survives JSON.
 * A turn is replayed only together with all turns before it (`parent`), or what it refers to would not be there.
 */
export interface SentTurn extends TurnName {
  /** How many messages the client's request had. */
  readonly length: number;
  /** The latest turn before this one that added something: whose rendering this one continues. */
  readonly parent: TurnName | undefined;
  /** Hash of what the client supplied: documents in retrieval order and what decides how they are written. */
  readonly supplied: string;
  /** Labels of the documents sent, in prompt order. */
  readonly order: readonly string[];
  /** What this turn added; what earlier turns added stands in their own records. */
  readonly edits: readonly ChatEdit[];
  /** Documents whose full text stands in `edits`. */
  readonly documents: readonly SentDocument[];
  /** From the last step of `parent` on. */
  readonly steps: readonly PathStep[];
  /** Tokens behind the last step. */
  readonly tail: number;
  /** Hashes of the answers that were given to it, the latest last (`answerHash`). */
  readonly answers: readonly string[];
}

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
      byHash.set(document.hash, document);
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
