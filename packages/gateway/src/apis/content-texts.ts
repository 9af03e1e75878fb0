import { recognise } from '@warmpath/core';
import { isObject, type JsonObject } from '../json/json-scanner.js';
import type { ElementRange, JsonPath, RequestText, TextPlace, TextRole } from './request-texts.js';

/** The texts of a content: a string or an array of parts. `textOf` reads parts that are not plain text. */
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

/** Types of Anthropic's document parts. */
const DOCUMENT_PARTS: ReadonlySet<string> = new Set(['search_result', 'document']);
/** Types of text sources of documents. */
const TEXT_SOURCES: ReadonlySet<unknown> = new Set(['text', 'content']);
const NO_RANGES: readonly ElementRange[] = [];

/**
 * Adjacent parts of one kind, which may change places. A part with marked documents in its text is read for these
 * instead.
 */
function elementRanges(content: readonly unknown[], isMarked: (part: JsonObject) => boolean): readonly ElementRange[] {
  const movable = content.map((part) => isMovable(part) && !isMarked(part as JsonObject));
  // Most contents have none.
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

/** Whether a document part may move: it has text, no citations and no cache breakpoint. */
function isMovable(part: unknown): boolean {
  if (!isObject(part) || !DOCUMENT_PARTS.has(part['type'] as string)) return false;
  if (isCited(part) || isObject(part['cache_control'])) return false;
  const { source } = part;
  return part['type'] === 'search_result' || (isObject(source) && TEXT_SOURCES.has(source['type']));
}

/** Whether answers cite the part by its number and by positions in its text. */
export function isCited({ citations }: JsonObject): boolean {
  return isObject(citations) && citations['enabled'] === true;
}

function typeOf(part: unknown): unknown {
  return isObject(part) ? part['type'] : undefined;
}

/** Document parts of an array as one JSON text. `place` ends in their range. */
export function elementsText(elements: readonly unknown[], place: TextPlace, role: TextRole): RequestText {
  const { from, to } = place.at(-1) as ElementRange;
  const written = elements.slice(from, to + 1).map((element) => JSON.stringify(element));
  return { role, text: written.join(','), place, kind: 'elements' };
}

/** Types of text parts. */
const TEXT_PARTS: ReadonlySet<string> = new Set(['text', 'input_text', 'output_text']);

const ROLES: ReadonlyMap<unknown, TextRole> = new Map([
  ['system', 'system'],
  ['developer', 'system'],
  ['user', 'user'],
  ['assistant', 'assistant'],
  ['tool', 'tool'],
  ['function', 'tool'],
]);

/** The normalised role. An unknown role counts as the user's. */
export function textRole(role: unknown): TextRole {
  return ROLES.get(role) ?? 'user';
}
