import { estimateTokens } from '@warmpath/core';
import type { NewPassage, PassagePlace } from '../collections/records.js';
import type { Block, Heading } from './document.js';

/** How documents are cut. */
export interface ChunkSettings {
  /** Most tokens of a passage. */
  readonly tokens: number;
  /** Tokens of the end of a passage that the next one begins with, where a section had to be cut. */
  readonly overlap: number;
}

export const DEFAULT_CHUNKS: ChunkSettings = { tokens: 384, overlap: 48 };

/** Below this share of its most tokens, a passage takes in the section that follows. */
const SHORT_SHARE = 1 / 3;
/** A table's header that takes more than this share of a passage is not repeated. */
const MAX_HEADER_SHARE = 1 / 4;
/** Characters of a title. A longer path is cut at its beginning. */
const MAX_TITLE_LENGTH = 300;

/** A piece of text that is not cut further. */
interface Piece {
  readonly text: string;
  readonly tokens: number;
  /** Between it and the piece before it. */
  readonly gap: string;
  /** Line breaks of its block before it. */
  readonly lineOffset: number;
}

/** Pieces of one block that stand in one passage. */
interface Run {
  readonly block: Block;
  readonly pieces: Piece[];
}

/** A passage that is being put together. */
interface Draft {
  readonly runs: Run[];
  /** Of pieces and headers of tables. */
  tokens: number;
  /** Of the headings that stand in the text. */
  headingTokens: number;
  /** Whether it has more than the end of the passage before it. */
  hasOwn: boolean;
}

/**
 * Cuts a document into passages: whole blocks while they fit, sections apart unless they are short, and what is longer
 * than a passage at lines, sentences, words, in this order. A passage is titled with the path that all of its sections
 * share. The headings below that path stand in its text. O(length).
 */
export function chunk(blocks: Iterable<Block>, { tokens: most, overlap }: ChunkSettings): NewPassage[] {
  const passages: NewPassage[] = [];
  let draft: Draft | undefined;
  const close = () => {
    if (draft?.hasOwn) passages.push(passageOf(draft.runs));
    draft = undefined;
  };
  for (const block of fitBlocks(blocks, most)) {
    const pieces = piecesOf(block, most);
    const headerTokens = tokensOf(block.header);
    if (draft !== undefined && !isSamePath(draft.runs.at(-1)!.block.headings, block.headings)) {
      // A short section takes the next one in, where that fits as a whole.
      const isShort: boolean = draft.tokens + draft.headingTokens < most * SHORT_SHARE;
      const headings = isShort ? headingTokensOf([...draft.runs, { block, pieces }]) : 0;
      if (isShort && draft.tokens + headings + headerTokens + sumOf(pieces) <= most) draft.headingTokens = headings;
      else close();
    }
    let run: Run | undefined;
    for (const piece of pieces) {
      const added: number = piece.tokens + (run === undefined ? headerTokens : 0);
      if (draft !== undefined && draft.tokens + draft.headingTokens + added > most) {
        const runs: Run[] = endOf(draft.runs, block.headings, Math.min(overlap, most - piece.tokens - headerTokens));
        close();
        draft = { runs, tokens: runs.reduce((sum, one) => sum + tokensOfRun(one), 0), headingTokens: 0, hasOwn: false };
        run = runs.at(-1)?.block === block ? runs.at(-1) : undefined;
      }
      draft ??= { runs: [], tokens: 0, headingTokens: 0, hasOwn: false };
      if (run === undefined) {
        run = { block, pieces: [] };
        draft.runs.push(run);
        draft.tokens += headerTokens;
      }
      run.pieces.push(piece);
      draft.tokens += piece.tokens;
      draft.hasOwn = true;
    }
  }
  close();
  return passages;
}

/** Blocks whose path fits a title and whose header may be repeated; what does not is text. */
function* fitBlocks(blocks: Iterable<Block>, most: number): Iterable<Block> {
  let before: readonly Heading[] = [];
  for (const block of blocks) {
    const { headings, header = '', text } = block;
    if (headings.length === 0 && text.trim() === '' && header.trim() === '') continue;
    const cut = headings.slice(0, titleOf(headings).cut).filter((heading) => !before.includes(heading));
    before = headings;
    if (cut.length > 0) yield { headings, text: cut.map(headingLine).join('\n\n') };
    if (header === '') yield block;
    else if (text.trim() !== '' && tokensOf(header) <= most * MAX_HEADER_SHARE) yield block;
    else {
      const { header: _, ...rest } = block;
      yield { ...rest, text: text.trim() === '' ? header : `${header}\n${text}` };
    }
  }
}

function passageOf(runs: readonly Run[]): NewPassage {
  const path = sharedPath(runs);
  const { title } = titleOf(path);
  const lines = headingLines(runs, path);
  const parts = runs.flatMap(({ block: { header }, pieces }, position) => {
    const text = pieces.map((piece, place) => (place === 0 ? piece.text : piece.gap + piece.text)).join('');
    return [lines[position]!, header === undefined ? text : `${header}\n${text}`];
  });
  const written = parts.filter((part) => part.trim() !== '').join('\n\n');
  const content = (written === '' ? headingLine(path.at(-1)!) : written).trim();
  return { ...(title !== '' && { title }), content, tokens: estimateTokens(content), ...placeOf(runs) };
}

/** Pages and lines of the source that a passage stands on, as `3` or `3-4`. */
function placeOf(runs: readonly Run[]): PassagePlace {
  const pages = runs.flatMap(({ block: { page } }) => page ?? []);
  const lines = runs.flatMap(linesOfRun);
  return { ...(pages.length > 0 && { pages: rangeOf(pages) }), ...(lines.length > 0 && { lines: rangeOf(lines) }) };
}

function rangeOf(numbers: readonly number[]): string {
  const [first, last] = [Math.min(...numbers), Math.max(...numbers)];
  return first === last ? `${first}` : `${first}-${last}`;
}

/** First and last line of a run: of its pieces, where the text of the block has the lines of the source. */
function linesOfRun({ block, pieces }: Run): number[] {
  const { line, lines, header, text } = block;
  if (line === undefined || lines === undefined) return [];
  const headerLines = header === undefined ? 0 : lineBreaks(header) + 1;
  if (headerLines + lineBreaks(text) + 1 !== lines || pieces.length === 0) return [line, line + lines - 1];
  const [first, last] = [pieces[0]!, pieces.at(-1)!];
  const start = first.lineOffset === 0 ? line : line + headerLines + first.lineOffset;
  return [start, line + headerLines + last.lineOffset + lineBreaks(last.text)];
}

function lineBreaks(text: string): number {
  let count = 0;
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) count++;
  return count;
}

/** `Install › Docker`; of a path that is too long the end, and how many headings were cut. */
function titleOf(headings: readonly Heading[]): { readonly title: string; readonly cut: number } {
  const title = headings.map(({ text }) => text).join(' › ');
  if (title.length <= MAX_TITLE_LENGTH) return { title, cut: 0 };
  let first = headings.length;
  let length = 2;
  while (first > 0 && length + headings[first - 1]!.text.length + 3 <= MAX_TITLE_LENGTH) {
    length += headings[--first]!.text.length + 3;
  }
  if (first < headings.length)
    return { title: ['…', ...headings.slice(first).map(({ text }) => text)].join(' › '), cut: first };
  return { title: `${headings.at(-1)!.text.slice(0, MAX_TITLE_LENGTH).toWellFormed()}…`, cut: first };
}

function headingLine({ level, text }: Heading): string {
  return `${'#'.repeat(Math.min(6, level))} ${text}`;
}

/** Before each run, the headings below the path that were not written before it. */
function headingLines(runs: readonly Run[], path: readonly Heading[]): string[] {
  let written = path;
  return runs.map(({ block: { headings } }) => {
    const shared = headings.findIndex((heading, position) => written[position] !== heading);
    written = headings;
    return shared < 0 ? '' : headings.slice(shared).map(headingLine).join('\n\n');
  });
}

function headingTokensOf(runs: readonly Run[]): number {
  return estimateTokens(headingLines(runs, sharedPath(runs)).join('\n\n'));
}

/** The headings that all runs stand below. */
function sharedPath(runs: readonly Run[]): readonly Heading[] {
  return runs
    .map(({ block }) => block.headings)
    .reduce((path, headings) => path.filter((heading, position) => headings[position] === heading));
}

function isSamePath(one: readonly Heading[], other: readonly Heading[]): boolean {
  return one.length === other.length && one.every((heading, position) => other[position] === heading);
}

function tokensOf(text: string | undefined): number {
  return text === undefined ? 0 : estimateTokens(text);
}

function sumOf(pieces: readonly Piece[]): number {
  return pieces.reduce((sum, { tokens }) => sum + tokens, 0);
}

function tokensOfRun({ block, pieces }: Run): number {
  return tokensOf(block.header) + sumOf(pieces);
}

/** The last pieces of a section that have at most so many tokens together. */
function endOf(runs: readonly Run[], section: readonly Heading[], tokens: number): Run[] {
  const end: Run[] = [];
  let left = tokens;
  for (const { block, pieces } of [...runs].reverse()) {
    if (!isSamePath(block.headings, section)) break;
    left -= tokensOf(block.header);
    let first = pieces.length;
    while (first > 0 && pieces[first - 1]!.tokens <= left) left -= pieces[--first]!.tokens;
    if (first < pieces.length) end.unshift({ block, pieces: pieces.slice(first) });
    if (first > 0) break;
  }
  return end;
}

/** Where a text is cut, coarse to fine, and what stands between the parts. */
const CUTS: readonly { readonly at: RegExp; readonly gap: string }[] = [
  { at: /\n{2,}/, gap: '\n\n' },
  { at: /\n/, gap: '\n' },
  // After the sign that ends a sentence; Chinese and Japanese write no space behind it.
  { at: /(?<=[.!?…]["'”’)\]]{0,3})\s+/, gap: ' ' },
  { at: /(?<=[。！？；])/, gap: '' },
  { at: /\s+/, gap: ' ' },
];

/**
 * A block in pieces of which several fit into a passage: whole where it is small, so that a list or a program stays
 * together, else its lines or sentences, and of a word without end parts of a length.
 */
function piecesOf({ text, header }: Block, most: number): Piece[] {
  const whole = { text: text.trimEnd(), tokens: estimateTokens(text.trimEnd()), gap: '\n\n', lineOffset: 0 };
  const pieces: Piece[] = [];
  // A heading without text counts as its words.
  if (whole.text === '') return [{ ...whole, tokens: 1 }];
  split(whole, most - tokensOf(header), 0, pieces);
  return pieces;
}

function split(piece: Piece, most: number, cut: number, pieces: Piece[]): void {
  // Half of a passage may be one piece: larger ones would leave much of it empty.
  if (piece.tokens <= most / 2 || (cut === 0 && piece.tokens <= most)) {
    pieces.push(piece);
    return;
  }
  const rule = CUTS[cut];
  if (rule === undefined) {
    const length = Math.max(16, Math.floor((piece.text.length * most) / (2 * piece.tokens)));
    for (let from = 0; from < piece.text.length; ) {
      let to = Math.min(piece.text.length, from + length);
      // Never between the halves of a character.
      if (to < piece.text.length && /[\ud800-\udbff]/.test(piece.text[to - 1]!)) to--;
      const text = piece.text.slice(from, to);
      pieces.push({ ...piece, text, tokens: estimateTokens(text), gap: from === 0 ? piece.gap : '' });
      from = to;
    }
    return;
  }
  let { lineOffset } = piece;
  let end = 0;
  let isFirst = true;
  for (const text of piece.text.split(rule.at)) {
    if (text.trim() === '') continue;
    const at = piece.text.indexOf(text, end);
    lineOffset += lineBreaks(piece.text.slice(end, at));
    const gap = isFirst ? piece.gap : rule.gap;
    split({ text, tokens: estimateTokens(text), gap, lineOffset }, most, cut + 1, pieces);
    lineOffset += lineBreaks(text);
    end = at + text.length;
    isFirst = false;
  }
}
