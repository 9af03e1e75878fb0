import type { DocumentSpan, LabelSpan } from '../block.js';
import { isBlank, lineBefore, meanLength, PASSAGE, saysDocuments } from '../document-text.js';
import type { DocumentFormat, DocumentGroup, Region } from '../format.js';
import { type JsonEntry, JsonTextReader, type JsonValue, memberOf } from '../json-text.js';

/** Members that hold the text of a document, best first. */
const TEXT_KEYS =
  'content page_content pageContent text snippet passage chunk raw_content body extract excerpt abstract markdown description summary document'.split(
    ' ',
  );
/** Members that hold a document inside an element, as vector databases and search engines wrap it. */
const INNER_KEYS = ['payload', '_source', 'metadata', 'node', 'document', 'fields', 'entity'];
const ID_KEYS = [
  'id',
  '_id',
  'doc_id',
  'document_id',
  'chunk_id',
  'url',
  'link',
  'path',
  'file',
  'filename',
  'uri',
  'href',
  'source',
];
/** Members that count the elements. */
const COUNTING_KEYS = ['position', 'rank', 'index', 'id', 'number', 'n', 'citation', 'source_id'];
/** Members of things whose order means something: turns of a talk, steps, lines, moments. */
const SEQUENCE_KEYS = new Set(
  [
    'role speaker step step_number stepNumber turn order sequence seq line line_number lineNumber start end timestamp ts time',
    'tool_call_id parent parent_id commit sha created_at createdAt from sender in_reply_to reply_to',
    'status state done completed action phase iteration round depends_on dependencies',
  ].flatMap((keys) => keys.split(' ')),
);
/**
 * Members that say which part of a whole an element is; where they count on from one to the next, the whole is there in
 * its order.
 */
const PART_NUMBERS = new Set(
  'page page_number pageNumber slide chapter section_number chunk_index chunkIndex chunk part paragraph segment'.split(
    ' ',
  ),
);
/** Who says something; it is part of a talk unless it is a found one, which has a name or a score. */
const SPEAKERS = new Set(['author', 'user', 'username', 'user_name']);
const SCORES = ['similarity', 'score', 'distance', 'relevance', 'relevance_score', '_score'];
const FOUND = new Set([...SCORES, 'title', 'url', 'link', 'source', 'path', 'file', 'filename', 'metadata']);
/** Members of a part of an answer, as MCP and the APIs of models have them. */
const PART_KEYS = new Set(['type', 'text', 'annotations']);
/** Names of lists of documents. An array without a name counts as well. */
const LIST_KEYS = new Set(
  'results web news documents docs hits items matches passages chunks organic organic_results organicResults sources data search_results searchResults points snippets articles contexts context nodes source_nodes sourceNodes value citations references webPages web pages records output content'.split(
    ' ',
  ),
);

/** An array or an object with what opens or names its first member. */
const OPEN = /[[{]\s{0,16}["[{]/y;

/** Arrays of documents in JSON: the answer of a tool, a fenced block, the first value of a line that announces it. */
export const json: DocumentFormat = {
  name: 'json',
  unasked: true,
  find(region) {
    const { text } = region;
    const found: DocumentGroup[] = [];
    const scanner = new JsonTextReader(text);
    let nextLine = 0;
    for (const place of brackets(text)) {
      OPEN.lastIndex = place;
      // What was read is not read again, or unclosed brackets would cost their number squared.
      if (place < nextLine || !OPEN.test(text)) continue;
      const value = scanner.value(place);
      // The rest of the line may be inside of what is no JSON.
      const lineFeed = text.indexOf('\n', scanner.at);
      nextLine = lineFeed < 0 ? text.length : lineFeed + 1;
      if (value === undefined || !isAnnounced(region, value)) continue;
      const blocks = lists(region, value);
      const isReferred = blocks.length > 0 && refersByIndex(text, value, blocks);
      for (const block of blocks) found.push(isReferred ? { ...block, isReferred } : block);
    }
    return found;
  },
};

/** Where brackets and braces open, in the order of the text. */
function* brackets(text: string): Generator<number> {
  let bracket = text.indexOf('[');
  let brace = text.indexOf('{');
  while (bracket >= 0 || brace >= 0) {
    if (brace < 0 || (bracket >= 0 && bracket < brace)) {
      yield bracket;
      bracket = text.indexOf('[', bracket + 1);
    } else {
      yield brace;
      brace = text.indexOf('{', brace + 1);
    }
  }
}

function isAnnounced({ text, role, certain }: Region, { start, end }: JsonValue): boolean {
  if (role === 'tool' || certain) return true;
  return (isBlank(text, 0, start) && isBlank(text, end, text.length)) || saysDocuments(lineBefore(text, start));
}

function lists(region: Region, value: JsonValue): readonly DocumentGroup[] {
  if (value.kind === 'array') {
    const block = blockOf(region, value);
    return block === undefined ? value.elements.flatMap((element) => nested(region, element)) : [block];
  }
  return nested(region, value);
}

/** Lists of documents among the members of an object, at any depth. */
function nested(region: Region, value: JsonValue): readonly DocumentGroup[] {
  if (value.kind !== 'object') return [];
  const { members } = value;
  return members.flatMap(({ key, value: member }) => {
    if (member.kind === 'object') return nested(region, member);
    if (member.kind !== 'array') return [];
    // Arrays of one length beside each other belong together, place by place.
    const parallel = members.some(
      ({ value: other }) =>
        other !== member && other.kind === 'array' && other.elements.length === member.elements.length,
    );
    const block = !parallel && (LIST_KEYS.has(key) || region.certain) ? blockOf(region, member) : undefined;
    return block === undefined ? member.elements.flatMap((element) => nested(region, element)) : [block];
  });
}

function blockOf(region: Region, { elements }: Extract<JsonValue, { kind: 'array' }>): DocumentGroup | undefined {
  const { text, certain } = region;
  if (elements.length < 2 || (!certain && elements.every(isPart))) return undefined;
  const counted = countingLabels(text, elements);
  const documents: DocumentSpan[] = [];
  for (const [place, element] of elements.entries()) {
    const content = contentOf(element);
    if (content === undefined || (!certain && isOfSequence(element, counted?.[place]))) return undefined;
    documents.push({
      start: element.start,
      end: element.end,
      contentStart: content.start,
      contentEnd: content.end,
      id: element.kind === 'object' ? stringOf(text, element.members, ID_KEYS) : undefined,
      title: element.kind === 'object' ? stringOf(text, element.members, ['title', 'name']) : undefined,
      labels: counted === undefined ? [] : [counted[place]!],
    });
  }
  if (!certain && (meanLength(documents) < PASSAGE || isWhole(text, elements))) return undefined;
  return { documents, start: documents[0]!.start, end: documents.at(-1)!.end };
}

/** The string literal that is the document's text. */
function contentOf(element: JsonValue): JsonValue | undefined {
  if (element.kind === 'string') return element;
  if (element.kind !== 'object') return undefined;
  for (const name of TEXT_KEYS) {
    const member = element.members.find(({ key, value }) => key === name && value.kind !== 'object');
    const said = member?.value.kind === 'array' ? onlyPart(member.value.elements) : member?.value;
    if (said?.kind === 'string') return said;
  }
  for (const { key, value } of element.members) {
    if (!INNER_KEYS.includes(key) || value.kind !== 'object') continue;
    const inner = contentOf(value);
    if (inner !== undefined) return inner;
  }
  // Passages that have a similarity are found ones, whatever their member is called.
  const scored = element.members.some(({ key }) => SCORES.includes(key));
  const name = scored ? memberOf(element, 'name') : undefined;
  return name?.kind === 'string' ? name : undefined;
}

/** The text of content that is one part, as OpenAI's search of a vector store has it. */
function onlyPart(parts: readonly JsonValue[]): JsonValue | undefined {
  const [part] = parts;
  if (parts.length !== 1 || part?.kind !== 'object') return undefined;
  return part.members.find(({ key }) => key === 'text')?.value;
}

/**
 * `{"type": "text", "text": …}`, and nothing that tells it from its neighbours: parts of one answer, said in this
 * order.
 */
function isPart(element: JsonValue): boolean {
  if (element.kind !== 'object' || !element.members.some(({ key }) => key === 'type')) return false;
  return element.members.every(({ key }) => PART_KEYS.has(key));
}

function isOfSequence(element: JsonValue, label: LabelSpan | undefined): boolean {
  if (element.kind !== 'object') return false;
  const { members } = element;
  if (members.some(({ key }) => SPEAKERS.has(key)) && !members.some(({ key }) => FOUND.has(key))) return true;
  return members.some(({ key, value }) => SEQUENCE_KEYS.has(key) && value.start !== label?.start);
}

/** Whether the elements are a whole in its order: each is the next page, slide or chunk. */
function isWhole(text: string, elements: readonly JsonValue[]): boolean {
  const [first] = elements;
  if (first?.kind !== 'object') return false;
  const metadata = memberOf(first, 'metadata');
  const members = metadata?.kind === 'object' ? [...first.members, ...metadata.members] : first.members;
  return members.some(({ key, value }) => {
    if (!PART_NUMBERS.has(key) || value.kind !== 'number') return false;
    const from = numberIn(text, value);
    return elements.every((element, place) => {
      const part = memberOf(element, key) ?? memberOf(memberOf(element, 'metadata'), key);
      return part !== undefined && numberIn(text, part) === from + place;
    });
  });
}

function numberIn(text: string, { start, end }: JsonValue): number {
  return Number(text.slice(start, end));
}

/** The value of the first of these members that is a string, escapes as they stand. */
function stringOf(text: string, members: readonly JsonEntry[], keys: readonly string[]): string | undefined {
  for (const name of keys) {
    const member = members.find(({ key, value }) => key === name && value.kind === 'string');
    if (member !== undefined) return text.slice(member.value.start + 1, member.value.end - 1);
  }
  return undefined;
}

/** The numbers of the elements, if a member counts them from 0 or 1 in the order of the text. */
function countingLabels(text: string, elements: readonly JsonValue[]): readonly LabelSpan[] | undefined {
  const [first] = elements;
  if (first?.kind !== 'object') return undefined;
  for (const name of COUNTING_KEYS) {
    const labels = elements.map((element) => {
      if (element.kind !== 'object') return undefined;
      const value = element.members.find(({ key }) => key === name)?.value;
      if (value === undefined || value.end - value.start > 6) return undefined;
      // `"id": "1"` counts like `"id": 1`.
      return value.kind === 'string' ? { start: value.start + 1, end: value.end - 1 } : value;
    });
    if (!labels.every((label) => label !== undefined)) continue;
    const numbers = labels.map(({ start, end }) => text.slice(start, end));
    const from = numbers[0] === '0' ? 0 : 1;
    if (numbers.every((number, place) => number === String(from + place))) {
      return labels.map(({ start, end }) => ({ start, end }));
    }
  }
  return undefined;
}

/** Members that say which element of another array is meant. */
const INDEX_KEY =
  /^(?:(?:document|doc|source|result|citation|reference|grounding_?chunk)_?)?(?:index|idx|indices|indexes)$/i;
/** The place of an element. */
const PLACE = /^\d{1,6}$/;

/**
 * Whether a value of JSON refers to elements of its own arrays by their places: objects of another array have an
 * integer `index`, or `indices`. So Brave's `mixed` says in which order its lists are to be shown, and so citations say
 * what they stand on. `found` are the documents in the value; by what counts them in their own order they refer to
 * nothing. O(value).
 */
function refersByIndex(text: string, value: JsonValue, found: readonly DocumentGroup[]): boolean {
  const own = new Map(found.map((block) => [block.documents[0]!.start, block]));
  const isReference = (element: JsonValue): boolean =>
    element.kind === 'object' && element.members.some(({ key, value: at }) => INDEX_KEY.test(key) && isPlace(text, at));
  const refers = (part: JsonValue): boolean => {
    if (part.kind === 'object') return part.members.some(({ value: member }) => refers(member));
    if (part.kind !== 'array' || part.elements.length === 0) return false;
    const block = own.get(part.elements[0]!.start);
    if (block === undefined) return part.elements.some((element) => isReference(element) || refers(element));
    // A single list, of a reranker for instance, has places in what it was made from.
    return found.length > 1 && block.documents[0]!.labels.length === 0 && part.elements.some(isReference);
  };
  return refers(value);
}

function isPlace(text: string, value: JsonValue): boolean {
  if (value.kind === 'array') return value.elements.length > 0 && value.elements.every((each) => isPlace(text, each));
  return value.kind === 'number' && PLACE.test(text.slice(value.start, value.end));
}
