import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
import { Bm25Retriever } from '../src/index.js';
import { Analyser, plainTerms, wordsOf } from '../src/lexical/analyse.ts';
import { Bm25 } from '../src/lexical/bm25.ts';
import { foldWord, normalise } from '../src/lexical/fold.ts';
import { languagesBy, languagesOf } from '../src/lexical/languages.ts';
import { mergePostings, type Postings, PostingsBuilder } from '../src/lexical/postings.ts';
import { runStagedRetrieverCases } from './staged-retriever.cases.ts';

runStagedRetrieverCases('BM25 in memory', (documents) => ({ retriever: Bm25Retriever.over(documents) }));

const build = (texts: readonly string[], first = 0): Postings => {
  const builder = new PostingsBuilder();
  for (const [position, text] of texts.entries()) builder.add(first + position, text);
  return builder.build();
};

/** BM25 as the formula has it, over texts; documents by their place. */
function naive(texts: readonly string[], query: string): Map<number, number> {
  const documents = texts.map(plainTerms);
  const mean = documents.reduce((sum, terms) => sum + terms.length, 0) / documents.length || 1;
  const scores = new Map<number, number>();
  const asked = plainTerms(query);
  for (const term of new Set(asked)) {
    const holders = documents.filter((terms) => terms.includes(term)).length;
    const count = asked.filter((other) => other === term).length;
    const weight = ((2 * count) / (count + 1)) * Math.log(1 + (documents.length - holders + 0.5) / (holders + 0.5));
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
  const hits = index.search({ text: query }, k);
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

  it('is what the formula says over many documents', () => {
    let state = 7;
    const draw = (below: number) => {
      state = (Math.imul(state, 1103515245) + 12345) >>> 0;
      return Math.floor((state / 2 ** 32) * below);
    };
    const word = () => `w${Math.floor(3000 * (draw(1e6) / 1e6) ** 4)}`;
    const texts = Array.from({ length: runs(9000) }, () => Array.from({ length: 3 + draw(12) }, word).join(' '));
    const index = new Bm25(build(texts));
    for (const asked of ['w0 w1 w2999', 'w0 w1 w2 w3 w4 w5', 'w100 w2000', 'w0', 'w7 w7 w7 w900 w0', 'none']) {
      for (const k of [1, 10, 300]) expectExact(index, texts, asked, k);
    }
  });

  it('gives documents of one score in their order', () => {
    const index = new Bm25(build(Array.from({ length: 20 }, () => 'same words')));
    expect(index.search({ text: 'words' }, 5).map(({ document }) => document)).toEqual([0, 1, 2, 3, 4]);
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
        expect(new Bm25(merged).search({ text: asked }, 10)).toEqual(new Bm25(build(left)).search({ text: asked }, 10));
      }),
      { seed: 12, numRuns: runs(300) },
    );
  });

  it('counts a word as often as it stands in a text', () => {
    const texts = ['x '.repeat(60_000), 'x y', `${'x '.repeat(300)}y`];
    expectExact(new Bm25(build(texts)), texts, 'x y', 3);
  });
});

/** The ids of what a question finds among texts, best first. */
async function found(texts: readonly string[], text: string): Promise<string[]> {
  const retriever = Bm25Retriever.over(texts.map((content) => ({ id: content, content })));
  const ids: string[] = [];
  const { signal } = new AbortController();
  for await (const { candidates } of retriever.search({ text }, { k: 10, signal })) {
    ids.push(...candidates.map(({ id }) => id));
  }
  return ids;
}

describe('terms', () => {
  it.each([
    ['The quick fox', ['the', 'quick', 'fox']],
    ['Frühjahr, Straße & CAFÉ', ['fruhjahr', 'strasse', 'cafe']],
    ['上海的', ['上', '海', '的', '上海', '海的']],
    ['川 と 东京tower2', ['川', 'と', '东', '京', '东京', 'tower2']],
    ['カナ ﾊﾝ', ['カ', 'ナ', 'カナ', 'ハ', 'ン', 'ハン']],
    ['parseHttpHeader(raw_line)', ['parsehttpheader', 'parse', 'http', 'header', 'rawline', 'raw', 'line']],
    ['HTTPServer v2', ['httpserver', 'http', 'server', 'v2']],
    ['__init__ A_b', ['init', 'a_b']],
    ['Ελλάδα Москва', ['ελλαδα', 'москва']],
    ['ภาษาไทย', ['ภา', 'าษ', 'ษา', 'าไ', 'ไท', 'ทย']],
    ['don’t 3.14', ['don', 't', '3', '14']],
    ['C++, C#; F#! g++ i++ issue#12', ['c++', 'c#', 'f#', 'g++', 'i++', 'issue', '12']],
    ['.NET end.Next ASP.NET ...', ['.net', 'net', 'end', 'next', 'asp', 'net']],
    ['🎉party👍 🇩🇪', ['🎉', 'party', '👍', '🇩🇪']],
    ['10⁶ 1½ x²', ['10', '6', '1', '1', '2', 'x2']],
    ['', []],
  ])('of %j', (given, expected) => {
    expect(plainTerms(given)).toEqual(expected);
  });

  it('are bounded, and the same however the text is put together', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: 'binary', maxLength: 60 }),
        fc.string({ unit: 'binary', maxLength: 60 }),
        (a, b) => {
          const terms = plainTerms(`${a} \n ${b}`);
          expect(terms).toEqual([...plainTerms(a), ...plainTerms(b)]);
          expect(terms.every((term) => term.length > 0 && term.length <= 128)).toBe(true);
        },
      ),
      { seed: 13, numRuns: runs(150) },
    );
    expect(plainTerms('x'.repeat(1_000_000))[0]!.length).toBe(64);
  });

  it('are the same when they are folded again, in every script', () => {
    const letters = Array.from({ length: 0x323b0 }, (_, code) =>
      code >= 0xd800 && code <= 0xdfff ? 'x' : String.fromCodePoint(code),
    );
    const twice = letters.filter((letter) => foldWord(foldWord(letter)) !== foldWord(letter));
    expect(twice).toEqual([]);
    expect(letters.filter((letter) => normalise(normalise(letter)) !== normalise(letter))).toEqual([]);
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 12 }), (word) => {
        expect(foldWord(foldWord(word))).toBe(foldWord(word));
        expect(wordsOf(normalise(word))).toEqual(wordsOf(word));
      }),
      { seed: 14, numRuns: runs(300) },
    );
  });

  it.each([
    ['soft hyphen', 'Donau\u00addampf\u00adschiff', 'Donaudampfschiff'],
    ['zero-width characters', 'ware\u200bhouse \u2060key\ufeffboard', 'warehouse keyboard'],
    ['a variation selector', 'heart\ufe0f', 'heart'],
    ['an emoji beside a word', '🎉party', 'party'],
    ['an emoji', 'wir feiern 🎉', '🎉'],
    ['Arabic vowel signs', 'كِتَابٌ', 'كتاب'],
    ['an Arabic alef with hamza', 'أحمد', 'احمد'],
    ['Hebrew vowel signs', 'שָׁלוֹם', 'שלום'],
    ['ł', 'Łódź', 'lodz'],
    ['ø and æ', 'Smørrebrød på Ærø', 'smorrebrod'],
    ['æ', 'Encyclopædia', 'encyclopaedia'],
    ['ı', 'Diyarbakır', 'diyarbakir'],
    ['İ', 'İstanbul', 'istanbul'],
    ['ß', 'Straße', 'STRASSE'],
    ['decomposed accents', 'cafe\u0301', 'café'],
    ['full-width letters', 'Ｗａｒｍｐａｔｈ', 'warmpath'],
    ['a final sigma', 'λόγος', 'ΛΟΓΟΣ'],
    ['one Chinese character', '上海的夏天', '夏'],
    ['one Japanese character', '東京へ行く', '京'],
    ['one Korean character', '한국어 문서', '어'],
    ['C++', 'written in C++17', 'C++'],
    ['C#', 'written in C#', 'c#'],
    ['an English plural', 'the caches of engines', 'engine cache'],
    ['a German plural', 'Die Häuser stehen an der Straße und sind alt', 'haus'],
    ['German without accents', 'Die Häuser stehen an der Straße und sind alt', 'hauser'],
    ['a Spanish plural', 'Las comunicaciones con el servidor no son seguras', 'comunicación'],
    ['a Russian case', 'Настройки сервера не были сохранены', 'сервер'],
    ['only stop words', 'to be or not to be', 'to be'],
  ])('of a text with %s find it', async (_, text, asked) => {
    expect(await found([text, 'another text about nothing'], asked)).toContain(text);
  });

  it.each([
    ['C++', 'C# is another language', 'C++ is a language'],
    ['C#', 'C is old', 'C# is newer'],
  ])('of %s are no other language', async (asked, other, text) => {
    expect(await found([other, text], asked)).toEqual([text]);
  });

  it.each([
    ['de', 'Wie öffne ich das Fenster, wenn es klemmt?'],
    ['fr', 'Comment ouvrir la fenêtre quand elle est bloquée ?'],
    ['es', '¿Cómo se abre la ventana cuando no funciona?'],
    ['it', 'Come si apre la finestra del bagno?'],
    ['nl', 'Hoe open ik het raam als het vastzit'],
    ['pt', 'como abrir a janela quando ela não está funcionando'],
    ['ru', 'Как открыть окно в браузере, если оно не работает'],
    ['en', 'cache configuration'],
    ['', '窓を開ける'],
  ])('are those of the language %s', (code, text) => {
    expect(
      languagesOf(wordsOf(text))
        .map((language) => language.code)
        .join(),
    ).toBe(code);
  });

  it('never fail, whatever the language and the word', () => {
    const all = new Analyser(
      languagesBy(new Set(['en', 'de', 'fr', 'ru', 'ar', 'el', 'hi', 'ta', 'tr', 'sr', 'hy', 'fi', 'hu'])),
    );
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', minLength: 1, maxLength: 64 }), (text) => {
        for (const word of wordsOf(text)) expect(all.termsOf(word).every((term) => term !== '')).toBe(true);
      }),
      { seed: 15, numRuns: runs(200) },
    );
  });

  it.each([
    ['"keys of the house"', 'The keys of the house are red.', 'house keys: the house of keys has keys of a house'],
    ['“Café Müller”', 'They met at cafe muller.', 'Müller, the café of Müller'],
    ['"東京都"', '新東京都庁', '京都は東京ではない 都'],
    ['who said "to be or not to be"?', 'Hamlet: to be or not to be', 'who said what? He said that she said so.'],
  ])('of the phrase %s put passages first that have it', async (asked, text, other) => {
    expect((await found([other, text], asked))[0]).toBe(text);
    expect(await found([other, 'unrelated'], asked)).toEqual([other]);
  });

  it('of both ends of a long question are searched', async () => {
    const filler = 'filler words '.repeat(3_000);
    const texts = ['harbour', 'lighthouse', 'mountain'];
    expect((await found(texts, `harbour ${filler} lighthouse`)).sort()).toEqual(['harbour', 'lighthouse']);
  });
});
