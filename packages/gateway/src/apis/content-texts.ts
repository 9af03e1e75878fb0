import { recognise } from '@warmpath/core';
import { isObject, type JsonObject } from '../json/json-scanner.js';
import type { ElementRange, JsonPath, RequestText, TextPlace, TextRole } from './request-texts.js';

/**
 * The texts of a content that is a string or an array of parts; `textOf` says what to read of a part that is no plain
 * text.
 */
export function contentTexts(
  content: unknown,
  place: JsonPath,
  role: TextRole,
  textsOfPart: (part: JsonObject, place: JsonPath) => readonly RequestText[] = () => [],
): readonly RequestText[] {
  if (typeof content === 'string') return [{ role, text: content, place }];
  if (!Array.isArray(content)) return [];
  const ranges = elementRanges(content, (part) => textsOfPart(part, place).some(hasMarkedDocuments));
  let next = 0;
  return content.flatMap((part: unknown, position) => {
    while (next < ranges.length && ranges[next]!.to < position) next++;
    const range = ranges[next];
    if (range !== undefined && range.from <= position)
      return range.from === position ? [elementsText(content, [...place, range], role)] : [];
    const at = [...place, position];
    if (!isObject(part)) return [];
    const { type, text } = part;
    const isText = TEXT_PARTS.has(type as string) && typeof text === 'string';
    return isText ? [{ role, text, place: [...at, 'text'] }] : textsOfPart(part, at);
  });
}

/** What Anthropic calls parts that are documents. */
const DOCUMENT_PARTS: ReadonlySet<string> = new Set(['search_result', 'document']);
/** Sources of documents that are text. */
const TEXT_SOURCES: ReadonlySet<unknown> = new Set(['text', 'content']);
const NO_RANGES: readonly ElementRange[] = [];

/**
 * Parts of one kind that stand side by side and may change places. One that marks documents in its text is read for
 * these instead.
 */
function elementRanges(content: readonly unknown[], isMarked: (part: JsonObject) => boolean): readonly ElementRange[] {
  const movable = content.map((part) => isMovable(part) && !isMarked(part as JsonObject));
  // Nearly all contents have none.
  if (!movable.includes(true)) return NO_RANGES;
  const ranges: ElementRange[] = [];
  for (let from = 0; from < content.length; from++) {
    let to = from;
    while (movable[to + 1] && movable[from] && typeOf(content[to + 1]) === typeOf(content[from])) to++;
    if (to > from) ranges.push({ from, to });
    from = to;
  }
  return ranges;
}

function hasMarkedDocuments(text: RequestText): boolean {
  return recognise([text], { mode: 'marked' }).length > 0;
}

/**
 * A document in text that nothing holds in its place: answers cite by number where citations are on, and a mark of the
 * cache says how far the prompt is to be kept.
 */
function isMovable(part: unknown): boolean {
  if (!isObject(part) || !DOCUMENT_PARTS.has(part['type'] as string)) return false;
  if (isCited(part) || isObject(part['cache_control'])) return false;
  const { source } = part;
  return part['type'] === 'search_result' || (isObject(source) && TEXT_SOURCES.has(source['type']));
}

/** Whether answers cite the part, by its number and by places in its text. */
export function isCited({ citations }: JsonObject): boolean {
  return isObject(citations) && citations['enabled'] === true;
}

function typeOf(part: unknown): unknown {
  return isObject(part) ? part['type'] : undefined;
}

/** Elements of an array, which an API calls documents, as one text of JSON. `place` ends in their range. */
export function elementsText(elements: readonly unknown[], place: TextPlace, role: TextRole): RequestText {
  const { from, to } = place.at(-1) as ElementRange;
  const written = elements.slice(from, to + 1).map((element) => JSON.stringify(element));
  return { role, text: written.join(','), place, kind: 'elements' };
}

/** What the APIs call a part that is text. */
const TEXT_PARTS: ReadonlySet<string> = new Set(['text', 'input_text', 'output_text']);

const ROLES: ReadonlyMap<unknown, TextRole> = new Map([
  ['system', 'system'],
  ['developer', 'system'],
  ['user', 'user'],
  ['assistant', 'assistant'],
  ['tool', 'tool'],
  ['function', 'tool'],
]);

/** The role under its one name; a role that nobody knows is taken for the user's. */
export function textRole(role: unknown): TextRole {
  return ROLES.get(role) ?? 'user';
}
