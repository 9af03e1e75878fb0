import type { JsonObject, JsonPath } from '../intake/apis/request-texts.js';
import { type ChatPart, textPart } from './chat-request.js';
import { arrayAt, isGiven, notTranslatable, objectAt, type RequestSource, stringAt } from './request-source.js';

/**
 * Content of the Responses API (a string, or parts) as parts of chat completions. Errors: `WARMPATH_NOT_TRANSLATABLE`,
 * `WARMPATH_INVALID_REQUEST`.
 */
export function inputParts(source: RequestSource, content: unknown, place: JsonPath): readonly ChatPart[] {
  if (typeof content === 'string') return [textPart(source.text(content, place))];
  return arrayAt(content, place).map((given, position) => {
    const at = [...place, position];
    const part = objectAt(given, at);
    switch (part['type']) {
      case 'input_text':
      case 'output_text':
      case 'text':
        return textPart(source.text(part['text'], [...at, 'text']));
      case 'refusal':
        return { type: 'refusal', refusal: stringAt(part['refusal'], [...at, 'refusal']) };
      case 'input_image':
        return imagePart(part, at);
      case 'input_file':
        return filePart(part, at);
      case 'input_audio':
        return { type: 'input_audio', input_audio: part['input_audio'] };
      default:
        throw notTranslatable([...at, 'type']);
    }
  });
}

function imagePart({ image_url: url, detail, file_id: fileId }: JsonObject, place: JsonPath): ChatPart {
  if (isGiven(fileId)) throw notTranslatable([...place, 'file_id'], 'The file lies at OpenAI');
  return {
    type: 'image_url',
    image_url: { url: stringAt(url, [...place, 'image_url']), ...(isGiven(detail) && { detail }) },
  };
}

function filePart(part: JsonObject, place: JsonPath): ChatPart {
  const { file_data: data, filename, file_id: fileId, file_url: url } = part;
  if (isGiven(url)) throw notTranslatable([...place, 'file_url']);
  const file = { ...(isGiven(filename) && { filename }), ...(isGiven(data) && { file_data: data }) };
  return { type: 'file', file: isGiven(fileId) ? { ...file, file_id: fileId } : file };
}

/** What a model thought, in full or, where only that was kept, in summary. */
export function reasoningTexts(item: JsonObject, place: JsonPath): readonly string[] {
  const { content, summary, encrypted_content: encrypted } = item;
  const key = isGiven(content) ? 'content' : 'summary';
  const texts = arrayAt(isGiven(content) ? content : summary, [...place, key]).map((part, position) => {
    const at = [...place, key, position];
    return stringAt(objectAt(part, at)['text'], [...at, 'text']);
  });
  // Nobody but its maker can read it.
  if (texts.length === 0 && isGiven(encrypted)) throw notTranslatable([...place, 'encrypted_content']);
  return texts;
}
