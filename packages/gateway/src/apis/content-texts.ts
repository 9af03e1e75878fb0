import type { JsonObject, JsonPath, RequestText, TextRole } from './request-texts.js';

/** The texts of a content that is a string or an array of parts; `textOf` says what to read of a part that is no plain text. */
export function contentTexts(
  content: unknown,
  place: JsonPath,
  role: TextRole,
  textsOfPart: (part: JsonObject, place: JsonPath) => readonly RequestText[] = () => [],
): readonly RequestText[] {
  if (typeof content === 'string') return [{ role, text: content, place }];
  if (!Array.isArray(content)) return [];
  return content.flatMap((part: unknown, position) => {
    const at = [...place, position];
    if (!isObject(part)) return [];
    const { type, text } = part;
    const isText = TEXT_PARTS.has(type as string) && typeof text === 'string';
    return isText ? [{ role, text, place: [...at, 'text'] }] : textsOfPart(part, at);
  });
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

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
