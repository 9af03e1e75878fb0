import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

export const root = join(import.meta.dirname, '..');

/** A fenced block of a Markdown page. */
export interface Block {
  readonly page: string;
  /** Line of the opening fence, counted from 1. */
  readonly line: number;
  readonly language: string;
  readonly text: string;
  /** What the page says that a shell block's last command prints. */
  readonly output?: string;
}

/** The pages whose blocks are run: the READMEs, and every page of the site that is not generated. */
export const PAGES = [
  'README.md',
  ...readdirSync(join(root, 'packages'))
    .map((name) => `packages/${name}/README.md`)
    .filter((page) => existsSync(join(root, page))),
  ...readdirSync(join(root, 'docs'), { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.md') && !/^(reference|node_modules|dist)\//.test(path))
    .map((path) => `docs/${path}`),
];

/** Whether code imports what `test/frameworks` alone installs, where it is run then. */
export function isApart({ text }: Block): boolean {
  return /from '@(?:llamaindex|mastra)\//.test(text);
}

/** All fenced blocks of the pages, in order. */
export function blocksOf(pages: readonly string[]): Block[] {
  return pages.flatMap((page) => {
    const text = readFileSync(join(root, page), 'utf8');
    const blocks: Block[] = [];
    for (const { 1: language, 2: mark, 3: body, index } of text.matchAll(/^```(\w+)( output)?\n(.*?)^```$/gms)) {
      const before = blocks.at(-1);
      if (mark === undefined) {
        blocks.push({ page, line: text.slice(0, index).split('\n').length, language: language!, text: body! });
      } else if (before?.language === 'sh' && before.output === undefined) {
        blocks[blocks.length - 1] = { ...before, output: body! };
      } else {
        throw new Error(`${page}: an output stands behind no command`);
      }
    }
    return blocks;
  });
}

/**
 * Whether a command printed what a page shows. `…` stands for anything; everything else must be there in this order,
 * white space apart.
 */
export function isShown(shown: string, printed: string): boolean {
  const words = (text: string) => text.trim().replace(/\s+/g, ' ');
  const pattern = shown.split('…').map((part) => words(part).replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
  return new RegExp(`^${pattern.join('.*')}$`, 's').test(words(printed));
}

/** The commands of a shell block: one a line, except where a line ends in a backslash or an open quote. */
export function commandsOf(block: Block): string[] {
  const commands: string[] = [];
  let open = '';
  for (const line of block.text.split('\n')) {
    if (open === '' && (line.trim() === '' || line.startsWith('#'))) continue;
    open += open === '' ? line.replace(/\s+# .*$/, '') : `\n${line}`;
    const quotes = open.split("'").length - 1;
    if (line.endsWith('\\') || quotes % 2 === 1) continue;
    commands.push(open);
    open = '';
  }
  if (open !== '') throw new Error(`${block.page}:${block.line}: a command does not end`);
  return commands;
}
