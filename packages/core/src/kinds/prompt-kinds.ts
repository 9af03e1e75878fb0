import { fingerprint } from '../fingerprint.js';
import type { PromptRole, PromptText } from '../recognise/block.js';
import { recognise } from '../recognise/recognise.js';
import { countedLists } from './counted-documents.js';
import {
  documentsOf,
  formedBlock,
  type KindDocuments,
  LearnedKind,
  type MatchedText,
  PIECE_BYTES,
  type PromptKind,
  RecentTexts,
} from './learned-kind.js';
import { findProgramText, gapsOf, type PooledText, type ProgramText } from './program-text.js';
import { StretchHasher } from './stretches.js';

/** Texts of no known kind that are remembered, as hashes, for each tenant and role. */
const MAX_POOLED = 128;
/** Pieces of such a text that are remembered. */
const MAX_PIECES = 512;
/** Texts of no known kind between two searches for a kind, at least. */
const SEARCH_EVERY = 8;
/** The same, as a share of the texts since a kind was found. */
const SEARCH_SHARE = 1 / 8;
/** Kinds of a tenant and role, beside those that are kept. */
const MAX_KINDS = 16;
/** Bytes of what a kind remembers of its documents, at most a quarter of all. */
const MAX_HISTORY_BYTES = 4_194_304;

export interface PromptKindsOptions {
  /** Key of the hashes. Texts can be guessed from hashes whose key is known. */
  readonly salt: string;
  /** Estimated bytes for all tenants. Those without a kept kind that were not seen for longest are forgotten first. */
  readonly maxBytes: number;
  /** Tokens of a block of the engine's cache. Default 16. */
  readonly blockTokens?: number;
}

/** What a prompt was to its tenant's kinds. */
export interface LearnedPrompt {
  /** Documents in its texts of known kinds, before anything was learned from them. */
  readonly documents: readonly KindDocuments[];
  /** The program's text of a kind that it brought to light. */
  readonly program: ProgramText | undefined;
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
      const matched = roles.get(text.role)?.match(text);
      return matched === undefined ? [] : [documentsOf(matched, text, { index, hasher: this.#hasher }).found];
    });
  }

  /** The known kinds of the texts of a prompt, in the order of the texts. Changes nothing. O(texts). */
  kindsOf(tenant: string, texts: readonly PromptText[]): readonly PromptKind[] {
    const roles = this.#tenants.get(tenant);
    if (roles === undefined) return [];
    return texts.flatMap((text) => roles.get(text.role)?.match(text)?.kind.describe(this.#blockTokens) ?? []);
  }

  /**
   * Learns from the texts of a prompt that are new in it, as the client wrote them. O(texts).
   */
  learn(tenant: string, texts: readonly PromptText[]): LearnedPrompt {
    const roles = this.#tenants.get(tenant) ?? new Map<PromptRole, RoleTexts>();
    this.#tenants.delete(tenant);
    this.#tenants.set(tenant, roles);
    let isQuestionBefore = false;
    let program: ProgramText | undefined;
    const documents: KindDocuments[] = [];
    for (const [index, text] of texts.entries()) {
      if (text.role === 'assistant' || text.kind === 'verbatim') continue;
      const own = this.#textsOf(roles, text.role);
      if (text.kind === 'elements') own.add(elementsOf(text.role));
      const matched = own.match(text);
      if (matched === undefined) {
        program = own.pool(text.text, text.role) ?? program;
        isQuestionBefore ||= text.role === 'user';
        continue;
      }
      own.use(matched.kind);
      const found = documentsOf(matched, text, { index, hasher: this.#hasher });
      documents.push(found.found);
      matched.kind.learn({ ...matched, ...found, text: text.text, isQuestionBefore }, this.#hasher);
    }
    this.#forgetTenants();
    return { documents, program };
  }

  /** The program texts of a tenant, to be stored and given to `restore`. */
  programTexts(tenant: string): readonly ProgramText[] {
    return [...(this.#tenants.get(tenant)?.values() ?? [])].flatMap((texts) => texts.programs());
  }

  /**
   * Makes a kind known that was learned before, in this process or another one, and keeps it: other kinds are forgotten
   * before it.
   */
  restore(tenant: string, program: ProgramText): void {
    const roles = this.#tenants.get(tenant) ?? new Map<PromptRole, RoleTexts>();
    this.#tenants.set(tenant, roles);
    this.#textsOf(roles, program.role).keep(program);
  }

  /** The tenants of which something is known. */
  tenants(): Iterable<string> {
    return this.#tenants.keys();
  }

  /** The kinds of a tenant, most prompts first. */
  list(tenant: string): readonly PromptKind[] {
    const kinds = [...(this.#tenants.get(tenant)?.values() ?? [])].flatMap((texts) => texts.list(this.#blockTokens));
    return kinds.sort((a, b) => b.prompts - a.prompts);
  }

  #forgetTenants(): void {
    const hasKept = (roles: ReadonlyMap<PromptRole, RoleTexts>) => [...roles.values()].some((texts) => texts.hasKept);
    for (const isLastResort of [false, true]) {
      for (const [tenant, roles] of this.#tenants) {
        if (this.bytes <= this.#maxBytes) return;
        if (isLastResort || !hasKept(roles)) this.#tenants.delete(tenant);
      }
    }
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

/** What is known of the texts of one role. */
class RoleTexts {
  readonly #hasher: StretchHasher;
  readonly #historyBytes: number;
  #pool: PooledText[] = [];
  #pieces = 0;
  #recent = new RecentTexts();
  #sinceSearch = 0;
  /** Texts since a kind was found. The more there are, the rarer is a search. */
  #unmatched = 0;
  /** The one used longest ago first. */
  readonly #kinds = new Map<string, LearnedKind>();
  readonly #kept = new Set<string>();

  constructor(hasher: StretchHasher, historyBytes: number) {
    this.#hasher = hasher;
    this.#historyBytes = historyBytes;
  }

  get bytes(): number {
    let bytes = this.#pieces * PIECE_BYTES + this.#recent.bytes;
    for (const kind of this.#kinds.values()) bytes += kind.bytes;
    return bytes;
  }

  /** Whether a kind is kept. */
  get hasKept(): boolean {
    return this.#kept.size > 0;
  }

  match({ text, kind: form }: PromptText): MatchedText | undefined {
    if (form === 'verbatim') return undefined;
    for (const kind of this.#kinds.values()) {
      if ((kind.program.segments.length === 0) !== (form === 'elements')) continue;
      const gaps = gapsOf(kind.program, text);
      if (gaps !== undefined) return { kind, gaps };
    }
    return undefined;
  }

  /** Remembers a text of no known kind, and looks for a kind in what is remembered. */
  pool(text: string, role: PromptRole): ProgramText | undefined {
    if (!this.#recent.isNew(this.#hasher.hash(text))) return undefined;
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
    this.#unmatched++;
    if (this.#sinceSearch < Math.max(SEARCH_EVERY, this.#unmatched * SEARCH_SHARE)) return undefined;
    this.#sinceSearch = 0;
    const program = findProgramText(
      role,
      {
        text,
        pieces,
        lists: [...recognise([{ role, text }], { mode: 'form' }), ...countedLists(text)],
        hasDocuments: (gap) => formedBlock({ role, text }, gap, undefined) !== undefined,
      },
      this.#pool,
    );
    if (program === undefined) return undefined;
    this.#unmatched = 0;
    this.add(program);
    this.#pool = this.#pool.filter((pooled) => !isOf(program, pooled, this.#hasher));
    this.#pieces = this.#pool.reduce((sum, pooled) => sum + pooled.hashes.length, 0);
    return program;
  }

  add(program: ProgramText): void {
    if (this.#kinds.has(program.id)) return;
    this.#kinds.set(program.id, new LearnedKind(program, this.#historyBytes));
    if (this.#kinds.size - this.#kept.size <= MAX_KINDS) return;
    const [oldest] = [...this.#kinds.keys()].filter((id) => !this.#kept.has(id));
    this.#kinds.delete(oldest!);
  }

  keep(program: ProgramText): void {
    this.#kept.add(program.id);
    this.add(program);
  }

  /** A prompt of the kind came. */
  use({ program }: LearnedKind): void {
    const kind = this.#kinds.get(program.id)!;
    this.#kinds.delete(program.id);
    this.#kinds.set(program.id, kind);
  }

  programs(): readonly ProgramText[] {
    return [...this.#kinds.values()].map(({ program }) => program);
  }

  list(blockTokens: number): readonly PromptKind[] {
    return [...this.#kinds.values()].map((kind) => kind.describe(blockTokens));
  }
}

/** The kind of what an API itself calls documents: nothing of the program stands in such a text. */
function elementsOf(role: PromptRole): ProgramText {
  return { id: fingerprint([role, 'elements']), role, segments: [], opens: false, closes: false, documents: 0 };
}

/** Whether a remembered text has the pieces of a program's text. */
function isOf({ segments }: ProgramText, { places }: PooledText, hasher: StretchHasher): boolean {
  return segments.every((segment) => hasher.pieces(segment).every(({ hash }) => places.has(hash)));
}
