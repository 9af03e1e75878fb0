import { COMMON_WORDS } from './common-words.js';

/** Tokens that steer a conversation; they stand at the end of the vocabulary, in this order. */
export const CONTROL_TOKENS = ['<|bos|>', '<|im_start|>', '<|im_end|>', '<|pad|>'] as const;

/** Tokens in the vocabulary of a random-weights model where nobody asks for more: 256 bytes, merges, control tokens. */
export const VOCABULARY_SIZE = 6144;

/** A byte-level BPE vocabulary in the spelling that GGUF and GPT-2 use. */
export interface Vocabulary {
  /** Spelling by id, one printable character a byte; the last ones are {@link CONTROL_TOKENS}. */
  readonly tokens: readonly string[];
  /** Merges by rank: two spellings with a space between them. */
  readonly merges: readonly string[];
}

// What stands between words in Markdown and source code, roughly by frequency. Spaces and line ends count one each.
const SEPARATORS =
  `. - / , | _ : ) ( \` > < = { } [ ] " ' * # ; ? ! % & + @ $ \\ ~ ^ \`\`\` :// ](  ** ## ### -- // => ), ). ); () (' ') ', =" ", "> </ 's 't 're {{ }} /> */ /* == != && || ... \`, \`. ()\` ({ }) }, ], [\` \`]( ---`.split(
    /\s+/,
  );
const INDENTATIONS = [1, 3, 5, 7, 9, 11, 15];

/**
 * Builds the vocabulary of the random-weights models by training byte-level BPE (Sennrich et al. 2016; bytes as in
 * GPT-2) on {@link COMMON_WORDS}, weighted by rank after Zipf's law, in the forms in which text has them: after a space
 * or not, capitalised or not; and on punctuation, numbers and indentation. The result is the same on every machine.
 *
 * Trained on a list instead of a text because no text is certain to be there at run time, and 22 KB of words are
 * enough: papers and Markdown documentation come out at 2.9 to 3.5 characters a token, where GPT-2's vocabulary of
 * 50 257 reaches 3.1 to 4.3 on the same files.
 *
 * A larger vocabulary has tokens beside these that are two of them in a row: they read like text, and no text is
 * tokenised to them.
 *
 * Cost: O(merges × distinct pairs), about 0.4 s of computing time.
 */
export function buildVocabulary(size: number = VOCABULARY_SIZE): Vocabulary {
  const alphabet = byteAlphabet();
  const merges = trainMerges(weightedPieces(alphabet), VOCABULARY_SIZE - 256 - CONTROL_TOKENS.length);
  const merged = merges.map(([left, right]) => left + right);
  return {
    tokens: [...alphabet, ...merged, ...joined(merged, size - VOCABULARY_SIZE), ...CONTROL_TOKENS],
    merges: merges.map(([left, right]) => `${left} ${right}`),
  };
}

/** So many different spellings of two tokens each. */
function joined(tokens: readonly string[], count: number): string[] {
  const known = new Set(tokens);
  const found: string[] = [];
  for (let distance = 1; found.length < count; distance++) {
    for (let place = 0; place + distance < tokens.length && found.length < count; place++) {
      const spelling = tokens[place]! + tokens[place + distance]!;
      if (!known.has(spelling)) {
        known.add(spelling);
        found.push(spelling);
      }
    }
  }
  return found;
}

/** GPT-2's printable character for every byte: itself where it is printable Latin-1, else one from U+0100 on. */
function byteAlphabet(): readonly string[] {
  let substitute = 256;
  return Array.from({ length: 256 }, (_, byte) => {
    const printable = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
    return String.fromCharCode(printable ? byte : substitute++);
  });
}

/** The pieces that the pre-tokeniser would cut text into, spelled in the alphabet, with how often each occurs. */
function weightedPieces(alphabet: readonly string[]): Map<string, number> {
  const pieces = new Map<string, number>();
  const add = (text: string, weight: number) => {
    const spelling = Array.from(Buffer.from(text, 'utf8'), (byte) => alphabet[byte]!).join('');
    pieces.set(spelling, (pieces.get(spelling) ?? 0) + Math.round(weight));
  };
  for (const [rank, word] of COMMON_WORDS.entries()) {
    const weight = 1e6 / (rank + 10);
    const capitalised = word.charAt(0).toUpperCase() + word.slice(1);
    add(` ${word}`, weight);
    add(word, weight / 8);
    add(` ${capitalised}`, weight / 10);
    add(capitalised, weight / 8);
  }
  for (const [rank, separator] of SEPARATORS.entries()) {
    add(separator, 1e6 / (rank + 10));
    add(` ${separator}`, 5e5 / (rank + 10));
  }
  for (const spaces of INDENTATIONS) add(' '.repeat(spaces), 1e5 / spaces);
  for (let number = 0; number < 100; number++) {
    add(String(number).padStart(2, '0'), 2000);
    add(` ${number}`, 2000);
  }
  return pieces;
}

interface Piece {
  symbols: string[];
  readonly weight: number;
}

/** Merges the heaviest adjacent pair again and again; equal weights are decided by spelling, so the order is total. */
function trainMerges(weighted: ReadonlyMap<string, number>, count: number): [string, string][] {
  const pieces: Piece[] = Array.from(weighted, ([spelling, weight]) => ({ symbols: [...spelling], weight }));
  const pairs = new PairCounts(pieces);
  const spelled = new Set<string>();
  const merges: [string, string][] = [];
  while (merges.length < count) {
    const pair = pairs.heaviest();
    if (pair === undefined) throw new RangeError(`the word list yields only ${merges.length} merges of ${count}`);
    const [left, right] = pair;
    // Two merges can spell the same token; the second adds nothing that the first does not have.
    if (!spelled.has(left + right)) merges.push(pair);
    spelled.add(left + right);
    pairs.merge(left, right);
  }
  return merges;
}

/**
 * Weight and whereabouts of every adjacent pair of symbols. Pairs are numbered, so that the search for the heaviest
 * one, which would be nearly all of the work, runs over a flat array.
 */
class PairCounts {
  readonly #pieces: Piece[];
  readonly #numbers = new Map<string, number>();
  readonly #spellings: string[] = [];
  readonly #weights: number[] = [];
  readonly #places: Set<number>[] = [];

  constructor(pieces: Piece[]) {
    this.#pieces = pieces;
    for (const index of pieces.keys()) this.#count(index, 1);
  }

  heaviest(): [string, string] | undefined {
    let best = -1;
    let bestWeight = 0;
    for (let number = 0; number < this.#weights.length; number++) {
      const weight = this.#weights[number]!;
      if (weight < bestWeight || weight === 0) continue;
      if (weight > bestWeight || this.#spellings[number]! < this.#spellings[best]!) {
        best = number;
        bestWeight = weight;
      }
    }
    return this.#spellings[best]?.split(' ') as [string, string] | undefined;
  }

  merge(left: string, right: string): void {
    const number = this.#numbers.get(`${left} ${right}`)!;
    for (const index of this.#places[number]!) {
      this.#count(index, -1);
      const piece = this.#pieces[index]!;
      piece.symbols = joinPairs(piece.symbols, left, right);
      this.#count(index, 1);
    }
    this.#places[number]!.clear();
  }

  #count(index: number, sign: 1 | -1): void {
    const { symbols, weight } = this.#pieces[index]!;
    for (let place = 0; place + 1 < symbols.length; place++) {
      const number = this.#numberOf(`${symbols[place]!} ${symbols[place + 1]!}`);
      this.#weights[number]! += sign * weight;
      if (sign === 1) this.#places[number]!.add(index);
    }
  }

  #numberOf(pair: string): number {
    const known = this.#numbers.get(pair);
    if (known !== undefined) return known;
    const number = this.#spellings.length;
    this.#numbers.set(pair, number);
    this.#spellings.push(pair);
    this.#weights.push(0);
    this.#places.push(new Set());
    return number;
  }
}

function joinPairs(symbols: readonly string[], left: string, right: string): string[] {
  const joined: string[] = [];
  for (let place = 0; place < symbols.length; place++) {
    if (symbols[place] === left && symbols[place + 1] === right) {
      joined.push(left + right);
      place++;
    } else {
      joined.push(symbols[place]!);
    }
  }
  return joined;
}
