import { Fingerprint } from '../fingerprint.js';
import { canonicalJson } from '../render/layout.js';

/** What a part of a prompt is, in the order in which chat templates write them. */
type PieceKind = 'model' | 'tools' | 'field' | 'system' | 'user' | 'tool' | 'assistant';

/** A part of a prompt: a text of a message, or a member of the request that is written before the messages. */
export interface PromptPiece {
  /** Where it stands in the request, for instance `messages[0].content`. */
  readonly name: string;
  readonly kind: PieceKind;
  readonly text: string;
  /** The documents in it, in their order, where some are known. */
  readonly documents?: readonly { readonly start: number; readonly key: string }[];
}

/** A piece as it is remembered: hashes of its text, and the text itself only where the caller wants it kept. */
export interface OutlinedPiece {
  readonly name: string;
  readonly kind: PieceKind;
  readonly length: number;
  /** A hash of every `CHUNK_CHARACTERS` characters. */
  readonly chunks: Int32Array;
  /**
   * Of JSON: a hash that does not depend on the order of keys, and one that does not depend on the order of elements
   * either.
   */
  readonly sameKeys: string | undefined;
  readonly sameElements: string | undefined;
  readonly documents: readonly string[];
  readonly text: string | undefined;
}

/** A prompt as far as it is needed to say where another one differs from it. */
export interface PromptOutline {
  readonly pieces: readonly OutlinedPiece[];
}

/** Characters that one hash stands for: how exactly a difference to a prompt without its text can be located. */
export const CHUNK_CHARACTERS = 64;
/** Characters of JSON that are read for the sake of its order. */
const MAX_JSON_CHARACTERS = 200_000;

/**
 * The outline of a prompt. Without `keepText` it holds hashes only, four bytes for every 64 characters, from which no
 * text can be read, though a guess can be confirmed. O(length).
 */
export function outlinePrompt(
  pieces: readonly PromptPiece[],
  { keepText }: { readonly keepText: boolean },
): PromptOutline {
  return { pieces: pieces.map((piece) => outlinePiece(piece, keepText)) };
}

function outlinePiece({ name, kind, text, documents = [] }: PromptPiece, keepText: boolean): OutlinedPiece {
  const value = jsonIn(text);
  return {
    name,
    kind,
    length: text.length,
    chunks: hashesOf(text),
    sameKeys: value === undefined ? undefined : hash(canonicalJson(value)),
    sameElements: Array.isArray(value) ? hash(value.map(canonicalJson).sort().join()) : undefined,
    documents: documents.map(({ key }) => key),
    text: keepText ? text : undefined,
  };
}

/** The hashes of a text's chunks; the last one may stand for fewer characters. */
function hashesOf(text: string): Int32Array {
  const hashes = new Int32Array(Math.ceil(text.length / CHUNK_CHARACTERS));
  const fingerprint = new Fingerprint();
  for (let i = 0; i < hashes.length; i++) {
    hashes[i] = fingerprint
      .reset()
      .add(text.slice(i * CHUNK_CHARACTERS, (i + 1) * CHUNK_CHARACTERS))
      .end().low;
  }
  return hashes;
}

function hash(text: string): string {
  return new Fingerprint().add(text).end().digits();
}

/** What a text says as JSON: an object or an array. */
function jsonIn(text: string): unknown {
  if (text.length > MAX_JSON_CHARACTERS || !/^\s*[[{]/.test(text)) return undefined;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
