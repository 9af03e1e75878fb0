import { fingerprint } from '../fingerprint.js';

/** Characters from which a block is worth a reference. */
const MIN_BLOCK = 120;
/** Characters after which a block ends wherever it is. */
const MAX_BLOCK = 4_000;
/** A unit ends a block by chance of one in so many. */
const BOUNDARY = 4;
/** Words of a block that a reference quotes. */
const QUOTED_WORDS = 6;

/** A text in which some blocks are references. */
export interface ShortenedText {
  readonly text: string;
  /** Blocks of the text, and how many of them are references now. */
  readonly blocks: number;
  readonly replaced: number;
}

/**
 * The second stage of de-duplication: texts that are alike in parts. Texts are cut into blocks of lines and sentences where their
 * own content says so, so that an insertion moves no cut but its neighbours; a block that an earlier text holds, whatever its role, letter by letter, becomes
 * a reference with its first words. What differs in one character stays. References point backward only, since a text is shortened before it is added.
 * Memory: the texts added.
 */
export class SeenBlocks {
  /** By block, the name of the text that held it first. */
  readonly #names = new Map<string, string>();

  /** Takes in a text that stands in the prompt, by the name under which the model can find it. O(length). */
  add(text: string, name: string): void {
    for (const block of blocksOf(text)) {
      const content = block.trim();
      if (content.length >= MIN_BLOCK && !this.#names.has(content)) this.#names.set(content, name);
    }
  }

  /** The text with what is known replaced; a text that holds nothing known comes back as it is. O(length). */
  shorten(text: string): ShortenedText {
    const blocks = blocksOf(text);
    const parts: string[] = [];
    let replaced = 0;
    let pending: { first: string; name: string } | undefined;
    const refer = () => {
      if (pending !== undefined) parts.push(reference(pending.first, pending.name));
      pending = undefined;
    };
    for (const block of blocks) {
      const name = this.#names.get(block.trim());
      if (name === undefined) {
        refer();
        parts.push(block);
        continue;
      }
      replaced++;
      if (pending?.name === name) continue;
      refer();
      pending = { first: block.trim(), name };
    }
    refer();
    return { text: replaced === 0 ? text : parts.join(''), blocks: blocks.length, replaced };
  }
}

function reference(block: string, name: string): string {
  const words = block.split(/\s+/, QUOTED_WORDS).join(' ');
  return `[… «${words} …» stands in ${name} already.]\n`;
}

/** The blocks of a text; joined, they are the text. */
function blocksOf(text: string): readonly string[] {
  const blocks: string[] = [];
  let block = '';
  for (const unit of unitsOf(text)) {
    block += unit;
    if (block.length < MIN_BLOCK) continue;
    const ends = Number.parseInt(fingerprint([unit.trim()]).slice(0, 8), 16) % BOUNDARY === 0;
    if (!ends && block.length < MAX_BLOCK) continue;
    blocks.push(block);
    block = '';
  }
  if (block !== '') blocks.push(block);
  return blocks;
}

/** Lines, and the sentences of lines, each with what parts it from the next. */
function unitsOf(text: string): readonly string[] {
  return text.match(/[^\n.!?]*(?:[.!?]+(?=\s|$)\s*|\n+|[.!?]+|$)/g)?.filter((unit) => unit !== '') ?? [];
}
