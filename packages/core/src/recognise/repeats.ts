import { locationHint } from '../render/prompt.js';
import { inOneLine, SeenSegments } from '../session/dedup.js';
import { estimateTokens } from '../token-estimate.js';
import type { DocumentBlock, DocumentSpan, PromptText } from './block.js';
import { type DocumentText, documentText } from './document-text.js';

/** Characters from which a result is worth a reference: a hint that quotes it has about a hundred. */
const MIN_RESULT = 400;

/**
 * What tools returned, as blocks of one document each: texts in which no documents were recognised, and which are long
 * enough to be referred to when they come again. Nothing is guessed here: the same result is the same text. `blocks`
 * are those of `recognise`, in the order of the texts; so is the answer, with them. O(texts + blocks).
 */
export function withResults(texts: readonly PromptText[], blocks: readonly DocumentBlock[]): readonly DocumentBlock[] {
  const all: DocumentBlock[] = [];
  let next = 0;
  for (const [index, { role, text }] of texts.entries()) {
    const first = next;
    for (; next < blocks.length && blocks[next]!.text === index; next++) all.push(blocks[next]!);
    if (next === first && role === 'tool' && text.length >= MIN_RESULT) all.push(resultBlock(index, text.length));
  }
  return all;
}

/** Whether one of these results is another one once more. O(length of those that are as long as another). */
export function hasRepeatedResult(texts: readonly PromptText[], blocks: readonly DocumentBlock[]): boolean {
  const byLength = new Map<number, Set<string>>();
  for (const { format, text: index } of blocks) {
    if (format !== 'result') continue;
    const { text } = texts[index]!;
    const alike = byLength.get(text.length);
    if (alike?.has(text)) return true;
    if (alike === undefined) byLength.set(text.length, new Set([text]));
    else alike.add(text);
  }
  return false;
}

function resultBlock(text: number, end: number): DocumentBlock {
  const place = { start: 0, end, contentStart: 0, contentEnd: end };
  return {
    text,
    format: 'result',
    marked: false,
    start: 0,
    end,
    documents: [{ ...place, id: undefined, title: undefined, labels: [] }],
    fixed: undefined,
  };
}

/** A document of a block whose words stand farther up in the same prompt, in full or in part. */
export interface RepeatedDocument {
  readonly rank: number;
  /** Rank of the document that it repeats, if that stands in the same block: the reference must stay behind it. */
  readonly behind: number | undefined;
  /** Whether only parts of it do. */
  readonly partly: boolean;
  /** What its words are replaced with, as its format writes it, and where they stand. */
  readonly written: string;
  readonly start: number;
  readonly end: number;
  /** Estimated tokens that the reference spares. */
  readonly savedTokens: number;
}

/** Characters of a document's first and last words that tell it from others. */
const FIRST = 56;
const LAST = 32;
/** A longer name costs more than the first words do. */
const MAX_NAME = 80;
/** Stands for a name that two documents have. */
const SHARED = Symbol('a name of several documents');

interface SeenDocument {
  readonly block: DocumentBlock;
  readonly rank: number;
}

/**
 * The documents of one prompt, seen in its order, and which of them are repeated (RAGBoost §6 for prompts that their
 * clients write). Their words decide, letter by letter but for white space at the ends: the same id with other words is
 * another document, the same words under another id are a repetition. The first one always stays whole, and so does one
 * that is no longer than the hint, or that no name tells from the documents before it. What the model itself said never
 * counts, because blocks are not looked for there: it may have quoted wrongly, or in part.
 *
 * What is found of a document depends on the prompt up to it and on nothing else, so that a conversation's next request
 * finds the same of everything it had before. Cost: O(length of the documents), one hash of each; memory: the same,
 * until it is dropped.
 */
export class SeenDocuments {
  /** By its words. */
  readonly #first = new Map<string, SeenDocument>();
  /** By name, the words of the document that has it. */
  readonly #named = new Map<string, string | typeof SHARED>();
  /** Every document's words, and how many of them are named by their own words: few prompts ever need that. */
  readonly #words: string[] = [];
  #quoted = 0;
  readonly #blocks: SeenSegments | undefined;

  /**
   * @param options.blocks whether parts of a document that stand in an earlier one, or in a text beside them, are
   * referred to as well (`SeenSegments`)
   */
  constructor({ blocks = false }: { readonly blocks?: boolean } = {}) {
    this.#blocks = blocks ? new SeenSegments() : undefined;
  }

  /** Takes in what stands beside the documents, for its parts. O(length) where parts are referred to. */
  addText(text: string): void {
    this.#blocks?.add(text);
  }

  /** Which documents of the next block are repeated, in its order; those that stay whole are left out. */
  add(text: string, block: DocumentBlock): readonly RepeatedDocument[] {
    const repeats: RepeatedDocument[] = [];
    for (const [rank, document] of block.documents.entries()) {
      const words = documentText(text, document, block.format);
      if (words.text === '') continue;
      this.#name(calledNames(document), words.text);
      const first = this.#first.get(words.text);
      if (first === undefined) {
        this.#first.set(words.text, { block, rank });
        this.#words.push(words.text);
      }
      const whole = first && this.#refer(words, first, text);
      if (whole !== undefined) {
        repeats.push({ rank, behind: first!.block === block ? first!.rank : undefined, partly: false, ...whole });
        continue;
      }
      // Of a document in the same block, nobody knows yet where it will stand.
      const part = isShortenable(block, words.text) ? this.#shorten(words, text) : undefined;
      if (part !== undefined) repeats.push({ rank, behind: undefined, partly: true, ...part });
    }
    this.#addBlocks(text, block);
    return repeats;
  }

  #addBlocks(text: string, block: DocumentBlock): void {
    if (this.#blocks === undefined) return;
    for (const document of block.documents) this.#blocks.add(documentText(text, document, block.format).text);
  }

  #shorten(words: DocumentText, text: string): Written | undefined {
    const parts = this.#blocks?.shorten(words.text);
    return parts === undefined || parts.replaced === 0 ? undefined : written(words, text, parts.text);
  }

  #refer(words: DocumentText, { block, rank }: SeenDocument, text: string): Written | undefined {
    const tells = (name: string): boolean => this.#named.get(name) === words.text;
    const name = calledNames(block.documents[rank]!).find(tells) ?? this.#quotes(words.text).find(tells);
    if (name === undefined) return undefined;
    return written(words, text, locationHint(`[${name}]`));
  }

  /** A document by its words, now that all before it are known by theirs. */
  #quotes(words: string): readonly string[] {
    for (; this.#quoted < this.#words.length; this.#quoted++) {
      const each = this.#words[this.#quoted]!;
      this.#name(quotedNames(each), each);
    }
    return quotedNames(words);
  }

  #name(names: readonly string[], words: string): void {
    for (const name of names) {
      const known = this.#named.get(name);
      if (known === undefined) this.#named.set(name, words);
      else if (known !== words) this.#named.set(name, SHARED);
    }
  }
}

/** JSON that nobody has read as documents must stay JSON. */
function isShortenable({ format }: DocumentBlock, words: string): boolean {
  return format !== 'result' || !/^[[{]/.test(words);
}

type Written = Pick<RepeatedDocument, 'written' | 'start' | 'end' | 'savedTokens'>;

/** Other words in the place of these; `undefined` if that spares nothing. */
function written({ start, end, write }: DocumentText, text: string, words: string): Written | undefined {
  const instead = write(words);
  if (instead.length >= end - start) return undefined;
  const savedTokens = estimateTokens(text.slice(start, end)) - estimateTokens(instead);
  return savedTokens <= 0 ? undefined : { written: instead, start, end, savedTokens };
}

/** What the prompt calls a document. */
function calledNames({ id, title }: DocumentSpan): readonly string[] {
  return [id, title].filter(
    (name) => name !== undefined && name.length <= MAX_NAME && !/[\\<>[\]\n]/.test(name),
  ) as string[];
}

/** A document's first words, then its first and last ones. */
function quotedNames(words: string): readonly string[] {
  const first = inOneLine(words.slice(0, FIRST));
  const head = words.length > FIRST ? `${first}…` : first;
  return [`«${head}»`, `«${first} … ${inOneLine(words.slice(-LAST))}»`];
}

/** A text, and its blocks where they stand in it. */
export interface WithReferences {
  readonly text: string;
  /** In the order in which they were given. */
  readonly blocks: readonly DocumentBlock[];
}

/**
 * The text with references in place of repeated documents, everything else as it was: labels, titles, the form around
 * them. Blocks are of this text and in its order; with nothing to replace, the very text and blocks. O(text).
 */
export function withReferences(
  text: string,
  replaced: readonly { readonly block: DocumentBlock; readonly repeats: readonly RepeatedDocument[] }[],
): WithReferences {
  if (replaced.every(({ repeats }) => repeats.length === 0))
    return { text, blocks: replaced.map(({ block }) => block) };
  const parts: string[] = [];
  let from = 0;
  let shift = 0;
  const blocks = replaced.map(({ block, repeats }) => {
    const byRank = new Map(repeats.map((repeat) => [repeat.rank, repeat]));
    const documents = block.documents.map((document, rank) => {
      const repeat = byRank.get(rank);
      const before = shift;
      if (repeat !== undefined) {
        parts.push(text.slice(from, repeat.start), repeat.written);
        from = repeat.end;
        shift += repeat.written.length - (repeat.end - repeat.start);
      }
      return moved(document, { before, after: shift, from: repeat?.end ?? document.end });
    });
    return { ...block, start: documents[0]!.start, end: documents.at(-1)!.end, documents };
  });
  parts.push(text.slice(from));
  return { text: parts.join(''), blocks };
}

/**
 * A document farther up in its text; what stands at `from` or behind it moves by `after`, everything else by `before`.
 */
function moved(
  document: DocumentSpan,
  { before, after, from }: { readonly before: number; readonly after: number; readonly from: number },
): DocumentSpan {
  if (before === 0 && after === 0) return document;
  const at = (offset: number) => offset + (offset >= from ? after : before);
  return {
    ...document,
    start: at(document.start),
    end: at(document.end),
    contentStart: at(document.contentStart),
    contentEnd: at(document.contentEnd),
    labels: document.labels.map(({ start, end }) => ({ start: at(start), end: at(end) })),
  };
}
