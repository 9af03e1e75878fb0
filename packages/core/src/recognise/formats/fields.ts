import type { DocumentFormat, Found, Region } from '../format.js';
import { blocksBetween, type Header } from '../headers.js';
import { meanLength, PASSAGE } from '../plausible.js';

/** The first line of a record as search tools and retrievers write it. */
const FIRST =
  /^[ \t]{0,8}(?:[-*] )?(?:\*\*)?(Source|Title|URL|Link|File|File ?path|Filename|Document(?: name| id)?|Doc ?id|ID|Name|Page_?label|Metadata|file_path|file_name|source|title|url)(?:\*\*)?[ \t]*[:：][ \t]*([^\n]{0,300})/gm;
/** The line that a document's text follows. */
const CONTENT =
  /^[ \t]{0,8}(?:\*\*)?(?:Page )?(?:Content|Text|Snippet|Description|Summary|Passage|Excerpt|Body|Abstract|content|text|snippet|page_content)(?:\*\*)?[ \t]*[:：]/m;
/** Characters of a record in which the line of its text must come. */
const RECORD_HEAD = 1_500;
/** The frame of LlamaIndex's question-answering templates; inside, a node is its metadata, an empty line, and its text. */
const FRAME = /[Cc]ontext information[^\n]{0,80}\n-{5,}[ \t]*\n/g;
const FRAME_END = /^-{5,}[ \t]*$/gm;
const METADATA = /^([A-Za-z][\w -]{0,40}): (\S[^\n]{0,300})/;

/**
 * Records of named fields: `Source: …` and `Content: …` as LangChain's tutorials write retrieved documents, `Title:`, `URL:`,
 * `Content:` of search tools, and LlamaIndex's nodes between the lines of its templates.
 */
export const fields: DocumentFormat = {
  name: 'fields',
  unasked: true,
  find(region) {
    const nodes = framed(region);
    if (nodes.length > 0) return nodes;
    const headers = recordsOf(region);
    if (headers.length < 2) return [];
    return blocksBetween(region, headers).filter(({ documents }) => region.certain || meanLength(documents) >= PASSAGE);
  },
};

/** A line that may open a record. */
interface Opening {
  readonly start: number;
  readonly key: string;
  readonly value: string;
}

/** Headers of records: lines with the first record's key, each with its text's line before the next one. */
function recordsOf(region: Region): readonly Header[] {
  const { text, end } = region;
  const openings = openingsOf(region);
  const nextOf = new Map<string, number>();
  const headers: Header[] = [];
  for (const { start, key, value } of openings.toReversed()) {
    const head = text.slice(start, Math.min(nextOf.get(key) ?? end, start + RECORD_HEAD));
    nextOf.set(key, start);
    const content = CONTENT.exec(head);
    if (content === null) continue;
    const contentStart = start + content.index + content[0].length;
    headers.push({ start, contentStart, form: key, number: undefined, label: undefined, id: idOf(value) });
  }
  headers.reverse();
  return headers.filter(({ form }) => form === headers[0]!.form);
}

function openingsOf({ text, start, end }: Region): readonly Opening[] {
  const openings: Opening[] = [];
  FIRST.lastIndex = start;
  for (let match = FIRST.exec(text); match !== null && match.index < end; match = FIRST.exec(text)) {
    openings.push({ start: match.index + match[0].search(/\S/), key: match[1]!, value: match[2]! });
  }
  return openings;
}

function idOf(value: string): string | undefined {
  const id = value.trim();
  return id === '' ? undefined : id;
}

function framed({ text, start, end }: Region): readonly Found[] {
  const found: Found[] = [];
  // Finding out that there is none takes a tenth of looking for one whatever its case.
  if (!text.includes('ontext information')) return found;
  FRAME.lastIndex = start;
  for (let match = FRAME.exec(text); match !== null && match.index < end; match = FRAME.exec(text)) {
    const from = FRAME.lastIndex;
    FRAME_END.lastIndex = from;
    const close = FRAME_END.exec(text);
    if (close === null || close.index >= end) break;
    FRAME.lastIndex = FRAME_END.lastIndex;
    const nodes = nodesOf(text, from, close.index);
    if (nodes !== undefined) found.push(nodes);
  }
  return found;
}

/** Nodes in a frame: each paragraph that opens with the first line's key opens a node. */
function nodesOf(text: string, start: number, end: number): Found | undefined {
  const first = METADATA.exec(text.slice(start, Math.min(end, start + 400)));
  if (first === null) return undefined;
  const key = `${first[1]}: `;
  const starts = [start];
  for (let at = text.indexOf(`\n\n${key}`, start); at >= 0 && at < end; at = text.indexOf(`\n\n${key}`, at + 1)) {
    starts.push(at + 2);
  }
  if (starts.length < 2) return undefined;
  const documents = starts.map((from, place) => {
    const limit = starts[place + 1] ?? end;
    const to = from + text.slice(from, limit).trimEnd().length;
    const blank = text.indexOf('\n\n', from);
    const contentStart = blank >= 0 && blank + 2 < to ? blank + 2 : from;
    const value = METADATA.exec(text.slice(from, from + 400))?.[2]?.trim();
    return { start: from, end: to, contentStart, contentEnd: to, id: value, title: undefined, labels: [] };
  });
  return { documents, start, end: documents.at(-1)!.end };
}
