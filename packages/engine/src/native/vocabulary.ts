import { setImmediate as nextTurn } from 'node:timers/promises';
import { WarmpathError } from '@warmpath/core';
import type { LlamaBindings } from './bindings.js';
import { callBeside } from './ffi.js';
import { GrammarSampler } from './grammar.js';
import type { NativePointer } from './structs.js';

/**
 * `LLAMA_TOKEN_ATTR_UNKNOWN` and `LLAMA_TOKEN_ATTR_CONTROL` of llama.h: tokens whose text is read as plain characters
 * unless special tokens are parsed (`tokenizer_st_partition` in src/llama-vocab.cpp).
 */
const SPECIAL_ATTRIBUTES = (1 << 0) | (1 << 3);

/** Longest text that is tokenised on the event loop, in bytes; the slowest takes about a microsecond a byte. */
const AT_ONCE_BYTES = 16_384;

/** Most special tokens that a long text may spell out: llama.cpp's time grows with their square. */
const MAX_SPECIAL_TEXTS = 16_384;

/** Tokens that are turned back into text in one turn of the event loop. */
const PIECES_AT_ONCE = 4_096;

/** A piece of a text that is tokenised by itself. */
export interface TextStretch {
  readonly text: string;
  /** Read special tokens that the text spells out (`<|im_end|>`) as the tokens; otherwise as plain characters. */
  readonly parseSpecial: boolean;
}

export interface TokenizeOptions {
  /** Most tokens of all stretches. */
  readonly most?: number;
  /** Asked when the turn of a long text comes; it is not tokenised for a client that has left. */
  readonly isWanted?: () => boolean;
}

/** @returns What finds any of the texts. Build it once a model: some models have thousands of special tokens. */
export function specialTextPattern(specialTexts: readonly string[]): RegExp {
  // An empty alternation would match everywhere; `(?!)` matches nowhere.
  const alternatives = specialTexts.map((text) => text.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&'));
  return new RegExp(alternatives.length === 0 ? '(?!)' : alternatives.join('|'), 'g');
}

/**
 * A model's vocabulary. It does not touch the context and is thread-safe, so it may be used while a decode is in
 * flight.
 */
export class Vocabulary {
  readonly #bindings: LlamaBindings;
  readonly #vocab: NativePointer;
  /** The bytes of all tokens, control tokens as their text, one behind the other; and where each begins. */
  readonly #pieces: Uint8Array;
  readonly #pieceAt: Int32Array;
  /** 1 for the tokens of {@link SPECIAL_ATTRIBUTES}. */
  readonly #isSpecial: Uint8Array;
  /** The long text that is tokenised, and those that wait behind it. */
  #lastLong: Promise<unknown> = Promise.resolve();

  /** Number of tokens; ids are 0 … size - 1. */
  readonly size: number;
  /** The token that opens a prompt, when the model wants one there. */
  readonly leadingBos: number | undefined;
  /** The token at the end of a text to embed, if the model wants one: EOS, or the separator of an encoder. */
  readonly trailingEnd: number | undefined;
  /** Text of the beginning-of-sequence and end-of-sequence tokens, for chat templates; empty when there is none. */
  readonly bosText: string;
  readonly eosText: string;
  /** Most bytes that one token stands for. */
  readonly longestPiece: number;
  /** Finds every text that is read as one special token when `parseSpecial` is on, the longest first. */
  readonly specialTexts: RegExp;
  /** What holds answers to a grammar. */
  readonly grammars: GrammarSampler;

  constructor(bindings: LlamaBindings, vocab: NativePointer) {
    this.#bindings = bindings;
    this.#vocab = vocab;
    this.size = bindings.vocabSize(vocab);
    this.#isSpecial = Uint8Array.from({ length: this.size }, (_, token) =>
      Number((bindings.vocabAttributes(vocab, token) & SPECIAL_ATTRIBUTES) !== 0),
    );
    [this.#pieces, this.#pieceAt] = this.#readPieces();
    this.longestPiece = this.#isSpecial.reduce((longest, _, token) => Math.max(longest, this.pieceBytes(token)), 1);
    const bos = bindings.bosToken(vocab);
    // What llama.cpp puts around an empty text.
    const around = new Int32Array(2);
    const added = bindings.tokenize(vocab, Buffer.alloc(0), 0, around, around.length, true, false);
    const opens = added === 2 || (added === 1 && bindings.addsBos(vocab));
    this.leadingBos = opens ? around[0] : undefined;
    this.trailingEnd = added === 2 ? around[1] : added === 1 && !opens ? around[0] : undefined;
    this.bosText = this.#textOf(bos);
    this.eosText = this.#textOf(bindings.eosToken(vocab));
    const texts = Array.from(this.#isSpecial, (isSpecial, token) => (isSpecial === 1 ? this.#textOf(token) : ''));
    this.specialTexts = specialTextPattern(texts.filter((text) => text !== '').sort((a, b) => b.length - a.length));
    this.grammars = new GrammarSampler(bindings, vocab, this);
  }

  /**
   * Tokenises stretches of a text: a short text at once, a long one on a native thread, one text at a time.
   * @returns Token ids of each stretch, without the leading BOS. Cost: O(text).
   * @throws WARMPATH_CONTEXT_TOO_LONG beyond `most` tokens; WARMPATH_BODY_TOO_COMPLEX for a long text of special
   *   tokens; WARMPATH_CLIENT_CLOSED when it is not wanted any more.
   */
  async tokenize(
    stretches: readonly TextStretch[],
    { most = Number.POSITIVE_INFINITY, isWanted = () => true }: TokenizeOptions = {},
  ): Promise<number[][]> {
    const bytes = stretches.reduce((sum, { text }) => sum + Buffer.byteLength(text), 0);
    this.checkLength(bytes, most);
    const tokens: number[][] = [];
    let room = most;
    const take = (ids: Int32Array, count: number): void => {
      if (count < 0) throw tooLong(most);
      tokens.push(Array.from(ids.subarray(0, count)));
      room -= count;
    };
    if (bytes <= AT_ONCE_BYTES) {
      for (const stretch of stretches) {
        const { ids, values } = this.#nativeCall(stretch, room);
        take(ids, this.#bindings.tokenize(...values));
      }
      return tokens;
    }
    this.checkSpecialTexts(stretches.filter(({ parseSpecial }) => parseSpecial).map(({ text }) => text));
    const turn = this.#lastLong.then(async () => {
      for (const stretch of stretches) {
        if (!isWanted()) throw new WarmpathError('WARMPATH_CLIENT_CLOSED');
        const { ids, values } = this.#nativeCall(stretch, room);
        // llama.cpp does not change a vocabulary, so a decode may run at the same time.
        take(ids, await callBeside(this.#bindings.tokenize, ...values));
      }
      return tokens;
    });
    this.#lastLong = turn.catch(() => undefined);
    return turn;
  }

  /** Settles when nothing is being tokenised on a native thread any more. */
  async settled(): Promise<void> {
    for (let last: unknown; last !== this.#lastLong; await last) last = this.#lastLong;
  }

  /** Refuses a text that has more tokens than `most` however it is tokenised. @throws WARMPATH_CONTEXT_TOO_LONG. */
  checkLength(bytes: number, most: number): void {
    if (bytes > most * this.longestPiece) throw tooLong(most);
  }

  /** Refuses texts of too many special tokens. Cost: O(text). @throws WARMPATH_BODY_TOO_COMPLEX. */
  checkSpecialTexts(texts: readonly string[]): void {
    let found = 0;
    for (const text of texts) {
      this.specialTexts.lastIndex = 0;
      while (this.specialTexts.test(text)) {
        if (++found > MAX_SPECIAL_TEXTS) {
          const detail = `The prompt spells out more than ${MAX_SPECIAL_TEXTS} special tokens.`;
          throw new WarmpathError('WARMPATH_BODY_TOO_COMPLEX', { detail });
        }
      }
    }
  }

  /**
   * The bytes that a token stands for; a token may hold a part of a UTF-8 character only.
   *
   * @param special Render control tokens as their text instead of as nothing.
   */
  piece(token: number, special = false): Uint8Array {
    const from = this.#pieceAt[token]!;
    return this.#pieces.subarray(from, special || this.#isSpecial[token] === 0 ? this.#pieceAt[token + 1] : from);
  }

  /** How many bytes a token stands for, control tokens as their text. O(1). */
  pieceBytes(token: number): number {
    return this.#pieceAt[token + 1]! - this.#pieceAt[token]!;
  }

  /** @returns The text of several tokens, control tokens included; bytes that are no UTF-8 become U+FFFD. */
  async detokenize(tokens: readonly number[]): Promise<string> {
    return Buffer.concat(await this.pieces(tokens)).toString('utf8');
  }

  /** The bytes of several tokens, control tokens included. Many take several turns of the event loop. */
  async pieces(tokens: readonly number[]): Promise<Uint8Array[]> {
    const pieces: Uint8Array[] = [];
    for (const token of tokens) {
      if (pieces.push(this.piece(token, true)) % PIECES_AT_ONCE === 0) await nextTurn();
    }
    return pieces;
  }

  /** Whether generation ends at this token. */
  endsGeneration(token: number): boolean {
    return this.#bindings.isEndOfGeneration(this.#vocab, token);
  }

  /** The arguments of `llama_tokenize`, and where it puts the ids: a negative answer says that they have no room. */
  #nativeCall(
    { text, parseSpecial }: TextStretch,
    room: number,
  ): { readonly ids: Int32Array; readonly values: Parameters<LlamaBindings['tokenize']> } {
    const bytes = Buffer.from(text);
    // No tokeniser makes more tokens than bytes, plus one for a prefix space.
    const ids = new Int32Array(Math.min(bytes.length + 8, room));
    return { ids, values: [this.#vocab, bytes, bytes.length, ids, ids.length, false, parseSpecial] };
  }

  /** Reads the whole vocabulary, once: a call into the library for each token. */
  #readPieces(): [pieces: Uint8Array, pieceAt: Int32Array] {
    const pieceAt = new Int32Array(this.size + 1);
    let bytes = new Uint8Array(8 * this.size);
    for (let token = 0; token < this.size; ) {
      const from = pieceAt[token]!;
      const length = this.#bindings.tokenToPiece(
        this.#vocab,
        token,
        bytes.subarray(from),
        bytes.length - from,
        0,
        true,
      );
      if (length < 0) {
        const larger = new Uint8Array(2 * bytes.length - length);
        larger.set(bytes);
        bytes = larger;
      } else {
        token++;
        pieceAt[token] = from + length;
      }
    }
    return [bytes.slice(0, pieceAt[this.size]), pieceAt];
  }

  #textOf(token: number): string {
    return token < 0 ? '' : (this.#bindings.vocabText(this.#vocab, token) ?? '');
  }
}

function tooLong(most: number): WarmpathError {
  const detail = `The maximum context length is ${most} tokens, but the prompt has more.`;
  return new WarmpathError('WARMPATH_CONTEXT_TOO_LONG', { detail });
}
