import { contentHash, type Document, type DocumentReference } from '../document.js';
import { fingerprint } from '../fingerprint.js';
import { estimateTokens } from '../token-estimate.js';
import type { SeenSegments } from './segments.js';
import type { SentDocument, VisibleDocuments } from './sent-turn.js';

/** What is left of a context, and what stands for the rest. */
export interface Deduplication {
  /** In retrieval order; a document whose label is taken in the conversation has another one. */
  readonly remaining: readonly Document[];
  /** Retrieval ranks of `remaining`, among all documents. */
  readonly ranks: readonly number[];
  /** In retrieval order. */
  readonly references: readonly DocumentReference[];
}

/** Digits of the hash that make a taken label one's own. */
const LABEL_DIGITS = 8;

/**
 * Takes out the documents whose full text the conversation already holds, and those that this context brings twice
 * (RAGBoost §6). Title and content decide, letter by letter: the same id with other content is another document and
 * stays, the same text under another id is a reference. Loses nothing: each document is in `remaining` or in
 * `references`. Cost: O(length of the documents).
 */
export function deduplicate(documents: readonly Document[], visible: VisibleDocuments): Deduplication {
  const remaining: Document[] = [];
  const ranks: number[] = [];
  const references: DocumentReference[] = [];
  const here = new Map<string, Document>();
  const labels = new Set<string>();
  for (const [rank, document] of documents.entries()) {
    const hash = contentHash(document);
    const same = visible.find(document, hash) ?? sameText(here.get(hash), document);
    if (same !== undefined) {
      references.push({ document: { ...document, label: same.label, title: same.title }, rank });
      continue;
    }
    const kept = withFreeLabel(document, hash, labels, visible);
    labels.add(kept.label);
    here.set(hash, kept);
    remaining.push(kept);
    ranks.push(rank);
  }
  return { remaining, ranks, references };
}

/**
 * The documents with labels that name no other text of the conversation, for a turn that sends again what the
 * conversation shows. A document that the conversation shows under its label keeps it. O(length of the documents).
 */
export function withFreeLabels(documents: readonly Document[], visible: VisibleDocuments): readonly Document[] {
  const labels = new Set<string>();
  return documents.map((document) => {
    const hash = contentHash(document);
    const kept = withFreeLabel(document, hash, labels, visible);
    labels.add(kept.label);
    return kept;
  });
}

/**
 * The second stage: parts of the documents that `shown` holds become references, each document by itself, so that its
 * text hangs on what stands before the documents and not on their order. One without such parts stays the object it
 * was. Loses nothing: `whole` is the document as it came. O(length of the documents).
 */
export function shortenDocuments(
  documents: readonly Document[],
  shown: Pick<SeenSegments, 'shorten'>,
): readonly Document[] {
  return documents.map((whole) => {
    const { text: content, replaced } = shown.shorten(whole.content);
    if (replaced === 0) return whole;
    const spared = estimateTokens(whole.content) - estimateTokens(content);
    const key = `${whole.key}#${fingerprint([content])}`;
    return { ...whole, content, key, tokens: Math.max(1, whole.tokens - spared), whole };
  });
}

/** What a turn keeps of the documents that it sends. O(length of the documents). */
export function sentDocuments(documents: readonly Document[]): readonly SentDocument[] {
  return documents.map((document) => {
    const { title, content } = document.whole ?? document;
    const sent = { hash: contentHash(document.whole ?? document), label: document.label, title, content };
    return document.whole === undefined ? sent : { ...sent, shown: document.content };
  });
}

function sameText(known: Document | undefined, { title, content }: Document): Document | undefined {
  return known !== undefined && known.content === content && (known.title ?? '') === (title ?? '') ? known : undefined;
}

/** A hint names a document by its label, so that no two documents of a conversation may share one. */
function withFreeLabel(
  document: Document,
  hash: string,
  labels: ReadonlySet<string>,
  visible: VisibleDocuments,
): Document {
  const isTaken = labels.has(document.label) || visible.namesOther(document.label, document);
  return isTaken ? renamed(document, hash, labels, visible) : document;
}

/** The document under a label of its own; apart, so that no closure is made for those that need none. */
function renamed(document: Document, hash: string, labels: ReadonlySet<string>, visible: VisibleDocuments): Document {
  const isTaken = (label: string) => labels.has(label) || visible.namesOther(label, document);
  let label = `${document.label}~${hash.slice(0, LABEL_DIGITS)}`;
  for (let attempt = 2; isTaken(label); attempt++) label = `${document.label}~${hash}-${attempt}`;
  return { ...document, label, key: `${document.key}#${label}` };
}
