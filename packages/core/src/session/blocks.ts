import { Fingerprint } from '../fingerprint.js';
import { DEFAULT_HINT_WORDING, HINT_PLACE } from '../render/hints.js';

/** Characters from which a block is worth a reference. */
const MIN_BLOCK = 120;
/** Characters after which a block ends wherever it is. */
const MAX_BLOCK = 4_000;
/** A unit ends a block by chance of one in so many. */
const BOUNDARY = 4;
/** Characters that a reference quotes of the beginning and of the end of what it stands for. */
const FIRST = 56;
const LAST = 32;

/** A text in which some blocks are references. */
export interface ShortenedText {
  readonly text: string;
  /** Blocks of the text, and how many of them are references now. */
  readonly blocks: number;
  readonly replaced: number;
}

/** Where a block was seen first. */
interface SeenBlock {
  /** Which of the texts, and which of its blocks. */
  readonly holder: number;
  readonly place: number;
}

/** Known blocks beside each other, which stood beside each other in the text that held them first. */
interface Run {
  text: string;
  last: SeenBlock;
  blocks: number;
}

/**
 * The second stage of de-duplication: texts that are alike in parts. Texts are cut into blocks of lines and sentences where their
 * own content says so, so that an insertion moves no cut but its neighbours; what an earlier text holds, letter by letter, becomes
 * a location hint that quotes its first and last words. What differs in one character stays. References point backward only, since a text is shortened before it is added, and the block
 * that they lead to is never one itself: a block is replaced only where it is not the first. No reference is longer than what it stands for.
 * Memory: the texts added.
 */
export class SeenBlocks {
  readonly #wording: string;
  readonly #seen = new Map<string, SeenBlock>();
  #texts = 0;

  /** `wording`: of the location hint, with `{documents}` for the quotation (`HintWording.location`). */
  constructor(wording: string = DEFAULT_HINT_WORDING.location) {
    this.#wording = wording;
  }

  /** Takes in a text that stands in the prompt, shortened or not. O(length). */
  add(text: string): void {
    const holder = this.#texts++;
    for (const [place, block] of blocksOf(text).entries()) {
      const content = block.trim();
      if (content.length >= MIN_BLOCK && !this.#seen.has(content)) this.#seen.set(content, { holder, place });
    }
  }

  /** The text with what is known replaced; a text that holds nothing known comes back as it is. O(length). */
  shorten(text: string): ShortenedText {
    const blocks = blocksOf(text);
    const parts: string[] = [];
    let replaced = 0;
    let run: Run | undefined;
    const close = () => {
      if (run === undefined) return;
      const reference = this.#reference(run.text);
      if (reference.length < run.text.length) replaced += run.blocks;
      parts.push(reference.length < run.text.length ? reference : run.text);
      run = undefined;
    };
    for (const block of blocks) {
      const seen = this.#seen.get(block.trim());
      const goesOn = run !== undefined && seen?.holder === run.last.holder && seen.place === run.last.place + 1;
      if (!goesOn) close();
      if (seen === undefined) parts.push(block);
      else if (run === undefined) run = { text: block, last: seen, blocks: 1 };
      else run = { text: run.text + block, last: seen, blocks: run.blocks + 1 };
    }
    close();
    return { text: replaced === 0 ? text : parts.join(''), blocks: blocks.length, replaced };
  }

  /** The hint for a run of blocks, with the white space at its ends. */
  #reference(run: string): string {
    const words = run.trim();
    const quoted = `[«${inOneLine(words.slice(0, FIRST))} … ${inOneLine(words.slice(-LAST))}»]`;
    const before = run.slice(0, run.length - run.trimStart().length);
    return before + this.#wording.replace(HINT_PLACE, () => quoted) + run.slice(run.trimEnd().length);
  }
}

/** Half a character at either end is left out. */
export function inOneLine(words: string): string {
  return words
    .replace(/^[\udc00-\udfff]|[\ud800-\udbff]$/g, '')
    .replace(/\s+/g, ' ')
    .trim();
}

const print = new Fingerprint();

/** The blocks of a text; joined, they are the text. */
function blocksOf(text: string): readonly string[] {
  const blocks: string[] = [];
  let start = 0;
  let end = 0;
  for (const unit of unitsOf(text)) {
    end += unit.length;
    if (end - start < MIN_BLOCK) continue;
    const ends = (print.reset().add(unit.trim()).end().high >>> 0) % BOUNDARY === 0;
    if (!ends && end - start < MAX_BLOCK) continue;
    blocks.push(text.slice(start, end));
    start = end;
  }
  if (start < text.length) blocks.push(text.slice(start));
  return blocks;
}

/** Lines, and the sentences of lines, each with what parts it from the next. */
function unitsOf(text: string): readonly string[] {
  return text.match(/[^\n.!?]*(?:[.!?]+(?=\s|$)\s*|\n+|[.!?]+|$)/g)?.filter((unit) => unit !== '') ?? [];
}
