import type { ChatMessage } from '@warmpath/core';
import {
  byteChain,
  estimateTokensOfBytes,
  type MessageSource,
  messageSteps,
  type WorkSteps,
} from '@warmpath/core/internal';
import { type BodyView, invalid } from '../json/json-body.js';
import { type ByteSpan, isObject, parseJson } from '../json/json-scanner.js';
import { UNINTERRUPTED_SIZE } from '../limits/event-loop-budget.js';
import type { ConversationMembers, PromptApi } from './prompt-api.js';

/** Where a message of the rendered prompt comes from. */
export interface MessageOrigin {
  /** Which of the client's messages it is; `OPENING` for what the API puts before them into a member of its own. */
  readonly place: number;
  /** `words`: what a user says behind the results of tools in the same message. */
  readonly part: 'whole' | 'results' | 'words';
}

/** The place of the system prompt where the API has a member for it. */
export const OPENING = -1;

/** Messages as core's rendering takes them, and where each comes from. */
export interface ViewedMessages {
  readonly messages: readonly ChatMessage[];
  readonly origins: readonly MessageOrigin[];
  /** How many of the messages the engine has had before. */
  readonly sentMessages: number;
}

/** Stands for a message that was sent before, and that nobody reads again. */
const SENT_MESSAGE: ChatMessage = { role: 'user' };

/** Bytes from which on looking for the role takes less than reading the message. */
const LONG_MESSAGE = 4_096;
const NOTHING: ByteSpan = { start: 0, end: 0 };

/**
 * The messages of a body, each parsed when it is first read: of a long conversation only the new ones are.
 */
export class PromptView implements MessageSource {
  readonly body: BodyView;
  readonly api: PromptApi;
  readonly members: ConversationMembers;
  /** The client's messages; of a Responses request whose input is one text, that text. */
  readonly elements: readonly ByteSpan[];
  /** Whether the prompt is one text instead of a list of messages. */
  readonly isText: boolean;
  readonly #read: (ChatMessage | undefined)[] = [];
  readonly #readHalves: (readonly ChatMessage[] | undefined)[] = [];
  #readOpening: ChatMessage | undefined;

  private constructor(body: BodyView, api: PromptApi, members: ConversationMembers, elements: readonly ByteSpan[]) {
    this.body = body;
    this.api = api;
    this.members = members;
    this.elements = elements;
    this.isText = elements.length === 1 && body.scan.isString(elements[0]!);
  }

  /** `undefined` for an API without messages, or a body that has none. O(messages), long ones in native searches. */
  static of(body: BodyView, api: PromptApi): PromptView | undefined {
    const members = api.conversation;
    const span = members && body.value(members.messages);
    if (members === undefined || span === undefined) return undefined;
    if (body.scan.isArray(span)) return new PromptView(body, api, members, body.scan.elements(span.start));
    return members.takesText && body.scan.isString(span) ? new PromptView(body, api, members, [span]) : undefined;
  }

  get length(): number {
    return this.elements.length;
  }

  /** Where the opening stands; `undefined` where the API has none, or the body. */
  get opening(): ByteSpan | undefined {
    const { opening } = this.members;
    const span = opening === undefined ? undefined : this.body.value(opening);
    return span === undefined || this.body.scan.isNull(span) ? undefined : span;
  }

  /**
   * The client's message of that place. Errors: `WARMPATH_INVALID_REQUEST`, `WARMPATH_INVALID_JSON`. O(message), once.
   */
  at(place: number): ChatMessage | undefined {
    const span = this.elements[place];
    if (span === undefined) return undefined;
    this.#read[place] ??= this.members.read(this.body.scan.parse(span), place);
    return this.#read[place];
  }

  /** The role of the message of that place; a long one is not read for it. Same errors. O(message), native. */
  roleAt(place: number): string | undefined {
    const span = this.elements[place];
    const { scan } = this.body;
    if (span === undefined) return undefined;
    if (this.#read[place] !== undefined || length(span) < LONG_MESSAGE || !scan.isObject(span)) {
      return this.at(place)?.role;
    }
    const known: Record<string, unknown> = {};
    for (const { key, valueStart, end } of scan.members(span.start)) {
      if (key === 'role' || key === 'type') known[key] = scan.string({ start: valueStart, end });
    }
    return this.members.read(known, place).role;
  }

  /** The hash chain over the messages and what stands before them, byte for byte. O(bytes), 0.5 ns a byte. */
  links(): readonly string[] {
    return byteChain(this.body.bytes, [this.opening ?? NOTHING, ...this.elements]).slice(1);
  }

  /** The messages for rendering; the first `sent` of the client's are not read. O(messages that are read). */
  view(sent: number): ViewedMessages {
    const messages: ChatMessage[] = [];
    const origins: MessageOrigin[] = [];
    const { opening } = this;
    if (opening !== undefined) {
      messages.push(sent > 0 ? SENT_MESSAGE : this.#openingMessage(opening));
      origins.push({ place: OPENING, part: 'whole' });
    }
    let sentMessages = 0;
    for (let place = 0; place < this.elements.length; place++) {
      if (sent > 0 && place === sent) sentMessages = messages.length;
      const halves = this.#halves(place, sent);
      for (const [half, message] of halves.entries()) {
        messages.push(message);
        origins.push({ place, part: halves.length === 1 ? partOf(message) : half === 0 ? 'results' : 'words' });
      }
    }
    if (sent > 0 && sent >= this.elements.length) sentMessages = messages.length;
    return { messages, origins, sentMessages };
  }

  /**
   * Reads and measures what `view` would, message by message, where that is long. Errors: those of
   * `view`. O(messages that are read).
   */
  *read(sent: number): WorkSteps<void> {
    const { opening, elements } = this;
    const from = elements[sent]?.start ?? 0;
    if ((elements.at(-1)?.end ?? 0) - from + length(opening ?? NOTHING) <= UNINTERRUPTED_SIZE) return;
    if (opening !== undefined && sent === 0) {
      const message = this.#openingMessage(opening);
      yield length(opening);
      yield* messageSteps(message);
    }
    for (let place = sent; place < elements.length; place++) {
      const size = length(elements[place]!);
      // In two steps: each takes 1 ns a byte and more.
      const text = this.body.scan.text(elements[place]!);
      yield size;
      this.#read[place] ??= this.members.read(parseJson(text), place);
      yield size;
      for (const message of this.#halves(place, sent)) yield* messageSteps(message);
    }
  }

  #openingMessage(span: ByteSpan): ChatMessage {
    if (this.#readOpening === undefined) {
      const content = this.body.scan.parse(span);
      checkContent(content, this.members.opening!);
      this.#readOpening = { role: 'system', content: content as string };
    }
    return this.#readOpening;
  }

  #halves(place: number, sent: number): readonly ChatMessage[] {
    const { split } = this.members;
    // Only a message that holds results can be split, and the word for them stands in its bytes.
    if (place < sent && !(split !== undefined && this.#holds(place, split.sign))) return [SENT_MESSAGE];
    const message = this.at(place)!;
    if (split === undefined) return [message];
    this.#readHalves[place] ??= split.halves(message);
    const halves = this.#readHalves[place];
    return place < sent ? halves.map(() => SENT_MESSAGE) : halves;
  }

  #holds(place: number, sign: string): boolean {
    const { start, end } = this.elements[place]!;
    const found = this.body.bytes.indexOf(sign, start);
    return found >= 0 && found < end;
  }
}

function length({ start, end }: ByteSpan): number {
  return end - start;
}

function partOf({ role }: ChatMessage): MessageOrigin['part'] {
  return role === 'tool' ? 'results' : 'whole';
}

/** Checks a message as far as the gateway reads it. Error: `WARMPATH_INVALID_REQUEST` with the message's path. */
export function readMessage(value: unknown, path: string): ChatMessage {
  const { role, content } = isObject(value) ? value : {};
  if (typeof role !== 'string') throw invalid(`${path}.role`, 'a string was expected');
  checkContent(content, `${path}.content`);
  return value as ChatMessage;
}

/** Error: `WARMPATH_INVALID_REQUEST` for a content that is neither text nor parts. */
export function checkContent(content: unknown, path: string): void {
  if (content === undefined || content === null || typeof content === 'string' || Array.isArray(content)) return;
  throw invalid(path, 'a string or an array of content parts was expected');
}

/** What of a request decides how its prompt begins, beside the messages. */
export interface ScopedRequest {
  readonly api: PromptApi;
  readonly model: string;
  readonly body: BodyView;
}

/** For as long as the body is held. */
const scopes = new WeakMap<BodyView, string>();
const tokensOfTools = new WeakMap<BodyView, number>();

/**
 * What decides the prompt's beginning beside the messages: model, and hashes of tools and the like as the client wrote
 * them. O(their length).
 */
export function promptScope({ api, model, body }: ScopedRequest): string {
  const known = scopes.get(body);
  if (known !== undefined) return known;
  const parts = [modelScope(model)];
  for (const field of api.promptFields) {
    const value = body.value(field);
    if (value !== undefined) parts.push(`${field}:${byteChain(body.bytes, [value])[0]}`);
  }
  const scope = parts.join('\n');
  scopes.set(body, scope);
  return scope;
}

/** The scope of a prompt that has nothing else in front of its messages. */
export function modelScope(model: string): string {
  return JSON.stringify(model);
}

/** Tokens of the tools, estimated; none without any. O(their length), once for a body. */
export function toolTokens(body: BodyView): number {
  const tools = body.value('tools');
  if (tools === undefined) return 0;
  let tokens = tokensOfTools.get(body);
  if (tokens === undefined) {
    tokens = estimateTokensOfBytes(body.bytes.subarray(tools.start, tools.end));
    tokensOfTools.set(body, tokens);
  }
  return tokens;
}
