import { describe, expect, it } from 'vitest';
import { parseMarkdown, parseMdx } from '../src/parse/parse-markdown.ts';

const blocksOf = async (text: string, parse = parseMarkdown) =>
  (await parse(text)).blocks.map(({ headings, header, text }) => [
    headings.map((heading) => heading.text).join(' › '),
    header === undefined ? text : `${header}\n${text}`,
  ]);

describe('a heading of Markdown', () => {
  it.each([
    ['# `<dialog>`: reference', '<dialog>: reference'],
    ['# The <dialog> element', 'The <dialog> element'],
    ['# Map<string, number> and `Map<K, V>`', 'Map<string, number> and Map<K, V>'],
    ['# Vec<T> of *all* **kinds**', 'Vec<T> of all kinds'],
    ['# List<T extends Item>', 'List<T extends Item>'],
    ['# One <a name="one"></a>', 'One'],
    ['# <kbd>Ctrl</kbd> + <b>C</b>', 'Ctrl + C'],
    ['# One<br>two <!-- no --> three', 'One two three'],
    ['# ![A pump](pump.png)', 'A pump'],
    ['# <img src="x" alt="A pump"> 2', 'A pump 2'],
    ['# [3.0.4](https://x.example/a(b)) (2024)', '3.0.4 (2024)'],
    ['# Install {#install}', 'Install'],
    ['# Use [¶](#use)', 'Use'],
    ['# a_b_c \\# &amp; `&amp;` #', 'a_b_c # & &amp;'],
    ['Two\nlines\n===', 'Two lines'],
    ['<h1 align="center">Of <i>HTML</i></h1>', 'Of HTML'],
    ['<h1>\n  Of HTML\n</h1>', 'Of HTML'],
    ['# 日本語の見出し', '日本語の見出し'],
  ])('%j is read as a person reads it', async (source, heading) => {
    expect(await blocksOf(`${source}\n\ntext`)).toEqual([[heading, 'text']]);
    expect(await blocksOf(source)).toEqual([[heading, '']]);
  });

  it('without words ends the section before it', async () => {
    expect(await blocksOf('# A\n\n## B\n\nb\n\n##\n\nc')).toEqual([
      ['A › B', 'b'],
      ['A', 'c'],
    ]);
  });

  it('that is longer than a title is text, too', async () => {
    const words = 'many words '.repeat(40).trim();
    const [block] = (await parseMarkdown(`# ${words}`)).blocks;
    expect(block).toMatchObject({ text: words, headings: [{ level: 1, text: `${words.slice(0, 200)}…` }] });
  });
});

describe('Markdown', () => {
  it('has blocks with the lines of the source, tables with their header', async () => {
    const text = '---\ntitle: T\n---\n\n# A\n\none\ntwo\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n<p>HTML\n';
    const headings = [{ level: 1, text: 'A' }];
    expect(await parseMarkdown(text)).toMatchObject({
      title: 'T',
      blocks: [
        { headings, text: 'one\ntwo', line: 7, lines: 2 },
        { headings, header: '| a | b |\n|---|---|', text: '| 1 | 2 |', line: 10, lines: 3 },
        { headings, text: 'HTML', line: 14, lines: 1 },
      ],
    });
  });

  it('has the same lines behind a place where it was cut to be read', async () => {
    const { blocks } = await parseMarkdown('Words of a paragraph.\n\n'.repeat(2_000));
    expect(blocks).toHaveLength(2_000);
    expect(blocks.map(({ line }) => line)).toEqual(blocks.map((_, place) => 1 + 2 * place));
  });

  it('loses comments, and not those in code', async () => {
    expect(await blocksOf('a <!-- b --> c\n\n<!-- d -->\n\n```html\n<!-- e -->\n```\n\n- `<!-- f -->`')).toEqual([
      ['', 'a  c'],
      ['', '```html\n<!-- e -->\n```'],
      ['', '- `<!-- f -->`'],
    ]);
  });

  it.each<[string, object, string]>([
    [
      '---\ntitle: "A: b"\nlang: de\ntags: [x, y]\n---\ntext',
      { title: 'A: b', language: 'de', metadata: { tags: ['x', 'y'] } },
      'text',
    ],
    ['---\n---\ntext', {}, 'text'],
    ['---\ntitle: "open\nother: [\n---\ntext', { title: '"open' }, 'text'],
    ['---\r\ntitle: A\r\n---\r\ntext'.replaceAll('\r', ''), { title: 'A' }, 'text'],
    ['---\nA sentence.\n\n---\ntext', {}, 'A sentence.'],
  ])('has fields at its beginning: %j', async (text, fields, first) => {
    const { blocks, unread: _, ...read } = await parseMarkdown(text);
    expect(read).toEqual(fields);
    expect(blocks[0]!.text).toBe(first);
  });
});

describe('MDX', () => {
  const text = `import Tabs from '@theme/Tabs';
import { a } from "b";

# Title {#id}

<Tabs>
  <Tab label="Linux">

  \`\`\`sh
  # no heading
  \`\`\`

  ## In a tab

  Text in {props.x}.

  </Tab>
</Tabs>

export const meta = { title: 'no' };

<Card title="A card" />

<h2>Of JSX</h2>

{/* no */}

End of Map<string>.
`;
  const expected = [
    ['Title', 'Linux'],
    ['Title', '```sh\n  # no heading\n  ```'],
    ['Title › In a tab', 'Text in {props.x}.'],
    ['Title', 'A card'],
    ['Title › Of JSX', 'End.'],
  ];

  it('is read without its imports, with the blocks in its elements', async () => {
    const valid = text.replace(' of Map<string>', '');
    expect(await blocksOf(valid, parseMdx)).toEqual(expected);
    // Documentation tools take it under the other name, too.
    expect(await blocksOf(valid)).toEqual(expected);
  });

  it('that is not valid is read as Markdown, without its imports', async () => {
    const blocks = await blocksOf(text, parseMdx);
    expect(blocks.at(-1)).toEqual(['Title › Of JSX', 'End of Map<string>.']);
    expect(blocks.flat().join('\n')).not.toMatch(/import|export/);
  });
});
