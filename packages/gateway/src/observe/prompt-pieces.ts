import { blockDocuments, type DocumentBlock, recognise } from '@warmpath/core';
import { fingerprint, outlinePrompt, type PromptOutline, type PromptPiece } from '@warmpath/core/internal';
import type { PromptApi } from '../apis/prompt-view.js';
import { type JsonPath, pathName, type RequestMessage, type RequestText } from '../apis/request-texts.js';
import { BodyView, readObject } from '../json/json-body.js';
import { isObject, type JsonObject, JsonScanner } from '../json/json-scanner.js';
import { BREAKPOINTS } from '../memory/prompt-spans.js';

/** A prompt as an engine got it. */
export interface OutlinedPrompt {
  readonly model: string;
  readonly pieces: readonly PromptPiece[];
  readonly outline: PromptOutline;
}

/**
 * The outline of a prompt. O(body), and one `JSON.parse`.
 *
 * @param findsDocuments Whether documents in its texts are looked for.
 * @param known Outlines of earlier prompts: what is the same need not be hashed again.
 */
export function outlined(
  sent: Buffer,
  { api, findsDocuments, known }: { api: PromptApi; findsDocuments: boolean; known: readonly PromptOutline[] },
): OutlinedPrompt {
  const object = readObject(sent);
  const messages = api.messages(object);
  const texts = messages.flatMap((message) => message.texts);
  const blocks = findsDocuments ? recognise(texts, { mode: 'form' }) : [];
  const pieces = promptPieces(sent.toString(), object, { api, messages, blocks });
  const { model } = object;
  const outline = outlinePrompt(pieces, { keepText: false, known });
  return { model: typeof model === 'string' ? model : '', pieces, outline };
}

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
    if (text === undefined) continue;
    pieces.push({ name: field, kind: field === 'tools' ? 'tools' : 'field', text: text.replace(BREAKPOINTS, '') });
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

/** A cache breakpoint, which is no part of the prompt. */
const MARK = 'cache_control';

/** What a message has beside its texts: calls of tools, thoughts and images, or all of it. */
function withoutText(value: unknown, { texts, place }: RequestMessage): string | undefined {
  if (!isObject(value)) return undefined;
  if (texts.length === 0) return withoutMarks(value);
  const { tool_calls: calls, content } = value;
  if (Array.isArray(calls) && calls.length > 0) return withoutMarks(calls);
  if (!Array.isArray(content)) return undefined;
  const written = texts.map((text) => text.place[place.length + 1]);
  const others = content.filter((_, at) => !written.some((step) => isAt(step, at)));
  return others.length > 0 ? withoutMarks(others) : undefined;
}

function isAt(step: RequestText['place'][number] | undefined, at: number): boolean {
  return typeof step === 'object' ? step.from <= at && at <= step.to : step === at;
}

function withoutMarks(value: object): string {
  return JSON.stringify(value, (key, member: unknown) => (key === MARK ? undefined : member));
}

function valueAt(object: JsonObject, place: JsonPath): unknown {
  let value: unknown = object;
  for (const step of place) value = (value as Record<string | number, unknown> | undefined)?.[step];
  return value;
}
