import { contentHash, type Document, type DocumentReference } from '../document.js';
import { fingerprint } from '../fingerprint.js';
import { estimateTokens } from '../token-estimate.js';
import type { SeenSegments } from './segments.js';
import type { SentDocument, VisibleDocuments } from './sent-turn.js';

/** The documents to send, and the references for the others. */
export interface Deduplication {
  /** In retrieval order. A document whose label is used in the conversation has a new one. */
  readonly remaining: readonly Document[];
  /** Retrieval ranks of `remaining`, among all documents. */
  readonly ranks: readonly number[];
  /** In retrieval order. */
  readonly references: readonly DocumentReference[];
}

/** Digits of the hash in a new label. */
const LABEL_DIGITS = 8;

/**
 * Replaces documents by references whose full text the conversation already holds, or that come twice (RAGBoost §6).
 * Title and content decide, letter by letter; ids do not. Each document is in `remaining` or in `references`. O(length
 * of the documents).
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
 * The documents with labels that name no other text of the conversation. A document keeps the label under which the
 * conversation shows it. O(length of the documents).
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
 * Second stage: replaces parts of documents by references to `shown` texts. Each document is shortened by itself, so
 * its text does not depend on the order. `whole` keeps the full document. An unchanged document stays the same object.
 * O(length of the documents).
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

/** The form in which a turn remembers its documents. O(length of the documents). */
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

/** The document with a label that no other document of the conversation has, because hints name labels. */
function withFreeLabel(
  document: Document,
  hash: string,
  labels: ReadonlySet<string>,
  visible: VisibleDocuments,
): Document {
  const isTaken = labels.has(document.label) || visible.namesOther(document.label, document);
  return isTaken ? renamed(document, hash, labels, visible) : document;
}

/** The document under a new label. */
function renamed(document: Document, hash: string, labels: ReadonlySet<string>, visible: VisibleDocuments): Document {
  const isTaken = (label: string) => labels.has(label) || visible.namesOther(label, document);
  let label = `${document.label}~${hash.slice(0, LABEL_DIGITS)}`;
  for (let attempt = 2; isTaken(label); attempt++) label = `${document.label}~${hash}-${attempt}`;
  return { ...document, label, key: `${document.key}#${label}` };
}
