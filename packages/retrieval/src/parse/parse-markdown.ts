import { isRecord } from '@warmpath/core/internal';
import type { Heading as HeadingNode, PhrasingContent, RootContent } from 'mdast';
import { fromMarkdown } from 'mdast-util-from-markdown';
import { gfmTableFromMarkdown } from 'mdast-util-gfm-table';
import type { MdxJsxFlowElement } from 'mdast-util-mdx';
import { gfmTable } from 'micromark-extension-gfm-table';
import { parse as parseYaml } from 'yaml';
import { BlockWriter, type ParsedDocument } from './document.js';
import { PERMALINK, writeHtml } from './parse-html.js';

/** Nesting from which a text is no document: the parser's time grows with its square. */
const DEEPEST_NESTING = /^(?:[ \t]*(?:>|[-*+](?=\s)|\d{1,9}[.)](?=\s))){100}/m;
/**
 * Length of what the parser gets at a time, for its time grows with the square of some texts: a text is cut at an
 * empty line once it has the first length, and what reaches the second is plain text.
 */
const SEGMENT_LENGTH = 16_384;
const MAX_SEGMENT_LENGTH = 524_288;
/** Longest MDX that is read as such: its elements span the whole text. */
const MAX_MDX_LENGTH = 262_144;
/** Of front matter as JSON. */
const MAX_FIELDS_LENGTH = 40_000;

/** A part of the text that is read by itself, and the lines before it. */
interface Segment {
  readonly text: string;
  readonly lineOffset: number;
}

/** Reads Markdown as CommonMark has it, with GitHub's tables. The text of blocks stays as it was written. O(length). */
export async function parseMarkdown(text: string): Promise<ParsedDocument> {
  const source = splitFrontMatter(text);
  return looksLikeMdx(source.body) ? readMdx(source) : readSegments(source, (segment) => nodesOf(segment.text));
}

/** Reads MDX. What is no valid MDX is read as Markdown, without its imports and exports. */
export function parseMdx(text: string): Promise<ParsedDocument> {
  return readMdx(splitFrontMatter(text));
}

async function readMdx(source: SplitText): Promise<ParsedDocument> {
  const { mdxjs } = await import('micromark-extension-mdxjs');
  const { mdxFromMarkdown } = await import('mdast-util-mdx');
  const { body } = source;
  if (body.length <= MAX_MDX_LENGTH && !DEEPEST_NESTING.test(body)) {
    try {
      // An id behind a heading would be an expression.
      const { children } = fromMarkdown(
        body.replace(
          /^(#{1,6} .*?)(\{#[\w-]+\})(?=[ \t]*$)/gm,
          (_, before: string, id: string) => before + ' '.repeat(id.length),
        ),
        {
          extensions: [gfmTable(), mdxjs()],
          mdastExtensions: [gfmTableFromMarkdown(), mdxFromMarkdown()],
        },
      );
      return readSegments(source, () => children, Number.POSITIVE_INFINITY);
    } catch {
      // Read as Markdown.
    }
  }
  return readSegments(source, ({ text: part }) => nodesOf(part).filter((node) => !isModuleCode(node, part)));
}

/** Whether a text called Markdown is MDX: documentation tools take it under either name. */
function looksLikeMdx(body: string): boolean {
  return /^\s*import\s[^\n]*['"]/.test(body.slice(0, 1_000)) && /^[ \t]*<[A-Z]/m.test(body);
}

function isModuleCode(node: RootContent, text: string): boolean {
  const { start, end } = node.position!;
  const code = /^(?:import\s[\s\S]*['"]|export\s+(?:default|const|let|var|function|async|class|\{|\*))/;
  return node.type === 'paragraph' && code.test(text.slice(start.offset, end.offset));
}

function readSegments(
  { body, lines, fields }: SplitText,
  nodesIn: (segment: Segment) => readonly RootContent[],
  segmentLength = SEGMENT_LENGTH,
): ParsedDocument {
  const writer = new BlockWriter();
  for (const { text: part, lineOffset } of segmentsOf(body, segmentLength)) {
    const segment = { text: part, lineOffset: lines + lineOffset };
    for (const node of nodesIn(segment)) write(node, segment, writer);
  }
  const { title, lang, language = lang, ...metadata } = fields;
  return {
    ...(typeof title === 'string' && title.trim() !== '' && { title: title.trim().slice(0, 300) }),
    ...(typeof language === 'string' && { language }),
    ...(Object.keys(metadata).length > 0 && { metadata }),
    blocks: writer.finish(),
    unread: [],
  };
}

function write(node: RootContent, segment: Segment, writer: BlockWriter): void {
  const { start, end } = node.position!;
  const line = segment.lineOffset + start.line;
  const place = { line, lines: end.line - start.line + 1 };
  const source = segment.text.slice(start.offset, end.offset);
  switch (node.type) {
    case 'heading':
      writer.heading(node.depth, headingText(node), line);
      break;
    case 'html':
      writeHtml(node.value, writer, line - 1);
      break;
    case 'table': {
      const rows = source.split('\n');
      writer.block({ header: rows.slice(0, 2).join('\n'), text: rows.slice(2).join('\n'), ...place });
      break;
    }
    case 'mdxJsxFlowElement':
      writeElement(node, segment, writer);
      break;
    case 'paragraph': {
      const [child, ...others] = node.children;
      const level = others.length === 0 && child?.type === 'mdxJsxTextElement' ? levelOf(child.name) : undefined;
      if (level === undefined) writer.block({ text: withoutComments(node, source), ...place });
      else writer.heading(level, inlineText(node.children), line);
      break;
    }
    case 'mdxFlowExpression':
      if (!/^\s*\/\*[\s\S]*\*\/\s*$/.test(node.value)) writer.block({ text: source, ...place });
      break;
    case 'mdxjsEsm':
    case 'definition':
    case 'thematicBreak':
      break;
    default:
      writer.block({ text: withoutComments(node, source), ...place });
  }
}

/** Attributes of elements that readers see. */
const SHOWN_ATTRIBUTES = new Set(['title', 'label', 'alt', 'caption', 'description', 'header', 'heading', 'summary']);

/** An element of MDX: what readers see of its attributes, and the blocks in it. */
function writeElement(node: MdxJsxFlowElement, segment: Segment, writer: BlockWriter): void {
  const { name, attributes, children } = node;
  const line = segment.lineOffset + node.position!.start.line;
  const path = writer.headings;
  const level = levelOf(name);
  if (level !== undefined) {
    writer.heading(level, inlineText(children), line);
    return;
  }
  for (const { type, value, ...attribute } of attributes) {
    const isShown = type === 'mdxJsxAttribute' && SHOWN_ATTRIBUTES.has((attribute as { readonly name: string }).name);
    if (isShown && typeof value === 'string') writer.block({ text: value, line, lines: 1 });
  }
  for (const child of children) write(child, segment, writer);
  if (!/^(?:div|section|article|main)?$/.test(name ?? '')) writer.leave(path);
}

function levelOf(name: string | null): number | undefined {
  return name !== null && /^h[1-6]$/.test(name) ? Number(name[1]) : undefined;
}

/** A heading as a reader sees it. */
function headingText({ children }: HeadingNode): string {
  return inlineText(children)
    .replace(/\s*\{[#.][^{}]*\}\s*$/, '')
    .trim();
}

/** Elements that stand alone in a line. */
const ALONE = new Set(['br', 'wbr', 'img', 'hr']);

/** The words of a line. Tags that mark words up are left out; names in `<…>` stay. */
function inlineText(children: readonly (PhrasingContent | RootContent)[]): string {
  const closed = new Set(
    children.flatMap((node) => (node.type === 'html' ? (/^<\/\s*([\w-]+)/.exec(node.value)?.[1] ?? []) : [])),
  );
  const opened = new Set(
    children.flatMap((node) => (node.type === 'html' ? (/^<([\w-]+)/.exec(node.value)?.[1] ?? []) : [])),
  );
  return children
    .map((node): string => {
      switch (node.type) {
        case 'text':
        case 'inlineCode':
          return node.value;
        case 'image':
        case 'imageReference':
          return node.alt ?? '';
        case 'break':
          return ' ';
        case 'link':
          return node.url.startsWith('#') && PERMALINK.test(inlineText(node.children)) ? '' : inlineText(node.children);
        case 'html': {
          const [, slash, name = '', rest = ''] = /^<(\/?)\s*([\w-]*)([\s\S]*?)>$/.exec(node.value) ?? [];
          if (name === '') return '';
          const isMarkup = rest.includes('=') || ALONE.has(name) || (slash === '/' ? opened : closed).has(name);
          if (!isMarkup) return node.value;
          return name === 'br' ? ' ' : (/\salt\s*=\s*["']([^"']*)/.exec(rest)?.[1] ?? '');
        }
        case 'mdxTextExpression':
          return `{${node.value}}`;
        default:
          return 'children' in node ? inlineText(node.children) : '';
      }
    })
    .join('');
}

/** The source of a block without the comments in it. */
function withoutComments(node: RootContent, source: string): string {
  if (!source.includes('<!--')) return source;
  const base = node.position!.start.offset!;
  let text = '';
  let from = 0;
  const walk = (one: RootContent) => {
    if (one.type === 'html' && one.value.startsWith('<!--')) {
      text += source.slice(from, one.position!.start.offset! - base);
      from = one.position!.end.offset! - base;
    } else if ('children' in one) one.children.forEach(walk);
  };
  walk(node);
  return (text + source.slice(from)).trimEnd();
}

/** Parts of a text that can be read by themselves: cut at empty lines outside of code. */
function* segmentsOf(text: string, segmentLength: number): Iterable<Segment> {
  let from = 0;
  let fence: string | undefined;
  let line = 0;
  let lineOffset = 0;
  for (let at = 0; at < text.length; ) {
    const next = text.indexOf('\n', at);
    const end = next < 0 ? text.length : next + 1;
    line++;
    const marker = FENCE.exec(text.slice(at, Math.min(end, at + 200)))?.[1];
    if (fence === undefined) fence = marker;
    else if (marker?.startsWith(fence)) fence = undefined;
    const length = end - from;
    const isBorder = length > segmentLength && fence === undefined && text.slice(at, end).trim() === '';
    if (isBorder || (length > MAX_SEGMENT_LENGTH && Number.isFinite(segmentLength))) {
      yield { text: text.slice(from, end), lineOffset };
      from = end;
      lineOffset = line;
      if (!isBorder) fence = undefined;
    }
    at = end;
  }
  if (from < text.length) yield { text: text.slice(from), lineOffset };
}

const FENCE = /^ {0,3}(```+|~~~+)/;

/** The blocks of a part. What the parser cannot read is one paragraph. */
function nodesOf(segment: string): readonly RootContent[] {
  if (segment.length <= MAX_SEGMENT_LENGTH && !DEEPEST_NESTING.test(segment)) {
    try {
      return fromMarkdown(segment, { extensions: [gfmTable()], mdastExtensions: [gfmTableFromMarkdown()] }).children;
    } catch {
      // Read as plain text.
    }
  }
  const end = { line: segment.trimEnd().split('\n').length, column: 1, offset: segment.length };
  return [{ type: 'paragraph', children: [], position: { start: { line: 1, column: 1, offset: 0 }, end } }];
}

/** The fields between two lines of `---` at the beginning, and the text behind them. */
interface SplitText {
  readonly body: string;
  /** Lines before the body. */
  readonly lines: number;
  readonly fields: Readonly<Record<string, unknown>>;
}

function splitFrontMatter(text: string): SplitText {
  const [matter = '', source = ''] = FRONT_MATTER.exec(text) ?? [];
  const fields = matter === '' ? undefined : readFields(source);
  if (fields === undefined) return { body: text, lines: 0, fields: {} };
  return { body: text.slice(matter.length), lines: matter.trimEnd().split('\n').length, fields };
}

const FRONT_MATTER = /^---[ \t]*\n([\s\S]{0,20000}?\n)??(?:---|\.\.\.)[ \t]*(?:\n|$)/;

/** Fields of front matter; undefined where it is none. */
function readFields(source: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const fields: unknown = parseYaml(source) ?? {};
    return isRecord(fields) && JSON.stringify(fields).length <= MAX_FIELDS_LENGTH ? fields : undefined;
  } catch {
    // Of YAML that is not valid, the title is read: what has no field at all is text.
    const title = /^title:[ \t]*(.+)$/m.exec(source)?.[1]?.replace(/^(["'])(.*)\1\s*$/, '$2');
    return /^[\w-]+:/m.test(source) ? { ...(title !== undefined && { title }) } : undefined;
  }
}
