import { blockDocuments, type DocumentBlock } from '@warmpath/core';
import { fingerprint, type PromptPiece } from '@warmpath/core/internal';
import type { PromptApi } from '../apis/prompt-view.js';
import { type JsonPath, pathName, type RequestMessage } from '../apis/request-texts.js';
import { BodyView } from '../json/json-body.js';
import { isObject, type JsonObject, JsonScanner } from '../json/json-scanner.js';

/** A request as pieces, in the order in which chat templates write them: model, tools, settings, messages. O(body). */
export function promptPieces(
  body: string,
  object: JsonObject,
  { api, messages, blocks }: { api: PromptApi; messages: readonly RequestMessage[]; blocks: readonly DocumentBlock[] },
): readonly PromptPiece[] {
  const pieces: PromptPiece[] = [];
  const view = new BodyView(Buffer.from(body));
  const raw = (key: string) => view.raw(key);
  if (typeof object['model'] === 'string') pieces.push({ name: 'model', kind: 'model', text: object['model'] });
  for (const field of api.promptFields) {
    const text = raw(field);
    if (text !== undefined) pieces.push({ name: field, kind: field === 'tools' ? 'tools' : 'field', text });
  }
  const given = givenDocuments(raw('documents'));
  const question = given === undefined ? -1 : messages.findLastIndex(({ role }) => role === 'user');
  let first = 0;
  for (const [position, message] of messages.entries()) {
    if (position === question) pieces.push(given!);
    for (const [i, { role, text, place, kind }] of message.texts.entries()) {
      const found = blocks.filter((block) => block.text === first + i).flatMap((block) => placed(text, block));
      // A document that answers cite is one, though nothing in it may change.
      const documents = kind === 'verbatim' ? [{ start: 0, key: fingerprint([text]) }] : found;
      pieces.push({ name: pathName(place), kind: role, text, documents });
    }
    first += message.texts.length;
    const rest = withoutText(valueAt(object, message.place), message);
    if (rest !== undefined) pieces.push({ name: pathName(message.place), kind: message.role, text: rest });
  }
  return pieces;
}

function placed(text: string, block: DocumentBlock) {
  return blockDocuments(text, block).map(({ key }, i) => ({ start: block.documents[i]!.start, key }));
}

/** The documents that a request names itself. */
function givenDocuments(text: string | undefined): PromptPiece | undefined {
  if (text === undefined || !text.startsWith('[')) return undefined;
  const scan = new JsonScanner(Buffer.from(text));
  const documents = scan.elements(0).map((element) => ({
    start: scan.bytes.toString('utf8', 0, element.start).length,
    key: fingerprint([scan.text(element)]),
  }));
  return { name: 'documents', kind: 'user', text, documents };
}

/** What a message has beside its texts: calls of tools, or all of it. */
function withoutText(value: unknown, { texts }: RequestMessage): string | undefined {
  if (!isObject(value)) return undefined;
  if (texts.length === 0) return JSON.stringify(value);
  const { tool_calls: calls } = value;
  return Array.isArray(calls) && calls.length > 0 ? JSON.stringify(calls) : undefined;
}

function valueAt(object: JsonObject, place: JsonPath): unknown {
  let value: unknown = object;
  for (const step of place) value = (value as Record<string | number, unknown> | undefined)?.[step];
  return value;
}
