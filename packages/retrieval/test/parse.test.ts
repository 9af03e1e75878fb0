import { estimateTokens } from '@warmpath/core';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isFull, runs } from '../../../test/suite.js';
import { chunk } from '../src/parse/chunk.ts';
import type { Block, Heading } from '../src/parse/document.ts';
import { parseText, type TextFormat } from '../src/parse/formats.ts';

const blocksOf = async (text: string, format: TextFormat) =>
  (await parseText(text, format)).blocks.map(({ headings, text }) => [
    headings.map((one) => one.text).join(' › '),
    text,
  ]);

describe('blocks of a text', () => {
  it('of Markdown stand below their headings, and nothing in code is one', async () => {
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
    expect((await parseText(text, 'markdown')).title).toBe('Guide: one');
    expect(await blocksOf(text, 'markdown')).toEqual([
      ['Install it', 'First.'],
      ['Install it › On Linux', '```sh\n# no heading\nnpm ci\n```'],
      ['Install it › On Linux', '- one\n- two'],
      ['Install it › On Linux', '| 1 | 2 |'],
      ['Use', 'Some HTML'],
    ]);
  });

  it('of a long Markdown text are the same as of its parts', async () => {
    const part = '# H\n\ntext\n\n~~~\n\n# code\n\n~~~\n\n- a\n- b\n\n';
    const once = await blocksOf(part, 'markdown');
    const many = await blocksOf(part.repeat(600), 'markdown');
    expect(many.length).toBe(once.length * 600);
    expect(many.slice(-once.length)).toEqual(once);
  });

  it('of HTML have entities as signs, and neither scripts nor navigation', async () => {
    const html = `<!doctype html><title>A &amp; B</title><style>x{}</style><nav><a>Home</a></nav><svg><title>Icon</title></svg>
      <h1>Fees</h1><p>One &lt;two&gt;<br>three</p><script>alert("no")</script>
      <h2>Table</h2><table><tr><td>a<td>b</table><pre>x
  y</pre><p>unclosed <ul><li>1<li>2</ul>tail`;
    expect((await parseText(html, 'html')).title).toBe('A & B');
    expect(await blocksOf(html, 'html')).toEqual([
      ['Fees', 'One <two>\nthree'],
      ['Fees › Table', '| a | b |'],
      ['Fees › Table', 'x\n  y'],
      ['Fees › Table', 'unclosed'],
      ['Fees › Table', '- 1\n- 2'],
      ['Fees › Table', 'tail'],
    ]);
  });

  it.each<TextFormat>(['markdown', 'mdx', 'html', 'text'])('of %s are read whatever the text is', async (format) => {
    await fc.assert(
      fc.asyncProperty(fc.string({ unit: 'binary', maxLength: 200 }), async (text) => {
        expect((await parseText(text, format)).blocks).toBeInstanceOf(Array);
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
      const { blocks } = await parseText(`---\n${unit.repeat(isFull ? 4_000 : 200)}`, format);
      expect(chunk(blocks, { tokens: 128, overlap: 16 })).toBeInstanceOf(Array);
    }
  });
});

describe('passages', () => {
  const words = fc.array(fc.string({ minLength: 1, maxLength: 12, unit: 'grapheme' }), { maxLength: 400 });
  const blocks = fc.array(
    fc.record({
      section: fc.integer({ min: 0, max: 6 }),
      text: fc.tuple(words, fc.constantFrom(' ', '\n', '. ', '\n\n', '。', '')).map(([list, gap]) => list.join(gap)),
    }),
    { maxLength: 8 },
  );
  /** Sections within sections: each has a heading of its own. */
  const sections = Array.from({ length: 7 }, (_, number): Heading => ({ level: 1 + (number % 3), text: `S${number}` }));
  const pathOf = (section: number) => sections.slice(section - (section % 3), section + 1);

  it('are short enough, have all of the text, in order, and no half characters', () => {
    fc.assert(
      fc.property(blocks, fc.integer({ min: 128, max: 512 }), (drawn, tokens) => {
        const given = drawn.map(({ section, text }) => ({ headings: pathOf(section), text }));
        const passages = chunk(given, { tokens, overlap: 0 });
        for (const { content, tokens: counted } of passages) {
          // What stands between pieces is counted with the passage alone.
          expect(counted).toBeLessThanOrEqual(tokens * 1.25);
          expect(counted).toBe(estimateTokens(content));
          expect(content.trim()).not.toBe('');
          expect(content.isWellFormed()).toBe(true);
        }
        const all = (texts: readonly string[]) => texts.join('\n').replace(/^#+ S\d$|\s+/gmu, '');
        expect(all(passages.map(({ content }) => content))).toBe(all(given.map(({ text }) => text)));
      }),
      { seed: 22, numRuns: runs(200) },
    );
  });

  it('begin with the end of the one before, where a section was cut', () => {
    const text = Array.from({ length: 300 }, (_, number) => `Sentence number ${number} of a long section.`).join(' ');
    const passages = chunk([{ headings: [{ level: 1, text: 'Long' }], text }], { tokens: 200, overlap: 30 });
    expect(passages.length).toBeGreaterThan(5);
    for (const [place, { content, title }] of passages.entries()) {
      expect(title).toBe('Long');
      if (place > 0) expect(passages[place - 1]!.content).toContain(content.slice(0, 20));
    }
  });

  it('keep sections apart, but for short ones, which stand under their own headings', () => {
    const long = 'Words of a section that is long enough to stand alone. '.repeat(20).trim();
    const [a, b, c, d] = ['A', 'B', 'C', 'D'].map((text, place) => ({ level: place % 3 === 0 ? 1 : 2, text }));
    const passages = chunk(
      [
        { headings: [a!], text: 'Short.' },
        { headings: [a!, b!], text: 'Short, too.' },
        { headings: [a!, c!], text: long },
        { headings: [d!], text: long },
      ],
      { tokens: 384, overlap: 48 },
    );
    expect(passages.map(({ title }) => title)).toEqual(['A', 'D']);
    expect(passages[0]!.content).toBe(`Short.\n\n## B\n\nShort, too.\n\n## C\n\n${long}`);
  });

  it('of short sections are titled with the path that these share, and each has all its headings', () => {
    const heading = (level: number, text: string): Heading => ({ level, text });
    const log = heading(1, 'pump');
    const versions = ['3.0.5', '3.0.4', '3.0.3'].map(
      (version): Block => ({
        headings: [log, heading(2, version), heading(3, 'Changes')],
        text: `- Of ${version}.`,
      }),
    );
    const empty = { headings: [log, heading(2, '3.0.2')], text: '' };
    expect(chunk([...versions, empty], { tokens: 384, overlap: 48 })).toMatchObject([
      {
        title: 'pump',
        content: [
          ...['3.0.5', '3.0.4', '3.0.3'].flatMap((version) => [`## ${version}`, '### Changes', `- Of ${version}.`]),
          '## 3.0.2',
        ].join('\n\n'),
      },
    ]);
    expect(chunk([empty], { tokens: 384, overlap: 48 })).toMatchObject([
      { title: 'pump › 3.0.2', content: '## 3.0.2' },
    ]);
    const apart = chunk(
      [heading(1, 'One'), heading(1, 'Two')].map((one) => ({ headings: [one], text: 'x' })),
      {
        tokens: 384,
        overlap: 48,
      },
    );
    expect(apart).toMatchObject([{ content: '# One\n\nx\n\n# Two\n\nx' }]);
    expect(apart[0]).not.toHaveProperty('title');
  });

  it('of a table repeat its header, and say on which lines they stand', () => {
    const rows = Array.from({ length: 100 }, (_, row) => `| Widget${row} | ${row * 3 + 1} |`);
    const header = '| Product | Price EUR |\n|---|---|';
    const headings = [{ level: 1, text: 'Prices' }];
    const table = { headings, header, text: rows.join('\n'), line: 3, lines: 102 };
    const passages = chunk([table, { headings, text: 'Behind it.', line: 106, lines: 1 }], { tokens: 200, overlap: 0 });
    expect(passages.length).toBeGreaterThan(4);
    let next = 0;
    for (const { content, lines } of passages) {
      expect(content.startsWith(`${header}\n| Widget${next} |`)).toBe(true);
      const count = content.match(/Widget/g)!.length;
      const last = content.endsWith('Behind it.') ? 106 : next + count + 4;
      expect(lines).toBe(`${next === 0 ? 3 : next + 5}-${last}`);
      next += count;
    }
    expect(next).toBe(100);
  });

  it('hold the headings that are too long for a title', () => {
    const headings = Array.from({ length: 4 }, (_, level) => ({
      level: level + 1,
      text: `H${level} `.repeat(40).trim(),
    }));
    const [{ title, content }] = chunk([{ headings, text: 'Text.' }], { tokens: 384, overlap: 0 }) as never as [
      { title: string; content: string },
    ];
    expect(title).toBe(`… › ${headings[2]!.text} › ${headings[3]!.text}`);
    expect(content).toBe(`# ${headings[0]!.text}\n\n## ${headings[1]!.text}\n\nText.`);
  });
});
