import { Parser } from 'htmlparser2';
import { Lexer, type Token } from 'marked';
import { BlockWriter, type ParsedDocument } from './document.js';

/** Reads a text in blocks. What cannot be read as its format says is read as plain text. O(length). */
export function parseText(text: string, format: 'markdown' | 'text' | 'html'): ParsedDocument {
  if (format === 'html') return parseHtml(text);
  return format === 'markdown' ? parseMarkdown(text) : parsePlain(text);
}

function parsePlain(text: string): ParsedDocument {
  const writer = new BlockWriter();
  let line = 1;
  for (const part of text.split(/(\n{2,})/)) {
    const breaks = part.split('\n').length - 1;
    writer.block({ text: part, line, lines: breaks + 1 });
    line += breaks;
  }
  return { blocks: writer.finish(), unread: [] };
}

/** Nesting from which a text is no document: the parser recurses. */
const DEEPEST_NESTING = /^(?:[ \t]*(?:>|[-*+](?=\s)|\d{1,9}[.)](?=\s))){100}/m;
/**
 * Length of what the parser gets at a time, for its time grows with the square of a long list: it is cut at an empty
 * line once it has the first length, and taken for plain text at the second.
 */
const SEGMENT_LENGTH = 16_384;
const LONGEST_SEGMENT = 65_536;

function parseMarkdown(text: string): ParsedDocument {
  const { body, title: named } = splitFrontMatter(text);
  const writer = new BlockWriter();
  const title = named;
  for (const token of segmentsOf(body).flatMap(blocksOfSegment)) {
    if (token.type === 'heading') {
      const heading = plainHeading(token['text'] as string);
      writer.heading(token['depth'] as number, heading);
    } else if (token.type === 'html') {
      for (const { text } of parseHtml(token.raw).blocks) writer.block({ text });
    } else if (token.type !== 'space' && token.type !== 'hr' && token.type !== 'def') {
      writer.block({ text: withoutComments(token.raw).trimEnd() });
    }
  }
  return { ...(title !== undefined && { title }), blocks: writer.finish(), unread: [] };
}

/** Parts of a Markdown text that can be read by themselves: cut at empty lines outside of code. */
function segmentsOf(text: string): string[] {
  const segments: string[] = [];
  let from = 0;
  let fence: string | undefined;
  for (let at = 0; at < text.length; ) {
    const next = text.indexOf('\n', at);
    const end = next < 0 ? text.length : next + 1;
    const length = end - from;
    const line = length > SEGMENT_LENGTH || FENCE_BEGINS.test(text.slice(at, at + 8)) ? text.slice(at, end) : undefined;
    const marker = line === undefined ? undefined : FENCE.exec(line.slice(0, 200))?.[1];
    if (fence === undefined) fence = marker;
    else if (marker?.startsWith(fence)) fence = undefined;
    const isBorder = length > SEGMENT_LENGTH && fence === undefined && line?.trim() === '';
    if (isBorder || length > LONGEST_SEGMENT) {
      segments.push(text.slice(from, end));
      from = end;
      if (!isBorder) fence = undefined;
    }
    at = end;
  }
  segments.push(text.slice(from));
  return segments;
}

const FENCE_BEGINS = /^[ ]{0,3}[`~]/;
const FENCE = /^ {0,3}(```+|~~~+)/;

/** The blocks of a part, without a look into their lines. What the parser cannot read is one block of text. */
function blocksOfSegment(segment: string): Token[] {
  const plain = [{ type: 'text', raw: segment, text: segment } as Token];
  if (segment.length > LONGEST_SEGMENT || DEEPEST_NESTING.test(segment)) return plain;
  try {
    return new Lexer({ gfm: true }).blockTokens(segment, []);
  } catch {
    return plain;
  }
}

/** What stands between two lines of `---` at the beginning: of it, only a title is text. */
function splitFrontMatter(text: string): { readonly body: string; readonly title?: string } {
  const matter = /^---\n([\s\S]{0,20000}?)\n---[ \t]*(?:\n|$)/.exec(text);
  if (matter === null) return { body: text };
  const title = /^title:(.*)$/m
    .exec(matter[1]!)?.[1]
    ?.trim()
    .replace(/^(["'])(.*)\1$/, '$2');
  return { body: text.slice(matter[0].length), ...(title && { title }) };
}

// What is read here may be written to be read slowly: nothing looks at a character more than a few times.

function withoutComments(text: string): string {
  let kept = '';
  let from = 0;
  for (;;) {
    const start = text.indexOf('<!--', from);
    const end = start < 0 ? -1 : text.indexOf('-->', start);
    if (end < 0) return kept + text.slice(from);
    kept += text.slice(from, start);
    from = end + 3;
  }
}

const LONGEST_HEADING = 500;

/** A heading as a person would say it: of links and code, the text. */
function plainHeading(heading: string): string {
  return heading
    .slice(0, LONGEST_HEADING)
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

/** Elements within elements; the parser's time grows with the square of deeper ones. */
const DEEPEST = 1000;
const TOO_DEEP = new Error('too deep');

/** What is nested deeper than any page is read without its elements. */
function parseHtml(html: string): ParsedDocument {
  try {
    return readHtml(html);
  } catch (error) {
    if (error !== TOO_DEEP) throw error;
    return parsePlain(html.replace(/<[^<>]*>/g, ' '));
  }
}

function readHtml(html: string): ParsedDocument {
  const writer = new BlockWriter();
  let text = '';
  let title: string | undefined;
  let heading = 0;
  let silent = 0;
  let whole = 0;
  let pre = 0;
  let inTitle = false;
  let pictures = 0;
  let depth = 0;
  const end = () => {
    const lines = text.split('\n').map((one) => one.trimEnd());
    const block = lines
      .join('\n')
      .replace(/\n{3,}/g, '\n\n')
      .trim();
    text = '';
    if (block === '') return;
    if (heading > 0) {
      const words = block.replace(/\s+/g, ' ').slice(0, LONGEST_HEADING);
      writer.heading(heading, words);
    } else writer.block({ text: block });
  };
  const line = () => {
    if (text !== '' && !text.endsWith('\n')) text += '\n';
  };
  const parser = new Parser(
    {
      onopentagname(name) {
        if (++depth > DEEPEST) throw TOO_DEEP;
        // Pictures within the page have titles, too.
        if (name === 'svg') pictures++;
        if (name === 'title') inTitle = pictures === 0 && title === undefined;
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
        depth--;
        if (name === 'title') inTitle = false;
        if (name === 'svg') pictures = Math.max(0, pictures - 1);
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
  return { ...(named && { title: named }), blocks: writer.finish(), unread: [] };
}
