import { estimateTokens } from '@warmpath/core';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
import { chunk } from '../src/parse/chunk.ts';
import { parsePdf } from '../src/parse/parse-pdf.ts';
import { parseText, type TextFormat } from '../src/parse/parse-text.ts';
import { pdf } from './hand-written-pdf.js';

const { signal } = new AbortController();
const blocksOf = (text: string, format: TextFormat) =>
  parseText(text, format).blocks.map(({ headings, text }) => [headings.join(' › '), text]);

describe('blocks of a text', () => {
  it('of Markdown stand below their headings, and nothing in code is one', () => {
    const text = `---
title: "Guide: one"
tags: [a]
---
# Install *it*

First. <!-- not this -->

## On \`Linux\` {#linux}

\`\`\`sh
# no heading
npm ci
\`\`\`

- one
- two

| a | b |
|---|---|
| 1 | 2 |

# Use

<div>Some <b>HTML</b></div>
`;
    expect(parseText(text, 'markdown').title).toBe('Guide: one');
    expect(blocksOf(text, 'markdown')).toEqual([
      ['Install it', 'First.'],
      ['Install it › On Linux', '```sh\n# no heading\nnpm ci\n```'],
      ['Install it › On Linux', '- one\n- two'],
      ['Install it › On Linux', '| a | b |\n|---|---|\n| 1 | 2 |'],
      ['Use', 'Some HTML'],
    ]);
  });

  it('of a long Markdown text are the same as of its parts', () => {
    const part = '# H\n\ntext\n\n~~~\n\n# code\n\n~~~\n\n- a\n- b\n\n';
    const once = blocksOf(part, 'markdown');
    const many = blocksOf(part.repeat(4000), 'markdown');
    expect(many.length).toBe(once.length * 4000);
    expect(many.slice(-once.length)).toEqual(once);
  });

  it('of HTML have entities as signs, and neither scripts nor navigation', () => {
    const html = `<!doctype html><title>A &amp; B</title><style>x{}</style><nav><a>Home</a></nav><svg><title>Icon</title></svg>
      <h1>Fees</h1><p>One &lt;two&gt;<br>three</p><script>alert("no")</script>
      <h2>Table</h2><table><tr><td>a<td>b</table><pre>x
  y</pre><p>unclosed <ul><li>1<li>2</ul>tail`;
    expect(parseText(html, 'html').title).toBe('A & B');
    expect(blocksOf(html, 'html')).toEqual([
      ['Fees', 'One <two>\nthree'],
      ['Fees › Table', 'a | b |'],
      ['Fees › Table', 'x\n  y'],
      ['Fees › Table', 'unclosed'],
      ['Fees › Table', '- 1\n- 2'],
      ['Fees › Table', 'tail'],
    ]);
  });

  it.each<TextFormat>(['markdown', 'html', 'text'])('of %s are read whatever the text is', (format) => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 200 }), (text) => {
        expect(parseText(text, format).blocks).toBeInstanceOf(Array);
      }),
      { seed: 21, numRuns: runs(300) },
    );
    for (const unit of [
      '>',
      '- ',
      '<div>',
      '<b',
      '[',
      '*',
      '`',
      '| a ',
      '# ',
      '&#x',
      '\n\n',
      'a_',
      '  - a\n',
      '1. ',
      '((',
      '"',
      '<!--',
      '<pre>  ',
      '# [',
      'title: ',
      '![](',
    ]) {
      const { blocks } = parseText(`---\n${unit.repeat(20_000)}`, format);
      expect(chunk(blocks, { tokens: 128, overlap: 16 })).toBeInstanceOf(Array);
    }
  });
});

describe('passages', () => {
  const words = fc.array(fc.string({ minLength: 1, maxLength: 12, unit: 'grapheme' }), { maxLength: 400 });
  const blocks = fc.array(
    fc.record({
      headings: fc.array(fc.constantFrom('A', 'B', 'C'), { maxLength: 2 }),
      text: fc.tuple(words, fc.constantFrom(' ', '\n', '. ', '\n\n', '。', '')).map(([list, gap]) => list.join(gap)),
    }),
    { maxLength: 8 },
  );

  it('are short enough, have all of the text, in order, and no half characters', () => {
    fc.assert(
      fc.property(blocks, fc.integer({ min: 128, max: 512 }), (given, tokens) => {
        const passages = chunk(given, { tokens, overlap: 0 });
        for (const { content, tokens: counted } of passages) {
          // What stands between pieces is counted with the passage alone.
          expect(counted).toBeLessThanOrEqual(tokens * 1.25);
          expect(counted).toBe(estimateTokens(content));
          expect(content.trim()).not.toBe('');
          expect(content.isWellFormed()).toBe(true);
        }
        const all = (texts: readonly string[]) => texts.join('').replace(/\s+|^## .*$/gmu, '');
        const without = (texts: readonly string[]) => all(texts.map((text) => text.replace(/^## [ABC]$/gm, '')));
        expect(without(passages.map(({ content }) => content))).toBe(without(given.map(({ text }) => text)));
      }),
      { seed: 22, numRuns: runs(200) },
    );
  });

  it('begin with the end of the one before, where a section was cut', () => {
    const text = Array.from({ length: 300 }, (_, number) => `Sentence number ${number} of a long section.`).join(' ');
    const passages = chunk([{ headings: ['Long'], text }], { tokens: 200, overlap: 30 });
    expect(passages.length).toBeGreaterThan(5);
    for (const [place, { content, title }] of passages.entries()) {
      expect(title).toBe('Long');
      if (place > 0) expect(passages[place - 1]!.content).toContain(content.slice(0, 20));
    }
  });

  it('keep sections apart, but for short ones', () => {
    const long = 'Words of a section that is long enough to stand alone. '.repeat(20).trim();
    const passages = chunk(
      [
        { headings: ['A'], text: 'Short.' },
        { headings: ['A', 'B'], text: 'Short, too.' },
        { headings: ['A', 'C'], text: long },
        { headings: ['D'], text: long },
      ],
      { tokens: 384, overlap: 48 },
    );
    expect(passages.map(({ title }) => title)).toEqual(['A', 'D']);
    expect(passages[0]!.content).toBe(`Short.\n\n## B\n\nShort, too.\n\n## C\n\n${long}`);
  });
});

describe('a PDF', () => {
  it('is read in paragraphs, page by page, with words that a line end cut joined', async () => {
    const { blocks } = await parsePdf(
      pdf([['The harbour mas-', 'ter keeps the tables.', '', '', 'Another paragraph.'], ['Page two.']]),
      signal,
    );
    expect(blocks).toEqual([
      { headings: ['page 1'], text: 'The harbour master keeps the tables.' },
      { headings: ['page 1'], text: 'Another paragraph.' },
      { headings: ['page 2'], text: 'Page two.' },
    ]);
  });

  it('is read but for its broken pages and those beyond a bound, which are named', async () => {
    const { blocks, unread } = await parsePdf(pdf([['One.'], ['Two.'], ['Three.']], { brokenPages: [3] }), signal);
    expect(blocks.map(({ text }) => text)).toEqual(['One.', 'Two.']);
    expect(unread).toEqual([{ position: 'page 3', message: 'the page is broken' }]);
    const long = await parsePdf(pdf([['One.'], ['Two.'], ['Three.']]), signal, { mostPages: 2 });
    expect(long.blocks).toHaveLength(2);
    expect(long.unread).toEqual([{ position: 'page 3', message: 'the PDF has 3 pages, and 2 are read at most' }]);
  });

  it('that is encrypted, broken or without text is refused, in so many words', async () => {
    const refusal = (bytes: Uint8Array) => parsePdf(bytes, signal).catch((error: Error) => error.message);
    expect(await refusal(pdf([['x']], { isLocked: true }))).toBe('the PDF is encrypted');
    expect(await refusal(new Uint8Array(Buffer.from('%PDF-1.7 no more')))).toBe('the PDF is broken');
    expect(await refusal(new Uint8Array(0))).toBe('the PDF is broken');
    expect(await refusal(pdf([[]]))).toBe('the PDF has no text; it may be scanned');
    expect(await refusal(pdf([['x'.repeat(500)]]).subarray(0, 300))).toMatch(/^the PDF (is broken|has no text)/);
  });
});
