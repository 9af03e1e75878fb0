import { estimateTokens } from '@warmpath/core';
import type { NewPassage } from '../collections/records.js';

/** A paragraph, list, table, code block or page of a document, under its headings. */
export interface Block {
  readonly headings: readonly string[];
  readonly text: string;
}

/** How documents are cut. */
export interface ChunkSettings {
  /** Most tokens of a passage. */
  readonly tokens: number;
  /** Tokens of the end of a passage that the next one begins with, where a section had to be cut. */
  readonly overlap: number;
}

export const DEFAULT_CHUNKS: ChunkSettings = { tokens: 384, overlap: 48 };

/** Below this share of the most, a passage takes in the section that follows. */
const ENOUGH = 1 / 3;
/** Longest title; a path of headings is cut at its beginning. */
const LONGEST_TITLE = 300;

/** A piece of text that is not cut further. */
interface Piece {
  readonly text: string;
  readonly tokens: number;
  /** Between it and the piece before it. */
  readonly gap: string;
}

/** A passage that is being put together. */
interface Draft {
  /** Of the section in which it begins. */
  readonly title: string;
  /** The section that it is in now. */
  section: string;
  readonly pieces: Piece[];
  tokens: number;
  /** Whether it has more than the end of the passage before it. */
  hasOwn: boolean;
}

/**
 * Cuts a document into passages: whole blocks while they fit, sections apart unless they are short, and what is longer
 * than a passage at lines, sentences, words, in this order. Passages are titled with the path of their headings.
 * O(length).
 */
export function chunk(blocks: Iterable<Block>, { tokens: most, overlap }: ChunkSettings): NewPassage[] {
  const passages: NewPassage[] = [];
  let draft: Draft | undefined;
  const close = () => {
    if (draft?.hasOwn) passages.push(passageOf(draft));
    draft = undefined;
  };
  const add = (piece: Piece) => {
    draft!.pieces.push(piece);
    draft!.tokens += piece.tokens;
    draft!.hasOwn = true;
  };
  for (const { headings, text } of blocks) {
    if (text.trim() === '') continue;
    const section = titleOf(headings);
    if (draft !== undefined && draft.section !== section) {
      const heading = pieceOf(`## ${headings.at(-1) ?? ''}`, '\n\n');
      const fits = draft.tokens + heading.tokens + estimateTokens(text) <= most;
      if (headings.length > 0 && draft.hasOwn && draft.tokens < most * ENOUGH && fits) {
        // A short section takes the next one in, whose heading stands in the text then.
        add(heading);
        draft.section = section;
      } else close();
    }
    for (const piece of piecesOf(text, most)) {
      if (draft !== undefined && draft.tokens + piece.tokens > most) {
        const end = endOf(draft.pieces, Math.min(overlap, most - piece.tokens));
        close();
        draft = { title: section, section, pieces: end, tokens: sumOf(end), hasOwn: false };
      }
      draft ??= { title: section, section, pieces: [], tokens: 0, hasOwn: false };
      add(piece);
    }
  }
  close();
  return passages;
}

function passageOf({ title, pieces }: Draft): NewPassage {
  const content = pieces
    .map(({ text, gap }, position) => (position === 0 ? text : gap + text))
    .join('')
    .trim();
  return { ...(title !== '' && { title }), content, tokens: estimateTokens(content) };
}

/** `Install › Docker`; of a long path the end, which says most. */
function titleOf(headings: readonly string[]): string {
  const title = headings.join(' › ');
  return title.length <= LONGEST_TITLE ? title : `…${title.slice(-LONGEST_TITLE)}`.toWellFormed();
}

function pieceOf(text: string, gap: string): Piece {
  return { text, gap, tokens: estimateTokens(text) };
}

function sumOf(pieces: readonly Piece[]): number {
  return pieces.reduce((sum, { tokens }) => sum + tokens, 0);
}

/** The last pieces that have at most so many tokens together. */
function endOf(pieces: readonly Piece[], tokens: number): Piece[] {
  let first = pieces.length;
  let left = tokens;
  while (first > 0 && pieces[first - 1]!.tokens <= left) left -= pieces[--first]!.tokens;
  return pieces.slice(first);
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
function piecesOf(block: string, most: number): Piece[] {
  const pieces: Piece[] = [];
  const whole = pieceOf(block.trimEnd(), '\n\n');
  split(whole, most, 0, pieces);
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
      pieces.push(pieceOf(piece.text.slice(from, to), from === 0 ? piece.gap : ''));
      from = to;
    }
    return;
  }
  const parts = piece.text.split(rule.at).filter((part) => part.trim() !== '');
  for (const [position, part] of parts.entries()) {
    split(pieceOf(part, position === 0 ? piece.gap : rule.gap), most, cut + 1, pieces);
  }
}
