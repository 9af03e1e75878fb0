import fc from 'fast-check';
import { expect, test } from 'vitest';
import { estimateTokens } from '../src/index.js';
import { estimateTokensOfBytes } from '../src/internal.js';
import { anyText } from './arbitraries.js';

test('never below 1, and never more than one token a UTF-16 unit', () => {
  fc.assert(
    fc.property(anyText(), (text) => {
      const tokens = estimateTokens(text);
      expect(Number.isInteger(tokens)).toBe(true);
      expect(tokens).toBeGreaterThanOrEqual(1);
      expect(tokens).toBeLessThanOrEqual(Math.max(1, text.length));
    }),
  );
});

test('depends on the signs of a text and not on their order, however long it is', () => {
  fc.assert(
    fc.property(anyText(), fc.constantFrom(1, 3, 20_000), (text, times) => {
      const signs = [...text.toWellFormed().repeat(times > 3 ? Math.ceil(times / Math.max(1, text.length)) : times)];
      expect(estimateTokens(signs.toReversed().join(''))).toBe(estimateTokens(signs.join('')));
    }),
    { numRuns: 50 },
  );
});

/** Characters of one byte in UTF-8, of two (one of them below U+0100), three and four. */
const ofAllKinds = fc
  .subarray(['a', '7', 'é', 'ж', '漢', '😀'], { minLength: 1 })
  .chain((kinds) => fc.string({ unit: fc.constantFrom(...kinds), maxLength: 70 }));

test('is the same for a text and for its bytes, short or long', () => {
  fc.assert(
    fc.property(fc.oneof(anyText(), ofAllKinds), fc.constantFrom(1, 2, 100), (text, times) => {
      const whole = text.toWellFormed().repeat(times);
      expect(estimateTokens(whole)).toBe(estimateTokensOfBytes(new TextEncoder().encode(whole)));
    }),
  );
});

test('longer text never has fewer tokens', () => {
  fc.assert(
    fc.property(anyText(), anyText(), (text, more) => {
      expect(estimateTokens(text + more)).toBeGreaterThanOrEqual(estimateTokens(text));
    }),
  );
});

test('near what a byte-pair vocabulary of 200,000 tokens counts', () => {
  for (const { text, tokens, within } of COUNTED) {
    expect(Math.abs(estimateTokens(text) / tokens - 1), text).toBeLessThan(within);
  }
});

/** Counted with o200k_base. */
const COUNTED = [
  {
    text: 'The knowledge tree is a trie where each path from root to leaf represents a document ordering that has been recently served. Each node stores a document with its access count and the time of its last use, and the whole is bounded by a recency window.',
    tokens: 51,
    within: 0.25,
  },
  {
    text: 'Revenue rose from 1,204,551 in 2019 to 3,998,120 in 2023; margins were 12.5%, 13.1% and 14.0%; see table 4.2 on page 117.',
    tokens: 54,
    within: 0.25,
  },
  {
    text: '{"id": 4711, "name": "Warmpath", "tags": ["cache", "order"], "score": 0.8731, "nested": {"a": [1, 2, 3]}}',
    tokens: 49,
    within: 0.25,
  },
  {
    text: 'Der Wissensbaum ist ein Präfixbaum, in dem jeder Pfad von der Wurzel zum Blatt eine kürzlich ausgelieferte Reihenfolge von Dokumenten darstellt, und jeder Knoten ein Dokument mit Zugriffszähler.',
    tokens: 47,
    within: 0.5,
  },
  {
    text: 'Дерево знаний — это префиксное дерево, в котором каждый путь от корня к листу представляет недавно обслуженный порядок документов.',
    tokens: 30,
    within: 0.5,
  },
  {
    text: '知识树是一棵前缀树，从根到叶的每条路径表示最近服务过的文档顺序，每个节点保存文档以及访问次数和最近一次使用的时间。',
    tokens: 42,
    within: 0.5,
  },
];
