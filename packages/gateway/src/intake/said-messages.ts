import {
  BACKSLASH,
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COLON,
  COMMA,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
} from './json-characters.js';

/**
 * Where the messages stand in a body that nobody has parsed. A request that only has to be compared with earlier ones is read
 * as bytes: finding the messages of 400 KB takes a tenth of what parsing them does.
 */

/** Which members of a body hold what is said. */
export interface SaidMembers {
  /** What stands before the messages, if the API puts it into a member of its own. */
  readonly opening?: string;
  /** The array of messages, or one text. */
  readonly messages: string;
}

/** Where a value stands in a body: its first byte, and the one behind its last. */
export interface ByteSpan {
  readonly start: number;
  readonly end: number;
}

/** One message, as the client wrote it. */
export interface SaidMessage extends ByteSpan {
  /** Whether it may be the model's: the word stands in it as a value or key. */
  readonly maySpeakForModel: boolean;
}

/** What a body says. */
export interface SaidMessages {
  readonly opening: ByteSpan | undefined;
  readonly messages: readonly SaidMessage[];
}

/**
 * Where every message of a JSON body stands. Of a member that occurs twice the last one counts, as in
 * `JSON.parse`. `undefined` for what breaks off or has no such member; of JSON that is broken otherwise it may answer anything. It never
 * throws. O(body), long strings in native searches.
 */
export function saidMessages(body: Buffer, said: SaidMembers): SaidMessages | undefined {
  const scan = new ByteScan(body);
  let opening: ByteSpan | undefined;
  let messages: readonly SaidMessage[] | undefined;
  for (const { key, start, end } of scan.members()) {
    if (key === said.messages) messages = scan.elements(start, end);
    else if (key === said.opening) opening = { start, end };
  }
  return scan.isWhole && messages !== undefined ? { opening, messages } : undefined;
}

/** Where an array of messages stands: behind its bracket, and behind its last message. Without messages, the two are one. */
export interface MessagesSpan {
  readonly open: number;
  readonly end: number;
}

/** The same of a JSON body that has one such array; `undefined` for any other. O(body), long strings in native searches. */
export function messagesSpan(body: Buffer, { messages }: SaidMembers): MessagesSpan | undefined {
  const scan = new ByteScan(body);
  const [found, ...others] = scan.members().filter(({ key }) => key === messages);
  if (!scan.isWhole || found === undefined || others.length > 0 || body[found.start] !== OPEN_BRACKET) return undefined;
  const open = found.start + 1;
  let end = found.end - 1;
  while (end > open && body[end - 1]! <= 0x20) end--;
  return { open, end };
}

/**
 * Where the first array of messages begins, behind its bracket, and where its first messages end, `most` of them. Nothing behind them
 * is read. `undefined` where no array comes first. O(bytes up to there).
 */
export function firstMessages(
  body: Buffer,
  { messages }: SaidMembers,
  most: number,
): { readonly open: number; readonly ends: readonly number[] } | undefined {
  const scan = new ByteScan(body);
  const open = scan.openArray(messages);
  return open === undefined ? undefined : { open, ends: scan.ends(open, most) };
}

interface MemberBytes extends ByteSpan {
  readonly key: string;
}

/** The model's role in every API, in its quotes. */
const OF_THE_MODEL = Buffer.from('"assistant"');

/** Bytes of a string that are looked at one by one before a native search is worth its call: names and roles are shorter. */
const SHORT_STRING = 24;

/** Goes through JSON byte by byte, past strings in one leap. Once the text breaks off, it has come to its end and stays there. */
class ByteScan {
  readonly #bytes: Buffer;
  /** False once the text broke off, or did not go on as an object or array does. */
  isWhole = true;
  /** Set by every string that is the model's role. */
  #namesModel = false;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  /** The members of the object that is the body. */
  members(): readonly MemberBytes[] {
    const found: MemberBytes[] = [];
    let at = this.#open(OPEN_BRACE, 0);
    while (this.isWhole && this.#bytes[at] !== CLOSE_BRACE) {
      const keyEnd = this.#expect(QUOTE, at) ? this.#stringEnd(at) : at;
      const colon = this.#space(keyEnd);
      if (!this.#expect(COLON, colon)) break;
      const start = this.#space(colon + 1);
      const end = this.#valueEnd(start);
      found.push({ key: this.#key(at, keyEnd), start, end });
      at = this.#next(end, CLOSE_BRACE);
    }
    return found;
  }

  /** Behind the bracket of the array that is the first member of this name; `undefined` if none is, or it is no array. */
  openArray(name: string): number | undefined {
    let at = this.#open(OPEN_BRACE, 0);
    while (this.isWhole && this.#bytes[at] !== CLOSE_BRACE) {
      const keyEnd = this.#expect(QUOTE, at) ? this.#stringEnd(at) : at;
      const colon = this.#space(keyEnd);
      if (!this.#expect(COLON, colon)) break;
      const start = this.#space(colon + 1);
      if (this.#key(at, keyEnd) === name) return this.#bytes[start] === OPEN_BRACKET ? start + 1 : undefined;
      at = this.#next(this.#valueEnd(start), CLOSE_BRACE);
    }
    return undefined;
  }

  /** Where the first elements of an array end of which that is the inside, `most` of them. */
  ends(open: number, most: number): readonly number[] {
    const ends: number[] = [];
    let at = this.#space(open);
    while (ends.length < most && this.isWhole && this.#bytes[at] !== CLOSE_BRACKET) {
      const end = this.#valueEnd(at);
      if (!this.isWhole) break;
      ends.push(end);
      at = this.#next(end, CLOSE_BRACKET);
    }
    return ends;
  }

  /** The elements of an array; a value of another kind is its own only element. */
  elements(start: number, end: number): readonly SaidMessage[] {
    const bytes = this.#bytes;
    if (bytes[start] !== OPEN_BRACKET) return [{ start, end, maySpeakForModel: false }];
    const found: SaidMessage[] = [];
    let at = this.#open(OPEN_BRACKET, start);
    while (this.isWhole && bytes[at] !== CLOSE_BRACKET) {
      this.#namesModel = false;
      const last = this.#valueEnd(at);
      found.push({ start: at, end: last, maySpeakForModel: this.#namesModel });
      at = this.#next(last, CLOSE_BRACKET);
    }
    return found;
  }

  #key(start: number, end: number): string {
    const raw = this.#bytes.toString('utf8', start + 1, end - 1);
    if (!raw.includes('\\')) return raw;
    try {
      return JSON.parse(`"${raw}"`) as string;
    } catch {
      this.isWhole = false;
      return raw;
    }
  }

  /** Behind the bracket and white space. */
  #open(bracket: number, from: number): number {
    const at = this.#space(from);
    return this.#expect(bracket, at) ? this.#space(at + 1) : at;
  }

  /** Where the next member or element begins, or the bracket that closes. */
  #next(from: number, close: number): number {
    const at = this.#space(from);
    if (this.#bytes[at] === close) return at;
    return this.#expect(COMMA, at) ? this.#space(at + 1) : at;
  }

  #expect(byte: number, at: number): boolean {
    this.isWhole &&= this.#bytes[at] === byte;
    return this.isWhole;
  }

  #space(from: number): number {
    let at = from;
    while (this.#bytes[at]! <= 0x20) at++;
    return at;
  }

  #valueEnd(start: number): number {
    const first = this.#bytes[start];
    if (first === QUOTE) return this.#stringEnd(start);
    if (first === OPEN_BRACE || first === OPEN_BRACKET) return this.#containerEnd(start);
    let at = start;
    while (isOfScalar(this.#bytes[at])) at++;
    if (at === start) this.isWhole = false;
    return at;
  }

  #stringEnd(start: number): number {
    const bytes = this.#bytes;
    const end = this.#shortStringEnd(start) ?? this.#longStringEnd(start + SHORT_STRING);
    if (end - start === OF_THE_MODEL.length && OF_THE_MODEL.compare(bytes, start, end) === 0) this.#namesModel = true;
    return end;
  }

  /** `undefined` if the string is longer, or holds an escape: then it is the other way's. */
  #shortStringEnd(start: number): number | undefined {
    const bytes = this.#bytes;
    for (let at = start + 1; at <= start + SHORT_STRING; at++) {
      const byte = bytes[at];
      if (byte === QUOTE) return at + 1;
      if (byte === BACKSLASH) return this.#longStringEnd(at);
    }
    return undefined;
  }

  /** `from`: behind the quote that opens, and behind no half of an escape. */
  #longStringEnd(from: number): number {
    const bytes = this.#bytes;
    for (let at = bytes.indexOf(QUOTE, from); at >= 0; at = bytes.indexOf(QUOTE, at + 1)) {
      let backslashes = 0;
      while (bytes[at - 1 - backslashes] === BACKSLASH) backslashes++;
      if (backslashes % 2 === 0) return at + 1;
    }
    this.isWhole = false;
    return bytes.length;
  }

  #containerEnd(start: number): number {
    const bytes = this.#bytes;
    let depth = 0;
    for (let at = start; at < bytes.length; at++) {
      const byte = bytes[at];
      if (byte === QUOTE) at = this.#stringEnd(at) - 1;
      else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) depth++;
      else if ((byte === CLOSE_BRACE || byte === CLOSE_BRACKET) && --depth === 0) return at + 1;
    }
    this.isWhole = false;
    return bytes.length;
  }
}

/** Whether a byte is one of a number, `true`, `false` or `null`; past the end there is none. */
function isOfScalar(byte: number | undefined): boolean {
  return byte !== undefined && byte > 0x20 && byte !== COMMA && byte !== CLOSE_BRACE && byte !== CLOSE_BRACKET;
}
