import { isRecord } from '@warmpath/core/internal';
import { type ParsedDocument, unreadable, withoutLines } from './document.js';
import { parseMarkdown } from './parse-markdown.js';

/** Characters of one output. */
const MAX_OUTPUT_LENGTH = 2000;

/** Reads a Jupyter notebook: Markdown, code, and the beginning of outputs that are text. */
export async function parseNotebook(text: string): Promise<ParsedDocument> {
  let notebook: unknown;
  try {
    notebook = JSON.parse(text);
  } catch (cause) {
    throw unreadable('the notebook is not valid JSON', cause);
  }
  if (!isRecord(notebook)) throw unreadable('it is not a notebook: it has no cells');
  const sheets = Array.isArray(notebook['worksheets']) ? notebook['worksheets'].filter(isRecord) : [notebook];
  const cells = sheets.flatMap(({ cells: one }) => (Array.isArray(one) ? one.filter(isRecord) : []));
  const metadata = recordOf(notebook['metadata']);
  const language = recordOf(metadata['language_info'])['name'] ?? recordOf(metadata['kernelspec'])['language'] ?? '';
  const source = cells.map((cell) => {
    const type = cell['cell_type'];
    const content = joined(cell['source'] ?? cell['input']).trimEnd();
    if (type === 'heading') return `${'#'.repeat(Math.min(6, Number(cell['level']) || 1))} ${content}`;
    if (type !== 'code') return content;
    const outputs = Array.isArray(cell['outputs']) ? cell['outputs'].filter(isRecord).map(outputOf) : [];
    return [fenced(content, String(language)), ...outputs.map((output) => fenced(output, ''))].join('\n\n');
  });
  const parsed = await parseMarkdown(source.join('\n\n'));
  // Lines of the joined text are none of the file.
  return { ...parsed, blocks: withoutLines(parsed.blocks) };
}

function recordOf(value: unknown): Readonly<Record<string, unknown>> {
  return isRecord(value) ? value : {};
}

/** A text of a notebook is a string or its lines. */
function joined(value: unknown): string {
  if (typeof value === 'string') return value;
  return Array.isArray(value) ? value.filter((line) => typeof line === 'string').join('') : '';
}

function outputOf(output: Readonly<Record<string, unknown>>): string {
  const text =
    output['output_type'] === 'error' || output['output_type'] === 'pyerr'
      ? `${String(output['ename'])}: ${String(output['evalue'])}`
      : joined(output['text'] ?? recordOf(output['data'])['text/plain']);
  return text.length <= MAX_OUTPUT_LENGTH ? text.trimEnd() : `${text.slice(0, MAX_OUTPUT_LENGTH).toWellFormed()}…`;
}

function fenced(text: string, language: string): string {
  if (text.trim() === '') return '';
  const longest = Math.max(2, ...Array.from(text.matchAll(/`+/g), ([run]) => run.length));
  const fence = '`'.repeat(longest + 1);
  return `${fence}${language}\n${text}\n${fence}`;
}
