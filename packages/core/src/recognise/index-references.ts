import type { Found } from './format.js';
import type { JsonValue } from './json-text.js';

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
export function refersByIndex(text: string, value: JsonValue, found: readonly Found[]): boolean {
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
