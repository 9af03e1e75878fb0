import { WarmpathError } from '@warmpath/core';
import type { ChatEdit } from '@warmpath/core/internal';
import { type MessageOrigin, OPENING, type PromptView, type ViewedMessages } from '../apis/prompt-view.js';
import { type ByteEdit, escaped } from '../json/json-body.js';
import type { ByteSpan } from '../json/json-scanner.js';
import { ownBytes } from '../memory/document-cache.js';

/** In a `ChatEdit` of this turn, stands for the text of its documents: they are known as bytes already. */
export const DOCUMENTS_PLACE = '\u0000documents\u0000';

/** The documents of a turn as they are written. All bytes are the inside of JSON strings. */
export interface DocumentsText {
  /** Documents that stand in one text part. One group: all of them in one text. */
  readonly groups: readonly Buffer[];
  /** Whether each group is a content part of its own, so that the engine sees where it ends. */
  readonly isCut: boolean;
  /** Groups that end in a cache breakpoint, by number; where they are not cut, any one stands for the whole text. */
  readonly marked: ReadonlySet<number>;
}

/** How a request says up to where its prompt is to be cached. */
export interface BreakpointMarks {
  /** The member of a content part that says so: key and value as JSON. */
  readonly member: string;
  /** The message, of those that are viewed, whose text ends in a breakpoint: the system prompt. */
  readonly message: number | undefined;
}

const QUOTE = 0x22;
const CLOSE_BRACKET = 0x5d;
const CLOSE_BRACE = 0x7d;
const NOTHING = Buffer.alloc(0);

const NO_MARKS: BreakpointMarks = { member: '', message: undefined };

/** Earlier turns are sent again and again: their text is escaped once, for as long as the turn is remembered. */
const escapedTexts = new WeakMap<ChatEdit, Buffer>();

/**
 * What rendering adds to the messages of a body, as edits of its bytes: everything else stays as the client wrote it.
 * Nothing of the client's is ever taken away.
 *
 * @param edits What core's rendering adds; `at` counts the messages of `viewed`.
 * @param documents What stands for `DOCUMENTS_PLACE` at the beginning of an edit's text.
 * @param marks How breakpoints are written, where there are any.
 * @throws WarmpathError `WARMPATH_INVALID_REQUEST` for a message whose content is neither text nor parts.
 */
export function insertDocuments(
  prompt: PromptView,
  viewed: ViewedMessages,
  edits: readonly ChatEdit[],
  documents: DocumentsText,
  marks: BreakpointMarks = NO_MARKS,
): ByteEdit[] {
  const inserter = new Inserter(prompt, viewed, marks);
  for (const edit of edits) {
    const isPlace = edit.text.startsWith(DOCUMENTS_PLACE);
    inserter.insert(edit, isPlace ? documents : PLAIN, textBehind(edit, isPlace));
  }
  inserter.markMessage();
  return inserter.edits;
}

/** Documents of which there are none. */
export const PLAIN: DocumentsText = { groups: [], isCut: false, marked: new Set() };

function textBehind(edit: ChatEdit, isPlace: boolean): Buffer {
  if (isPlace) {
    const hint = edit.text.slice(DOCUMENTS_PLACE.length);
    return hint === '' ? NOTHING : escaped(hint);
  }
  const known = escapedTexts.get(edit);
  if (known !== undefined) return known;
  const text = ownBytes(escaped(edit.text));
  escapedTexts.set(edit, text);
  return text;
}

class Inserter {
  readonly edits: ByteEdit[] = [];
  readonly #prompt: PromptView;
  readonly #viewed: ViewedMessages;
  /** Written behind the other members of a content part that ends in a breakpoint. */
  readonly #breakpoint: string;
  /** The message that is to end in one, until it does or cannot. */
  #markedMessage: number | undefined;

  constructor(prompt: PromptView, viewed: ViewedMessages, { member, message }: BreakpointMarks) {
    this.#prompt = prompt;
    this.#viewed = viewed;
    this.#breakpoint = `,${member}`;
    this.#markedMessage = message;
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
      else this.#addAfter(content, documents, text, this.#takeMark(at, documents));
    } else if (add === 'message-before' && origin.part === 'words') {
      // Results of tools come first in their message, and Anthropic joins messages of one role anyway.
      this.#addBefore(origin, this.#contentOf(origin), documents, text);
    } else this.#addMessage(place, add, message(role, this.#written(documents, text)));
  }

  /**
   * The message that is to end in a breakpoint gets one where nothing was added to it: its text becomes a part, or its
   * last part a member more. A part that has one already, or is no text, is left alone. Text stays as it is.
   */
  markMessage(): void {
    const origin = this.#markedMessage === undefined ? undefined : this.#viewed.origins[this.#markedMessage];
    if (origin === undefined) return;
    const { scan, bytes } = this.#prompt.body;
    const content = this.#contentOf(origin);
    if (this.#isNothing(content)) return;
    if (bytes[content.start] === QUOTE) {
      this.#put({ start: content.start, end: content.start }, [`[${this.#textPart}`]);
      this.#put({ start: content.end, end: content.end }, [this.#breakpoint, '}]']);
    } else if (scan.isArray(content)) this.#markLastPart(content);
  }

  /** Whether the message's own text, which documents are added behind, is to end in a breakpoint. */
  #takeMark(at: number, { isCut }: DocumentsText): boolean {
    if (at !== this.#markedMessage) return false;
    // What the text and the documents share is not cut: there is no end of the one alone.
    this.#markedMessage = undefined;
    return isCut;
  }

  #markLastPart(content: ByteSpan): void {
    const { scan } = this.#prompt.body;
    const last = scan.elements(content.start).at(-1);
    if (last === undefined || !scan.isObject(last)) return;
    const type = scan.member(last.start, 'type');
    const isText = type !== undefined && scan.string(type) === this.#prompt.members.partType;
    const [key] = Object.keys(JSON.parse(`{${this.#breakpoint.slice(1)}}`) as object);
    if (!isText || scan.member(last.start, key!) !== undefined) return;
    this.#put({ start: last.end - 1, end: last.end - 1 }, [this.#breakpoint]);
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
    const { groups, isCut, marked } = documents;
    const inside = { start: content.start + 1, end: content.start + 1 };
    const behind = { start: content.end, end: content.end };
    if (!isCut && marked.size === 0) {
      this.#put(inside, [...groups, text]);
      return;
    }
    const before = { start: content.start, end: content.start };
    if (!isCut) {
      this.#put(before, [`[${this.#textPart}`]);
      this.#put(inside, [...groups, text]);
      this.#put(behind, [this.#breakpoint, '}]']);
      return;
    }
    const parts = this.#parts(documents, NOTHING);
    if (content.end - content.start === 2 && text.length === 0) {
      this.#put(content, ['[', ...parts, ']']);
      return;
    }
    this.#put(before, ['[', ...parts, `,${this.#textPart}`]);
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

  #addAfter(content: ByteSpan, documents: DocumentsText, text: Buffer, isMarked: boolean): void {
    const { scan, bytes } = this.#prompt.body;
    const { isCut, marked, groups } = documents;
    const behind = { start: content.end, end: content.end };
    const last = { start: content.end - 1, end: content.end - 1 };
    if (this.#isNothing(content)) this.#fill(content, documents, text);
    else if (bytes[content.start] !== QUOTE) {
      const isEmpty = bytes[scan.space(content.start + 1)] === CLOSE_BRACKET;
      if (isMarked) this.#markLastPart(content);
      this.#put(last, [isEmpty ? '' : ',', ...this.#parts(documents, text)]);
    } else {
      const isEmpty = content.end - content.start === 2;
      const gap = isEmpty ? '' : '\\n\\n';
      if (!isCut && marked.size === 0) this.#put(last, [gap, ...groups, text]);
      else if (isEmpty) this.#put(content, ['[', ...this.#parts(documents, text), ']']);
      else {
        this.#put({ start: content.start, end: content.start }, [`[${this.#textPart}`]);
        this.#put(last, isCut ? [gap] : [gap, ...groups, text]);
        const end = isMarked ? this.#breakpoint : '';
        this.#put(behind, isCut ? [end, '},', ...this.#parts(documents, text), ']'] : [this.#breakpoint, '}]']);
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
    if (documents.isCut || documents.marked.size > 0) return ['[', ...this.#parts(documents, text), ']'];
    return ['"', ...documents.groups, text, '"'];
  }

  /** How a content part of text begins, up to its text. */
  get #textPart(): string {
    return `{"type":"${this.#prompt.members.partType}","text":`;
  }

  /** Content parts, with commas between them. */
  #parts({ groups, isCut, marked }: DocumentsText, text: Buffer): Pieces {
    const opening = `${this.#textPart}"`;
    const closeOf = (isMarked: boolean) => (isMarked ? `"${this.#breakpoint}}` : '"}');
    if (!isCut) return [opening, ...groups, text, closeOf(marked.size > 0)];
    const parts = groups.flatMap((group, at): Pieces => [at === 0 ? '' : ',', opening, group, closeOf(marked.has(at))]);
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
