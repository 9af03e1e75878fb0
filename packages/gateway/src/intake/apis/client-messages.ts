import { type ChatMessage, type ContentPart, WarmpathError } from '@warmpath/core';
import { arrayElements, type JsonSpan, objectMembers, rewriteObject } from '../json-members.js';
import { type JsonPath, pathName } from './request-texts.js';

/** Says on a message which of the client's it is; copies by spread carry it along, and JSON leaves it out. */
const ORIGIN = Symbol('place among the messages of the client');

type Placed = ChatMessage & { [ORIGIN]?: number };

/** The message with the mark of the client's message at that place, which it is or stands for. */
export function placed(message: ChatMessage, place: number): ChatMessage {
  (message as Placed)[ORIGIN] = place;
  return message;
}

/** Which of the client's messages this one is, changed or not; `undefined` for one that rendering added. */
export function placeOf(message: ChatMessage): number | undefined {
  return (message as Placed)[ORIGIN];
}

/** How an API writes a part of text that rendering added. */
export type WritePart = (part: ContentPart) => ContentPart;

/**
 * The messages of a body, written again after rendering. A message that was left alone keeps the client's bytes; of one
 * whose content was added to, so do all other members and all parts that were there: unknown ones, and numbers that a round
 * trip through JavaScript would change.
 */
export class ClientMessages {
  readonly #given: readonly ChatMessage[];
  readonly #text: string;
  readonly #writePart: WritePart;
  #spans: readonly JsonSpan[] | undefined;

  /** `given`: what `JSON.parse` made of `text`, an array. */
  constructor(given: readonly ChatMessage[], text: string, writePart: WritePart = (part) => part) {
    this.#given = given;
    this.#text = text;
    this.#writePart = writePart;
  }

  /**
   * JSON of rendered messages. Neighbours that were left alone stay one piece of the client's text: a long conversation to which
   * little was added is not taken to pieces. O(messages), and O(length) of those that changed.
   */
  writeAll(rendered: readonly ChatMessage[]): string {
    let text = '[';
    for (let at = 0; at < rendered.length; at++) {
      const first = this.#leftAlone(rendered[at]!);
      if (at > 0) text += ',';
      if (first === undefined) {
        text += this.write(rendered[at]!);
        continue;
      }
      let last = first;
      while (at + 1 < rendered.length && this.#leftAlone(rendered[at + 1]!) === last + 1) {
        last++;
        at++;
      }
      text += this.#text.slice(this.#span(first).start, this.#span(last).end);
    }
    return `${text}]`;
  }

  /** JSON of one rendered message. */
  write(message: ChatMessage): string {
    const place = placeOf(message);
    const original = place === undefined ? undefined : this.#given[place];
    if (place === undefined || original === undefined) return this.#added(message);
    const raw = this.raw(place);
    if (this.#leftAlone(message) !== undefined) return raw;
    const members = objectMembers(raw);
    const content = members.findLast(({ key }) => key === 'content');
    if (content === undefined) return this.#added(message);
    const rawContent = raw.slice(content.valueStart, content.end);
    return rewriteObject(raw, members, new Map([['content', this.content(message, original, rawContent)]]));
  }

  /** JSON of a content that grew out of the content of `original`, whose text is `rawContent`. */
  content({ content }: ChatMessage, original: ChatMessage, rawContent: string): string {
    if (!Array.isArray(content)) return JSON.stringify(content);
    const parts = Array.isArray(original.content) ? (original.content as readonly ContentPart[]) : [];
    const spans = parts.length === 0 ? [] : arrayElements(rawContent, 0);
    const known = new Map(parts.map((part, position) => [part, position]));
    const written = (content as readonly ContentPart[]).map((part) => {
      const span = spans[known.get(part) ?? -1];
      return span === undefined ? JSON.stringify(this.#writePart(part)) : rawContent.slice(span.start, span.end);
    });
    return `[${written.join(',')}]`;
  }

  /** The client's own bytes of the message at that place. */
  raw(place: number): string {
    const { start, end } = this.#span(place);
    return this.#text.slice(start, end);
  }

  #span(place: number): JsonSpan {
    this.#spans ??= arrayElements(this.#text, 0);
    return this.#spans[place]!;
  }

  /** The place of a message that is the client's as it was. */
  #leftAlone(message: ChatMessage): number | undefined {
    const place = placeOf(message);
    const original = place === undefined ? undefined : this.#given[place];
    return original !== undefined && message.content === original.content ? place : undefined;
  }

  #added(message: ChatMessage): string {
    const { content } = message;
    if (!Array.isArray(content)) return JSON.stringify(message);
    return JSON.stringify({ ...message, content: (content as readonly ContentPart[]).map(this.#writePart) });
  }
}

/** Checks messages as far as the gateway reads them. Error: `WARMPATH_INVALID_REQUEST` with the message's path. */
export function readMessages(value: unknown, place: JsonPath = ['messages']): readonly ChatMessage[] {
  if (!Array.isArray(value)) throw invalid(place, 'an array of messages was expected');
  for (const [position, message] of value.entries()) {
    const { role, content } = (message ?? {}) as { role?: unknown; content?: unknown };
    if (typeof role !== 'string') throw invalid([...place, position, 'role'], 'a string was expected');
    checkContent(content, [...place, position, 'content']);
  }
  return value as readonly ChatMessage[];
}

/** Error: `WARMPATH_INVALID_REQUEST` for a content that is neither text nor parts. */
export function checkContent(content: unknown, place: JsonPath): void {
  if (content === undefined || content === null || typeof content === 'string' || Array.isArray(content)) return;
  throw invalid(place, 'a string or an array of content parts was expected');
}

export function invalid(place: JsonPath, detail: string): WarmpathError {
  return new WarmpathError('WARMPATH_INVALID_REQUEST', { path: pathName(place), detail });
}
