import type { DocumentBlock, DocumentSpan, PromptRole, PromptText } from '../recognise/block.js';
import { recognise } from '../recognise/recognise.js';
import { estimateTokens } from '../token-estimate.js';
import { isInOwnOrder } from './own-order.js';
import { findProgramText, type Gap, gapsOf, MIN_PROMPTS, type PooledText, type ProgramText } from './program-text.js';
import { RecurrenceHistory } from './recurrence.js';
import { type Stretch, StretchHasher } from './stretches.js';

/** Texts of no known kind that are remembered, as hashes, for each tenant and role. */
const MAX_POOLED = 128;
/** Pieces of such a text that are remembered. */
const MAX_PIECES = 512;
/** Texts of no known kind between two searches for a kind. */
const SEARCH_EVERY = 8;
/** Kinds of a tenant and role. */
const MAX_KINDS = 16;
/** Bytes of what a kind remembers of its documents, at most a quarter of all. */
const MAX_HISTORY_BYTES = 4_194_304;
/** Texts whose repetition is noticed, for each kind. */
const MAX_RECENT = 256;
/** Lines whose repetition is counted for each kind, and the prompts before they can count as separators. */
const MAX_REPEATED = 64;
const MIN_SEPARATED = 8;
/** Estimated bytes of a remembered piece. */
const PIECE_BYTES = 48;
/** Characters of the form, such as `[{"id":`, that are the same in all prompts and so count as the program's. */
const MAX_FORM = 200;
/** Share of the changing part that documents found by their form take up. */
const MIN_COVERED = 0.7;
/** Share of a kind's prompts for which something must be true to be said of the kind. */
const MOST = 0.5;

/** Why the documents of a kind bring no gain as they are, or must not move without consent. */
type KindNotice =
  /** The documents say nothing else than where they stand: the same document has other bytes at another place. */
  | 'labels-by-position'
  /** Text that changes stands before the documents in the same prompt. */
  | 'changing-text-first'
  /** That text is what the user asks. */
  | 'question-first'
  | 'few-documents'
  /** Shorter than a block of the engine's cache. */
  | 'too-short'
  /** Dates, numbers or versions of the documents rise or fall. */
  | 'own-order'
  /** Later calls of tools may refer to the result. */
  | 'tool-result'
  /** The program says something: a person must read whether it speaks of the order. */
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
}

/** Documents in a text of a known kind. */
export interface KindDocuments {
  readonly kind: string;
  /** Documents that may move; `undefined` with fewer than two. */
  readonly block: DocumentBlock | undefined;
  /**
   * For documents found by recurrence, the hashes of the stretches of each: documents that moved as one may part later,
   * so an order is compared stretch by stretch.
   */
  readonly stretches: readonly (readonly number[])[] | undefined;
}

export interface PromptKindsOptions {
  /** Key of the hashes. Texts can be guessed from hashes whose key is known. */
  readonly salt: string;
  /** Estimated bytes for all tenants. The tenants that were not seen for longest are forgotten. */
  readonly maxBytes: number;
  /** Tokens of a block of the engine's cache. Default 16. */
  readonly blockTokens?: number;
}

/**
 * Learns the prompts of programs from traffic, tenant by tenant, and finds the documents in them: by their form, or by
 * recurrence. Keeps text only where it stands in nearly all prompts of a kind with at least 20 lists of documents; of
 * everything else it keeps salted hashes.
 */
export class PromptKinds {
  readonly #hasher: StretchHasher;
  readonly #maxBytes: number;
  readonly #blockTokens: number;
  /** The one used longest ago first. */
  readonly #tenants = new Map<string, Map<PromptRole, RoleTexts>>();

  constructor({ salt, maxBytes, blockTokens = 16 }: PromptKindsOptions) {
    this.#hasher = new StretchHasher(salt);
    this.#maxBytes = maxBytes;
    this.#blockTokens = blockTokens;
  }

  /** Estimated bytes. */
  get bytes(): number {
    let bytes = 0;
    for (const roles of this.#tenants.values()) for (const texts of roles.values()) bytes += texts.bytes;
    return bytes;
  }

  /**
   * The documents in the texts of a prompt that are of a known kind, in the order of the texts. Changes nothing.
   * O(texts).
   */
  find(tenant: string, texts: readonly PromptText[]): readonly KindDocuments[] {
    const roles = this.#tenants.get(tenant);
    if (roles === undefined) return [];
    return texts.flatMap((text, index) => {
      const matched = roles.get(text.role)?.match(text.text);
      return matched === undefined ? [] : [documentsOf(matched, text, { index, hasher: this.#hasher })];
    });
  }

  /** Learns from the texts of a prompt that are new in it, as the client wrote them. O(texts). */
  learn(tenant: string, texts: readonly PromptText[]): void {
    const roles = this.#tenants.get(tenant) ?? new Map<PromptRole, RoleTexts>();
    this.#tenants.delete(tenant);
    this.#tenants.set(tenant, roles);
    let isChangedBefore: KindNotice | undefined;
    for (const [index, text] of texts.entries()) {
      if (text.role === 'assistant' || text.kind !== undefined) continue;
      const own = this.#textsOf(roles, text.role);
      const matched = own.match(text.text);
      if (matched === undefined) {
        own.pool(text.text, text.role);
        isChangedBefore ??= text.role === 'user' ? 'question-first' : undefined;
        continue;
      }
      const found = documentsOf(matched, text, { index, hasher: this.#hasher });
      matched.kind.learn({ ...matched, text: text.text, found, isChangedBefore }, this.#hasher);
    }
    while (this.bytes > this.#maxBytes && this.#tenants.size > 0) {
      this.#tenants.delete(this.#tenants.keys().next().value!);
    }
  }

  /** The program texts of a tenant, to be stored and given to `restore`. */
  programTexts(tenant: string): readonly ProgramText[] {
    return [...(this.#tenants.get(tenant)?.values() ?? [])].flatMap((texts) => texts.programs());
  }

  /** Makes a kind known that was learned before, in this process or another one. */
  restore(tenant: string, program: ProgramText): void {
    const roles = this.#tenants.get(tenant) ?? new Map<PromptRole, RoleTexts>();
    this.#tenants.set(tenant, roles);
    this.#textsOf(roles, program.role).add(program);
  }

  /** The kinds of a tenant, most prompts first. */
  list(tenant: string): readonly PromptKind[] {
    const kinds = [...(this.#tenants.get(tenant)?.values() ?? [])].flatMap((texts) => texts.list(this.#blockTokens));
    return kinds.sort((a, b) => b.prompts - a.prompts);
  }

  #textsOf(roles: Map<PromptRole, RoleTexts>, role: PromptRole): RoleTexts {
    let texts = roles.get(role);
    if (texts === undefined) {
      texts = new RoleTexts(this.#hasher, Math.min(MAX_HISTORY_BYTES, this.#maxBytes / 4));
      roles.set(role, texts);
    }
    return texts;
  }
}

/** A text of a kind, with its changing parts. */
interface MatchedText {
  readonly kind: LearnedKind;
  readonly gaps: readonly Gap[];
}

/** What is known of the texts of one role. */
class RoleTexts {
  readonly #hasher: StretchHasher;
  readonly #historyBytes: number;
  #pool: PooledText[] = [];
  #pieces = 0;
  #recent = new RecentTexts();
  #sinceSearch = 0;
  readonly #kinds = new Map<string, LearnedKind>();

  constructor(hasher: StretchHasher, historyBytes: number) {
    this.#hasher = hasher;
    this.#historyBytes = historyBytes;
  }

  get bytes(): number {
    let bytes = this.#pieces * PIECE_BYTES + this.#recent.bytes;
    for (const kind of this.#kinds.values()) bytes += kind.bytes;
    return bytes;
  }

  match(text: string): MatchedText | undefined {
    for (const kind of this.#kinds.values()) {
      const gaps = gapsOf(kind.program, text);
      if (gaps !== undefined) return { kind, gaps };
    }
    return undefined;
  }

  /** Remembers a text of no known kind, and looks for a kind in what is remembered. */
  pool(text: string, role: PromptRole): void {
    if (!this.#recent.isNew(this.#hasher.hash(text))) return;
    const pieces = this.#hasher.pieces(text);
    const kept =
      pieces.length <= MAX_PIECES ? pieces : [...pieces.slice(0, MAX_PIECES / 2), ...pieces.slice(-MAX_PIECES / 2)];
    const hashes = Float64Array.from(kept, ({ hash }) => hash);
    const places = new Map<number, number>();
    for (const [at, hash] of hashes.entries()) if (!places.has(hash)) places.set(hash, at);
    this.#pool.push({ hashes, places });
    this.#pieces += hashes.length;
    if (this.#pool.length > MAX_POOLED) this.#pieces -= this.#pool.shift()!.hashes.length;
    this.#sinceSearch++;
    if (this.#sinceSearch < SEARCH_EVERY) return;
    this.#sinceSearch = 0;
    const program = findProgramText(
      role,
      { text, pieces, hasDocuments: (gap) => formedBlock({ role, text }, gap) !== undefined },
      this.#pool,
    );
    if (program === undefined) return;
    this.add(program);
    this.#pool = this.#pool.filter((pooled) => !isOf(program, pooled, this.#hasher));
    this.#pieces = this.#pool.reduce((sum, pooled) => sum + pooled.hashes.length, 0);
  }

  add(program: ProgramText): void {
    if (this.#kinds.has(program.id)) return;
    this.#kinds.set(program.id, new LearnedKind(program, this.#historyBytes));
    if (this.#kinds.size <= MAX_KINDS) return;
    const [least] = [...this.#kinds.values()].sort((a, b) => a.prompts - b.prompts);
    this.#kinds.delete(least!.program.id);
  }

  programs(): readonly ProgramText[] {
    return [...this.#kinds.values()].map(({ program }) => program);
  }

  list(blockTokens: number): readonly PromptKind[] {
    return [...this.#kinds.values()].map((kind) => kind.describe(blockTokens));
  }
}

/** Whether a remembered text has the pieces of a program's text. */
function isOf({ segments }: ProgramText, { places }: PooledText, hasher: StretchHasher): boolean {
  return segments.every((segment) => hasher.pieces(segment).every(({ hash }) => places.has(hash)));
}

/** Which of the latest texts came before. */
class RecentTexts {
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
  readonly isChangedBefore: KindNotice | undefined;
}

/** A kind, and what its prompts have shown. */
class LearnedKind {
  readonly program: ProgramText;
  readonly #historyBytes: number;
  history: RecurrenceHistory;
  prompts = 0;
  #withDocuments = 0;
  #tokens = 0;
  readonly #recent = new RecentTexts();
  readonly #counts = new Map<KindNotice, number>();
  /** Lines that stood twice in the documents of a prompt, and in how many prompts. */
  readonly #repeated = new Map<number, number>();
  #separators: ReadonlySet<number> = new Set();

  constructor(program: ProgramText, historyBytes: number) {
    this.program = program;
    this.#historyBytes = historyBytes;
    this.history = new RecurrenceHistory(historyBytes);
  }

  get bytes(): number {
    const remembered = this.history.bytes + this.#recent.bytes + this.#repeated.size * PIECE_BYTES;
    return remembered + this.program.segments.reduce((sum, { length }) => sum + 2 * length, 0);
  }

  learn({ text, gaps, found, isChangedBefore }: LearnedText, hasher: StretchHasher): void {
    if (!this.#recent.isNew(hasher.hash(text))) return;
    this.prompts++;
    this.#tokens += estimateTokens(text);
    const { block } = found;
    if (block !== undefined) this.#withDocuments++;
    const before = gaps.slice(0, this.program.documents).some(({ start, end }) => text.slice(start, end).trim() !== '');
    const notices: readonly (readonly [KindNotice, boolean])[] = [
      ['labels-by-position', block !== undefined && block.labels !== 'none'],
      ['own-order', block !== undefined && isInOwnOrder(text, block.documents)],
      ['changing-text-first', before],
      ['question-first', isChangedBefore === 'question-first'],
    ];
    for (const [notice, isTrue] of notices) if (isTrue) this.#counts.set(notice, (this.#counts.get(notice) ?? 0) + 1);
    const lines = linesOf(this.program, { text, gaps }, hasher);
    this.#noticeSeparators(lines);
    this.history.learn(this.withoutSeparators(lines).map(({ hash }) => hash));
  }

  /** The lines without those that stand between the documents of most prompts: nothing is learned from them. */
  withoutSeparators(lines: readonly Stretch[]): readonly Stretch[] {
    return this.#separators.size === 0 ? lines : lines.filter(({ hash }) => !this.#separators.has(hash));
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

  describe(blockTokens: number): PromptKind {
    const { program, prompts } = this;
    const notices: KindNotice[] = [...this.#counts].filter(([, count]) => count > MOST * prompts).map(([name]) => name);
    if (prompts >= MIN_PROMPTS && this.#withDocuments < MOST * prompts) notices.push('few-documents');
    if (prompts > 0 && this.#tokens / prompts < 2 * blockTokens) notices.push('too-short');
    if (program.role === 'tool') notices.push('tool-result');
    if (program.segments.some((segment) => /\p{L}/u.test(segment))) notices.push('program-text');
    return {
      id: program.id,
      role: program.role,
      parts: partsOf(program),
      prompts,
      withDocuments: this.#withDocuments,
      notices,
    };
  }
}

function partsOf({ segments, opens, closes, documents }: ProgramText): readonly KindPart[] {
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
  program: ProgramText,
  { text, gaps }: { readonly text: string; readonly gaps: readonly Gap[] },
  hasher: StretchHasher,
): readonly Stretch[] {
  const gap = gaps[program.documents]!;
  // Behind words in front of a colon, the first line begins with a blank that belongs to the program.
  const start = gap.start + /^[ \t]*/.exec(text.slice(gap.start, gap.end))![0].length;
  return hasher.lines(text, text[gap.start - 1] === '\n' ? gap.start : start, gap.end);
}

function documentsOf(
  { kind, gaps }: MatchedText,
  given: PromptText,
  { index, hasher }: { readonly index: number; readonly hasher: StretchHasher },
): KindDocuments {
  const { program } = kind;
  const { role, text } = given;
  const formed = formedBlock({ role, text }, gaps[program.documents]!);
  if (formed !== undefined) {
    return { kind: program.id, block: { ...formed, text: index }, stretches: undefined };
  }
  const lines = kind.withoutSeparators(linesOf(program, { text, gaps }, hasher));
  const recurring = recurringBlock(lines, { text, index, kind });
  return { kind: program.id, block: recurring?.block, stretches: recurring?.stretches };
}

/** Documents by their form that are most of a changing part, rather than a list within one of its documents. */
function formedBlock({ role, text }: PromptText, gap: Gap): DocumentBlock | undefined {
  const found = recognise([{ role, text }], { mode: 'conservative', relabel: false });
  const block = found.find(
    ({ start, end }) =>
      start >= gap.start - MAX_FORM && end <= gap.end + MAX_FORM && end - start >= MIN_COVERED * (gap.end - gap.start),
  );
  return block && { ...block, fixed: undefined };
}

/** The documents that recurrence shows, without a first or last one whose edge is not certain. */
function recurringBlock(
  lines: readonly Stretch[],
  { text, index, kind }: { readonly text: string; readonly index: number; readonly kind: LearnedKind },
): { readonly block: DocumentBlock; readonly stretches: readonly (readonly number[])[] } | undefined {
  const { units, isStartCertain, isEndCertain } = kind.history.unitsOf(lines.map(({ hash }) => hash));
  const apart = withSameSeparator(text, lines, units);
  // White space behind the last line may belong to it.
  const isEndClean = isEndCertain && !/[ \t\r]/.test(text[lines.at(-1)!.end] ?? '');
  const movable = apart.slice(isStartCertain ? 0 : 1, isEndClean ? undefined : -1);
  if (movable.length < 2) return undefined;
  const documents = movable.map(({ from, to }): DocumentSpan => {
    const [start, end] = [lines[from]!.start, lines[to - 1]!.end];
    return { start, end, contentStart: start, contentEnd: end, id: undefined, title: undefined, labels: [] };
  });
  const block: DocumentBlock = {
    text: index,
    format: 'recurrence',
    marked: false,
    start: documents[0]!.start,
    end: documents.at(-1)!.end,
    documents,
    labels: 'none',
    fixed: undefined,
  };
  const stretches = movable.map(({ from, to }) => lines.slice(from, to).map(({ hash }) => hash));
  return { block, stretches };
}

type Range = { readonly from: number; readonly to: number };

/**
 * Units with the same white space between all of them: what stands between two documents stays in its place, so another
 * separator could be white space of one of them. The most frequent one counts; units around another one stay together.
 */
function withSameSeparator(text: string, lines: readonly Stretch[], units: readonly Range[]): readonly Range[] {
  const separators = units.slice(1).map(({ from }) => text.slice(lines[from - 1]!.end, lines[from]!.start));
  const counts = new Map<string, number>();
  for (const separator of separators) counts.set(separator, (counts.get(separator) ?? 0) + 1);
  const [usual] = [...counts].sort((a, b) => b[1] - a[1]);
  const apart: { from: number; to: number }[] = [];
  for (const [rank, { from, to }] of units.entries()) {
    if (rank > 0 && separators[rank - 1] !== usual![0]) apart.at(-1)!.to = to;
    else apart.push({ from, to });
  }
  return apart;
}
