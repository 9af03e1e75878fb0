import type { FormatName } from '../../src/internal.js';

/** How documents are written in a format, to be read back. */
export interface FormatCase {
  readonly format: FormatName;
  readonly name: string;
  /** Whether the documents are counted in their own text. */
  readonly counts: boolean;
  /** The documents alone, as they may stand anywhere in a text. */
  write(contents: readonly string[]): string;
}

/** One case a form; every one must pass the whole suite of `formats.test.ts`. */
export const FORMAT_CASES: readonly FormatCase[] = [
  {
    format: 'tags',
    name: 'elements with ids in a wrapper',
    counts: false,
    write: (contents) =>
      `<documents>\n${contents.map((content, i) => `<document id="d${i}x">\n${content}\n</document>`).join('\n')}\n</documents>`,
  },
  {
    format: 'tags',
    name: 'elements with an index',
    counts: true,
    write: (contents) =>
      contents.map((content, i) => `<source index='${i + 1}' kind="a">${content}</source>`).join('\n\n'),
  },
  {
    format: 'tags',
    name: 'elements with their number inside',
    counts: true,
    write: (contents) =>
      contents.map((content, i) => `<source><source_id>${i + 1}</source_id>${content}</source>`).join(''),
  },
  {
    format: 'numbered',
    name: 'numbers in brackets',
    counts: true,
    write: (contents) => contents.map((content, i) => `[${i + 1}] ${content}`).join('\n'),
  },
  {
    format: 'headed',
    name: 'headings with closing lines, from 0',
    counts: true,
    write: (contents) => contents.map((content, i) => `[CONTEXT ${i}]:\n${content}\n[END CONTEXT ${i}]\n`).join('\n'),
  },
  {
    format: 'headed',
    name: 'Markdown headings',
    counts: true,
    write: (contents) => contents.map((content, i) => `### Document ${i + 1}\n${content}\n`).join('\n'),
  },
  {
    format: 'json',
    name: 'results of a search',
    counts: false,
    write: (contents) =>
      JSON.stringify(
        { query: 'q', results: contents.map((content, i) => ({ url: `u${i}`, content, score: 0.5 })) },
        undefined,
        1,
      ),
  },
  {
    format: 'json',
    name: 'results with positions',
    counts: true,
    write: (contents) => JSON.stringify(contents.map((snippet, i) => ({ snippet, position: i + 1 }))),
  },
  {
    format: 'python',
    name: "LangChain's documents printed",
    counts: false,
    write: (contents) =>
      `[${contents.map((content, i) => `Document(metadata={'source': 's${i}'}, page_content=${JSON.stringify(content)})`).join(', ')}]`,
  },
  {
    format: 'fields',
    name: 'records of a search tool',
    counts: false,
    write: (contents) =>
      contents.map((content, i) => `Title: T${i}\nURL: https://e.example/${i}\nContent: ${content}`).join('\n\n'),
  },
  {
    format: 'fields',
    name: "nodes in LlamaIndex's frame",
    counts: false,
    write: (contents) =>
      `Context information is below.\n---------------------\n${contents.map((content, i) => `file_path: f${i}.md\n\n${content}`).join('\n\n')}\n---------------------\n`,
  },
  {
    format: 'markdown',
    name: 'sections with their sources',
    counts: false,
    write: (contents) => contents.map((content, i) => `## Source: f${i}.md\n${content}\n`).join('\n'),
  },
  {
    format: 'separator',
    name: 'rules',
    counts: false,
    write: (contents) => contents.join('\n---\n'),
  },
];
