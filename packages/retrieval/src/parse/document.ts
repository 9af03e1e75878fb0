import { WarmpathError } from '@warmpath/core';

/** A heading in a document. One object stands for one heading of the source: equal words may head two sections. */
export interface Heading {
  /** 1 is the outermost. */
  readonly level: number;
  readonly text: string;
}

/** A paragraph, list, table or code block of a document. */
export interface Block {
  /** Path of the section it stands in, outermost first. */
  readonly headings: readonly Heading[];
  /** Without the header. Empty where a section has no text of its own. */
  readonly text: string;
  /** First rows of a table: each part of the table repeats them. */
  readonly header?: string;
  /** 1-based. */
  readonly page?: number;
  /** First line of the block in its source, header included, 1-based. */
  readonly line?: number;
  /** Lines of the block in its source, header included. */
  readonly lines?: number;
}

/** What a parser is given beside the bytes. */
export interface ParseOptions {
  readonly signal: AbortSignal;
  /** Encoding that the sender of the bytes declared. */
  readonly charset?: string;
  /** UTF-16 units of the text. */
  readonly longest?: number;
}

/** A place in a file and what is wrong there. */
export interface FilePlace {
  readonly position: string;
  readonly message: string;
  /** Whether it was read all the same, with doubt: a guessed encoding, damaged characters. */
  readonly isRead?: true;
}

/** A document that was read from a file or a request, before it is cut. */
export interface ParsedDocument {
  readonly title?: string;
  /** BCP 47 tag that the document declares. */
  readonly language?: string;
  readonly metadata?: Readonly<Record<string, unknown>>;
  readonly blocks: readonly Block[];
  /** Pages or lines that could not be read, or only with doubt. */
  readonly unread: readonly FilePlace[];
}

/** Characters of a heading in a path. A longer one is cut there, and its words are text. */
const MAX_HEADING_LENGTH = 200;

/** Puts the blocks of a document under its headings, in the order of the source. */
export class BlockWriter {
  readonly blocks: Block[] = [];
  #path: readonly Heading[] = [];
  /** Whether the last heading has nothing below it yet. */
  #isBare = false;
  #bareLine: number | undefined;

  /** Path of the section that is open. */
  get headings(): readonly Heading[] {
    return this.#path;
  }

  /** Opens a section. It closes those of its level and below. */
  heading(level: number, words: string, line?: number): void {
    const text = words.replace(/\s+/g, ' ').trim();
    const above = this.#path.filter((heading) => heading.level < level);
    if (this.#isBare && above.length < this.#path.length) this.#writeBare();
    // A heading without words ends the section above it all the same.
    if (text === '') {
      this.#path = above;
      return;
    }
    const isCut = text.length > MAX_HEADING_LENGTH;
    const shown = isCut ? `${text.slice(0, MAX_HEADING_LENGTH).toWellFormed()}…` : text;
    this.#path = [...above, { level, text: shown }];
    this.#isBare = true;
    this.#bareLine = line;
    if (isCut) this.block({ text, ...(line !== undefined && { line, lines: 1 }) });
  }

  /** Adds a block to the open section. */
  block(block: Omit<Block, 'headings'>): void {
    if (block.text.trim() === '' && (block.header ?? '').trim() === '') return;
    this.#isBare = false;
    this.blocks.push({ headings: this.#path, ...block });
  }

  /** Goes back to a section, unless the last heading has nothing below it: then it heads what follows. */
  leave(path: readonly Heading[]): void {
    if (!this.#isBare) this.#path = path;
  }

  /** Ends the document. */
  finish(): readonly Block[] {
    if (this.#isBare) this.#writeBare();
    return this.blocks;
  }

  /** A heading without text is kept: it is a block of its own. */
  #writeBare(): void {
    const line = this.#bareLine;
    this.blocks.push({ headings: this.#path, text: '', ...(line !== undefined && { line, lines: 1 }) });
    this.#isBare = false;
  }
}

/** The heading that names the whole document: the first one, where no other has its level or a higher one. */
export function titleHeading(blocks: readonly Block[]): Heading | undefined {
  const first = blocks[0]?.headings[0];
  return first !== undefined && blocks.every(({ headings }) => headings[0] === first) ? first : undefined;
}

/** Blocks of a text whose lines are none of a file. */
export function withoutLines(blocks: readonly Block[]): Block[] {
  return blocks.map(({ line: _, lines: __, ...block }) => block);
}

export function unreadable(detail: string, cause?: unknown): WarmpathError {
  return new WarmpathError('WARMPATH_UNREADABLE_FILE', { detail, cause });
}
