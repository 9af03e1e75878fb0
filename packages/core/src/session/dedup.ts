import { contentHash, type Document, type DocumentReference } from '../document.js';
import { Fingerprint, fingerprint } from '../fingerprint.js';
import { locationHint } from '../render/prompt.js';
import { estimateTokens } from '../token-estimate.js';
import type { SentDocument, VisibleDocuments } from './recall.js';

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

/** Characters of a segment that can become a reference, at least. */
const MIN_SEGMENT_CHARACTERS = 120;
/** Characters after which a segment ends with its line or sentence. */
const MAX_SEGMENT_CHARACTERS = 4_000;
/** Mean number of lines or sentences in a segment. */
const UNITS_PER_END = 4;
/** Characters quoted from the start and the end of a segment. The shortest unambiguous quotation is used. */
const START_CHARACTERS = [56, 112];
const END_CHARACTERS = [32, 64, 112];
/** A reference replaces at least this many times its own tokens. */
const MIN_TOKENS_REPLACED = 2;
/** Marks words that several segments share. */
const SHARED = Symbol('several segments');

/** A text with some segments replaced by references. */
export interface ShortenedText {
  readonly text: string;
  /** Segments of the text. */
  readonly segments: number;
  /** Segments replaced. */
  readonly replaced: number;
}

/** The first occurrence of a segment. */
interface SeenSegment {
  readonly source: SourceText;
  /** Its position among the segments of the source. */
  readonly place: number;
  /** The next segment, if it is the same after every occurrence. */
  next: string | typeof SHARED | undefined;
}

interface SourceText {
  readonly name: string | undefined;
}

/** Adjacent known segments that are also adjacent in their source. */
interface SegmentRun {
  readonly first: string;
  readonly last: string;
  readonly text: string;
  readonly lastSeen: SeenSegment;
  readonly segments: number;
}

/**
 * De-duplicates parts of texts: replaces segments that an earlier text contains word for word by references.
 *
 * Texts are cut into segments of lines and sentences by their content, so an insertion moves only nearby cuts. A
 * reference quotes the first and last words of the replaced text, and points back to one source. Never quotes words
 * that two segments share: the reference would be ambiguous. Memory: the texts added.
 */
export class SeenSegments {
  readonly #seen = new Map<string, SeenSegment>();
  /** By quoted words: the segment that starts, or ends, with them. */
  readonly #byStart = new Map<string, string | typeof SHARED>();
  readonly #byEnd = new Map<string, string | typeof SHARED>();

  /**
   * Adds a text of the prompt. O(length).
   *
   * @param options.name what the prompt calls the text
   * @param options.shown the shortened form in the prompt; only segments found there are added
   */
  add(text: string, { name, shown }: { readonly name?: string; readonly shown?: string | undefined } = {}): void {
    const source: SourceText = { name };
    let from = 0;
    const segments = segmentsOf(text.trimEnd());
    for (const [place, segment] of segments.entries()) {
      if (segment.length < MIN_SEGMENT_CHARACTERS) continue;
      const known = this.#seen.get(segment);
      const next = segments[place + 1];
      if (known !== undefined) {
        if (known.next !== next) known.next = SHARED;
        continue;
      }
      if (shown !== undefined) {
        const at = shown.indexOf(segment, from);
        // This segment is a reference in `shown`, to a text that is unknown here. What follows cannot be located.
        if (at < 0) return;
        from = at + segment.length;
      }
      this.#seen.set(segment, { source, place, next });
      for (const words of startsOf(segment)) claim(this.#byStart, words, segment);
      for (const words of endsOf(segment)) claim(this.#byEnd, words, segment);
    }
  }

  /** The text with known segments replaced. Does not add the text. O(length). */
  shorten(text: string): ShortenedText {
    const trimmed = text.trimEnd();
    const segments = this.#seen.size === 0 ? [] : segmentsOf(trimmed);
    const parts: string[] = [];
    let replaced = 0;
    let run: SegmentRun | undefined;
    const endRun = () => {
      if (run === undefined) return;
      const reference = this.#reference(run);
      if (reference !== undefined) replaced += run.segments;
      parts.push(reference ?? run.text);
      run = undefined;
    };
    for (const segment of segments) {
      const seen = this.#seen.get(segment);
      if (run?.lastSeen.next !== segment || seen === undefined || !isNext(run.lastSeen, seen)) endRun();
      if (seen === undefined) parts.push(segment);
      else run = extended(run, segment, seen);
    }
    endRun();
    parts.push(text.slice(trimmed.length));
    return { text: replaced === 0 ? text : parts.join(''), segments: segments.length, replaced };
  }

  /** The reference for a run, with the white space around it; `undefined` if ambiguous or too long. */
  #reference({ first, last, text, lastSeen: { source } }: SegmentRun): string | undefined {
    const start = startsOf(first).find((words) => this.#byStart.get(words) === first);
    const end = endsOf(last).find((words) => this.#byEnd.get(words) === last);
    if (start === undefined || end === undefined) return undefined;
    const quoted = `«${start} … ${end}»`;
    const named = source.name === undefined ? `[${quoted}]` : `[${source.name}: ${quoted}]`;
    const hint = locationHint(named);
    if (hint.length >= text.length || MIN_TOKENS_REPLACED * estimateTokens(hint) > estimateTokens(text)) {
      return undefined;
    }
    const before = text.slice(0, text.length - text.trimStart().length);
    return before + hint + text.slice(text.trimEnd().length);
  }
}

function extended(run: SegmentRun | undefined, segment: string, seen: SeenSegment): SegmentRun {
  if (run === undefined) return { first: segment, last: segment, text: segment, lastSeen: seen, segments: 1 };
  return { first: run.first, last: segment, text: run.text + segment, lastSeen: seen, segments: run.segments + 1 };
}

function isNext({ source, place }: SeenSegment, next: SeenSegment): boolean {
  return next.source === source && next.place === place + 1;
}

function startsOf(segment: string): readonly string[] {
  return START_CHARACTERS.map((length) => inOneLine(segment.trimStart().slice(0, length)));
}

function endsOf(segment: string): readonly string[] {
  return END_CHARACTERS.map((length) => inOneLine(segment.trimEnd().slice(-length)));
}

function claim(owners: Map<string, string | typeof SHARED>, words: string, segment: string): void {
  owners.set(words, owners.has(words) ? SHARED : segment);
}

/** Collapses white space. Drops half a surrogate pair at either end. */
export function inOneLine(words: string): string {
  return words
    .replace(/^[\udc00-\udfff]|[\ud800-\udbff]$/g, '')
    .replace(/\s+/g, ' ')
    .trim();
}

const hasher = new Fingerprint();

/** The segments of a text. Joined, they are the text. */
function segmentsOf(text: string): readonly string[] {
  const segments: string[] = [];
  let start = 0;
  let end = 0;
  for (const unit of unitsOf(text)) {
    end += unit.length;
    if (end - start < MIN_SEGMENT_CHARACTERS) continue;
    const isEnd = (hasher.reset().add(unit.trim()).end().high >>> 0) % UNITS_PER_END === 0;
    if (!isEnd && end - start < MAX_SEGMENT_CHARACTERS) continue;
    segments.push(text.slice(start, end));
    start = end;
  }
  if (start < text.length) segments.push(text.slice(start));
  return segments;
}

/** A line or sentence with the white space behind it. Full-width punctuation needs none. */
const UNIT = /[^\n.!?。！？؟।]*(?:[.!?؟।]+(?=\s|$)\s*|[。！？]+\s*|\n+|[.!?؟।]+|$)/g;

function unitsOf(text: string): readonly string[] {
  return text.match(UNIT)?.filter((unit) => unit !== '') ?? [];
}
