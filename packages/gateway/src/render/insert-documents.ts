import { type ChatEdit, WarmpathError } from '@warmpath/core';
import type { ByteEdit, ByteSpan } from '../intake/json-scanner.js';
import { type MessageOrigin, OPENING, type PromptView, type ViewedMessages } from '../intake/prompt-view.js';

/** In a `ChatEdit` of this turn, stands for the text of its documents: they are known as bytes already. */
export const DOCUMENTS_PLACE = '\u0000documents\u0000';

/** The documents of a turn as they are written. All bytes are the inside of JSON strings. */
export interface DocumentsText {
  /** Documents that stand in one text part. One group: all of them in one text. */
  readonly groups: readonly Buffer[];
  /** Whether each group is a content part of its own, so that the engine sees where it ends. */
  readonly isCut: boolean;
  /** Whether each group, or the whole text where they are not cut, ends in a cache breakpoint (Anthropic). */
  readonly hasBreakpoints: boolean;
}

const QUOTE = 0x22;
const CLOSE_BRACKET = 0x5d;
const CLOSE_BRACE = 0x7d;
const BREAKPOINT = ',"cache_control":{"type":"ephemeral"}';
const NOTHING = Buffer.alloc(0);

/** The inside of a JSON string of that text. */
export function escaped(text: string): Buffer {
  return Buffer.from(JSON.stringify(text).slice(1, -1));
}

/** Earlier turns are sent again and again: their text is escaped once, for as long as the turn is remembered. */
const escapedTexts = new WeakMap<ChatEdit, Buffer>();

/**
 * What rendering adds to the messages of a body, as edits of its bytes: everything else stays as the client wrote it.
 * Nothing of the client's is ever taken away.
 *
 * @param edits What core's rendering adds; `at` counts the messages of `viewed`.
 * @param documents What stands for `DOCUMENTS_PLACE` at the beginning of an edit's text.
 * @throws WarmpathError `WARMPATH_INVALID_REQUEST` for a message whose content is neither text nor parts.
 */
export function insertDocuments(
  prompt: PromptView,
  viewed: ViewedMessages,
  edits: readonly ChatEdit[],
  documents: DocumentsText,
): ByteEdit[] {
  const inserter = new Inserter(prompt, viewed);
  for (const edit of edits) {
    const isPlace = edit.text.startsWith(DOCUMENTS_PLACE);
    inserter.insert(edit, isPlace ? documents : PLAIN, textBehind(edit, isPlace));
  }
  return inserter.edits;
}

const PLAIN: DocumentsText = { groups: [], isCut: false, hasBreakpoints: false };

function textBehind(edit: ChatEdit, isPlace: boolean): Buffer {
  if (isPlace) {
    const hint = edit.text.slice(DOCUMENTS_PLACE.length);
    return hint === '' ? NOTHING : escaped(hint);
  }
  const known = escapedTexts.get(edit);
  if (known !== undefined) return known;
  const text = escaped(edit.text);
  escapedTexts.set(edit, text);
  return text;
}

class Inserter {
  readonly edits: ByteEdit[] = [];
  readonly #prompt: PromptView;
  readonly #viewed: ViewedMessages;

  constructor(prompt: PromptView, viewed: ViewedMessages) {
    this.#prompt = prompt;
    this.#viewed = viewed;
  }

  /** Adds documents, and a text behind them, where the edit says. */
  insert({ at, add, role = 'user' }: ChatEdit, documents: DocumentsText, text: Buffer): void {
    const origin = this.#viewed.origins[at];
    if (add === 'message-before' && role === 'system' && !this.#prompt.members.hasSystemMessages) {
      this.#addOpening(documents, text);
      return;
    }
    if (origin === undefined) throw new TypeError('an edit of a message that is not there');
    const { place } = origin;
    if (add === 'text-before' || add === 'text-after') {
      const content = this.#contentOf(origin);
      if (add === 'text-before') this.#addBefore(origin, content, documents, text);
      else this.#addAfter(content, documents, text);
    } else if (add === 'message-before' && origin.part === 'words') {
      // Results of tools come first in their message, and Anthropic joins messages of one role anyway.
      this.#addBefore(origin, this.#contentOf(origin), documents, text);
    } else this.#addMessage(place, add, message(role, this.#written(documents, text)));
  }

  /** Where the content of a message stands; an empty span behind the message's brace where it has none. */
  #contentOf({ place }: MessageOrigin): ByteSpan {
    const { body, elements, isText } = this.#prompt;
    if (place === OPENING) return this.#prompt.opening!;
    const element = elements[place]!;
    if (isText) return element;
    const content = body.scan.member(element.start, 'content');
    if (content !== undefined) return content;
    return { start: element.start + 1, end: element.start + 1 };
  }

  #addBefore(origin: MessageOrigin, content: ByteSpan, documents: DocumentsText, text: Buffer): void {
    const { scan, bytes } = this.#prompt.body;
    if (this.#isNothing(content)) this.#fill(content, documents, text);
    else if (bytes[content.start] === QUOTE) this.#addBeforeText(content, documents, text);
    else if (scan.isArray(content)) this.#addBeforeParts(origin, content, documents, text);
    else throw notText(origin);
  }

  #isNothing(content: ByteSpan): boolean {
    return content.start === content.end || this.#prompt.body.scan.isNull(content);
  }

  /** The message has no content, or null: it gets one. */
  #fill(content: ByteSpan, documents: DocumentsText, text: Buffer): void {
    const { scan, bytes } = this.#prompt.body;
    const written = this.#written(documents, text);
    if (content.start < content.end) this.#put(content, written);
    else this.#put(content, ['"content":', ...written, bytes[scan.space(content.start)] === CLOSE_BRACE ? '' : ',']);
  }

  /** The content is one text: it stays one, unless the documents are parts of their own. */
  #addBeforeText(content: ByteSpan, documents: DocumentsText, text: Buffer): void {
    const { groups, isCut, hasBreakpoints } = documents;
    const inside = { start: content.start + 1, end: content.start + 1 };
    const behind = { start: content.end, end: content.end };
    if (!isCut && !hasBreakpoints) {
      this.#put(inside, [...groups, text]);
      return;
    }
    const before = { start: content.start, end: content.start };
    if (!isCut) {
      this.#put(before, ['[{"type":"text","text":']);
      this.#put(inside, [...groups, text]);
      this.#put(behind, [BREAKPOINT, '}]']);
      return;
    }
    const parts = this.#parts(documents, NOTHING);
    if (content.end - content.start === 2 && text.length === 0) {
      this.#put(content, ['[', ...parts, ']']);
      return;
    }
    this.#put(before, ['[', ...parts, ',{"type":"text","text":']);
    this.#put(inside, [text]);
    this.#put(behind, ['}]']);
  }

  #addBeforeParts(origin: MessageOrigin, content: ByteSpan, documents: DocumentsText, text: Buffer): void {
    const { scan, bytes } = this.#prompt.body;
    const parts = this.#parts(documents, text);
    const results = origin.part === 'words' ? this.#resultsEnd(content) : undefined;
    if (results !== undefined) {
      this.#put({ start: results, end: results }, [',', ...parts]);
      return;
    }
    const first = scan.space(content.start + 1);
    this.#put({ start: first, end: first }, [...parts, bytes[first] === CLOSE_BRACKET ? '' : ',']);
  }

  #addAfter(content: ByteSpan, documents: DocumentsText, text: Buffer): void {
    const { scan, bytes } = this.#prompt.body;
    const behind = { start: content.end, end: content.end };
    const last = { start: content.end - 1, end: content.end - 1 };
    if (this.#isNothing(content)) this.#fill(content, documents, text);
    else if (bytes[content.start] !== QUOTE) {
      const isEmpty = bytes[scan.space(content.start + 1)] === CLOSE_BRACKET;
      this.#put(last, [isEmpty ? '' : ',', ...this.#parts(documents, text)]);
    } else {
      const isEmpty = content.end - content.start === 2;
      const gap = isEmpty ? '' : '\\n\\n';
      if (!documents.isCut && !documents.hasBreakpoints) this.#put(last, [gap, ...documents.groups, text]);
      else if (isEmpty) this.#put(content, ['[', ...this.#parts(documents, text), ']']);
      else {
        this.#put({ start: content.start, end: content.start }, ['[{"type":"text","text":']);
        this.#put(last, documents.isCut ? [gap] : [gap, ...documents.groups, text]);
        this.#put(behind, documents.isCut ? ['},', ...this.#parts(documents, text), ']'] : [BREAKPOINT, '}]']);
      }
    }
  }

  #addMessage(place: number, add: ChatEdit['add'], written: Pieces): void {
    const { elements, isText } = this.#prompt;
    const { start, end } = elements[place]!;
    const isBefore = add === 'message-before';
    if (isText) {
      // One text is a message of the user, which it becomes in writing when another one stands beside it.
      this.#put({ start, end: start }, ['[', ...(isBefore ? [...written, ','] : []), '{"role":"user","content":']);
      this.#put({ start: end, end }, ['}', ...(isBefore ? [] : [',', ...written]), ']']);
    } else if (isBefore) this.#put({ start, end: start }, [...written, ',']);
    else this.#put({ start: end, end }, [',', ...written]);
  }

  /** The body has no system prompt: its member is added. */
  #addOpening(documents: DocumentsText, text: Buffer): void {
    const { body, members } = this.#prompt;
    const { start, end, pieces } = body.with(members.opening!, '');
    this.#put({ start, end }, [...pieces, ...this.#written(documents, text)]);
  }

  /** A content of its own: one text, or parts. */
  #written(documents: DocumentsText, text: Buffer): Pieces {
    if (documents.isCut || documents.hasBreakpoints) return ['[', ...this.#parts(documents, text), ']'];
    return ['"', ...documents.groups, text, '"'];
  }

  /** Content parts, with commas between them. */
  #parts({ groups, isCut, hasBreakpoints }: DocumentsText, text: Buffer): Pieces {
    const opening = `{"type":"${this.#prompt.members.partType}","text":"`;
    const close = hasBreakpoints ? `"${BREAKPOINT}}` : '"}';
    if (!isCut) return [opening, ...groups, text, close];
    const parts = groups.flatMap((group, at): Pieces => [at === 0 ? '' : ',', opening, group, close]);
    return text.length === 0 ? parts : [...parts, groups.length === 0 ? '' : ',', opening, text, '"}'];
  }

  /** Behind the last result of a tool in a content of parts. */
  #resultsEnd(content: ByteSpan): number | undefined {
    const { scan } = this.#prompt.body;
    const { type } = this.#prompt.members.split!;
    const isResult = (part: ByteSpan): boolean => {
      const named = scan.member(part.start, 'type');
      return named !== undefined && scan.string(named) === type;
    };
    return scan.elements(content.start).findLast(isResult)?.end;
  }

  #put({ start, end }: ByteSpan, pieces: Pieces): void {
    this.edits.push({ start, end, pieces });
  }
}

type Pieces = readonly (Buffer | string)[];

function message(role: string, content: Pieces): Pieces {
  return [`{"role":${JSON.stringify(role)},"content":`, ...content, '}'];
}

function notText({ place }: MessageOrigin): WarmpathError {
  const path = place === OPENING ? 'system' : `messages[${place}].content`;
  return new WarmpathError('WARMPATH_INVALID_REQUEST', { path, detail: 'Content is a string or an array of parts.' });
}
