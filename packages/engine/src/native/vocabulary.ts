import type { LlamaBindings } from './bindings.js';
import { GrammarSampler } from './grammar.js';
import type { NativePointer } from './structs.js';

/**
 * `LLAMA_TOKEN_ATTR_UNKNOWN` and `LLAMA_TOKEN_ATTR_CONTROL` of llama.h: the tokens whose text is read as plain
 * characters unless special tokens are parsed (`tokenizer_st_partition` in src/llama-vocab.cpp). User-defined tokens,
 * often runs of spaces, are always read as tokens.
 */
const SPECIAL_ATTRIBUTES = (1 << 0) | (1 << 3);

/** How a text is turned into tokens. */
export interface TokenizeOptions {
  /** Read special tokens that the text spells out (`<|im_end|>`) as the tokens; otherwise as plain characters. */
  readonly parseSpecial: boolean;
}

/**
 * A model's vocabulary. llama.cpp documents tokenisation as thread-safe and it does not touch the context, so this may
 * be used at any time, also while a decode is in flight.
 */
export class Vocabulary {
  readonly #bindings: LlamaBindings;
  readonly #vocab: NativePointer;
  readonly #encoder = new TextEncoder();
  #pieceBuffer = new Uint8Array(64);
  /** Bytes of each token plus one; 0 where nobody has asked yet. */
  readonly #pieceBytes: Int32Array;

  /** Number of tokens; ids are 0 … size - 1. */
  readonly size: number;
  /** The token that opens a prompt, when the model wants one there. */
  readonly leadingBos: number | undefined;
  /** Text of the beginning-of-sequence and end-of-sequence tokens, for chat templates; empty when there is none. */
  readonly bosText: string;
  readonly eosText: string;
  /** Every text that is read as one special token when `parseSpecial` is on, longest first. */
  readonly specialTexts: readonly string[];
  /** What holds answers to a grammar. */
  readonly grammars: GrammarSampler;

  constructor(bindings: LlamaBindings, vocab: NativePointer) {
    this.#bindings = bindings;
    this.#vocab = vocab;
    this.size = bindings.vocabSize(vocab);
    this.#pieceBytes = new Int32Array(this.size);
    const bos = bindings.bosToken(vocab);
    this.leadingBos = bindings.addsBos(vocab) && bos >= 0 ? bos : undefined;
    this.bosText = this.#textOf(bos);
    this.eosText = this.#textOf(bindings.eosToken(vocab));
    this.specialTexts = this.#collectSpecialTexts();
    this.grammars = new GrammarSampler(bindings, vocab, this);
  }

  /**
   * @returns Token ids, without the leading BOS. Cost: O(text) in native code plus one copy of the ids.
   */
  tokenize(text: string, options: TokenizeOptions): number[] {
    const bytes = this.#encoder.encode(text);
    // No tokeniser makes more tokens than bytes, plus one for a prefix space.
    const tokens = new Int32Array(bytes.length + 8);
    const count = this.#bindings.tokenize(
      this.#vocab,
      bytes,
      bytes.length,
      tokens,
      tokens.length,
      false,
      options.parseSpecial,
    );
    if (count < 0) {
      throw new Error(`llama_tokenize needs ${-count} places for ${bytes.length} bytes`);
    }
    return Array.from(tokens.subarray(0, count));
  }

  /**
   * The bytes that a token stands for; a token may hold a part of a UTF-8 character only.
   *
   * @param special Render control tokens as their text instead of as nothing.
   */
  piece(token: number, special = false): Uint8Array {
    let length = this.#bindings.tokenToPiece(
      this.#vocab,
      token,
      this.#pieceBuffer,
      this.#pieceBuffer.length,
      0,
      special,
    );
    if (length < 0) {
      this.#pieceBuffer = new Uint8Array(-length);
      length = this.#bindings.tokenToPiece(this.#vocab, token, this.#pieceBuffer, this.#pieceBuffer.length, 0, special);
    }
    return this.#pieceBuffer.slice(0, length);
  }

  /** How many bytes a token stands for, control tokens as their text. O(1) from the second time on. */
  pieceBytes(token: number): number {
    const known = this.#pieceBytes[token]!;
    if (known > 0) {
      return known - 1;
    }
    const { length } = this.piece(token, true);
    this.#pieceBytes[token] = length + 1;
    return length;
  }

  /** @returns The text of several tokens, control tokens included; bytes that are no UTF-8 become U+FFFD. */
  detokenize(tokens: readonly number[]): string {
    return Buffer.concat(tokens.map((token) => this.piece(token, true))).toString('utf8');
  }

  /** Whether generation ends at this token. */
  endsGeneration(token: number): boolean {
    return this.#bindings.isEndOfGeneration(this.#vocab, token);
  }

  #textOf(token: number): string {
    return token < 0 ? '' : (this.#bindings.vocabText(this.#vocab, token) ?? '');
  }

  #collectSpecialTexts(): string[] {
    const texts: string[] = [];
    for (let token = 0; token < this.size; token++) {
      if ((this.#bindings.vocabAttributes(this.#vocab, token) & SPECIAL_ATTRIBUTES) !== 0) {
        const text = this.#textOf(token);
        if (text !== '') {
          texts.push(text);
        }
      }
    }
    return texts.sort((a, b) => b.length - a.length);
  }
}
