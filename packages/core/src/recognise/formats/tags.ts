import type { DocumentSpan, LabelSpan } from '../block.js';
import { isBlank, meanLength, PASSAGE, saysSomething } from '../document-text.js';
import type { DocumentFormat, DocumentGroup, Region } from '../format.js';

/** Tags that mean a document wherever two of them stand side by side. */
const DOCUMENT_TAGS = names(
  'document doc passage source chunk snippet search_result search-result searchresult retrieved_document',
  'reference excerpt context knowledge webpage web_page file_content',
);
/** Tags that mean many things, and a document inside a wrapper that says so. */
const WRAPPED_TAGS = names(
  'result item file page entry record text node section hit article web_result memory code_selection',
);
const WRAPPERS = names(
  'documents docs document_list contexts context passages references sources results search_results search-results',
  'searchresults files chunks snippets knowledge knowledge_base retrieved_documents retrieved_context retrieved_data',
  'articles excerpts web_results webpages pages memories attachments attached_files',
);

/** All of these. */
const NAMES: ReadonlySet<string> = new Set([...DOCUMENT_TAGS, ...WRAPPED_TAGS, ...WRAPPERS]);
/** A tag that is not empty. */
const TAG = /<(\/?)([a-z_-]+)(?:\s[^<>]*)?(?<!\/)>/g;

/** Attributes and first children that may number a document. */
const COUNTING_ATTRIBUTE = /\s(?:index|id|n|nr|num|number|rank|position|idx)\s*=\s*["']?(\d{1,4})["']?(?=[\s/]|$)/;
const COUNTING_CHILD = /^\s{0,8}<(index|id|source_id|document_index|number|rank)>\s{0,8}(\d{1,4})\s{0,8}<\/\1>/;
const ID = /\s(?:id|url|uri|path|href|source|src|name|file|filename)\s*=\s*(?:"([^"]{1,512})"|'([^']{1,512})')/;
const TITLE = /\stitle\s*=\s*(?:"([^"]{1,512})"|'([^']{1,512})')/;
/** Attributes of what has an order of its own: turns of a talk, entries of a log, steps. */
const SEQUENCE_ATTRIBUTE = /\s(?:role|speaker|sender|timestamp|time|turn|step)\s*=/;
/** Elements whose numbers are those of a whole: the pages of one file. */
const PARTS = names('page section');
/** Characters of a tag that are read for attributes. */
const HEAD_LENGTH = 2_048;
/** Characters of a document's start that are read for a number. */
const CHILD_LENGTH = 80;

/** A tag and its end tag. */
interface Element {
  readonly name: string;
  readonly start: number;
  readonly contentStart: number;
  readonly contentEnd: number;
  readonly end: number;
}

/** `<document id="a" title="…">…</document>` and its like, bare or in a wrapper; attributes stay as they are. */
export const tags: DocumentFormat = {
  name: 'tags',
  unasked: true,
  find(region) {
    if (!region.text.includes('</')) return [];
    const elements = elementsOf(region.text);
    const beside = withSiblings(region.text, elements);
    const found: DocumentGroup[] = [];
    const wrappers: Element[] = [];
    let run: Element[] = [];
    let wrapper: Element | undefined;
    const close = () => {
      const block = blockOf(region, run, wrapper);
      if (block !== undefined) found.push(block);
      run = [];
    };
    for (const element of elements) {
      const last = run.at(-1);
      if (last !== undefined && element.start < last.end) continue;
      if (last !== undefined && !follows(region.text, last, element)) close();
      while (wrappers.length > 0 && wrappers.at(-1)!.end <= element.start) wrappers.pop();
      const around = wrappers.at(-1);
      if (beside.has(element) && isDocument(region, element, around)) {
        if (run.length === 0) wrapper = around;
        run.push(element);
      } else if (WRAPPERS.has(element.name)) wrappers.push(element);
    }
    close();
    return found;
  },
};

function names(...lists: string[]): ReadonlySet<string> {
  return new Set(lists.join(' ').split(' '));
}

/** Elements of the names that matter, by their start; an end tag belongs to the nearest open tag of its name. */
function elementsOf(text: string): readonly Element[] {
  const open = new Map<string, Tag[]>();
  const elements: Element[] = [];
  for (const tag of tagsOf(text)) {
    const stack = open.get(tag.name);
    if (!tag.closes) {
      if (stack === undefined) open.set(tag.name, [tag]);
      else stack.push(tag);
      continue;
    }
    const opened = stack?.pop();
    if (opened === undefined) continue;
    const { name, start, end: contentStart } = opened;
    elements.push({ name, start, contentStart, contentEnd: tag.start, end: tag.end });
  }
  return elements.sort((a, b) => a.start - b.start || b.end - a.end);
}

interface Tag {
  readonly name: string;
  readonly closes: boolean;
  readonly start: number;
  readonly end: number;
}

/** The tags of the names that matter, but for empty ones. */
function tagsOf(text: string): readonly Tag[] {
  return [...text.matchAll(TAG)]
    .filter(([, , name]) => NAMES.has(name!))
    .map(({ 0: tag, 1: slash, 2: name, index }) => ({
      name: name!,
      closes: slash !== '',
      start: index,
      end: index + tag.length,
    }));
}

/**
 * The elements that have another of their name beside them; `<context>` around documents has none, and is a wrapper.
 */
function withSiblings(text: string, elements: readonly Element[]): ReadonlySet<Element> {
  const openOf = new Map<string, Element[]>();
  const beside = new Set<Element>();
  for (const element of elements) {
    const open = openOf.get(element.name) ?? [];
    // A document may hold documents: the one before is the outermost of those that have ended.
    let last: Element | undefined;
    while (open.length > 0 && open.at(-1)!.end <= element.start) last = open.pop();
    if (last !== undefined && isBlank(text, last.end, element.start)) beside.add(last).add(element);
    open.push(element);
    openOf.set(element.name, open);
  }
  return beside;
}

function isDocument({ certain }: Region, { name }: Element, wrapper: Element | undefined): boolean {
  if (DOCUMENT_TAGS.has(name)) return true;
  return WRAPPED_TAGS.has(name) && (certain || wrapper !== undefined);
}

function follows(text: string, last: Element, next: Element): boolean {
  return last.name === next.name && isBlank(text, last.end, next.start);
}

function blockOf(region: Region, run: readonly Element[], wrapper: Element | undefined): DocumentGroup | undefined {
  if (run.length < 2) return undefined;
  const { text } = region;
  const counted = countingLabels(text, run);
  const documents = run.map((element, place) => documentOf(text, element, counted?.[place]));
  if (!region.certain) {
    if (documents.filter((document) => saysSomething(text, document)).length * 2 < documents.length) return undefined;
    if (wrapper === undefined && meanLength(documents) < PASSAGE) return undefined;
    if (run.every((element) => SEQUENCE_ATTRIBUTE.test(headOf(text, element)))) return undefined;
    if (counted !== undefined && PARTS.has(run[0]!.name)) return undefined;
  }
  return { documents, start: documents[0]!.start, end: documents.at(-1)!.end };
}

function documentOf(text: string, element: Element, label: LabelSpan | undefined): DocumentSpan {
  const head = headOf(text, element);
  const id = ID.exec(head);
  const title = TITLE.exec(head);
  const named = id?.[1] ?? id?.[2];
  return {
    start: element.start,
    end: element.end,
    contentStart: element.contentStart,
    contentEnd: element.contentEnd,
    // A number that counts is no name.
    id: label !== undefined && /^\d+$/.test(named ?? '') ? undefined : named,
    title: title?.[1] ?? title?.[2],
    labels: label === undefined ? [] : [label],
  };
}

/** The numbers of the documents, if they count them from 0 or 1 in the order of the text. */
function countingLabels(text: string, run: readonly Element[]): readonly LabelSpan[] | undefined {
  const labels: LabelSpan[] = [];
  let expected: number | undefined;
  for (const element of run) {
    const label = labelOf(text, element);
    if (label === undefined) return undefined;
    const value = Number(text.slice(label.start, label.end));
    if (value !== (expected ?? Math.min(value, 1))) return undefined;
    expected = value + 1;
    labels.push(label);
  }
  return labels;
}

/** The opening tag with its attributes. */
function headOf(text: string, { start, contentStart }: Element): string {
  return text.slice(start, Math.min(contentStart - 1, start + HEAD_LENGTH));
}

function labelOf(text: string, element: Element): LabelSpan | undefined {
  const { start, contentStart } = element;
  const attribute = COUNTING_ATTRIBUTE.exec(headOf(text, element));
  if (attribute !== null) {
    const at = start + attribute.index + attribute[0].lastIndexOf(attribute[1]!);
    return { start: at, end: at + attribute[1]!.length };
  }
  const child = COUNTING_CHILD.exec(text.slice(contentStart, contentStart + CHILD_LENGTH));
  if (child === null) return undefined;
  const at = contentStart + child[0].indexOf(child[2]!, child[0].indexOf('>'));
  return { start: at, end: at + child[2]!.length };
}
