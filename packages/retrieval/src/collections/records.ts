import { createHash } from 'node:crypto';

/** Origin of documents that were handed in, and not read from a file. */
export const HANDED_IN = 'API';

/** A document as it is stored: what was put in under one id, cut into passages. */
export interface DocumentRecord {
  /** Leads the ids of its passages: a path with the folder that was ingested, or the caller's id. */
  readonly id: string;
  readonly title?: string;
  readonly metadata?: Readonly<Record<string, unknown>>;
  /** Of everything above and the passages. */
  readonly hash: string;
  /** The file it was read from, or `HANDED_IN`. */
  readonly origin: string;
  /** Of its text. */
  readonly bytes: number;
  /** Whether pages of its file could not be read. */
  readonly isPart?: true;
  /** Ordinals of its passages, in the order of the text. */
  readonly passages: readonly number[];
  /** Of each passage; left out where no passage has one. */
  readonly places?: readonly PassagePlace[];
}

/** Where a passage stands in the file of its document. */
export interface PassagePlace {
  /** `3` or `3-4`. */
  readonly pages?: string;
  /** `12` or `12-40`. */
  readonly lines?: string;
}

/** A passage before it is stored. */
export interface NewPassage extends PassagePlace {
  readonly title?: string;
  readonly content: string;
  /** Estimated. */
  readonly tokens: number;
}

/** A document before it is stored. */
export interface NewDocument {
  readonly id: string;
  readonly title?: string;
  readonly metadata?: Readonly<Record<string, unknown>>;
  readonly origin: string;
  readonly bytes: number;
  readonly isPart?: true;
  readonly passages: readonly NewPassage[];
}

/** What is known of a file that was read: enough not to read it again. */
export interface FileRecord {
  readonly path: string;
  readonly size: number;
  /** 0 where the file was written so shortly before it was read that its time proves nothing. */
  readonly modifiedMs: number;
  readonly hash: string;
  readonly settings: string;
}

/** A passage that is stored once, however many documents hold it. */
export interface StoredPassage {
  readonly id: string;
  readonly title?: string;
  readonly content: string;
  readonly metadata: Readonly<Record<string, unknown>>;
}

/** A passage as search reads it, title first. */
export interface PassageText {
  readonly ordinal: number;
  readonly text: string;
}

/** Sums over a collection. */
export interface CollectionTotals {
  readonly documents: number;
  readonly passages: number;
  /** Passages that are in a document and not stored for it, because another one has the same. */
  readonly duplicates: number;
  readonly tokens: number;
  readonly bytes: number;
}

/** What one transaction changed, for an index to follow. Ordinals are never given twice. */
export interface Change {
  /** Ordinals from here to below `to` were added. */
  readonly from: number;
  readonly to: number;
  readonly removed: readonly number[];
  /** Ordinals from before that got their vectors. */
  readonly embedded?: readonly number[];
}

/** Whose vectors a collection has: all of one model, in one dimension. */
export interface StoredEmbedding {
  readonly model: string;
  /** 0 as long as the model found nothing in any passage. */
  readonly dimension: number;
  /** Every passage below this ordinal has its vector. */
  readonly through: number;
}

/** One transaction. All of it is done, or none. */
export interface Edits {
  readonly documents?: readonly NewDocument[];
  readonly removedDocuments?: readonly string[];
  readonly files?: readonly FileRecord[];
  readonly removedFiles?: readonly string[];
}

/** What a transaction did. */
export interface Applied {
  readonly added: number;
  readonly changed: number;
  readonly unchanged: number;
  readonly removed: number;
}

/** A passage as search reads it. */
export function textOf({ title, content }: NewPassage): string {
  return title === undefined ? content : `${title}\n${content}`;
}

/** Where a passage says that it stands. */
export function placeOf({ pages, lines }: PassagePlace): PassagePlace {
  return { ...(pages !== undefined && { pages }), ...(lines !== undefined && { lines }) };
}

/** The same for passages of the same words. */
export function passageHash({ title, content }: Pick<NewPassage, 'title' | 'content'>): string {
  return hashOf(`${title ?? ''}\0${content}`);
}

/** 132 bits of SHA-256: keys of the store are short, whatever the length of what they stand for. */
export function hashOf(text: string | Uint8Array): string {
  return createHash('sha256').update(text).digest('base64url').slice(0, 22);
}
