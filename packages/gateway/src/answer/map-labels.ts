import { WarmpathError } from '@warmpath/core';
import { bodyStart, type CitationMapper, type LabelMap } from '@warmpath/core/internal';
import { type AnswerText, answerTexts, type Channel, eventTexts } from '../apis/answer-texts.js';
import type { ResponseBody, ResponseHead } from '../apis/prompt-apis.js';
import { type TextChange, textEdits } from '../apis/request-texts.js';
import { applyEdits, BodyView } from '../json/json-body.js';
import { isObject, type JsonObject } from '../json/json-scanner.js';
import { EventSplitter } from './event-splitter.js';

const NOTHING = Buffer.alloc(0);
const OPEN_BRACE = 0x7b;
/** Characters of a content coding that an error names. */
const MAX_CODING_LENGTH = 40;

/** One text of a stream, piece by piece. */
interface OpenText {
  readonly channel: Channel;
  readonly mapper: CitationMapper;
  /** The event of its last piece, and where that stood. */
  event: JsonObject;
  place: AnswerText['place'];
}

/**
 * Puts the client's labels into an answer to a prompt with labels of its own, in the API in which the engine answers.
 * Nothing but the model's words and the inputs of its tool calls changes. A stream holds back the digits that may
 * become a label; where it ends behind such digits, they come in an event of their own.
 */
export class MappedAnswer implements ResponseBody {
  readonly #next: ResponseBody;
  readonly #labels: LabelMap;
  /** `unknown`: content types may be wrong, so the first byte tells. */
  #kind: 'untouched' | 'unknown' | 'stream' | 'object' = 'untouched';
  /** Of an object, until it is known whole. */
  #head: ResponseHead | undefined;
  readonly #events = new EventSplitter();
  /** All of an object. */
  readonly #parts: Buffer[] = [];
  readonly #open = new Map<string, OpenText>();
  /** Events that were added: Responses number theirs. */
  #added = 0;

  /** @param next Takes the mapped answer. */
  constructor(next: ResponseBody, labels: LabelMap) {
    this.#next = next;
    this.#labels = labels;
  }

  head(head: ResponseHead): ResponseHead | undefined {
    const type = head.headers['content-type'] ?? '';
    const encoding = head.headers['content-encoding'] ?? 'identity';
    // The gateway asked for no compression. Labels of its own would reach the client as citations of nothing.
    if (head.status === 200 && encoding !== 'identity') {
      const detail = `The engine sent \`content-encoding: ${encoding.slice(0, MAX_CODING_LENGTH)}\` unasked, so labels in its answer cannot be mapped back. Turn compression off in the engine, or ask with \`warmpath.labels: kept\`.`;
      throw new WarmpathError('WARMPATH_UPSTREAM_ERROR', { detail });
    }
    if (head.status !== 200) return this.#next.head(head);
    if (type.startsWith('application/json')) {
      this.#kind = 'object';
      this.#head = this.#next.head(head);
      return undefined;
    }
    this.#kind = 'unknown';
    const { 'content-length': _length, ...headers } = head.headers;
    return this.#next.head({ ...head, headers });
  }

  data(chunk: Buffer): Buffer | string {
    if (this.#kind === 'unknown') {
      const first = chunk[bodyStart(chunk)];
      if (first === undefined) return NOTHING;
      this.#kind = first === OPEN_BRACE ? 'object' : 'stream';
    }
    if (this.#kind === 'untouched') return this.#next.data(chunk);
    if (this.#kind === 'stream')
      return this.#pass(Buffer.concat(this.#events.take(chunk).map((event) => this.#mapEvent(event))));
    this.#parts.push(chunk);
    return NOTHING;
  }

  end(): { readonly head?: ResponseHead; readonly rest: string } {
    if (this.#kind === 'untouched') return this.#next.end();
    const whole = Buffer.concat(this.#parts);
    const body = whole.subarray(bodyStart(whole));
    // What is called an object may be a stream.
    const events =
      body[0] === OPEN_BRACE ? [this.#mapBody(body)] : this.#events.take(body).map((each) => this.#mapEvent(each));
    const last = Buffer.concat([...events, this.#mapEvent(this.#events.rest()), this.#flush(() => true)]);
    const passed = this.#pass(last).toString();
    const { head = this.#kind === 'object' ? this.#head : undefined, rest: behind } = this.#next.end();
    const rest = passed + behind;
    if (head === undefined) return { rest };
    return { head: { ...head, headers: { ...head.headers, 'content-length': String(Buffer.byteLength(rest)) } }, rest };
  }

  broken(error: WarmpathError): string {
    const held = this.#kind === 'stream' ? this.#pass(this.#flush(() => true)).toString() : '';
    return held + this.#next.broken(error);
  }

  #pass(mapped: Buffer): Buffer | string {
    return mapped.length === 0 ? NOTHING : this.#next.data(mapped);
  }

  #mapBody(body: Buffer): Buffer {
    try {
      const view = new BodyView(body);
      const texts = answerTexts(JSON.parse(body.toString('utf8')) as JsonObject);
      return withChanges(view, texts, ({ text }) => this.#labels.inAnswer(text));
    } catch {
      return body;
    }
  }

  #mapEvent(event: Buffer): Buffer {
    const written = event.toString('utf8');
    const lines = [...written.matchAll(/^data:[ ]?(.*?)\r?$/gm)];
    if (lines.length === 0) return event;
    const data = lines.map(([, line]) => line!).join('\n');
    if (data.trim() === '[DONE]') return Buffer.concat([this.#flush(() => true), event]);
    let object: unknown;
    try {
      object = JSON.parse(data);
    } catch {
      return event;
    }
    if (!isObject(object)) return event;
    const { texts, ended } = eventTexts(object);
    const pieces = texts.flatMap(({ channel }) => channel ?? []);
    const flushed = this.#flush(
      ({ group, name }) =>
        (ended.includes(group) && !pieces.some((each) => isSame(each, { group, name }))) ||
        pieces.some((each) => each.group === group && each.name !== name),
    );
    const view = new BodyView(Buffer.from(data));
    const mapped = withChanges(view, texts, (each) => this.#mapPiece(each, object, ended));
    const numbered = this.#numbered(mapped, object);
    if (numbered === view.bytes) return flushed.length === 0 ? event : Buffer.concat([flushed, event]);
    return Buffer.concat([flushed, Buffer.from(withData(written, lines, numbered.toString()))]);
  }

  #mapPiece({ text, place, channel }: AnswerText, event: JsonObject, ended: readonly string[]): string {
    if (channel === undefined) return this.#labels.inAnswer(text);
    const key = JSON.stringify(channel);
    let open = this.#open.get(key);
    if (open === undefined) {
      open = { channel, mapper: this.#labels.answerMapper(), event, place };
      this.#open.set(key, open);
    }
    open.event = event;
    open.place = place;
    const written = open.mapper.write(text);
    return ended.includes(channel.group) ? written + open.mapper.end() : written;
  }

  /** Events with what is held back of some texts. */
  #flush(isEnded: (channel: Channel) => boolean): Buffer {
    const events: string[] = [];
    for (const { channel, mapper, event, place } of this.#open.values()) {
      if (!mapper.isHolding || !isEnded(channel)) continue;
      const piece = pieceEvent(event, place, mapper.end());
      if (typeof event['sequence_number'] === 'number') {
        this.#added++;
        piece['sequence_number'] = event['sequence_number'] + this.#added;
      }
      const type = typeof piece['type'] === 'string' ? `event: ${piece['type']}\n` : '';
      events.push(`${type}data: ${JSON.stringify(piece)}\n\n`);
    }
    return Buffer.from(events.join(''));
  }

  #numbered(bytes: Buffer, { sequence_number: number }: JsonObject): Buffer {
    if (this.#added === 0 || typeof number !== 'number') return bytes;
    return applyEdits(bytes, [new BodyView(bytes).with('sequence_number', String(number + this.#added))]);
  }
}

function isSame(one: Channel, other: Channel): boolean {
  return one.group === other.group && one.name === other.name;
}

/** The JSON with other texts; the very bytes where none changes. */
function withChanges(view: BodyView, texts: readonly AnswerText[], map: (text: AnswerText) => string): Buffer {
  const changes = texts.flatMap((each): readonly TextChange[] => {
    const text = map(each);
    if (text === each.text) return [];
    return [each.isObject ? { place: each.place, json: text } : { place: each.place, text }];
  });
  return changes.length === 0 ? view.bytes : applyEdits(view.bytes, textEdits(view, changes));
}

/** The lines of an event with other data. */
function withData(event: string, lines: readonly RegExpExecArray[], data: string): string {
  const [first] = lines;
  const start = first!.index;
  const last = lines.at(-1)!;
  const lead = first![0].startsWith('data: ') ? 'data: ' : 'data:';
  const end = last.index + last[0].replace(/\r$/, '').length;
  return (
    event.slice(0, start) +
    data
      .split('\n')
      .map((line) => lead + line)
      .join('\n') +
    event.slice(end)
  );
}

/** An event like another one, that brings this piece and nothing else. */
function pieceEvent(event: JsonObject, place: AnswerText['place'], text: string): Record<string, unknown> {
  const [field, at, part, ...path] = place;
  if (field !== 'choices') {
    const { logprobs: _, ...piece } = event;
    const [type, name] = place;
    if (name === undefined) return { ...piece, [type as string]: text };
    const delta = name === 'partial_json' ? { type: 'input_json_delta' } : { type: 'text_delta' };
    return { type: 'content_block_delta', index: event['index'], delta: { ...delta, [name]: text } };
  }
  const { usage: _, ...piece } = event;
  const choices = event['choices'] as readonly JsonObject[];
  const { index, delta } = choices[at as number]!;
  const said = path.length === 0 ? { [part as string]: text } : { delta: deltaOf(delta as JsonObject, path, text) };
  return { ...piece, choices: [{ index: index ?? at, ...said, finish_reason: null }] };
}

/** A piece of a message, or of the input of one of its tool calls. */
function deltaOf(delta: JsonObject, [field, at, ...path]: AnswerText['place'], text: string): JsonObject {
  if (field !== 'tool_calls')
    return at === undefined ? { [field as string]: text } : { [field as string]: { [at as string]: text } };
  const [kind, name] = path;
  const call = (delta['tool_calls'] as readonly JsonObject[])[at as number]!;
  return { tool_calls: [{ index: call['index'] ?? at, [kind as string]: { [name as string]: text } }] };
}
