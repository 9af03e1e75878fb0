import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
import { Bm25Retriever } from '../src/index.js';
import { Bm25 } from '../src/lexical/bm25.ts';
import { mergePostings, type Postings, PostingsBuilder } from '../src/lexical/postings.ts';
import { tokenise } from '../src/lexical/tokenise.ts';
import { runStagedRetrieverCases } from './staged-retriever.cases.ts';

runStagedRetrieverCases('BM25 in memory', (documents) => ({ retriever: Bm25Retriever.over(documents) }));

const build = (texts: readonly string[], first = 0): Postings => {
  const builder = new PostingsBuilder();
  for (const [position, text] of texts.entries()) builder.add(first + position, text);
  return builder.build();
};

/** BM25 as the formula has it, over texts; documents by their place. */
function naive(texts: readonly string[], query: string): Map<number, number> {
  const documents = texts.map(tokenise);
  const mean = documents.reduce((sum, terms) => sum + terms.length, 0) / documents.length || 1;
  const scores = new Map<number, number>();
  for (const term of tokenise(query)) {
    const holders = documents.filter((terms) => terms.includes(term)).length;
    const weight = Math.log(1 + (documents.length - holders + 0.5) / (holders + 0.5));
    for (const [document, terms] of documents.entries()) {
      const frequency = terms.filter((other) => other === term).length;
      if (frequency === 0) continue;
      const factor = (frequency * 2.2) / (frequency + 1.2 * (0.25 + (0.75 * terms.length) / mean));
      scores.set(document, (scores.get(document) ?? 0) + weight * factor);
    }
  }
  return scores;
}

function expectExact(index: Bm25, texts: readonly string[], query: string, k: number): void {
  const expected = naive(texts, query);
  const hits = index.search(query, k);
  const best = [...expected.values()].sort((a, b) => b - a).slice(0, k);
  expect(hits.length).toBe(best.length);
  for (const [rank, { document, score }] of hits.entries()) {
    expect(score).toBeCloseTo(best[rank]!, 9);
    expect(expected.get(document)).toBeCloseTo(score, 9);
  }
  expect(new Set(hits.map(({ document }) => document)).size).toBe(hits.length);
}

/** Words as they are frequent in a language: the first ones very, the last ones hardly. */
const words = fc.integer({ min: 0, max: 999 }).map((draw) => `w${Math.floor(40 * (draw / 1000) ** 3)}`);
const text = fc.array(words, { maxLength: 30 }).map((list) => list.join(' '));
const query = fc.array(words, { minLength: 1, maxLength: 8 }).map((list) => list.join(' '));

describe('BM25', () => {
  it('is what the formula says, for every k', () => {
    fc.assert(
      fc.property(fc.array(text, { maxLength: 60 }), query, fc.integer({ min: 1, max: 70 }), (texts, asked, k) => {
        expectExact(new Bm25(build(texts)), texts, asked, k);
      }),
      { seed: 11, numRuns: runs(400) },
    );
  });

  it('is what the formula says over many windows of documents', () => {
    let state = 7;
    const draw = (below: number) => {
      state = (Math.imul(state, 1103515245) + 12345) >>> 0;
      return Math.floor((state / 2 ** 32) * below);
    };
    const word = () => `w${Math.floor(3000 * (draw(1e6) / 1e6) ** 4)}`;
    const texts = Array.from({ length: 9000 }, () => Array.from({ length: 3 + draw(12) }, word).join(' '));
    const index = new Bm25(build(texts));
    for (const asked of ['w0 w1 w2999', 'w0 w1 w2 w3 w4 w5', 'w100 w2000', 'w0', 'w7 w7 w7 w900 w0', 'none']) {
      for (const k of [1, 10, 300]) expectExact(index, texts, asked, k);
    }
  });

  it('gives documents of one score in their order', () => {
    const index = new Bm25(build(Array.from({ length: 20 }, () => 'same words')));
    expect(index.search('words', 5).map(({ document }) => document)).toEqual([0, 1, 2, 3, 4]);
  });

  it('is the same after merging as built at once, whatever was removed', () => {
    const lists = fc.array(text, { maxLength: 25 });
    fc.assert(
      fc.property(lists, lists, fc.array(fc.nat(50)), query, (earlier, later, gone, asked) => {
        const removed = new Set(gone);
        const merged = mergePostings(build(earlier), build(later, earlier.length), removed);
        const all = [...earlier, ...later];
        const left = all.filter((_, ordinal) => !removed.has(ordinal));
        const kept = all.flatMap((_, ordinal) => (removed.has(ordinal) ? [] : [ordinal]));
        expect([...merged.ordinals]).toEqual(kept);
        expect(new Bm25(merged).search(asked, 10)).toEqual(new Bm25(build(left)).search(asked, 10));
      }),
      { seed: 12, numRuns: runs(300) },
    );
  });

  it('counts a word as often as it stands in a text', () => {
    const texts = ['x '.repeat(60_000), 'x y', `${'x '.repeat(300)}y`];
    expectExact(new Bm25(build(texts)), texts, 'x y', 3);
  });
});

describe('terms', () => {
  it.each([
    ['The quick fox', ['the', 'quick', 'fox']],
    ['Frühjahr, Straße & CAFÉ', ['fruhjahr', 'strasse', 'cafe']],
    ['上海的夏天', ['上海', '海的', '的夏', '夏天']],
    ['川 と 东京tower2', ['川', 'と', '东京', 'tower2']],
    ['カタカナ ﾊﾝｶｸ', ['カタ', 'タカ', 'カナ', 'ハン', 'ンカ', 'カク']],
    ['parseHttpHeader(raw_line)', ['parsehttpheader', 'parse', 'http', 'header', 'rawline', 'raw', 'line']],
    ['HTTPServer v2', ['httpserver', 'http', 'server', 'v2']],
    ['__init__ A_b', ['init', 'a_b']],
    ['Ελλάδα Москва', ['ελλαδα', 'москва']],
    ['ภาษาไทย', ['ภา', 'าษ', 'ษา', 'าไ', 'ไท', 'ทย']],
    ['don’t 3.14', ['don', 't', '3', '14']],
    ['', []],
  ])('of %j', (given, expected) => {
    expect(tokenise(given)).toEqual(expected);
  });

  it('are bounded, and the same however the text is put together', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: 'binary', maxLength: 60 }),
        fc.string({ unit: 'binary', maxLength: 60 }),
        (a, b) => {
          const terms = tokenise(`${a} \n ${b}`);
          expect(terms).toEqual([...tokenise(a), ...tokenise(b)]);
          expect(terms.every((term) => term.length > 0 && term.length <= 128)).toBe(true);
        },
      ),
      { seed: 13, numRuns: runs(150) },
    );
    expect(tokenise('x'.repeat(1_000_000))[0]!.length).toBe(64);
  });
});
