import { WarmpathError } from '@warmpath/core';
import type { LlamaBindings } from './bindings.js';
import { ffi } from './ffi.js';
import { type NativePointer, TOKEN_DATA, TOKEN_DATA_ARRAY } from './structs.js';

/** What a grammar must know of a vocabulary. */
export interface GrammarVocabulary {
  readonly size: number;
  /** The bytes that a token stands for; none for control tokens. */
  piece(token: number): Uint8Array;
  endsGeneration(token: number): boolean;
}

/** What the grammars of one model did since it was loaded. */
export interface GrammarCounts {
  /** Grammars that are open now. */
  open: number;
  /** Times that a few tokens were checked, and times that the whole vocabulary was. */
  checks: number;
  masks: number;
}

/** What an answer must follow; it knows the tokens of the answer so far. */
export interface TokenGrammar {
  /** @returns For each token whether it may come next. Cost: O(bytes × readings). */
  allows(tokens: readonly number[]): boolean[];
  /** @returns Every token that may come next. Cost: as above, for all those and what begins like one of them. */
  allowed(): readonly number[];
  /** The answer goes on with a token that may come next. */
  accept(token: number): void;
  /** Frees it; nothing else may be called afterwards. */
  free(): void;
}

/** Where a piece of text begins and ends inside of a UTF-8 character. */
interface Utf8Ends {
  /** Its first byte where that continues a character, else 0. */
  readonly first: number;
  /** Its last byte where that begins a character whose second byte is not free, else 0. */
  readonly lead: number;
}

/** What may follow the first bytes after which not every continuation byte gives a character (RFC 3629, section 4). */
const SECOND_BYTES: ReadonlyMap<number, readonly [least: number, most: number]> = new Map([
  [0xe0, [0xa0, 0xbf]],
  [0xed, [0x80, 0x9f]],
  [0xf0, [0x90, 0xbf]],
  [0xf4, [0x80, 0x8f]],
]);

/**
 * llama.cpp's grammar sampler for one vocabulary. llama.cpp reads tokens as C strings, trusts their UTF-8, takes
 * control tokens for their text, and ends the process when it gets a forbidden token. So it is asked only about tokens
 * that end a generation or continue UTF-8, and only accepts tokens that it allowed. A token is forbidden where a token
 * that it begins with is; so of the whole vocabulary, only those behind allowed ones are asked about.
 */
export class GrammarSampler {
  readonly #bindings: LlamaBindings;
  readonly #vocab: NativePointer;
  readonly #vocabulary: GrammarVocabulary;
  #tokens: UsableTokens | undefined;
  readonly #counts: GrammarCounts = { open: 0, checks: 0, masks: 0 };

  constructor(bindings: LlamaBindings, vocab: NativePointer, vocabulary: GrammarVocabulary) {
    this.#bindings = bindings;
    this.#vocab = vocab;
    this.#vocabulary = vocabulary;
  }

  get counts(): Readonly<GrammarCounts> {
    return this.#counts;
  }

  /**
   * @param text A grammar that `writeGrammar` made. Others could crash llama.cpp, or have it print them.
   * @throws WARMPATH_ENGINE_FAILED when llama.cpp cannot read it, which is a defect.
   */
  open(text: string): TokenGrammar {
    this.#tokens ??= new UsableTokens(this.#vocabulary);
    const sampler = this.#bindings.samplerInitGrammar(this.#vocab, text, 'root');
    if (sampler === null) {
      throw new WarmpathError('WARMPATH_ENGINE_FAILED', { detail: 'llama.cpp cannot read a grammar of ours' });
    }
    this.#counts.open++;
    return new NativeGrammar(this.#bindings, sampler, this.#tokens, this.#counts);
  }

  /** Free every grammar first. */
  free(): void {
    this.#tokens?.free();
    this.#tokens = undefined;
  }
}

class NativeGrammar implements TokenGrammar {
  readonly #bindings: LlamaBindings;
  readonly #tokens: UsableTokens;
  readonly #counts: GrammarCounts;
  #sampler: NativePointer | undefined;
  /** First byte of a character that the answer ends with, where its second byte is not free; else 0. */
  #lead = 0;

  constructor(bindings: LlamaBindings, sampler: NativePointer, tokens: UsableTokens, counts: GrammarCounts) {
    this.#bindings = bindings;
    this.#sampler = sampler;
    this.#tokens = tokens;
    this.#counts = counts;
  }

  allows(tokens: readonly number[]): boolean[] {
    this.#counts.checks++;
    const asked = tokens.filter((token) => this.#tokens.mayFollow(token, this.#lead));
    const allowed = new Set(this.#apply(asked));
    return tokens.map((token) => allowed.has(token));
  }

  allowed(): readonly number[] {
    this.#counts.masks++;
    const allowed: number[] = [];
    let asked = this.#tokens.shortest.filter((token) => this.#tokens.mayFollow(token, this.#lead));
    while (asked.length > 0) {
      const found = this.#apply(asked);
      for (const token of found) allowed.push(token);
      asked = found.flatMap((token) => this.#tokens.longerThan(token));
    }
    return allowed;
  }

  accept(token: number): void {
    this.#bindings.samplerAccept(this.#requireOpen(), token);
    this.#lead = this.#tokens.leadOf(token);
  }

  free(): void {
    this.#bindings.samplerFree(this.#requireOpen());
    this.#sampler = undefined;
    this.#counts.open--;
  }

  #apply(tokens: readonly number[]): number[] {
    if (tokens.length === 0) return [];
    this.#bindings.samplerApply(this.#requireOpen(), this.#tokens.candidates(tokens));
    return tokens.filter((_, index) => this.#tokens.isCandidate(index));
  }

  #requireOpen(): NativePointer {
    if (this.#sampler === undefined) throw new Error('A grammar was used after it was freed');
    return this.#sampler;
  }
}

/** The tokens that an answer under a grammar may have, and native memory in which llama.cpp is asked about them. */
class UsableTokens {
  /** Tokens that begin with no other. */
  readonly shortest: readonly number[];
  /** Of tokens that others begin with: those of which it is the longest beginning. */
  readonly #longer = new Map<number, number[]>();
  readonly #ends = new Map<number, Utf8Ends>();
  readonly #isUsable: Uint8Array;
  readonly #data: NativePointer;
  readonly #array: NativePointer;
  readonly #ids: Int32Array;
  readonly #logits: Float32Array;
  readonly #struct: DataView;

  constructor(vocabulary: GrammarVocabulary) {
    this.#isUsable = new Uint8Array(vocabulary.size);
    const usable: number[] = [];
    for (let token = 0; token < vocabulary.size; token++) {
      if (this.#note(token, vocabulary)) {
        usable.push(token);
        this.#isUsable[token] = 1;
      }
    }
    this.shortest = this.#order(usable, vocabulary);
    const bytes = Math.max(1, usable.length) * TOKEN_DATA.bytes;
    this.#data = ffi().alloc('uint8', bytes) as NativePointer;
    this.#array = ffi().alloc('uint8', TOKEN_DATA_ARRAY.bytes) as NativePointer;
    const view = ffi().view(this.#data, bytes);
    this.#ids = new Int32Array(view);
    this.#logits = new Float32Array(view);
    this.#struct = new DataView(ffi().view(this.#array, TOKEN_DATA_ARRAY.bytes));
  }

  /** Whether a token may follow an answer that ends with a first byte of a character, or with none that matters. */
  mayFollow(token: number, lead: number): boolean {
    if (this.#isUsable[token] !== 1) return false;
    const range = SECOND_BYTES.get(lead);
    const first = this.#ends.get(token)?.first ?? 0;
    return range === undefined || (first >= range[0] && first <= range[1]);
  }

  longerThan(token: number): readonly number[] {
    return this.#longer.get(token) ?? [];
  }

  leadOf(token: number): number {
    return this.#ends.get(token)?.lead ?? 0;
  }

  /** Writes the array of candidates that llama.cpp is to choose from. */
  candidates(tokens: readonly number[]): NativePointer {
    const stride = TOKEN_DATA.bytes / Float32Array.BYTES_PER_ELEMENT;
    for (const [index, token] of tokens.entries()) {
      this.#ids[index * stride + TOKEN_DATA.id] = token;
      this.#logits[index * stride + TOKEN_DATA.logit] = 0;
    }
    const { data, size, selected, sorted } = TOKEN_DATA_ARRAY;
    this.#struct.setBigUint64(data, ffi().address(this.#data), true);
    this.#struct.setBigUint64(size, BigInt(tokens.length), true);
    this.#struct.setBigInt64(selected, -1n, true);
    this.#struct.setUint8(sorted, 0);
    return ffi().address(this.#array);
  }

  /** Whether llama.cpp left the token at a place of the last candidates a chance. */
  isCandidate(index: number): boolean {
    const stride = TOKEN_DATA.bytes / Float32Array.BYTES_PER_ELEMENT;
    return this.#logits[index * stride + TOKEN_DATA.logit] === 0;
  }

  free(): void {
    ffi().free(this.#data);
    ffi().free(this.#array);
  }

  /** Puts each token behind the longest whole-character token that it begins with. @returns The others. */
  #order(usable: readonly number[], vocabulary: GrammarVocabulary): number[] {
    const spell = (token: number): string =>
      vocabulary.endsGeneration(token) ? '' : Buffer.from(vocabulary.piece(token)).toString('latin1');
    const spelled = usable.map(spell);
    const whole = new Map(usable.flatMap((token, index) => (this.#ends.has(token) ? [] : [[spelled[index]!, token]])));
    whole.delete('');
    return usable.filter((token, index) => {
      const spelling = spelled[index]!;
      for (let length = spelling.length - 1; length > 0; length--) {
        const beginning = whole.get(spelling.slice(0, length));
        if (beginning !== undefined) {
          const longer = this.#longer.get(beginning) ?? [];
          longer.push(token);
          this.#longer.set(beginning, longer);
          return false;
        }
      }
      return true;
    });
  }

  #note(token: number, vocabulary: GrammarVocabulary): boolean {
    if (vocabulary.endsGeneration(token)) return true;
    const bytes = vocabulary.piece(token);
    const ends = bytes.length === 0 || bytes.includes(0) ? undefined : utf8Ends(bytes);
    if (ends !== undefined && (ends.first !== 0 || ends.lead !== 0)) this.#ends.set(token, ends);
    return ends !== undefined;
  }
}

/** @returns `undefined` for bytes that cannot stand together in UTF-8. */
export function utf8Ends(bytes: Uint8Array): Utf8Ends | undefined {
  let at = 0;
  while (at < bytes.length && at < 3 && isContinuation(bytes[at]!)) at++;
  const first = at > 0 ? bytes[0]! : 0;
  while (at < bytes.length) {
    const lead = bytes[at]!;
    const length = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    const rest = bytes.subarray(at + 1, at + length);
    const [least, most] = SECOND_BYTES.get(lead) ?? [0x80, 0xbf];
    const isSecondWrong = rest.length > 0 && (rest[0]! < least || rest[0]! > most);
    if (length === 0 || isSecondWrong || !rest.every(isContinuation)) return undefined;
    if (at + 1 === bytes.length && SECOND_BYTES.has(lead)) return { first, lead };
    at += length;
  }
  return { first, lead: 0 };
}

function isContinuation(byte: number): boolean {
  return byte >= 0x80 && byte < 0xc0;
}
