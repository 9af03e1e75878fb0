import { Fingerprint } from '../fingerprint.js';
import { DEFAULT_HINT_WORDING, HINT_PLACE } from '../render/prompt.js';
import { estimateTokens } from '../token-estimate.js';

/** Characters from which a block is worth a reference. */
const MIN_BLOCK = 120;
/** Characters after which a block ends with its line or sentence. */
const MAX_BLOCK = 4_000;
/** A unit ends a block by chance of one in so many. */
const BOUNDARY = 4;
/**
 * Characters that a reference quotes of the beginning and of the end of what it stands for; more where fewer fit
 * several blocks.
 */
const FIRST = [56, 112];
const LAST = [32, 64, 112];
/**
 * A reference stands for at least so many times its own tokens: for less, it is not worth that the model has to look
 * elsewhere.
 */
const WORTH = 2;
/** Stands for words that several blocks begin, or end, with. */
const SHARED = Symbol('the words of several blocks');

/** A text in which some blocks are references. */
export interface ShortenedText {
  readonly text: string;
  /** Blocks of the text, and how many of them are references now. */
  readonly blocks: number;
  readonly replaced: number;
}

/** Where a block was seen first. */
interface SeenBlock {
  readonly holder: Holder;
  /** Which of its blocks. */
  readonly place: number;
  /** The block that follows it, if the same one does wherever it stands. */
  next: string | typeof SHARED | undefined;
}

/** A text that was added. */
interface Holder {
  readonly name: string | undefined;
}

/**
 * Known blocks beside each other, which stand beside each other in the text that held them first, and wherever the
 * first one stands.
 */
interface Run {
  readonly first: string;
  last: string;
  text: string;
  seen: SeenBlock;
  blocks: number;
}

/**
 * The second stage of de-duplication: texts that are alike in parts. Texts are cut into blocks of lines and sentences
 * where their own content says so, so that an insertion moves no cut but its neighbours; what an earlier text holds,
 * letter by letter and white space by white space, becomes a location hint that quotes its first and last words. What
 * differs in one character stays. References point backward only, since a text is shortened before it is added, and the
 * block that they lead to is never one itself: a block is replaced only where it is not the first. What two blocks
 * begin, or end, with is never quoted, and a reference spans no place where two texts part, so that it leads to one
 * text; and none is written that spares less than half of what it stands for. Memory: the texts added.
 */
export class SeenBlocks {
  readonly #wording: string;
  readonly #seen = new Map<string, SeenBlock>();
  /** By the words that it is quoted with, the block that begins, or ends, with them. */
  readonly #firsts = new Map<string, string | typeof SHARED>();
  readonly #lasts = new Map<string, string | typeof SHARED>();

  /** `wording`: of the location hint, with `{documents}` for the quotation (`HintWording.location`). */
  constructor(wording: string = DEFAULT_HINT_WORDING.location) {
    this.#wording = wording;
  }

  /**
   * Takes in a text that stands in the prompt, shortened or not. `name`: what the prompt calls it, if it has a name
   * there. `shown`: what stands there in its place, if it was shortened at another time; only what is found in it
   * counts. O(length).
   */
  add(text: string, { name, shown }: { readonly name?: string; readonly shown?: string | undefined } = {}): void {
    const holder: Holder = { name };
    let from = 0;
    const blocks = blocksOf(text.trimEnd());
    for (const [place, block] of blocks.entries()) {
      if (block.length < MIN_BLOCK) continue;
      const known = this.#seen.get(block);
      const next = blocks[place + 1];
      if (known !== undefined) {
        if (known.next !== next) known.next = SHARED;
        continue;
      }
      if (shown !== undefined) {
        const at = shown.indexOf(block, from);
        // What is missing was known before when it was sent, and is not now: nothing can be said of the rest.
        if (at < 0) return;
        from = at + block.length;
      }
      this.#seen.set(block, { holder, place, next });
      for (const words of firstWords(block)) claim(this.#firsts, words, block);
      for (const words of lastWords(block)) claim(this.#lasts, words, block);
    }
  }

  /**
   * The text with what is known replaced; a text that holds nothing known comes back as it is. Changes nothing.
   * O(length).
   */
  shorten(text: string): ShortenedText {
    const end = text.trimEnd();
    const blocks = this.#seen.size === 0 ? [] : blocksOf(end);
    const parts: string[] = [];
    let replaced = 0;
    let run: Run | undefined;
    const close = () => {
      if (run === undefined) return;
      const reference = this.#reference(run);
      if (reference !== undefined) replaced += run.blocks;
      parts.push(reference ?? run.text);
      run = undefined;
    };
    for (const block of blocks) {
      const seen = this.#seen.get(block);
      if (run?.seen.next !== block || seen === undefined || !isNext(run.seen, seen)) close();
      if (seen === undefined) parts.push(block);
      else if (run === undefined) run = { first: block, last: block, text: block, seen, blocks: 1 };
      else run = { first: run.first, last: block, text: run.text + block, seen, blocks: run.blocks + 1 };
    }
    close();
    parts.push(text.slice(end.length));
    return { text: replaced === 0 ? text : parts.join(''), blocks: blocks.length, replaced };
  }

  /**
   * The hint for a run of blocks, with the white space at its ends; `undefined` if it would lead astray, or spare too
   * little.
   */
  #reference({ first, last, text, seen: { holder } }: Run): string | undefined {
    const begins = firstWords(first).find((words) => this.#firsts.get(words) === first);
    const ends = lastWords(last).find((words) => this.#lasts.get(words) === last);
    if (begins === undefined || ends === undefined) return undefined;
    const quoted = `«${begins} … ${ends}»`;
    const named = holder.name === undefined ? `[${quoted}]` : `[${holder.name}: ${quoted}]`;
    const hint = this.#wording.replace(HINT_PLACE, () => named);
    if (hint.length >= text.length || WORTH * estimateTokens(hint) > estimateTokens(text)) return undefined;
    const before = text.slice(0, text.length - text.trimStart().length);
    return before + hint + text.slice(text.trimEnd().length);
  }
}

function isNext({ holder, place }: SeenBlock, seen: SeenBlock): boolean {
  return seen.holder === holder && seen.place === place + 1;
}

function firstWords(block: string): readonly string[] {
  return FIRST.map((length) => inOneLine(block.trimStart().slice(0, length)));
}

function lastWords(block: string): readonly string[] {
  return LAST.map((length) => inOneLine(block.trimEnd().slice(-length)));
}

function claim(owners: Map<string, string | typeof SHARED>, words: string, block: string): void {
  owners.set(words, owners.has(words) ? SHARED : block);
}

/** Half a character at either end is left out. */
export function inOneLine(words: string): string {
  return words
    .replace(/^[\udc00-\udfff]|[\ud800-\udbff]$/g, '')
    .replace(/\s+/g, ' ')
    .trim();
}

const hasher = new Fingerprint();

/** The blocks of a text; joined, they are the text. */
function blocksOf(text: string): readonly string[] {
  const blocks: string[] = [];
  let start = 0;
  let end = 0;
  for (const unit of unitsOf(text)) {
    end += unit.length;
    if (end - start < MIN_BLOCK) continue;
    const ends = (hasher.reset().add(unit.trim()).end().high >>> 0) % BOUNDARY === 0;
    if (!ends && end - start < MAX_BLOCK) continue;
    blocks.push(text.slice(start, end));
    start = end;
  }
  if (start < text.length) blocks.push(text.slice(start));
  return blocks;
}

/**
 * A line, or a sentence of one, with what parts it from the next. Where words are written without spaces, so are
 * sentences.
 */
const UNIT = /[^\n.!?。！？؟।]*(?:[.!?؟।]+(?=\s|$)\s*|[。！？]+\s*|\n+|[.!?؟।]+|$)/g;

function unitsOf(text: string): readonly string[] {
  return text.match(UNIT)?.filter((unit) => unit !== '') ?? [];
}
