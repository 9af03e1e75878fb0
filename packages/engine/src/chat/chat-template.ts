import { Template } from '@huggingface/jinja';
import { WarmpathError } from '@warmpath/core';
import type { TextStretch, TokenizeOptions, Vocabulary } from '../native/vocabulary.js';
import { type SegmentedPrompt, tokenBoundaries } from './segmented-prompt.js';
import { SpecialTextGuard } from './special-text.js';

/** One message of a conversation, its content flattened to text. */
export interface ChatMessage {
  readonly role: 'system' | 'developer' | 'user' | 'assistant' | 'tool';
  readonly content: string;
  /**
   * Places in the content at which its parts end, in UTF-16 code units, ascending; the end of the content is known
   * anyway.
   */
  readonly partEnds?: readonly number[];
  readonly name?: string | undefined;
  /** Calls that an assistant has made. */
  readonly toolCalls?: readonly ToolCall[];
  /** Which call a tool's message answers. */
  readonly toolCallId?: string;
}

interface ToolCall {
  readonly id?: string | null | undefined;
  readonly name: string;
  /** A text that should be JSON; a model may have written another. */
  readonly arguments: string;
}

/** A function that the model may call, as requests define it. */
export interface ToolDefinition {
  readonly type: 'function';
  readonly function: {
    readonly name: string;
    readonly description?: string | null | undefined;
    /** A JSON schema. */
    readonly parameters?: Readonly<Record<string, unknown>> | null | undefined;
  };
}

/** How a conversation becomes a prompt. */
export interface ChatPromptOptions extends TokenizeOptions {
  /**
   * Functions of which the answer calls one. A template that knows no tools gets their description at the end of the
   * last message, behind every document, so that what was cached stays of use.
   */
  readonly tools?: readonly ToolDefinition[];
}

/**
 * A model's own chat template: the Jinja template of its metadata, run by `@huggingface/jinja`.
 *
 * The prompt depends on the messages alone. Templates that print today's date get no clock (`strftime_now` is
 * undefined, for which such templates have a fixed fallback): a date in front of the documents would empty the prefix
 * cache at midnight.
 */
export class ChatTemplate {
  readonly #template: Template | undefined;
  /** Whether it describes tools to the model. */
  readonly #knowsTools: boolean;
  /** How it wants the arguments of calls; `undefined` when it prints no calls. */
  readonly #callArguments: 'object' | 'text' | undefined;
  readonly #vocabulary: Vocabulary;

  /** @param source The template, or `undefined` for a model without one; then every {@link tokenize} is refused. */
  constructor(source: string | undefined, vocabulary: Vocabulary) {
    this.#vocabulary = vocabulary;
    this.#template = source === undefined ? undefined : parseTemplate(source);
    this.#knowsTools = source !== undefined && /\btools\b/.test(source);
    this.#callArguments = this.#template === undefined ? undefined : callArguments(this.#template);
  }

  /**
   * @param addGenerationPrompt End with the opening of the assistant's answer.
   * @returns The prompt's tokens, BOS included where the model wants one, and where the messages and their parts end.
   *   How a content is cut into parts changes no token.
   * @throws WARMPATH_CHAT_TEMPLATE when there is no template, or when it refuses the messages; what
   *   `Vocabulary.tokenize` throws, also for contents that the template would have left out.
   */
  async tokenize(
    given: readonly ChatMessage[],
    addGenerationPrompt: boolean,
    { tools, ...options }: ChatPromptOptions = {},
  ): Promise<SegmentedPrompt> {
    const known = this.#callArguments === undefined ? given.map(withCallsAsText) : given;
    const messages = tools === undefined || this.#knowsTools ? known : withDescription(known, tools);
    // Before anything is done with contents that are far too long.
    const texts = messages.map(({ content, toolCalls }) => content + (toolCalls ? JSON.stringify(toolCalls) : ''));
    const bytes = texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
    this.#vocabulary.checkLength(bytes, options.most ?? Number.POSITIVE_INFINITY);
    const rendering = this.#render(messages, addGenerationPrompt, this.#knowsTools ? tools : undefined);
    const tokenized = await this.#vocabulary.tokenize(rendering, options);
    const stretches = rendering.map(({ text }, index) => ({ text, tokens: tokenized[index]! }));
    const tokens = stretches.flatMap((stretch) => stretch.tokens);
    const rendered = stretches.map(({ text }) => text).join('');
    const boundaries = tokenBoundaries(stretches, partEnds(messages, rendered), this.#vocabulary);
    const bos = this.#vocabulary.leadingBos;
    // Some templates write the BOS themselves.
    return bos === undefined || tokens[0] === bos
      ? { tokens, boundaries }
      : { tokens: [bos, ...tokens], boundaries: boundaries.map((boundary) => boundary + 1) };
  }

  #render(
    messages: readonly ChatMessage[],
    addGenerationPrompt: boolean,
    tools: readonly ToolDefinition[] | undefined,
  ): TextStretch[] {
    if (this.#template === undefined) {
      throw new WarmpathError('WARMPATH_CHAT_TEMPLATE', {
        detail: 'This model has no chat template; use /v1/completions.',
      });
    }
    const texts = messages.flatMap(({ content, name = '', toolCalls, toolCallId = '' }) => [
      content,
      name,
      toolCallId,
      toolCalls === undefined ? '' : JSON.stringify(toolCalls),
    ]);
    if (tools !== undefined) {
      texts.push(JSON.stringify(tools));
    }
    this.#vocabulary.checkSpecialTexts(texts);
    const guard = SpecialTextGuard.create(this.#vocabulary.specialTexts, texts);
    if (guard === undefined) {
      throw new WarmpathError('WARMPATH_INVALID_REQUEST', {
        path: 'messages',
        detail: 'The messages hold all of the Unicode noncharacters U+FDD0 to U+FDEF.',
      });
    }
    const guarded = messages.map(({ role, content, name, toolCalls, toolCallId }) => ({
      role,
      content: guard.guard(content),
      ...(name !== undefined && { name: guard.guard(name) }),
      ...(toolCallId !== undefined && { tool_call_id: guard.guard(toolCallId) }),
      ...(toolCalls !== undefined && {
        tool_calls: toolCalls.map((call) => asTemplatesRead(call, this.#callArguments, (text) => guard.guard(text))),
      }),
    }));
    return guard.split(
      render(this.#template, {
        messages: guarded,
        ...(tools !== undefined && { tools: withEachText(tools, (text) => guard.guard(text)) }),
        add_generation_prompt: addGenerationPrompt,
        bos_token: this.#vocabulary.bosText,
        eos_token: this.#vocabulary.eosText,
      }),
    );
  }
}

/** A call as templates read it: the arguments as an object where they are one and the template prints objects. */
function asTemplatesRead(
  { id, name, arguments: text }: ToolCall,
  wanted: 'object' | 'text' | undefined,
  guard: (text: string) => string,
): object {
  const object = wanted === 'object' ? parseObject(text) : undefined;
  return {
    ...(typeof id === 'string' && { id: guard(id) }),
    type: 'function',
    function: { name: guard(name), arguments: object === undefined ? guard(text) : withEachText(object, guard) },
  };
}

/** For templates that print no calls: each stands behind the content, in the form of {@link withDescription}. */
function withCallsAsText({ toolCalls, ...message }: ChatMessage): ChatMessage {
  if (toolCalls === undefined) {
    return message;
  }
  const calls = toolCalls.map(({ name, arguments: text }) =>
    JSON.stringify({ name, arguments: parseObject(text) ?? text }),
  );
  const content = [...(message.content === '' ? [] : [message.content]), ...calls].join('\n');
  return { ...message, content };
}

function parseObject(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : undefined;
  } catch {
    return undefined;
  }
}

/**
 * How a template wants the arguments of calls, found out by giving it one: most print an object as JSON, some join a
 * text to others.
 */
function callArguments(template: Template): 'object' | 'text' | undefined {
  const prints = (given: unknown, expected: RegExp): boolean => {
    const call = { id: 'call12345', type: 'function', function: { name: 'probe', arguments: given } };
    try {
      const text = template.render({
        messages: [
          { role: 'user', content: 'a' },
          { role: 'assistant', content: '', tool_calls: [call] },
          { role: 'tool', content: 'b', name: 'probe', tool_call_id: 'call12345' },
        ],
        add_generation_prompt: false,
        bos_token: '',
        eos_token: '',
      });
      return expected.test(text);
    } catch {
      return false;
    }
  };
  if (prints({ needle: 'hay' }, /"needle":\s*"hay"/)) {
    return 'object';
  }
  return prints('{"needle": "hay"}', /needle/) ? 'text' : prints({ needle: 'hay' }, /needle/) ? 'object' : undefined;
}

function withDescription(messages: readonly ChatMessage[], tools: readonly ToolDefinition[]): readonly ChatMessage[] {
  const last = messages.at(-1)!;
  const form = 'Answer with a call of one of these functions, as JSON of the form {"name": …, "arguments": {…}}:';
  const functions = tools.map((tool) => JSON.stringify(tool.function));
  const content = [`${last.content}\n\n${form}`, ...functions].join('\n');
  return [...messages.slice(0, -1), { ...last, content, partEnds: [...(last.partEnds ?? []), last.content.length] }];
}

/** A copy of JSON in which every text, keys included, is changed. */
function withEachText(value: unknown, change: (text: string) => string): unknown {
  if (typeof value === 'string') {
    return change(value);
  }
  if (Array.isArray(value)) {
    return value.map((item) => withEachText(item, change));
  }
  if (typeof value !== 'object' || value === null) {
    return value;
  }
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [change(key), withEachText(item, change)]));
}

/**
 * Takes the clock away: the library declares `strftime_now` itself and refuses a second declaration from outside.
 * The newline is the one that Jinja's `trim_blocks` drops after a block.
 */
const WITHOUT_CLOCK = '{% set strftime_now = undefined %}\n';

function parseTemplate(source: string): Template {
  try {
    return new Template(WITHOUT_CLOCK + source);
  } catch (cause) {
    throw new WarmpathError('WARMPATH_MODEL_FILE', {
      path: 'model',
      detail: 'The chat template in this model file cannot be parsed.',
      cause,
    });
  }
}

function render(template: Template, variables: Record<string, unknown>): string {
  try {
    return template.render(variables);
  } catch (cause) {
    // What `raise_exception` says comes from the template and not from the messages.
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new WarmpathError('WARMPATH_CHAT_TEMPLATE', {
      path: 'messages',
      detail: `The model's chat template refused these messages: ${reason}`,
      cause,
    });
  }
}

/**
 * Where the messages and their parts end in the rendered text. A content that the template changed has no such places.
 */
function partEnds(messages: readonly ChatMessage[], rendered: string): number[] {
  const ends: number[] = [];
  let from = 0;
  for (const { content, partEnds: inside = [] } of messages) {
    // Many templates trim what they are given.
    const trimmed = content.trim();
    const start = trimmed === '' ? -1 : rendered.indexOf(trimmed, from);
    if (start >= 0) {
      const shift = start - content.indexOf(trimmed);
      from = start + trimmed.length;
      ends.push(...inside.map((end) => end + shift).filter((end) => end > start && end < from), from);
    }
  }
  return ends;
}
