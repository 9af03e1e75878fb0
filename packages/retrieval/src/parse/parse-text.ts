import { Parser } from 'htmlparser2';
import { marked, type Token } from 'marked';
import type { Block } from './chunk.js';

/** A document read from a file or a request, before it is cut. */
export interface ParsedText {
  readonly title?: string;
  readonly blocks: readonly Block[];
}

/** What a text is written in. */
export type TextFormat = 'markdown' | 'text' | 'html';

/** Headings of a path, by level: a heading ends those of its level and below. */
class HeadingPath {
  #path: { readonly level: number; readonly text: string }[] = [];

  enter(level: number, text: string): void {
    this.#path = this.#path.filter((heading) => heading.level < level);
    if (text !== '') this.#path.push({ level, text });
  }

  get headings(): string[] {
    return this.#path.map(({ text }) => text);
  }
}

/** Reads a text in blocks. What cannot be read as its format says is read as plain text. O(length). */
export function parseText(text: string, format: TextFormat): ParsedText {
  const plain = text.replaceAll('\r\n', '\n').replaceAll('\0', ' ');
  if (format === 'html') return parseHtml(plain);
  return format === 'markdown' ? parseMarkdown(plain) : parsePlain(plain);
}

function parsePlain(text: string): ParsedText {
  return { blocks: text.split(/\n{2,}/).map((paragraph) => ({ headings: [], text: paragraph })) };
}

/** Nesting from which a text is no document: the parser recurses. */
const DEEPEST_QUOTES = /^(?:[ \t]*>){100}/m;

function parseMarkdown(text: string): ParsedText {
  const { body, title: named } = splitFrontMatter(text);
  if (DEEPEST_QUOTES.test(body)) return parsePlain(body);
  let tokens: Token[];
  try {
    tokens = marked.lexer(body, { gfm: true });
  } catch {
    return parsePlain(body);
  }
  const path = new HeadingPath();
  const blocks: Block[] = [];
  let title = named;
  for (const token of tokens) {
    if (token.type === 'heading') {
      const heading = plainHeading(token['text'] as string);
      title ??= heading;
      path.enter(token['depth'] as number, heading);
    } else if (token.type === 'html') {
      for (const block of parseHtml(token.raw).blocks) blocks.push({ ...block, headings: path.headings });
    } else if (token.type !== 'space' && token.type !== 'hr' && token.type !== 'def') {
      blocks.push({ headings: path.headings, text: token.raw.replace(/<!--[\s\S]*?-->/g, '').trimEnd() });
    }
  }
  return { ...(title !== undefined && { title }), blocks };
}

/** What stands between two lines of `---` at the beginning: of it, only a title is text. */
function splitFrontMatter(text: string): { readonly body: string; readonly title?: string } {
  const matter = /^---\n([\s\S]{0,20000}?)\n---[ \t]*(?:\n|$)/.exec(text);
  if (matter === null) return { body: text };
  const title = /^title:[ \t]*(.+?)[ \t]*$/m.exec(matter[1]!)?.[1]?.replace(/^(["'])(.*)\1$/, '$2');
  return { body: text.slice(matter[0].length), ...(title !== undefined && { title }) };
}

/** A heading as a person would say it: of links and code, the text. */
function plainHeading(heading: string): string {
  return heading
    .replace(/!?\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replace(/<[^>]*>|[`*]|\{#[^}]*\}/g, '')
    .replace(/\s+/g, ' ')
    .trim();
}

/** Elements whose text nobody reads, or that stand on every page of a site. */
const SILENT = new Set(['script', 'style', 'noscript', 'template', 'svg', 'nav', 'iframe', 'object', 'head', 'select']);
/** Elements that end what was written before them. */
const BLOCKS = new Set(
  'address article aside blockquote body dd details div dl dt fieldset figcaption figure footer form header hr html li main ol p pre section summary table tbody thead tr ul'.split(
    ' ',
  ),
);
/** Elements that stay one block with all that is in them. */
const WHOLE = new Set(['ul', 'ol', 'table', 'pre', 'dl']);

function parseHtml(html: string): ParsedText {
  const path = new HeadingPath();
  const blocks: Block[] = [];
  let text = '';
  let title: string | undefined;
  let heading = 0;
  let silent = 0;
  let whole = 0;
  let pre = 0;
  let inTitle = false;
  const end = () => {
    const block = text
      .replace(/[ \t]+\n/g, '\n')
      .replace(/\n{3,}/g, '\n\n')
      .trim();
    text = '';
    if (block === '') return;
    if (heading > 0) {
      const words = block.replace(/\s+/g, ' ');
      title ??= words;
      path.enter(heading, words);
    } else blocks.push({ headings: path.headings, text: block });
  };
  const line = () => {
    if (text !== '' && !text.endsWith('\n')) text += '\n';
  };
  const parser = new Parser(
    {
      onopentagname(name) {
        if (name === 'title') inTitle = true;
        if (SILENT.has(name)) silent++;
        if (/^h[1-6]$/.test(name)) {
          end();
          heading = Number(name[1]);
        } else if (name === 'br') text += '\n';
        else if (WHOLE.has(name)) {
          if (whole === 0) end();
          whole++;
          if (name === 'pre') pre++;
        } else if (BLOCKS.has(name)) {
          if (whole === 0) end();
          else line();
          if (name === 'li') text += '- ';
        }
      },
      ontext(part) {
        if (inTitle) {
          title = `${title ?? ''}${part}`.replace(/\s+/g, ' ').slice(0, 300);
          return;
        }
        if (silent > 0) return;
        text += pre > 0 ? part : part.replace(/\s+/g, ' ');
      },
      onclosetag(name) {
        if (name === 'title') inTitle = false;
        if (SILENT.has(name)) silent = Math.max(0, silent - 1);
        if (name === 'td' || name === 'th') text += ' | ';
        if (/^h[1-6]$/.test(name)) {
          end();
          heading = 0;
        } else if (WHOLE.has(name)) {
          whole = Math.max(0, whole - 1);
          if (name === 'pre') pre = Math.max(0, pre - 1);
          if (whole === 0) end();
        } else if (BLOCKS.has(name)) {
          if (whole === 0) end();
          else line();
        }
      },
    },
    { decodeEntities: true },
  );
  parser.write(html);
  parser.end();
  end();
  const named = title?.trim();
  return { ...(named && { title: named }), blocks };
}
