import { Fingerprint } from '../fingerprint.js';
import { canonicalJson } from '../render/layout.js';
import { estimateTokens } from '../token-estimate.js';

/** Why two prompts differ, and what to do about it. */
export const BREAK_CAUSES = {
  model: 'Another model; caches are never shared between models.',
  'tools-order': 'The same tools in another order. Send them in one order, sorted by name for instance.',
  'json-keys': 'The same JSON with its keys in another order. Write it with sorted keys.',
  'tools-changed':
    'Other tools. Tools stand before everything else: keep their list the same for a whole conversation.',
  'field-changed':
    'A setting that is written into the prompt has changed. Keep it the same for requests that share a prompt.',
  timestamp: 'A date or a time that changes. Put it behind the documents, or leave out what changes often.',
  'random-id': 'An id that is drawn anew. Put it behind the documents, or leave it out of the prompt.',
  'system-prompt': 'Another system prompt. Keep what stands there the same, and put what changes behind the history.',
  'documents-order': 'The same documents in another order. Let the gateway arrange them.',
  'documents-changed': 'Other documents. Let the gateway arrange them, so that those in common stand first.',
  'history-cut': 'Earlier messages are gone: the history was cut. Cut rarely, and many messages at once.',
  'history-compacted': 'A summary stands in place of earlier messages. Compact rarely, and while the cache is cold.',
  'history-changed': 'An earlier message is another one than it was. Send the history as it was sent before.',
  question: 'Another question behind the same beginning: nothing to mend.',
} as const;
export type BreakCause = keyof typeof BREAK_CAUSES;

/** The first difference between a prompt and an earlier one. */
export interface PrefixBreak {
  readonly cause: BreakCause;
  /** The piece of the later prompt that differs; of the earlier one if the later is shorter. */
  readonly piece: string;
  /** UTF-16 units of the piece before the difference. */
  readonly offset: number;
  /** False if only the outline of the earlier prompt is known: the difference is within 64 units behind the offset. */
  readonly exact: boolean;
  /** Estimated tokens of the later prompt: before the difference, and in all. */
  readonly sharedTokens: number;
  readonly promptTokens: number;
}

/**
 * Finds the first difference between a prompt and an earlier one, and its cause. `undefined` if the later one continues
 * the earlier one. O(length of both).
 */
export function findPrefixBreak(
  before: PromptOutline,
  after: readonly PromptPiece[],
  { pieces: outline } = outlinePrompt(after, { keepText: false }),
): PrefixBreak | undefined {
  let at = 0;
  while (at < before.pieces.length && at < after.length && isSame(before.pieces[at]!, outline[at]!, after[at]!)) at++;
  if (at === before.pieces.length) return undefined;
  const earlier = before.pieces[at]!;
  const later = after[at];
  const { offset, exact } = later === undefined ? { offset: 0, exact: true } : sharedIn(earlier, outline[at]!, later);
  const shared = after.slice(0, at).reduce((sum, { text }) => sum + tokensOf(text), 0);
  const difference = { earlier, later, offset, exact, at };
  return {
    cause: causeOf(before, outline, difference),
    piece: later?.name ?? earlier.name,
    offset,
    exact,
    sharedTokens: shared + (later === undefined ? 0 : tokensOf(later.text.slice(0, offset))),
    promptTokens: after.reduce((sum, { text }) => sum + tokensOf(text), 0),
  };
}

/** Leading characters that two prompts share. O(shared). */
export function sharedCharacters(before: PromptOutline, after: PromptOutline): number {
  let shared = 0;
  for (const [at, earlier] of before.pieces.entries()) {
    const later = after.pieces[at];
    if (later === undefined || earlier.kind !== later.kind) return shared;
    const chunks = sharedChunks(earlier.chunks, later.chunks);
    shared += Math.min(chunks * CHUNK_CHARACTERS, later.length);
    if (chunks < earlier.chunks.length || earlier.length !== later.length) return shared;
  }
  return shared;
}

interface Difference {
  readonly earlier: OutlinedPiece;
  readonly later: PromptPiece | undefined;
  readonly offset: number;
  readonly exact: boolean;
  readonly at: number;
}

function causeOf(before: PromptOutline, outline: readonly OutlinedPiece[], difference: Difference): BreakCause {
  const { earlier, later, at } = difference;
  const isOpening = before.pieces.slice(0, at).every(isOpeningPiece);
  if (later === undefined || later.kind !== earlier.kind) {
    const byKind = isOpening ? (causeByKind(earlier.kind) ?? causeByKind(later?.kind)) : undefined;
    return byKind ?? shortened(before, outline, at) ?? 'history-changed';
  }
  const now = outline[at]!;
  if (later.kind === 'model') return 'model';
  if (earlier.sameKeys !== undefined && earlier.sameKeys === now.sameKeys) return 'json-keys';
  if (later.kind === 'tools') {
    const same = earlier.sameElements !== undefined && earlier.sameElements === now.sameElements;
    return same ? 'tools-order' : 'tools-changed';
  }
  if (later.kind === 'field') return 'field-changed';
  const inDocuments = documentsDiffer(earlier, later, difference);
  if (inDocuments === 'documents-changed' && haveSameDocuments(before.pieces, outline)) return 'documents-order';
  if (inDocuments !== undefined) return inDocuments;
  const isQuestion = at >= questionOf(before.pieces) || at >= questionOf(outline);
  const volatile = volatileAt(later.text, difference.offset, difference.exact ? 0 : CHUNK_CHARACTERS);
  // A date in a question is what the user asks about, unless long equal text follows.
  if (volatile !== undefined && (!isQuestion || goesOnTheSame(earlier, now, difference.offset))) return volatile;
  if (later.kind === 'system' && isOpening) return 'system-prompt';
  return shortened(before, outline, at) ?? (isQuestion ? 'question' : 'history-changed');
}

/** Whether a piece stands before the first message that is no system message. */
export function isOpeningPiece({ kind }: OutlinedPiece): boolean {
  return kind !== 'user' && kind !== 'assistant' && kind !== 'tool';
}

/** The cause if earlier messages are gone. */
function shortened(before: PromptOutline, outline: readonly OutlinedPiece[], at: number): BreakCause | undefined {
  if (wasCut(before, outline, at)) return 'history-cut';
  return wasCompacted(before, outline, at) ? 'history-compacted' : undefined;
}

/** The cause if only one of the prompts has a piece of this kind there. */
function causeByKind(kind: PromptPiece['kind'] | undefined): BreakCause | undefined {
  if (kind === 'tools') return 'tools-changed';
  if (kind === 'field') return 'field-changed';
  return kind === 'system' ? 'system-prompt' : undefined;
}

/** The cause if the difference is in the documents; `undefined` if it is not. */
function documentsDiffer(
  { documents: known }: OutlinedPiece,
  { documents = [] }: PromptPiece,
  { offset, exact }: Difference,
): BreakCause | undefined {
  const keys = documents.map(({ key }) => key);
  const same = known.findIndex((key, place) => key !== keys[place]);
  const first = same < 0 ? known.length : same;
  if (known.length === 0 || keys.length === 0 || (first === known.length && first === keys.length)) return undefined;
  // The difference may come before the first document that differs.
  const from = documents[first]?.start;
  if (from !== undefined && offset + (exact ? 0 : CHUNK_CHARACTERS) < from) return undefined;
  const isSameSet = known.length === keys.length && [...known].sort().join() === [...keys].sort().join();
  return isSameSet ? 'documents-order' : 'documents-changed';
}

/** Whether both prompts have the same documents, in any places. */
function haveSameDocuments(before: readonly OutlinedPiece[], after: readonly OutlinedPiece[]): boolean {
  const keysOf = (pieces: readonly OutlinedPiece[]) => pieces.flatMap(({ documents }) => documents).sort();
  return keysOf(before).join() === keysOf(after).join();
}

/** Whether two pieces of equal length are equal behind the difference. */
function goesOnTheSame(earlier: OutlinedPiece, now: OutlinedPiece, offset: number): boolean {
  if (earlier.length !== now.length) return false;
  // The difference may span two chunks.
  const behind = Math.floor(offset / CHUNK_CHARACTERS) + 2;
  return behind < now.chunks.length && now.chunks.slice(behind).every((hash, i) => hash === earlier.chunks[behind + i]);
}

/** Index of the last question: behind the last answer, or behind the system prompt. */
function questionOf(pieces: readonly OutlinedPiece[]): number {
  const last = pieces.findLastIndex(({ kind }) => kind === 'assistant');
  return last >= 0 ? last + 1 : pieces.findLastIndex(({ kind }) => kind !== 'user' && kind !== 'tool') + 1;
}

/** Whether the later prompt continues with a piece from further back in the earlier one. */
function wasCut({ pieces }: PromptOutline, outline: readonly OutlinedPiece[], at: number): boolean {
  const next = outline[at];
  if (next === undefined) return true;
  const goesOn = pieces.findIndex((piece, place) => place > at && isSameOutline(piece, next));
  if (goesOn < 0) return false;
  // A longer prompt must have all of the rest: a short message may stand in it twice.
  const isLonger = outline.length >= pieces.length + 2;
  return !isLonger || pieces.slice(goesOn).every((piece, i) => isSameOutline(piece, outline[at + i]!));
}

/** Pieces that a summary has, at most, before the rest of the history. */
const SUMMARY_PIECES = 3;

/** Whether new pieces stand in the place of more of them, or of the whole history. */
function wasCompacted({ pieces }: PromptOutline, outline: readonly OutlinedPiece[], at: number): boolean {
  for (let summary = 1; summary <= SUMMARY_PIECES; summary++) {
    const next = outline[at + summary];
    if (next === undefined || isOpeningPiece(next)) continue;
    const goesOn = pieces.findIndex((piece, place) => place >= at && isSameOutline(piece, next));
    if (goesOn >= 0) return goesOn > at + summary;
  }
  const hasAnswer = pieces.slice(0, at).some(({ kind }) => kind === 'assistant');
  const [earlier, later] = [pieces[at]!, outline[at]];
  return !hasAnswer && outline.length < pieces.length && later !== undefined && later.length > earlier.length;
}

function isSame(earlier: OutlinedPiece, outline: OutlinedPiece, later: PromptPiece): boolean {
  return earlier.text === undefined
    ? isSameOutline(earlier, outline)
    : earlier.kind === later.kind && earlier.text === later.text;
}

export function isSameOutline(one: OutlinedPiece, other: OutlinedPiece): boolean {
  if (one.kind !== other.kind || one.length !== other.length) return false;
  return sharedChunks(one.chunks, other.chunks) === one.chunks.length;
}

function sharedChunks(one: Int32Array, other: Int32Array): number {
  const end = Math.min(one.length, other.length);
  let at = 0;
  while (at < end && one[at] === other[at]) at++;
  return at;
}

function sharedIn(earlier: OutlinedPiece, outline: OutlinedPiece, { text }: PromptPiece) {
  if (earlier.text === undefined) {
    return {
      offset: Math.min(text.length, sharedChunks(earlier.chunks, outline.chunks) * CHUNK_CHARACTERS),
      exact: false,
    };
  }
  const end = Math.min(earlier.text.length, text.length);
  let offset = 0;
  while (offset < end && earlier.text.charCodeAt(offset) === text.charCodeAt(offset)) offset++;
  return { offset, exact: true };
}

function tokensOf(text: string): number {
  return text === '' ? 0 : estimateTokens(text);
}

const MONTH = '(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}';
/** Dates, times of day, and seconds or milliseconds since 1970. */
const TIMESTAMP = new RegExp(
  [
    '\\d{4}-\\d{2}-\\d{2}(?:[T ]\\d{2}:\\d{2}(?::\\d{2}(?:[.,]\\d{1,9})?)?)?(?: ?(?:Z|UTC|GMT|[+-]\\d{2}:?\\d{2}))?',
    '\\d{1,2}[./]\\d{1,2}[./]\\d{2,4}',
    '\\d{1,2}:\\d{2}(?::\\d{2}(?:[.,]\\d{1,9})?)?(?: ?[ap]\\.?m\\.?)?',
    `(?:(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?,? )?(?:\\d{1,2}(?:st|nd|rd|th|\\.)? )?${MONTH}\\.? \\d{1,4}(?:,? \\d{4})?`,
    '\\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\\b',
    '\\b1[5-9]\\d{8}(?:\\d{3})?\\b',
  ].join('|'),
  'gi',
);
/** Random ids: UUIDs, long hexadecimal numbers, long runs of letters and digits. */
const RANDOM_ID =
  /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{10,64}\b|\b(?=[A-Za-z_-]{0,64}\d)[A-Za-z0-9_-]{12,64}\b/gi;
/** Characters around a difference that are searched. */
const EXCERPT_CHARACTERS = 80;

/** The volatile value at a place of a text, within `slack` characters behind it. O(1). */
function volatileAt(text: string, offset: number, slack: number): 'timestamp' | 'random-id' | undefined {
  const start = Math.max(0, offset - EXCERPT_CHARACTERS);
  const window = text.slice(start, offset + slack + EXCERPT_CHARACTERS);
  const covers = (pattern: RegExp) => {
    for (const { 0: match, index } of window.matchAll(pattern)) {
      const from = start + index;
      if (from <= offset + slack && offset <= from + match.length) return true;
    }
    return false;
  };
  if (covers(RANDOM_ID) && !covers(TIMESTAMP)) return 'random-id';
  return covers(TIMESTAMP) ? 'timestamp' : undefined;
}

/** Kind of a prompt piece, in the order of chat templates. */
type PieceKind = 'model' | 'tools' | 'field' | 'system' | 'user' | 'tool' | 'assistant';

/** A part of a prompt: a text of a message, or a request field that is written before the messages. */
export interface PromptPiece {
  /** Path in the request, for instance `messages[0].content`. */
  readonly name: string;
  readonly kind: PieceKind;
  readonly text: string;
  /** Its documents in order, if known. */
  readonly documents?: readonly { readonly start: number; readonly key: string }[];
}

/** A remembered piece: hashes of its text, and the text only if the caller keeps it. */
export interface OutlinedPiece {
  readonly name: string;
  readonly kind: PieceKind;
  readonly length: number;
  /** A hash of every `CHUNK_CHARACTERS` characters. */
  readonly chunks: Int32Array;
  /** For JSON: a hash independent of the order of keys, and one independent of the order of elements too. */
  readonly sameKeys: string | undefined;
  readonly sameElements: string | undefined;
  readonly documents: readonly string[];
  readonly text: string | undefined;
}

/** The outline of a prompt, enough to find where another one differs. */
export interface PromptOutline {
  readonly pieces: readonly OutlinedPiece[];
}

/** Characters of a chunk: the precision of a difference to a prompt without its text. */
const CHUNK_CHARACTERS = 64;
/** Longer JSON is not parsed. */
const MAX_JSON_CHARACTERS = 200_000;

interface OutlineOptions {
  /** Without it, an outline holds four bytes of hash for every 64 characters. They can confirm a guess. */
  readonly keepText: boolean;
  /** Outlines of earlier prompts. Where a piece is the same, its outline is used again, which is faster. */
  readonly known?: readonly PromptOutline[];
}

/** The outline of a prompt. O(length). */
export function outlinePrompt(pieces: readonly PromptPiece[], { keepText, known = [] }: OutlineOptions): PromptOutline {
  return {
    pieces: pieces.map((piece, place) => {
      const chunks = hashesOf(piece.text);
      const same = known.map((outline) => outline.pieces[place]).find((other) => isOutlineOf(other, piece, chunks));
      return same ?? outlinePiece(piece, chunks, keepText);
    }),
  };
}

function isOutlineOf(other: OutlinedPiece | undefined, { name, kind, text }: PromptPiece, chunks: Int32Array): boolean {
  if (other?.kind !== kind || other.name !== name || other.length !== text.length) return false;
  return sharedChunks(other.chunks, chunks) === chunks.length;
}

function outlinePiece(
  { name, kind, text, documents = [] }: PromptPiece,
  chunks: Int32Array,
  keepText: boolean,
): OutlinedPiece {
  const value = jsonIn(text);
  return {
    name,
    kind,
    length: text.length,
    chunks,
    sameKeys: value === undefined ? undefined : hash(canonicalJson(value)),
    sameElements: Array.isArray(value) ? hash(value.map(canonicalJson).sort().join()) : undefined,
    documents: documents.map(({ key }) => key),
    text: keepText ? text : undefined,
  };
}

/** The hashes of the chunks of a text. The last chunk may be shorter. */
function hashesOf(text: string): Int32Array {
  const hashes = new Int32Array(Math.ceil(text.length / CHUNK_CHARACTERS));
  const fingerprint = new Fingerprint();
  for (let i = 0; i < hashes.length; i++) {
    hashes[i] = fingerprint
      .reset()
      .add(text.slice(i * CHUNK_CHARACTERS, (i + 1) * CHUNK_CHARACTERS))
      .end().low;
  }
  return hashes;
}

function hash(text: string): string {
  return new Fingerprint().add(text).end().digits();
}

/** The object or array of a JSON text. */
function jsonIn(text: string): unknown {
  if (text.length > MAX_JSON_CHARACTERS || !/^\s*[[{]/.test(text)) return undefined;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
