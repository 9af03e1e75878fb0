/** A passage of a Markdown file: what the demo retrieves and puts into a prompt as a document. */
export interface Passage {
  /** Stable as long as the file is: file name and position in it. */
  readonly id: string;
  /** `file › heading`. */
  readonly title: string;
  readonly content: string;
}

/** Where a Markdown text comes from. */
export interface MarkdownSource {
  /** Leads the ids of its passages, for instance `fastify.hooks`. */
  readonly id: string;
  /** Leads the titles of its passages, for instance `Hooks`. */
  readonly name: string;
}

/** Characters that a passage has at most, unless a short rest joins it. */
const MAX_LENGTH = 900;
/** From here on a passage ends where the next section begins; a shorter one takes the next section in. */
const ENOUGH_LENGTH = 600;
/** A shorter rest joins the passage before it. */
const SHORT_REST = 200;

interface Section {
  readonly heading: string;
  /** What blank lines part: paragraphs, lists, code blocks. */
  readonly blocks: string[];
}

/** Part of a passage: a block, or a part of one that was too long. */
interface Piece {
  readonly heading: string;
  readonly startsSection: boolean;
  readonly text: string;
}

/**
 * Cuts a Markdown text into passages of about 600 to 900 characters, at headings where it can; paragraphs, lists and
 * code blocks stay whole where they fit. A passage is named after the section that it starts in; sections that follow
 * in it keep their headings. Cost: O(length).
 */
export function chunkMarkdown(markdown: string, source: MarkdownSource): readonly Passage[] {
  const pieces = readSections(markdown, source.name).flatMap((section) =>
    section.blocks
      .flatMap(splitBlock)
      .map((text, position): Piece => ({ heading: section.heading, startsSection: position === 0, text })),
  );
  return packPieces(pieces).map(({ heading, text }, position) => ({
    id: `${source.id}-${position + 1}`,
    title: heading === source.name ? source.name : `${source.name} › ${heading}`,
    content: text,
  }));
}

/**
 * Sections by heading; their blocks are what blank lines part. A `#` or a blank line inside a code fence is neither.
 */
function readSections(markdown: string, name: string): readonly Section[] {
  let current: Section = { heading: name, blocks: [] };
  const sections = [current];
  let block: string[] = [];
  let fence: string | undefined;
  const endBlock = () => {
    if (block.length > 0) current.blocks.push(block.join('\n'));
    block = [];
  };
  for (const line of withoutMarkup(markdown).split('\n')) {
    const marker = /^\s*(```+|~~~+)/.exec(line)?.[1];
    if (fence !== undefined) {
      block.push(line);
      if (marker?.startsWith(fence)) fence = undefined;
      continue;
    }
    const heading = /^#{1,6}\s+(.+?)\s*#*\s*$/.exec(line)?.[1];
    if (heading !== undefined) {
      endBlock();
      current = { heading: plainHeading(heading), blocks: [] };
      sections.push(current);
    } else if (line.trim() === '') {
      endBlock();
    } else {
      block.push(line.trimEnd());
      fence = marker;
    }
  }
  endBlock();
  return sections;
}

/** Without comments and the anchors and centred banners that documentation sites want. */
function withoutMarkup(markdown: string): string {
  return markdown
    .replaceAll('\r\n', '\n')
    .replace(/<!--[\s\S]*?-->/g, '')
    .replace(/<a\s+(?:id|name)=[^>]*>\s*<\/a>/g, '')
    .replace(/^<h1[^>]*>.*<\/h1>$/gm, '');
}

/** A heading as a person would say it: `[text](link)` and backticks become the text. */
function plainHeading(heading: string): string {
  return heading.replace(/\[([^\]]*)\]\([^)]*\)/g, '$1').replaceAll('`', '');
}

/** Joins pieces until the next one no longer fits, or starts a section of its own when there is enough already. */
function packPieces(pieces: readonly Piece[]): readonly { heading: string; text: string }[] {
  const packed: { heading: string; text: string }[] = [];
  let current: { heading: string; text: string } | undefined;
  for (const piece of pieces) {
    const text = piece.startsSection && current !== undefined ? `## ${piece.heading}\n\n${piece.text}` : piece.text;
    const full = current !== undefined && current.text.length + 2 + text.length > MAX_LENGTH;
    const enough = piece.startsSection && current !== undefined && current.text.length >= ENOUGH_LENGTH;
    if (current === undefined || full || enough) {
      current = { heading: piece.heading, text: piece.text };
      packed.push(current);
    } else {
      current.text = `${current.text}\n\n${text}`;
    }
  }
  const rest = packed.at(-1);
  const before = packed.at(-2);
  if (rest !== undefined && before !== undefined && rest.text.length < SHORT_REST) {
    before.text = `${before.text}\n\n${rest.text}`;
    packed.pop();
  }
  return packed;
}

/** A block that is too long, cut at line ends; a line that is too long, cut at spaces. */
function splitBlock(block: string): readonly string[] {
  if (block.length <= MAX_LENGTH) return [block];
  const pieces: string[] = [];
  let current = '';
  for (const line of block.split('\n').flatMap(splitLine)) {
    if (current !== '' && current.length + 1 + line.length > MAX_LENGTH) {
      pieces.push(current);
      current = '';
    }
    current = current === '' ? line : `${current}\n${line}`;
  }
  pieces.push(current);
  return pieces;
}

function splitLine(line: string): readonly string[] {
  const pieces: string[] = [];
  let rest = line;
  while (rest.length > MAX_LENGTH) {
    const space = rest.lastIndexOf(' ', MAX_LENGTH);
    const end = space > 0 ? space : MAX_LENGTH;
    pieces.push(rest.slice(0, end));
    rest = rest.slice(end).trimStart();
  }
  pieces.push(rest);
  return pieces;
}
