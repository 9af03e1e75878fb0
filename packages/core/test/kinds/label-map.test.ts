import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { blockDocuments, type DocumentBlock, type PromptText, recognise, rewriteText } from '../../src/index.js';
import { LabelMap } from '../../src/internal.js';
import { anyText } from '../arbitraries.js';

const PASSAGES = ['harbour', 'lighthouse', 'market', 'bridge'].map(
  (word) => `The ${word} was built by the town and is kept by its citizens, who meet there once a year in spring.`,
);

/** Ways in which programs count their documents. */
const FORMS: Readonly<Record<string, (passages: readonly string[]) => string>> = {
  brackets: (passages) => `Sources:\n${passages.map((text, i) => `[${i + 1}] ${text}`).join('\n\n')}\n\nQuestion: Who?`,
  tags: (passages) =>
    `<context>\n${passages.map((text, i) => `<source id="${i + 1}">${text}</source>`).join('\n')}\n</context>\nWho?`,
  headed: (passages) => `${passages.map((text, i) => `Source ${i + 1}:\n${text}\n`).join('\n')}\nQuestion: Who?`,
  json: (passages) => JSON.stringify({ results: passages.map((content, i) => ({ id: i + 1, content })) }),
};

function userTexts(text: string): PromptText[] {
  return [{ role: 'user', text }];
}

function found(texts: readonly PromptText[]): readonly DocumentBlock[] {
  return recognise(texts, { mode: 'form' });
}

function mapped(text: string) {
  const texts = userTexts(text);
  const blocks = found(texts);
  const labels = LabelMap.of(texts, blocks);
  return { labels, block: blocks[0]!, sent: labels.relabel(texts[0]!, 0, blocks) };
}

describe.each(Object.entries(FORMS))('labels written as %s', (_, write) => {
  test('a passage is the same bytes at every place', () => {
    const there = PASSAGES.map((_passage, first) => {
      const passages = [...PASSAGES.slice(first), ...PASSAGES.slice(0, first)];
      const { sent } = mapped(write(passages));
      const documents = blockDocuments(sent.text, sent.blocks[0]!);
      return documents.map(({ content }) => content).toSorted();
    });
    for (const documents of there) expect(documents).toEqual(there[0]);
  });

  test('the label moves with its document, and an answer points to it in the client’s words', () => {
    const { labels, block, sent } = mapped(write(PASSAGES));
    const turned = rewriteText(sent.text, [{ block: sent.blocks[0]!, order: [3, 2, 1, 0] }]);
    expect(turned).not.toBe(sent.text);
    for (const [rank] of PASSAGES.entries()) {
      const label = labels.labelOf(block, rank)!;
      expect(turned.split(label)).toHaveLength(2);
      expect(labels.inAnswer(`It says so [${label}].`)).toBe(`It says so [${rank + 1}].`);
    }
  });

  test('a second process chooses the same labels', () => {
    expect(mapped(write(PASSAGES)).sent.text).toBe(mapped(write(PASSAGES)).sent.text);
  });

  test('what was relabelled has its spans where the text has them', () => {
    const { block, sent } = mapped(write(PASSAGES));
    for (const [rank, span] of sent.blocks[0]!.documents.entries()) {
      expect(sent.text.slice(span.contentStart, span.contentEnd)).toContain(PASSAGES[rank]);
      for (const { start, end } of span.labels) expect(sent.text.slice(start, end)).toMatch(/^\d{3,}$/);
      expect(span.labels).toHaveLength(block.documents[rank]!.labels.length);
    }
  });
});

test('a label that the prompt holds already is not chosen', () => {
  const { labels, block } = mapped(FORMS['brackets']!(PASSAGES));
  const label = labels.labelOf(block, 0)!;
  const again = mapped(FORMS['brackets']!(PASSAGES).replace('Who?', `Who had ${label} boats?`));
  expect(again.labels.labelOf(again.block, 0)).not.toBe(label);
  expect(again.labels.labelOf(again.block, 1)).toBe(labels.labelOf(block, 1));
});

test('labels of a turn stay when the conversation grows, whatever is said behind it', () => {
  const first = userTexts(FORMS['brackets']!(PASSAGES));
  const blocks = found(first);
  const labels = LabelMap.of(first, blocks);
  const numbers = Array.from({ length: 900 }, (_, i) => i + 100).join(' ');
  const later: PromptText[] = [...first, { role: 'assistant', text: '[1]' }, { role: 'user', text: numbers }];
  const grown = LabelMap.of(later, blocks);
  expect(grown.relabel(first[0]!, 0, blocks)).toEqual(labels.relabel(first[0]!, 0, blocks));
});

test('two documents of the same text have two labels', () => {
  const { labels, block } = mapped(FORMS['brackets']!([PASSAGES[0]!, PASSAGES[0]!]));
  expect(labels.labelOf(block, 0)).not.toBe(labels.labelOf(block, 1));
});

test('an earlier answer is sent with the labels that the model wrote', () => {
  const { labels, block } = mapped(FORMS['brackets']!(PASSAGES));
  const said = `By the town [${labels.labelOf(block, 2)}], [${labels.labelOf(block, 0)}, ${labels.labelOf(block, 1)}].`;
  expect(labels.inPrompt(labels.inAnswer(said), 1)).toBe(said);
});

describe('citations in an answer', () => {
  const { labels, block } = mapped(FORMS['headed']!(PASSAGES));
  const [a, b] = [labels.labelOf(block, 0)!, labels.labelOf(block, 1)!];

  // ① and ② stand for the labels of the first two documents.
  test.each([
    ['[①]', '[1]'],
    ['【①】', '【1】'],
    ['【①†source】', '【1†source】'],
    ['[①, ②]', '[1, 2]'],
    ['[①,②]', '[1,2]'],
    ['[①][②]', '[1][2]'],
    ['[^①]', '[^1]'],
    ['[Source ①]', '[Source 1]'],
    ['[①; ②]', '[1; 2]'],
    ['Source ①', 'Source 1'],
    ['source ①.', 'source 1.'],
    ['SOURCE #①', 'SOURCE #1'],
    ['Sources ① and ② say', 'Sources 1 and 2 say'],
    ['Sources ①, ②, and ②', 'Sources 1, 2, and 2'],
    ['Source ①: it', 'Source 1: it'],
    ['[quelle ① und ②]', '[quelle 1 und 2]'],
    ['**Source ①**', '**Source 1**'],
    ['根据[①]的', '根据[1]的'],
    ['根据 Source ①的', '根据 Source 1的'],
  ])('%s becomes %s', (given, wanted) => {
    expect(labels.inAnswer(withLabels(given))).toBe(wanted);
    expect(labels.inAnswer(`It: ${withLabels(given)}, so`)).toBe(`It: ${wanted}, so`);
  });

  test.each([
    '① people',
    'in ①',
    '$①',
    '[①.5]',
    '[3.①]',
    '[1①]',
    '[①1]',
    '[①th]',
    '[v①]',
    '[①,000]',
    'Source ①,000',
    'Source ①.25',
    'x_①',
    'resource ①',
    '[1] ①',
    '[1]\n①',
  ])('%s stays', (given) => {
    expect(labels.inAnswer(withLabels(given))).toBe(withLabels(given));
  });

  function withLabels(given: string): string {
    return given.replaceAll('①', a).replaceAll('②', b);
  }
});

describe('a stream', () => {
  const { labels, block } = mapped(FORMS['tags']!(PASSAGES));
  const known = PASSAGES.map((_, rank) => labels.labelOf(block, rank)!);
  const piece = fc.oneof(
    fc.constantFrom(...known),
    fc.constantFrom(
      '[',
      ']',
      '【',
      '】',
      ', ',
      'Source ',
      'source id="',
      '"',
      ' and ',
      '.',
      ',',
      '\n',
      '(',
      ')',
      '4',
      '41',
    ),
    fc.nat(99_999).map(String),
    anyText({ maxLength: 4 }),
  );
  const answer = fc.array(piece, { maxLength: 30 }).map((pieces) => pieces.join(''));

  test('any split gives the same answer', () => {
    fc.assert(
      fc.property(answer, fc.array(fc.nat(6), { maxLength: 40 }), (text, lengths) => {
        const mapper = labels.answerMapper();
        let written = '';
        let from = 0;
        for (const length of lengths) {
          written += mapper.write(text.slice(from, from + length));
          from += length;
        }
        written += mapper.write(text.slice(from)) + mapper.end();
        expect(written).toBe(labels.inAnswer(text));
      }),
      { numRuns: 2_000 },
    );
  });

  test('a text without labels stays as it is', () => {
    fc.assert(
      fc.property(answer, (text) => {
        fc.pre(!known.some((label) => text.includes(label)));
        expect(labels.inAnswer(text)).toBe(text);
      }),
    );
  });

  test('nothing is held back but a number that may become a label', () => {
    fc.assert(
      fc.property(answer, (text) => {
        const mapper = labels.answerMapper();
        const early = mapper.write(text);
        const held = mapper.end();
        expect(early + held).toBe(labels.inAnswer(text));
        expect(held).toMatch(/^(?:\d+(?:[.,]\d{0,3})?)?$/);
        if (!/\d[.,]?\d{0,3}$/.test(text)) expect(held).toBe('');
      }),
    );
  });
});

test('texts without counted documents have no labels', () => {
  const text = `<docs>${PASSAGES.map((passage) => `<document id="${passage.length}x">${passage}</document>`).join('')}</docs>`;
  const { labels, sent } = mapped(text);
  expect(labels.isEmpty).toBe(true);
  expect(sent.text).toBe(text);
  expect(labels.inAnswer('[123]')).toBe('[123]');
});
