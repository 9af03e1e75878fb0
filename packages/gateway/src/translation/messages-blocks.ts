import type { ContentPart } from '@warmpath/core';
import { isObject } from '../apis/content-texts.js';
import type { JsonObject, JsonPath } from '../apis/request-texts.js';
import { arrayAt, isGiven, notTranslatable, objectAt, stringAt } from './request-source.js';

/**
 * Anthropic's content (a string, or blocks) as parts of chat completions. `from`: the place of the first block, where the
 * blocks are a part of a longer content. Errors: `WARMPATH_NOT_TRANSLATABLE`, `WARMPATH_INVALID_REQUEST`.
 */
export function contentParts(content: unknown, place: JsonPath, from = 0): readonly ContentPart[] {
  if (typeof content === 'string') return [textPart(content)];
  return arrayAt(content, place).flatMap((given, position) => {
    const at = [...place, from + position];
    const block = objectAt(given, at);
    switch (block['type']) {
      case 'text':
        return [textPart(stringAt(block['text'], [...at, 'text']))];
      case 'image':
        return [{ type: 'image_url', image_url: { url: imageUrl(block['source'], [...at, 'source']) } }];
      case 'document':
        return documentParts(block, at);
      case 'search_result':
        return searchResultParts(block, at);
      default:
        throw notTranslatable([...at, 'type']);
    }
  });
}

export function textPart(text: string): ContentPart {
  return { type: 'text', text };
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
function documentParts(block: JsonObject, place: JsonPath): readonly ContentPart[] {
  refuseCitations(block, place);
  const { title, context } = block;
  const at = [...place, 'source'];
  const source = objectAt(block['source'], at);
  const about = [title, context].filter((text) => typeof text === 'string' && text !== '').map(String);
  switch (source['type']) {
    case 'text':
      return [...about, stringAt(source['data'], [...at, 'data'])].map(textPart);
    case 'content':
      return [...about.map(textPart), ...contentParts(source['content'], [...at, 'content'])];
    case 'base64': {
      const file = { filename: isGiven(title) ? title : 'document.pdf', file_data: fileData(source, at) };
      return [...about.slice(isGiven(title) ? 1 : 0).map(textPart), { type: 'file', file }];
    }
    default:
      throw notTranslatable([...at, 'type'], 'This document is not in the request');
  }
}

function fileData(source: JsonObject, place: JsonPath): string {
  return dataUrl(source['media_type'], source['data'], place);
}

function searchResultParts(block: JsonObject, place: JsonPath): readonly ContentPart[] {
  refuseCitations(block, place);
  const { title, source, content } = block;
  const about = [title, source].filter((text) => typeof text === 'string' && text !== '').map(String);
  return [...about.map(textPart), ...contentParts(content, [...place, 'content'])];
}

/** An answer with citations is another answer than one without. */
function refuseCitations({ citations }: JsonObject, place: JsonPath): void {
  if (isObject(citations) && citations['enabled'] === true) throw notTranslatable([...place, 'citations']);
}
