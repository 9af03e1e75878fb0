import { isObject } from '../intake/apis/content-texts.js';
import type { JsonObject, JsonPath } from '../intake/apis/request-texts.js';
import { type ChatPart, textPart } from './chat-request.js';
import { arrayAt, isGiven, notTranslatable, objectAt, type RequestSource, stringAt } from './request-source.js';

/**
 * Anthropic's content (a string, or blocks) as parts of chat completions. `from`: the place of the first block, where the
 * blocks are a part of a longer content. Errors: `WARMPATH_NOT_TRANSLATABLE`, `WARMPATH_INVALID_REQUEST`.
 */
export function contentParts(source: RequestSource, content: unknown, place: JsonPath, from = 0): readonly ChatPart[] {
  if (typeof content === 'string') return [textPart(source.text(content, place))];
  return arrayAt(content, place).flatMap((given, position) => {
    const at = [...place, from + position];
    const block = objectAt(given, at);
    switch (block['type']) {
      case 'text':
        return [textPart(source.text(block['text'], [...at, 'text']))];
      case 'image':
        return [{ type: 'image_url', image_url: { url: imageUrl(block['source'], [...at, 'source']) } }];
      case 'document':
        return documentParts(source, block, at);
      case 'search_result':
        return searchResultParts(source, block, at);
      default:
        throw notTranslatable([...at, 'type']);
    }
  });
}

function imageUrl(source: unknown, place: JsonPath): string {
  const { type, media_type: mediaType, data, url } = objectAt(source, place);
  if (type === 'url') return stringAt(url, [...place, 'url']);
  if (type !== 'base64') throw notTranslatable([...place, 'type'], 'The file lies at Anthropic');
  return dataUrl(mediaType, data, place);
}

function dataUrl(mediaType: unknown, data: unknown, place: JsonPath): string {
  return `data:${stringAt(mediaType, [...place, 'media_type'])};base64,${stringAt(data, [...place, 'data'])}`;
}

/** A document's title and context are text that the model reads, too. */
function documentParts(source: RequestSource, block: JsonObject, place: JsonPath): readonly ChatPart[] {
  refuseCitations(block, place);
  const { title, context } = block;
  const at = [...place, 'source'];
  const held = objectAt(block['source'], at);
  const about = [title, context].filter((text) => typeof text === 'string' && text !== '').map(String);
  switch (held['type']) {
    case 'text':
      return [...about, source.text(held['data'], [...at, 'data'])].map(textPart);
    case 'content':
      return [...about.map(textPart), ...contentParts(source, held['content'], [...at, 'content'])];
    case 'base64': {
      const file = { filename: isGiven(title) ? title : 'document.pdf', file_data: fileData(held, at) };
      return [...about.slice(isGiven(title) ? 1 : 0).map(textPart), { type: 'file', file }];
    }
    default:
      throw notTranslatable([...at, 'type'], 'This document is not in the request');
  }
}

function fileData(source: JsonObject, place: JsonPath): string {
  return dataUrl(source['media_type'], source['data'], place);
}

function searchResultParts(source: RequestSource, block: JsonObject, place: JsonPath): readonly ChatPart[] {
  refuseCitations(block, place);
  const { title, source: origin, content } = block;
  const about = [title, origin].filter((text) => typeof text === 'string' && text !== '').map(String);
  return [...about.map(textPart), ...contentParts(source, content, [...place, 'content'])];
}

/** An answer with citations is another answer than one without. */
function refuseCitations({ citations }: JsonObject, place: JsonPath): void {
  if (isObject(citations) && citations['enabled'] === true) throw notTranslatable([...place, 'citations']);
}
