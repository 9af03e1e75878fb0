import type { DocumentSpan } from './block.js';
import type { DocumentGroup } from './format.js';
import { JsonTextReader, type JsonValue, memberOf } from './json-text.js';

/** Members that name a document of an API, and its title. */
const ID_KEYS = ['source', 'file_id', 'id'];
const TITLE_KEYS = ['title', 'filename'];

/**
 * The documents in elements that an API calls documents (Anthropic's `search_result` and `document`, results of
 * OpenAI's file search): each moves as a whole, with every member. `undefined` for what are not at least two objects.
 * O(text).
 */
export function documentElements(text: string): DocumentGroup | undefined {
  const value = new JsonTextReader(`[${text}]`).value(0);
  if (value?.kind !== 'array' || value.elements.length < 2) return undefined;
  if (value.elements.some(({ kind }) => kind !== 'object')) return undefined;
  const documents = value.elements.map((element) => documentOf(text, element));
  return { documents, start: documents[0]!.start, end: documents.at(-1)!.end };
}

/** Offsets count from behind the bracket that was put before the text. */
function documentOf(text: string, element: JsonValue): DocumentSpan {
  const words = wordsOf(element);
  const nowhere = element.end - 1;
  return {
    start: element.start - 1,
    end: element.end - 1,
    contentStart: words === undefined ? nowhere : words.start - 1,
    contentEnd: words === undefined ? nowhere : words.end - 1,
    id: stringOf(text, element, ID_KEYS),
    title: stringOf(text, element, TITLE_KEYS),
    labels: [],
  };
}

/** The string literal with the document's words, if there is one alone: several are never replaced by a reference. */
function wordsOf(element: JsonValue): JsonValue | undefined {
  const source = memberOf(element, 'source');
  const said =
    memberOf(element, 'text') ??
    memberOf(element, 'content') ??
    memberOf(source, 'data') ??
    memberOf(source, 'content');
  if (said?.kind !== 'array') return said?.kind === 'string' ? said : undefined;
  const words = said.elements.length === 1 ? memberOf(said.elements[0], 'text') : undefined;
  return words?.kind === 'string' ? words : undefined;
}

function stringOf(text: string, element: JsonValue, keys: readonly string[]): string | undefined {
  for (const key of keys) {
    const value = memberOf(element, key);
    if (value?.kind === 'string') return text.slice(value.start, value.end - 2);
  }
  return undefined;
}
