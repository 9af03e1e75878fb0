import type { ChatMessage } from '@warmpath/core';
import {
  byteChain,
  estimateTokensOfBytes,
  type MessageSource,
  messageChain,
  messageMeaning,
  type WorkSteps,
} from '@warmpath/core/internal';
import { type BodyView, invalid } from '../json/json-body.js';
import { type ByteSpan, isObject, type JsonObject, parseJson } from '../json/json-scanner.js';
import { UNINTERRUPTED_SIZE } from '../limits/load.js';
import type { RequestMessage } from './request-texts.js';

/** The origin of a message of the rendered prompt. */
export interface MessageOrigin {
  /** Position of the client's message; `OPENING` for the member with the system prompt. */
  readonly place: number;
  /** `words`: the user's text behind tool results in the same message. */
  readonly part: 'whole' | 'results' | 'words';
}

/** Position of a system prompt that has its own member. */
export const OPENING = -1;

/** Messages for core's rendering, with their origins. */
export interface ViewedMessages {
  readonly messages: readonly ChatMessage[];
  readonly origins: readonly MessageOrigin[];
  /** Number of messages that the engine got before. */
  readonly sentMessages: number;
}

/** Stands for a message that was sent before and is not read again. */
const SENT_MESSAGE: ChatMessage = { role: 'user' };

/** Bytes from which on only the role is parsed, if only the role is needed. */
const LONG_MESSAGE = 4_096;
const NOTHING: ByteSpan = { start: 0, end: 0 };

/** The messages of a body. Each is parsed when it is first read, so only new messages of a long conversation are. */
export class PromptView implements MessageSource {
  readonly body: BodyView;
  readonly api: PromptApi;
  readonly members: ConversationMembers;
  /** The client's messages. For a Responses request with one text: that text. */
  readonly elements: readonly ByteSpan[];
  /** Whether the prompt is one text instead of a list of messages. */
  readonly isText: boolean;
  readonly #read: (ChatMessage | undefined)[] = [];
  readonly #readHalves: (readonly ChatMessage[] | undefined)[] = [];
  #readOpening: ChatMessage | undefined;
  #links: readonly string[] | undefined;

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

  /** Position of the system prompt in its own member; `undefined` without one. */
  get opening(): ByteSpan | undefined {
    const { opening } = this.members;
    const span = opening === undefined ? undefined : this.body.value(opening);
    return span === undefined || this.body.scan.isNull(span) ? undefined : span;
  }

  /**
   * The client's message at a position. Errors: `WARMPATH_INVALID_REQUEST`, `WARMPATH_INVALID_JSON`. O(message), once.
   */
  at(place: number): ChatMessage | undefined {
    const span = this.elements[place];
    if (span === undefined) return undefined;
    this.#read[place] ??= this.members.read(this.body.scan.parse(span), place);
    return this.#read[place];
  }

  /** The role of a message. Parses only the role of a long message. Errors: as `at`. O(message). */
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

  /** The hash chain over the meanings of the system prompt and the messages. O(bytes), once. */
  links(): readonly string[] {
    return this.#chain().slice(1);
  }

  /** The system prompt, where it has its own member, and the messages, with their links. O(bytes), once. */
  linkedSpans(): readonly (ByteSpan & { readonly link: string })[] {
    const links = this.#chain();
    const spans = [this.opening, ...this.elements];
    return spans.flatMap((span, place) => (span === undefined ? [] : [{ ...span, link: links[place]! }]));
  }

  #chain(): readonly string[] {
    if (this.#links === undefined) {
      const { opening, elements } = this;
      const { scan } = this.body;
      const system = opening === undefined ? '' : messageMeaning({ role: 'system', content: scan.parse(opening) });
      this.#links = messageChain([[system], ...elements.map((span) => [messageMeaning(scan.parse(span))])]);
    }
    return this.#links;
  }

  /** The messages for rendering, without reading the first `sent` of the client's. O(messages read). */
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

  /** Reads long messages of `view` in steps. Errors: those of `view`. O(messages read). */
  *read(sent: number): WorkSteps<void> {
    const { opening, elements } = this;
    const from = elements[sent]?.start ?? 0;
    if ((elements.at(-1)?.end ?? 0) - from + length(opening ?? NOTHING) <= UNINTERRUPTED_SIZE) return;
    if (opening !== undefined && sent === 0) {
      this.#openingMessage(opening);
      yield length(opening);
    }
    for (let place = sent; place < elements.length; place++) {
      const size = length(elements[place]!);
      const text = this.body.scan.text(elements[place]!);
      yield size;
      this.#read[place] ??= this.members.read(parseJson(text), place);
      yield size;
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
    // Only a message with tool results is split, and its bytes contain their type.
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

/** Checks the fields that the gateway reads. Error: `WARMPATH_INVALID_REQUEST` with the message's path. */
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

/** The parts of a request that decide how its prompt begins, beside the messages. */
export interface ScopedRequest {
  readonly api: PromptApi;
  readonly model: string;
  readonly body: BodyView;
}

/** Kept as long as the body. */
const scopes = new WeakMap<BodyView, string>();
const tokensOfTools = new WeakMap<BodyView, number>();

/**
 * A key of all that decides the prompt's beginning beside the messages: the model, and hashes of tools and similar
 * fields. O(their length).
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

/** The scope of a prompt with nothing but the model before its messages. */
export function modelScope(model: string): string {
  return JSON.stringify(model);
}

/** Estimated tokens of the tools; 0 without any. O(their length), once a body. */
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

export const API_NAMES = ['chat', 'completions', 'messages', 'responses'] as const;
/**
 * An API that takes prompts: OpenAI's chat completions, its plain completions, Anthropic's Messages, OpenAI's
 * Responses.
 */
export type ApiName = (typeof API_NAMES)[number];

/** How an API with messages writes conversations. */
export interface ConversationMembers {
  /** The member with the system prompt, if the API has one. */
  readonly opening?: string;
  /** The member with the messages. */
  readonly messages: string;
  /** Whether this member may be one text instead of a list. */
  readonly takesText: boolean;
  /** Whether the list may contain system messages. */
  readonly hasSystemMessages: boolean;
  /** Type of a text part. */
  readonly partType: string;
  /**
   * Reads an element of the list as a chat message.
   *
   * @throws WarmpathError `WARMPATH_INVALID_REQUEST` with the path of an invalid element
   */
  read(value: unknown, place: number): ChatMessage;
  /** For APIs in which one element may be two messages: results of tools, and words of the user behind them. */
  readonly split?: {
    /** Bytes that every such element contains. */
    readonly sign: string;
    /** Type of the parts that are results. */
    readonly type: string;
    halves(message: ChatMessage): readonly ChatMessage[];
  };
}

/** How one API writes a request. */
export interface PromptApi {
  readonly name: ApiName;
  /** Its path, at the gateway and at the engine. */
  readonly path: string;
  /** Members that chat templates render before the messages. Requests that differ in one share no prefix. */
  readonly promptFields: readonly string[];
  /** `undefined` for an API without messages. */
  readonly conversation: ConversationMembers | undefined;
  /** The member that limits the answer, and the smallest limit that all engines accept. */
  readonly answerLimit: { readonly field: string; readonly least: number };
  /**
   * The messages of a request in the order in which the model reads them, with all their texts. Invalid parts have no
   * texts. Never throws. O(parts); copies no text.
   */
  messages(body: JsonObject): readonly RequestMessage[];
}

/** An API with messages. */
export type MessageApi = PromptApi & { readonly conversation: ConversationMembers };

/** Whether requests of the API have messages, which the next request repeats. */
export function hasMessages(api: PromptApi): api is MessageApi {
  return api.conversation !== undefined;
}

/** Fields of engines beside their API's that change the beginning of a prompt. */
export const ENGINE_PROMPT_FIELDS = ['chat_template', 'chat_template_kwargs', 'cache_salt'];
