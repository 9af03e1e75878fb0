import type { IncomingHttpHeaders } from 'node:http';
import { answerHash, type LabelMap, readTokenCounts, SseReader, type TokenCounts } from '@warmpath/core/internal';
import { isObject, type JsonObject } from '../json/json-scanner.js';
import type { Usage } from '../memory/served-histories.js';

/** Bytes of an event or a response body; longer ones are not parsed. */
const MAX_READ_BYTES = 1_048_576;

/** Estimate for an answer in one piece. */
const BYTES_PER_TOKEN = 4;

const USAGE = '"usage"';
const TIMINGS = '"timings"';

/** The results of reading a response. */
export type SniffedAnswer = Readonly<
  Pick<ResponseSniffer, 'answers' | 'usage' | 'completionTokens' | 'estimatedTokens' | 'firstContentAt' | 'prefilled'>
>;

/**
 * Reads a response after it was relayed: the engine's `usage` and the time of the first content. Cannot change or delay
 * the response. Holds one event of a stream, or one body, of at most 1 MiB. Does not read compressed responses or other
 * content types. Never throws: an error ends the reading only.
 */
export class ResponseSniffer {
  readonly #now: () => number;
  readonly #answer: AnswerReader | undefined;
  #mode: 'json' | 'stream' | 'blind' = 'blind';
  #body: Buffer[] = [];
  #bodyBytes = 0;
  #events: SseReader | undefined;
  /** What the engine counted, each count as it last reported it. */
  #counts: TokenCounts = {};
  /** Whether generated content came, so that the whole prompt is prefilled. */
  prefilled = false;
  /** When a stream's first content came, on the clock of `now`; `undefined` for a response in one piece. */
  firstContentAt: number | undefined;
  #estimatedTokens = 0;

  /**
   * @param now The monotonic clock, in milliseconds.
   * @param readsAnswer Whether `answers` is wanted; it costs parsing every event.
   * @param labels Labels in the answer that its client gets as its own.
   */
  constructor(now: () => number, readsAnswer = false, labels?: LabelMap) {
    this.#now = now;
    this.#answer = readsAnswer ? new AnswerReader(labels) : undefined;
  }

  /** Tokens of the prompt; `undefined` where the engine did not count them. */
  get usage(): Usage | undefined {
    const { promptTokens, cachedTokens, cacheWriteTokens } = this.#counts;
    return promptTokens === undefined ? undefined : { promptTokens, cachedTokens, cacheWriteTokens };
  }

  /** Tokens of the answer. */
  get completionTokens(): number | undefined {
    return this.#counts.completionTokens;
  }

  /** Hashes of the model's answers (`answerHash`), once the response is complete. */
  get answers(): readonly string[] {
    return this.#answer?.hashes() ?? [];
  }

  /** Estimated tokens of the answer: one an event, because engines send a stream's tokens one by one. */
  get estimatedTokens(): number {
    return Math.ceil(this.#estimatedTokens);
  }

  /** Whether data is read: not before `head`, nor after `end`. */
  get isReading(): boolean {
    return this.#mode !== 'blind';
  }

  head(status: number, headers: IncomingHttpHeaders): void {
    const encoding = headers['content-encoding'];
    if (status !== 200 || (encoding !== undefined && encoding !== 'identity')) return;
    const type = headers['content-type'] ?? '';
    if (type.startsWith('text/event-stream')) {
      this.#mode = 'stream';
      this.#events = new SseReader({ onData: (data) => this.#readEvent(data), onTooLong: () => {} }, MAX_READ_BYTES);
    } else if (type.startsWith('application/json')) this.#mode = 'json';
  }

  data(chunk: Buffer): void {
    try {
      if (this.#mode === 'stream') this.#events!.read(chunk);
      else if (this.#mode === 'json') this.#keep(chunk);
    } catch {
      this.#mode = 'blind';
    }
  }

  /** The response is complete. */
  end(): void {
    try {
      if (this.#mode === 'stream') this.#events!.end();
      else if (this.#body.length > 0) this.#readBody(Buffer.concat(this.#body).toString('utf8'));
    } catch {
      // The results so far stay.
    }
    this.#mode = 'blind';
  }

  #keep(chunk: Buffer): void {
    this.prefilled = true;
    this.#estimatedTokens += chunk.length / BYTES_PER_TOKEN;
    this.#bodyBytes += chunk.length;
    if (this.#bodyBytes <= MAX_READ_BYTES) this.#body.push(chunk);
    else this.#body = [];
  }

  #readBody(text: string): void {
    const body = asObject(text);
    if (body === undefined) return;
    this.#counts = readTokenCounts(body);
    this.#answer?.response(body);
  }

  #readEvent(bytes: Uint8Array): void {
    const data = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
    // Most events carry one token of text. After the first content, only an event with usage is parsed.
    if (this.firstContentAt !== undefined) this.#estimatedTokens++;
    const isNews = this.firstContentAt === undefined || data.includes(USAGE) || data.includes(TIMINGS);
    if (this.#answer === undefined && !isNews) return;
    const object = asObject(data.toString('utf8'));
    if (object !== undefined) this.#answer?.event(object);
    this.#counts = { ...this.#counts, ...readTokenCounts(object) };
    if (!hasContent(object)) return;
    this.prefilled = true;
    if (this.firstContentAt !== undefined) return;
    this.firstContentAt = this.#now();
    this.#estimatedTokens++;
  }
}

/** The JSON object in a text; `undefined` if there is none. O(text). */
export function asObject(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function hasContent(event: Readonly<Record<string, unknown>> | undefined): boolean {
  const { choices, type } = event ?? {};
  if (typeof type === 'string') return type === 'content_block_delta' || /^response\..*\.delta$/.test(type);
  if (!Array.isArray(choices)) return false;
  return choices.some((choice: unknown) => {
    const { text, delta } = (choice ?? {}) as { text?: unknown; delta?: unknown };
    if (typeof text === 'string' && text !== '') return true;
    if (typeof delta !== 'object' || delta === null) return false;
    return Object.entries(delta).some(([name, value]) => name !== 'role' && value !== null && value !== '');
  });
}

/** Characters of one response; a longer one has no hashes. */
const MAX_CHARACTERS = 1_048_576;

interface Call {
  name: string;
  arguments: string;
}

interface Draft {
  text: string;
  readonly calls: Map<number, Call>;
}

/**
 * Collects the model's answers from a response of any API and hashes them: an unnamed conversation is recognised by the
 * hash at its next turn. An answer that cannot be read has no hash.
 */
export class AnswerReader {
  /** By index of the choice. */
  readonly #drafts = new Map<number, Draft>();
  #characters = 0;
  readonly #labels: LabelMap | undefined;

  /** @param labels Labels in the answer that its client gets as its own. */
  constructor(labels: LabelMap | undefined) {
    this.#labels = labels;
  }

  /** Reads a whole JSON response. */
  response(body: JsonObject): void {
    const { choices, content, output } = body;
    for (const choice of arrayOf(choices)) this.#message(numberOf(choice['index']), choice['message']);
    if (content !== undefined) this.#message(0, { content });
    for (const item of arrayOf(output)) if (item['type'] === 'message') this.#message(0, item);
  }

  /** Reads one event of a stream. */
  event(event: JsonObject): void {
    const { choices, type, delta } = event;
    for (const choice of arrayOf(choices)) this.#delta(numberOf(choice['index']), choice['delta']);
    if (type === 'response.output_text.delta' && typeof delta === 'string') this.#addText(0, delta);
    if (type === 'content_block_delta' && isObject(delta)) this.#addText(0, delta['text']);
  }

  /** Hashes of the answers so far, one for each choice with text or calls. */
  hashes(): readonly string[] {
    if (this.#characters > MAX_CHARACTERS) return [];
    return [...this.#drafts.values()].flatMap(({ text, calls }) => {
      const toolCalls = [...calls]
        .sort(([a], [b]) => a - b)
        .map(([, call]) => ({ function: { ...call, arguments: this.#mapped(call.arguments) } }));
      return answerHash({ content: this.#mapped(text), tool_calls: toolCalls }) ?? [];
    });
  }

  /** As the client gets it. */
  #mapped(text: string): string {
    return this.#labels?.inAnswer(text) ?? text;
  }

  #message(choice: number, message: unknown): void {
    if (!isObject(message)) return;
    const { content, tool_calls: toolCalls } = message;
    if (typeof content === 'string') this.#addText(choice, content);
    for (const part of arrayOf(content)) this.#addText(choice, part['text']);
    for (const [place, call] of arrayOf(toolCalls).entries()) this.#addCall(choice, place, call);
  }

  #delta(choice: number, delta: unknown): void {
    if (!isObject(delta)) return;
    this.#addText(choice, delta['content']);
    for (const call of arrayOf(delta['tool_calls'])) this.#addCall(choice, numberOf(call['index']), call);
  }

  #addText(choice: number, text: unknown): void {
    if (typeof text !== 'string' || this.#overflows(text)) return;
    this.#draftOf(choice).text += text;
  }

  #addCall(choice: number, place: number, call: JsonObject): void {
    const given = isObject(call['function']) ? call['function'] : {};
    const { calls } = this.#draftOf(choice);
    const known = calls.get(place) ?? { name: '', arguments: '' };
    calls.set(place, known);
    if (typeof given['name'] === 'string' && !this.#overflows(given['name'])) known.name += given['name'];
    if (typeof given['arguments'] === 'string' && !this.#overflows(given['arguments']))
      known.arguments += given['arguments'];
  }

  #overflows(text: string): boolean {
    this.#characters += text.length;
    return this.#characters > MAX_CHARACTERS;
  }

  #draftOf(choice: number): Draft {
    const known = this.#drafts.get(choice);
    if (known !== undefined) return known;
    const draft: Draft = { text: '', calls: new Map() };
    this.#drafts.set(choice, draft);
    return draft;
  }
}

function arrayOf(value: unknown): readonly JsonObject[] {
  return Array.isArray(value) ? value.filter(isObject) : [];
}

function numberOf(value: unknown): number {
  return typeof value === 'number' ? value : 0;
}
