import { beforeAll, describe, expect, it } from 'vitest';
import { COMMON_WORDS } from '../../bench/random-model/src/common-words.js';
import {
  buildVocabulary,
  CONTROL_TOKENS,
  VOCABULARY_SIZE,
  type Vocabulary,
} from '../../bench/random-model/src/vocabulary.js';

const PROSE = `The cache keeps what the engine has already computed. When two requests begin with the same documents in the
same order, the second one can start where they part; when the order differs, nothing is shared. A retrieval system that
knows this puts the documents that many questions have in common first, and tells the model in which order they were found.
The river rises in the mountains, passes three cities and reaches the sea in the north of the country. In 1995 the council
built a bridge near the old market, which was closed after eleven years because repairs had become too expensive.`;

let vocabulary: Vocabulary;
beforeAll(() => {
  vocabulary = buildVocabulary();
});

/** A plain byte-level BPE tokeniser with GPT-2's pre-tokenisation. */
function countTokens({ tokens, merges }: Vocabulary, text: string): number {
  const ranks = new Map(merges.map((merge, rank) => [merge, rank]));
  const ids = new Set(tokens);
  const pieces = text.match(/'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu) ?? [];
  let count = 0;
  for (const piece of pieces) {
    const symbols = Array.from(Buffer.from(piece), (byte) => tokens[byte]!);
    for (;;) {
      const candidates = symbols
        .slice(1)
        .map((right, at) => ranks.get(`${symbols[at]} ${right}`) ?? Number.POSITIVE_INFINITY);
      const best = Math.min(...candidates);
      if (best === Number.POSITIVE_INFINITY) break;
      const at = candidates.indexOf(best);
      symbols.splice(at, 2, symbols[at]! + symbols[at + 1]!);
    }
    expect(symbols.every((symbol) => ids.has(symbol))).toBe(true);
    count += symbols.length;
  }
  return count;
}

describe('the vocabulary of random-weights models', () => {
  it('has every byte, the merges and the control tokens, each once', () => {
    const { tokens, merges } = vocabulary;
    expect(tokens).toHaveLength(VOCABULARY_SIZE);
    expect(new Set(tokens).size).toBe(VOCABULARY_SIZE);
    expect(merges).toHaveLength(VOCABULARY_SIZE - 256 - CONTROL_TOKENS.length);
    expect(tokens.slice(-CONTROL_TOKENS.length)).toStrictEqual([...CONTROL_TOKENS]);
    // GPT-2 spells a space as Ġ and a line end as Ċ.
    expect([tokens[32], tokens[10], tokens[65], tokens[255]]).toStrictEqual(['Ġ', 'Ċ', 'A', 'ÿ']);
  });

  it('can build every token from the bytes by merges of a lower rank', () => {
    const { tokens, merges } = vocabulary;
    const known = new Set(tokens.slice(0, 256));
    for (const [rank, merge] of merges.entries()) {
      const [left, right, ...rest] = merge.split(' ');
      expect([known.has(left!), known.has(right!), rest.length]).toStrictEqual([true, true, 0]);
      expect(tokens[256 + rank]).toBe(left! + right!);
      known.add(left! + right!);
    }
  });

  it('is the same each time', () => {
    expect(buildVocabulary()).toStrictEqual(vocabulary);
  });

  it('tokenises English prose at 3 to 4.5 characters a token, without the prose in its word list', () => {
    const ratio = PROSE.length / countTokens(vocabulary, PROSE);
    expect(ratio).toBeGreaterThan(3);
    expect(ratio).toBeLessThan(4.5);
  });

  it('is trained on words that stand in the list once, in lower case', () => {
    expect(new Set(COMMON_WORDS).size).toBe(COMMON_WORDS.length);
    expect(COMMON_WORDS.every((word) => /^[a-z0-9]+$/.test(word))).toBe(true);
  });
});
