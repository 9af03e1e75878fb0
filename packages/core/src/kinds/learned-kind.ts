import type { DocumentBlock, DocumentSpan, PromptRole, PromptText } from '../recognise/block.js';
import { recognise } from '../recognise/recognise.js';
import { isCounted } from '../recognise/rewrite.js';
import { estimateTokens } from '../token-estimate.js';
import { isNeutralText } from './neutral-text.js';
import { isInOwnOrder, PairOrders } from './own-order.js';
import { type Gap, MIN_PROMPTS, type ProgramText } from './program-text.js';
import { RecurrenceHistory } from './recurrence.js';
import type { Stretch, StretchHasher } from './stretches.js';

/** Texts whose repetition is noticed, for each kind. */
const MAX_RECENT = 256;
/** Lines whose repetition is counted for each kind, and the prompts before they can count as separators. */
const MAX_REPEATED = 64;
const MIN_SEPARATED = 8;
/** Prompts with the same blanks behind the documents before these count as the program's. */
const MIN_TRAILED = 8;
/** Estimated bytes of a remembered piece. */
export const PIECE_BYTES = 48;
/** Characters of the form, such as `[{"id":`, that are the same in all prompts and so count as the program's. */
const MAX_FORM = 200;
/** Share of the changing part that documents found by their form take up. */
const MIN_COVERED = 0.7;
/** Share of a kind's prompts for which something must be true to be said of the kind. */
const MOST = 0.5;

/** Why the documents of a kind bring no gain as they are, or must not move without consent. */
export type KindNotice =
  /** The documents say nothing else than where they stand: the same document has other bytes at another place. */
  | 'labels-by-position'
  /** Text that changes stands before the documents in the same prompt. */
  | 'changing-text-first'
  /** That text is what the user asks. */
  | 'question-first'
  | 'few-documents'
  /** Shorter than a block of the engine's cache. */
  | 'too-short'
  /** Dates, numbers or versions of the documents rise or fall, or two documents always stand in the same order. */
  | 'own-order'
  /** Later calls of tools may refer to the result. */
  | 'tool-result'
  /** The program's text may speak of the order of the documents: a person must read it. */
  | 'program-text';

/** A part of a kind's text as a person reads it. */
type KindPart =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'documents' }
  | { readonly kind: 'changing' };

/** A program's prompt, learned from its texts. */
export interface PromptKind {
  readonly id: string;
  readonly role: PromptRole;
  readonly parts: readonly KindPart[];
  /** Prompts of this kind, and those with two documents or more that can be told apart. */
  readonly prompts: number;
  readonly withDocuments: number;
  readonly notices: readonly KindNotice[];
  /** Whether documents may move without a person's consent: nothing speaks of their order, and they have none. */
  readonly isSafe: boolean;
}

/** Documents in a text of a known kind. */
export interface KindDocuments {
  readonly kind: string;
  /** Whether these documents may move without a person's consent. */
  readonly isSafe: boolean;
  /** Documents that may move; `undefined` with fewer than two. */
  readonly block: DocumentBlock | undefined;
  /**
   * For documents found by recurrence, the hashes of the stretches of each: documents that moved as one may part later,
   * so an order is compared stretch by stretch.
   */
  readonly stretches: readonly (readonly number[])[] | undefined;
}

/** A text of a kind, with its changing parts. */
export interface MatchedText {
  readonly kind: LearnedKind;
  readonly gaps: readonly Gap[];
}

/** Which of the latest texts came before. */
export class RecentTexts {
  readonly #hashes = new Set<number>();

  get bytes(): number {
    return this.#hashes.size * PIECE_BYTES;
  }

  /** Whether a text is none of the latest; it is one afterwards. */
  isNew(hash: number): boolean {
    if (this.#hashes.has(hash)) return false;
    this.#hashes.add(hash);
    if (this.#hashes.size > MAX_RECENT) this.#hashes.delete(this.#hashes.values().next().value!);
    return true;
  }
}

/** What was found in a text, and what stood before it. */
interface LearnedText extends MatchedText {
  readonly text: string;
  readonly found: KindDocuments;
  /** Whether what a user says stands in front of the text, in the same prompt. */
  readonly isQuestionBefore: boolean;
}

/** A kind, and what its prompts have shown. */
export class LearnedKind {
  readonly program: ProgramText;
  readonly #historyBytes: number;
  history: RecurrenceHistory;
  prompts = 0;
  /** Blanks of the program in front of the first document. */
  indent = '';
  /** Blanks of the program behind the last document. */
  trail = '';
  /** The shortest text that has stood between two documents. */
  separator: string | undefined;
  #withDocuments = 0;
  #tokens = 0;
  readonly #recent = new RecentTexts();
  readonly #counts = new Map<KindNotice, number>();
  readonly #pairs = new PairOrders();
  /** Whether the program's text certainly says nothing about an order. */
  readonly #isNeutral: boolean;
  /** Lines that stood twice in the documents of a prompt, and in how many prompts. */
  readonly #repeated = new Map<number, number>();
  #separators: ReadonlySet<number> = new Set();

  constructor(program: ProgramText, historyBytes: number) {
    this.program = program;
    this.#historyBytes = historyBytes;
    this.history = new RecurrenceHistory(historyBytes);
    this.#isNeutral = program.segments.length > 0 && program.segments.every(isNeutralText);
  }

  /** Whether blanks behind the last document are the program's: no prompt had others. */
  get hasOwnTrail(): boolean {
    return this.trail !== '' && this.prompts >= MIN_TRAILED;
  }

  /** Whether documents of this kind may move without a person's consent. */
  get isSafe(): boolean {
    const { role } = this.program;
    const isOrdered = this.#isMost('own-order');
    return this.#isNeutral && role !== 'tool' && this.prompts >= MIN_PROMPTS && this.#pairs.isFree && !isOrdered;
  }

  get bytes(): number {
    const remembered = this.history.bytes + this.#recent.bytes + this.#pairs.bytes + this.#repeated.size * PIECE_BYTES;
    return remembered + this.program.segments.reduce((sum, { length }) => sum + 2 * length, 0);
  }

  learn({ text, gaps, found, isQuestionBefore }: LearnedText, hasher: StretchHasher): void {
    if (!this.#recent.isNew(hasher.hash(text))) return;
    this.prompts++;
    this.#tokens += estimateTokens(text);
    const { block } = found;
    if (block !== undefined) {
      this.#withDocuments++;
      this.separator = shortestSeparator(text, block.documents, this.separator);
      const said = ({ contentStart, contentEnd }: DocumentSpan) => hasher.hash(text.slice(contentStart, contentEnd));
      this.#pairs.add(block.documents.map(said));
    }
    const before = gaps.slice(0, this.program.documents).some(({ start, end }) => text.slice(start, end).trim() !== '');
    const notices: readonly (readonly [KindNotice, boolean])[] = [
      ['labels-by-position', block !== undefined && isCounted(block)],
      ['own-order', block !== undefined && isInOwnOrder(text, block.documents)],
      ['changing-text-first', before],
      ['question-first', isQuestionBefore],
    ];
    for (const [notice, isTrue] of notices) if (isTrue) this.#counts.set(notice, (this.#counts.get(notice) ?? 0) + 1);
    const gap = gaps[this.program.documents]!;
    this.#noticeIndent(text.slice(gap.start, gap.end));
    this.#noticeTrail(text.slice(gap.start, gap.end));
    const lines = linesOf(this, { text, gap }, hasher);
    this.#noticeSeparators(lines);
    this.history.learn(this.withoutSeparators(lines).map(({ hash }) => hash));
  }

  /** The lines without those that stand between the documents of most prompts: nothing is learned from them. */
  withoutSeparators(lines: readonly Stretch[]): readonly Stretch[] {
    return this.#separators.size === 0 ? lines : lines.filter(({ hash }) => !this.#separators.has(hash));
  }

  /**
   * White space in front of the first document belongs to the program where all prompts have the same, and no other
   * line begins so: the program's source is indented there.
   */
  #noticeIndent(gap: string): void {
    const [space] = SPACE_BEFORE.exec(gap)!;
    const indent = space.slice(space.lastIndexOf('\n') + 1);
    const isAlone = indent !== '' && !gap.slice(space.length).includes(`\n${indent}`);
    const known = this.prompts === 1 ? indent : this.indent;
    if (isAlone && indent === known) this.indent = indent;
    else if (this.indent !== '') {
      this.indent = '';
      this.history = new RecurrenceHistory(this.#historyBytes);
    }
  }

  /** The same behind the last document, where all prompts have the same blanks. */
  #noticeTrail(gap: string): void {
    const trail = /^[ \t]*/.exec(gap.slice(gap.trimEnd().length))![0];
    this.trail = this.prompts === 1 || trail === this.trail ? trail : '';
  }

  #noticeSeparators(lines: readonly Stretch[]): void {
    const counts = new Map<number, number>();
    for (const { hash } of lines) counts.set(hash, (counts.get(hash) ?? 0) + 1);
    for (const [hash, count] of counts) {
      if (count < 2) continue;
      this.#repeated.set(hash, (this.#repeated.get(hash) ?? 0) + 1);
      if (this.#repeated.size > MAX_REPEATED) this.#repeated.delete(this.#repeated.keys().next().value!);
    }
    if (this.prompts < MIN_SEPARATED) return;
    const most = [...this.#repeated].filter(([, count]) => count > MOST * this.prompts).map(([hash]) => hash);
    if (most.length === this.#separators.size && most.every((hash) => this.#separators.has(hash))) return;
    this.#separators = new Set(most);
    // With other separators, what was learned has other neighbours.
    this.history = new RecurrenceHistory(this.#historyBytes);
  }

  #isMost(notice: KindNotice): boolean {
    return (this.#counts.get(notice) ?? 0) > MOST * this.prompts;
  }

  describe(blockTokens: number): PromptKind {
    const { program, prompts } = this;
    const notices = [...this.#counts.keys()].filter((notice) => this.#isMost(notice));
    if (this.#pairs.isKept && !notices.includes('own-order')) notices.push('own-order');
    if (prompts >= MIN_PROMPTS && this.#withDocuments < MOST * prompts) notices.push('few-documents');
    if (prompts > 0 && this.#tokens / prompts < 2 * blockTokens) notices.push('too-short');
    if (program.role === 'tool') notices.push('tool-result');
    if (!this.#isNeutral) notices.push('program-text');
    return {
      id: program.id,
      role: program.role,
      parts: programParts(program),
      prompts,
      withDocuments: this.#withDocuments,
      notices,
      isSafe: this.isSafe,
    };
  }
}

/** A program's text and the places for what changes, in the order of the prompt. */
export function programParts({ segments, opens, closes, documents }: ProgramText): readonly KindPart[] {
  const parts: KindPart[] = [];
  for (let gap = 0; gap <= segments.length; gap++) {
    const isEmpty = (gap === 0 && opens) || (gap === segments.length && closes);
    if (!isEmpty) parts.push({ kind: gap === documents ? 'documents' : 'changing' });
    const text = segments[gap];
    if (text !== undefined) parts.push({ kind: 'text', text });
  }
  return parts;
}

/** The lines of the part that holds the documents. */
function linesOf(
  { indent }: LearnedKind,
  { text, gap }: { readonly text: string; readonly gap: Gap },
  hasher: StretchHasher,
): readonly Stretch[] {
  const [space] = SPACE_BEFORE.exec(text.slice(gap.start, gap.end))!;
  // Behind words in front of a colon, the first line begins with a blank that belongs to the program.
  const isOnLine = !space.includes('\n') && text[gap.start - 1] !== '\n';
  const isIndented = indent !== '' && space.endsWith(indent);
  return hasher.lines(text, isOnLine || isIndented ? gap.start + space.length : gap.start, gap.end);
}

const SPACE_BEFORE = /^\s*/;

export function documentsOf(
  { kind, gaps }: MatchedText,
  given: PromptText,
  { index, hasher }: { readonly index: number; readonly hasher: StretchHasher },
): KindDocuments {
  const { program } = kind;
  const { text } = given;
  const formed = formedBlock(given, gaps[program.documents]!, kind.separator);
  if (formed !== undefined) {
    const block = { ...formed, text: index };
    return { kind: program.id, isSafe: isSafe(kind, text, block), block, stretches: undefined };
  }
  if (given.kind === 'elements') return { kind: program.id, isSafe: false, block: undefined, stretches: undefined };
  const lines = kind.withoutSeparators(linesOf(kind, { text, gap: gaps[program.documents]! }, hasher));
  const recurring = recurringBlock(lines, { text, index, kind });
  const block = recurring?.block;
  return { kind: program.id, isSafe: isSafe(kind, text, block), block, stretches: recurring?.stretches };
}

/** Whether the documents of one prompt may move without a person's consent. */
function isSafe(kind: LearnedKind, text: string, block: DocumentBlock | undefined): boolean {
  return block !== undefined && kind.isSafe && !isInOwnOrder(text, block.documents);
}

/** Documents by their form that are most of a changing part, rather than a list within one of its documents. */
export function formedBlock(given: PromptText, gap: Gap, separator: string | undefined): DocumentBlock | undefined {
  const { text } = given;
  const found = recognise([given], { mode: 'form' });
  const block = found.find(
    ({ start, end }) =>
      start >= gap.start - MAX_FORM && end <= gap.end + MAX_FORM && end - start >= MIN_COVERED * (gap.end - gap.start),
  );
  if (block === undefined) return undefined;
  const documents = withOwnSpace(text, block.documents, separator);
  return { ...block, documents, end: documents.at(-1)!.end, fixed: undefined };
}

/** The documents that recurrence shows, without a first or last one whose edge is not certain. */
function recurringBlock(
  lines: readonly Stretch[],
  { text, index, kind }: { readonly text: string; readonly index: number; readonly kind: LearnedKind },
): { readonly block: DocumentBlock; readonly stretches: readonly (readonly number[])[] } | undefined {
  const { units, isStartCertain, isEndCertain } = kind.history.unitsOf(lines.map(({ hash }) => hash));
  const apart = withSameSeparator(text, lines, units);
  const movable = apart.slice(isStartCertain ? 0 : 1, isEndCertain ? undefined : -1);
  if (movable.length < 2) return undefined;
  const spans = movable.map(({ from, to }): DocumentSpan => {
    const [start, end] = [lines[from]!.start, lines[to - 1]!.end];
    return { start, end, contentStart: start, contentEnd: end, id: undefined, title: undefined, labels: [] };
  });
  const spaced = withOwnSpace(text, spans, kind.separator);
  const isLast = movable.at(-1)!.to === lines.length;
  const documents = isLast && kind.hasOwnTrail ? [...spaced.slice(0, -1), spans.at(-1)!] : spaced;
  const block: DocumentBlock = {
    text: index,
    format: 'recurrence',
    marked: false,
    start: documents[0]!.start,
    end: documents.at(-1)!.end,
    documents,
    fixed: undefined,
  };
  const stretches = movable.map(({ from, to }) => lines.slice(from, to).map(({ hash }) => hash));
  return { block, stretches };
}

type Range = { readonly from: number; readonly to: number };

/**
 * Units with the same text between all of them, because what stands between two documents stays in its place. Of what
 * stands there, the most frequent counts. White space in front of it belongs to the document before; units around
 * anything else stay together.
 */
function withSameSeparator(text: string, lines: readonly Stretch[], units: readonly Range[]): readonly Range[] {
  const separators = units.slice(1).map(({ from }) => text.slice(lines[from - 1]!.end, lines[from]!.start));
  const counts = new Map<string, number>();
  for (const separator of separators) counts.set(separator, (counts.get(separator) ?? 0) + 1);
  const [usual] = [...counts].sort((a, b) => b[1] - a[1]);
  const apart: { from: number; to: number }[] = [];
  for (const [rank, { from, to }] of units.entries()) {
    if (rank > 0 && spaceBefore(separators[rank - 1]!, usual![0]) === undefined) apart.at(-1)!.to = to;
    else apart.push({ from, to });
  }
  return apart;
}

/**
 * Documents with the white space that each of them ends in, so that the same text stands between all of them. Blanks at
 * the end of a line belong to it. Of line ends, `known` are the fewest that have stood between documents of the kind.
 */
function withOwnSpace(text: string, documents: readonly DocumentSpan[], known: string | undefined): DocumentSpan[] {
  const spans = documents.map((document, rank): DocumentSpan => {
    const between = text.slice(document.end, documents[rank + 1]?.start ?? document.end + MAX_FORM);
    const blanks = /^[ \t]*(?=\r?\n|$)/.exec(between)?.[0].length ?? 0;
    return blanks === 0 ? document : { ...document, end: document.end + blanks };
  });
  const usual = shortestSeparator(text, spans, known);
  return spans.map((document, rank) => {
    const next = spans[rank + 1];
    const space = next === undefined ? 0 : (spaceBefore(text.slice(document.end, next.start), usual) ?? 0);
    return space === 0 ? document : { ...document, end: document.end + space };
  });
}

/** The shortest text between two documents. */
function shortestSeparator(text: string, documents: readonly DocumentSpan[], known: string | undefined): string {
  const separators = documents.slice(1).map(({ start }, i) => text.slice(documents[i]!.end, start));
  if (known !== undefined) separators.push(known);
  return separators.reduce((one, other) => (other.length < one.length ? other : one));
}

/** Characters of white space in front of the usual separator; `undefined` for another one. */
function spaceBefore(separator: string, usual: string): number | undefined {
  if (!separator.endsWith(usual)) return undefined;
  const space = separator.length - usual.length;
  return separator.slice(0, space).trim() === '' ? space : undefined;
}
