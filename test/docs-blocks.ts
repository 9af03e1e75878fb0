import { readFileSync } from 'node:fs';
import { join } from 'node:path';

export const root = join(import.meta.dirname, '..');

/** A fenced block of a Markdown page. */
export interface Block {
  readonly page: string;
  /** Line of the opening fence, counted from 1. */
  readonly line: number;
  readonly language: string;
  readonly text: string;
}

/** The pages whose blocks are run. */
export const PAGES = [
  'README.md',
  'packages/core/README.md',
  'packages/client/README.md',
  'packages/ai-sdk/README.md',
  'packages/langchain/README.md',
  'packages/mastra/README.md',
  'packages/mcp/README.md',
  'packages/llamaindex/README.md',
  'packages/engine/README.md',
  'packages/translate/README.md',
  'packages/redis/README.md',
  'packages/dashboard/README.md',
  'packages/gateway/README.md',
  'packages/lab/README.md',
  'packages/papers/README.md',
  'packages/cli/README.md',
  'docs/python.md',
];

/** All fenced blocks of the pages, in order. */
export function blocksOf(pages: readonly string[]): Block[] {
  return pages.flatMap((page) => {
    const text = readFileSync(join(root, page), 'utf8');
    return [...text.matchAll(/^```(\w+)\n(.*?)^```$/gms)].map((match) => ({
      page,
      line: text.slice(0, match.index).split('\n').length,
      language: match[1]!,
      text: match[2]!,
    }));
  });
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
