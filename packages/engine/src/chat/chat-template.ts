import { createHash } from 'node:crypto';
import { WarmpathError } from '@warmpath/core';
import type { TextStretch, TokenizeOptions, Vocabulary } from '../native/vocabulary.js';
import type { AnswerBeginning } from './answer-reader.js';
import { type AnswerSyntax, answerSyntax } from './answer-syntax.js';
import { CHATML, TEMPLATE_DATE } from './default-templates.js';
import { JinjaTemplate } from './jinja.js';
import { type ChatMessage, joinMessages, parseObject, type ToolCall, type ToolDefinition } from './messages.js';
import { type SegmentedPrompt, tokenBoundaries } from './segmented-prompt.js';
import { SpecialTextGuard } from './special-text.js';
import { NO_TOKENS, type TemplateTraits, templateTraits } from './template-traits.js';

/** Where the templates of a model come from. */
export interface TemplateSources {
  /** ChatML when left out. */
  readonly source?: string | undefined;
  /** The one for requests with tools, of the few models that have two. */
  readonly toolUseSource?: string | undefined;
  /** As `2026-01-31`. */
  readonly date?: string | undefined;
}

/** How a conversation becomes a prompt. */
export interface ChatPromptOptions extends TokenizeOptions {
  /** Functions that the answer may call. A template that knows no tools gets their description as a system message. */
  readonly tools?: readonly ToolDefinition[] | undefined;
  /** Whether a system message describes the tools where the template does not; true when left out. */
  readonly describesTools?: boolean;
  /** Whether a grammar holds the answer from its first token on: then no reasoning stands before it. */
  readonly isConstrained?: boolean;
  /** Variables of the template, as `chat_template_kwargs`. */
  readonly variables?: Readonly<Record<string, unknown>> | undefined;
  /** Whether the answer goes on with the last message, the assistant's, and opens no other. */
  readonly isContinued?: boolean;
}

/** A prompt and what the answer to it begins with. */
export interface ChatPrompt extends SegmentedPrompt {
  readonly answerBegins: AnswerBeginning;
}

/** One parsed template and what it can show. */
interface ParsedTemplate {
  readonly template: JinjaTemplate;
  readonly traits: TemplateTraits;
  readonly syntax: AnswerSyntax;
}

/** What one prompt is rendered from. */
interface Rendering extends Pick<ChatPromptOptions, 'tools' | 'variables' | 'isConstrained'> {
  readonly messages: readonly ChatMessage[];
  readonly opensAnswer: boolean;
  /** The message that the answer goes on with. */
  readonly continued: ChatMessage | undefined;
}

/**
 * A model's chat template: the Jinja template of its metadata, or another in its place.
 *
 * The prompt depends on the messages alone. Templates that print today's date get a constant one: another date in front
 * of the documents would empty the prefix cache at midnight.
 */
export class ChatTemplate {
  readonly #plain: ParsedTemplate | WarmpathError;
  readonly #toolUse: ParsedTemplate | WarmpathError;
  readonly #vocabulary: Vocabulary;
  readonly #shownTokens = new Map<AnswerSyntax, Promise<ReadonlySet<number>>>();

  /** A source that cannot be parsed is no error here: every {@link tokenize} is refused with the reason. */
  constructor({ source, toolUseSource, date = TEMPLATE_DATE }: TemplateSources, vocabulary: Vocabulary) {
    this.#vocabulary = vocabulary;
    const day = new Date(`${date}T00:00:00Z`);
    this.#plain = parseTemplate(source ?? toolUseSource ?? CHATML, day);
    const toolUse = toolUseSource === undefined ? this.#plain : parseTemplate(toolUseSource, day);
    this.#toolUse = toolUse instanceof WarmpathError ? this.#plain : toolUse;
  }

  /** Why this template cannot be used, if it cannot. */
  get problem(): string | undefined {
    return this.#plain instanceof WarmpathError ? this.#plain.message : undefined;
  }

  /** Whether the model's own template tells it of tools; else a system message does. */
  get describesTools(): boolean {
    return !(this.#toolUse instanceof WarmpathError) && this.#toolUse.traits.describesTools;
  }

  /**
   * How the model writes its reasoning and its calls, and the control tokens that its answers are read by.
   *
   * @throws As {@link tokenize} does.
   */
  async syntax(
    hasTools: boolean,
  ): Promise<{ readonly syntax: AnswerSyntax; readonly shownTokens: ReadonlySet<number> }> {
    const { syntax } = this.#parsed(hasTools);
    const shownTokens = this.#shownTokens.get(syntax) ?? this.#tokensOf(syntax.marks);
    this.#shownTokens.set(syntax, shownTokens);
    return { syntax, shownTokens: await shownTokens };
  }

  async #tokensOf(marks: readonly string[]): Promise<ReadonlySet<number>> {
    const stretches = marks.map((mark) => ({ text: mark.trim(), parseSpecial: true }));
    const tokens = (await this.#vocabulary.tokenize(stretches)).flat();
    return new Set(tokens.filter((token) => this.#vocabulary.piece(token).length === 0));
  }

  /**
   * @param opensAnswer End with the opening of the assistant's answer.
   * @returns The prompt's tokens, BOS included where the model wants one, and where the messages and their parts end.
   *   How a content is cut into parts changes no token.
   * @throws WARMPATH_CHAT_TEMPLATE when the template cannot be parsed, or when it refuses the messages; what
   *   `Vocabulary.tokenize` throws, also for contents that the template would have left out.
   */
  async tokenize(
    given: readonly ChatMessage[],
    opensAnswer: boolean,
    { tools, describesTools = true, isConstrained, variables = {}, isContinued, ...limits }: ChatPromptOptions = {},
  ): Promise<ChatPrompt> {
    const parsed = this.#parsed(tools !== undefined);
    const continued = isContinued === true ? given.at(-1) : undefined;
    const knowsTools = parsed.traits.describesTools;
    const described = tools === undefined || knowsTools || !describesTools ? given : withDescription(given, tools);
    const messages = shownMessages(continued === undefined ? described : described.slice(0, -1), parsed.traits);
    const { stretches: rendering, answerBegins } = this.#render(
      parsed,
      { messages, opensAnswer, continued, variables, isConstrained, tools: knowsTools ? tools : undefined },
      limits.most,
    );
    const tokenized = await this.#vocabulary.tokenize(rendering, limits);
    const stretches = rendering.map(({ text }, index) => ({ text, tokens: tokenized[index]! }));
    const tokens = stretches.flatMap((stretch) => stretch.tokens);
    const rendered = stretches.map(({ text }) => text).join('');
    const boundaries = tokenBoundaries(stretches, partEnds(messages, rendered), this.#vocabulary);
    const bos = this.#vocabulary.leadingBos;
    // Some templates write the BOS themselves.
    return bos === undefined || tokens[0] === bos
      ? { tokens, boundaries, answerBegins }
      : { tokens: [bos, ...tokens], boundaries: boundaries.map((boundary) => boundary + 1), answerBegins };
  }

  #parsed(hasTools: boolean): ParsedTemplate {
    const parsed = hasTools ? this.#toolUse : this.#plain;
    if (parsed instanceof WarmpathError) throw parsed;
    return parsed;
  }

  #render(
    { template, traits, syntax }: ParsedTemplate,
    { messages, opensAnswer, continued, variables, isConstrained, tools }: Rendering,
    most = Number.POSITIVE_INFINITY,
  ): { readonly stretches: TextStretch[]; readonly answerBegins: AnswerBeginning } {
    const texts = [...messages, ...(continued === undefined ? [] : [continued])].flatMap(textsOf);
    // Before anything is done with contents that are far too long.
    this.#vocabulary.checkLength(
      texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0),
      most,
    );
    texts.push(JSON.stringify([tools, variables]));
    this.#vocabulary.checkSpecialTexts(texts);
    const marks = SpecialTextGuard.create(this.#vocabulary.specialTexts, texts);
    if (marks === undefined) {
      const detail = 'The messages hold all of the Unicode noncharacters U+FDD0 to U+FDEF.';
      throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'messages', detail });
    }
    const guard = (text: string): string => marks.guard(text);
    const given = withEachText(variables, guard) as Record<string, unknown>;
    const thinks = given['enable_thinking'];
    const rendered = render(template, {
      ...NO_TOKENS,
      ...(isConstrained === true && { enable_thinking: false }),
      // Some templates name the switch so.
      ...(typeof thinks === 'boolean' && { thinking: thinks }),
      ...given,
      messages: messages.map((message) => asTemplatesRead(message, traits, guard)),
      ...(tools !== undefined && { tools: withEachText(tools, guard) }),
      add_generation_prompt: opensAnswer || continued !== undefined,
      bos_token: this.#vocabulary.bosText,
      eos_token: this.#vocabulary.eosText,
    });
    if (continued !== undefined) {
      const [content, reasoning] = [guard(continued.content), guard(continued.reasoning ?? '')];
      const isReasoning = content === '' && reasoning !== '';
      const text = syntax.continue(rendered, { content, reasoning, isReasoning });
      return { stretches: marks.split(text), answerBegins: isReasoning ? 'reasoning' : 'content' };
    }
    const isOpen = syntax.reasoning !== undefined && rendered.trimEnd().endsWith(syntax.reasoning.open.trim());
    // Templates without the switch open the reasoning all the same.
    const closes = isConstrained === true || (isOpen && thinks === false);
    const answerBegins = isConstrained === true ? 'content' : isOpen && !closes ? 'reasoning' : 'anew';
    return { stretches: marks.split(closes ? rendered + syntax.contentOpening(isOpen) : rendered), answerBegins };
  }
}

function textsOf({ content, name = '', reasoning = '', toolCalls, toolCallId = '' }: ChatMessage): string[] {
  return [content, name, reasoning, toolCallId, toolCalls === undefined ? '' : JSON.stringify(toolCalls)];
}

function parseTemplate(source: string, date: Date): ParsedTemplate | WarmpathError {
  try {
    const template = new JinjaTemplate(source, date);
    const traits = templateTraits(template, source);
    return { template, traits, syntax: answerSyntax(source, traits) };
  } catch (cause) {
    const detail = `The model's chat template cannot be parsed: ${reasonOf(cause)}. Use /v1/completions, or give another template with --chat-template-file.`;
    return new WarmpathError('WARMPATH_CHAT_TEMPLATE', { detail, cause });
  }
}

function render(template: JinjaTemplate, variables: Record<string, unknown>): string {
  try {
    return template.render(variables);
  } catch (cause) {
    // What `raise_exception` says comes from the template and not from the messages.
    const detail = `The model's chat template refused these messages: ${reasonOf(cause)}`;
    throw new WarmpathError('WARMPATH_CHAT_TEMPLATE', { path: 'messages', detail, cause });
  }
}

function reasonOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}

function isSystem({ role }: ChatMessage): boolean {
  return role === 'system' || role === 'developer';
}

/** The messages in roles and an order that the template shows, so that none of them vanishes. */
function shownMessages(given: readonly ChatMessage[], traits: TemplateTraits): readonly ChatMessage[] {
  const shown: ChatMessage[] = [];
  // System messages that the template shows at no such place; they go into the user's message behind them.
  let waiting: ChatMessage | undefined;
  for (const each of given) {
    let message = inShownRole(each, traits);
    const last = shown.at(-1);
    if (isSystem(message) && traits.systemMessages !== 'anywhere') {
      if (traits.systemMessages === 'first' && shown.every(isSystem)) {
        shown[0] = last === undefined ? message : { ...joinMessages(last, message, '\n\n'), role: last.role };
      } else {
        waiting = waiting === undefined ? message : joinMessages(waiting, message, '\n\n');
      }
      continue;
    }
    if (waiting !== undefined && message.role === 'user') {
      message = joinMessages(waiting, message, '\n');
      waiting = undefined;
    }
    if (traits.alternatesRoles && last?.role === message.role && message.role !== 'tool') {
      shown[shown.length - 1] = { ...last, ...joinMessages(last, message, '\n\n') };
    } else {
      shown.push(message);
    }
  }
  if (waiting !== undefined) {
    const last = shown.at(-1);
    const message: ChatMessage = { ...waiting, role: 'user' };
    if (last?.role === 'user') shown[shown.length - 1] = joinMessages(last, message, '\n\n');
    else shown.push(message);
  }
  return shown;
}

function inShownRole(message: ChatMessage, traits: TemplateTraits): ChatMessage {
  const { toolCallId: _, ...rest } = message;
  return message.role === 'developer' && !traits.hasDeveloperRole
    ? { ...message, role: 'system' }
    : message.role === 'tool' && !traits.showsToolResults
      ? { ...rest, role: 'user' }
      : traits.callArguments === undefined
        ? withCallsAsText(message)
        : message;
}

/** A message with the names that templates give its parts. */
function asTemplatesRead(
  { role, content, name, reasoning, toolCalls, toolCallId }: ChatMessage,
  traits: TemplateTraits,
  guard: (text: string) => string,
): object {
  const id = (text: string): string => guard(traits.wantsShortIds ? shortId(text) : text);
  const calls = toolCalls?.map(({ id: callId, name: called, arguments: text }: ToolCall) => {
    const object = traits.callArguments === 'object' ? parseObject(text.trim() === '' ? '{}' : text) : undefined;
    return {
      ...(typeof callId === 'string' && { id: id(callId) }),
      type: 'function',
      function: { name: guard(called), arguments: object === undefined ? guard(text) : withEachText(object, guard) },
    };
  });
  // gpt-oss has one text before a call.
  const isThought = traits.isHarmony && calls !== undefined;
  const thinking = guard([reasoning, isThought ? content : ''].filter(Boolean).join('\n'));
  const text = isThought ? '' : guard(content);
  return {
    role,
    content: traits.wantsParts ? [{ type: 'text', text }] : text,
    ...(name !== undefined && { name: guard(name) }),
    ...(thinking !== '' && (traits.isHarmony ? { thinking } : { reasoning_content: thinking })),
    ...(toolCallId !== undefined && { tool_call_id: id(toolCallId) }),
    ...(calls !== undefined && { tool_calls: calls }),
  };
}

/** Nine letters and digits for an id that is anything else, the same at every time. */
function shortId(id: string): string {
  return /^[A-Za-z0-9]{9}$/.test(id) ? id : createHash('sha256').update(id).digest('hex').slice(0, 9);
}

/** For templates that show no calls: each stands behind the content, in the form of {@link withDescription}. */
function withCallsAsText({ toolCalls, ...message }: ChatMessage): ChatMessage {
  if (toolCalls === undefined) return message;
  const calls = toolCalls.map(({ name, arguments: text }) =>
    JSON.stringify({ name, arguments: parseObject(text) ?? text }),
  );
  const content = [...(message.content === '' ? [] : [message.content]), ...calls].join('\n');
  return { ...message, content };
}

const TOOLS_HEADING =
  'You may call these functions. To call one, answer only with JSON of the form {"name": …, "arguments": {…}}. Otherwise answer in plain text. The functions:';

/**
 * For templates that know no tools: the functions stand behind the first system message, or in one. The text is the
 * same whatever form the answer must have, so that the requests of one chat share their prompts.
 */
function withDescription(messages: readonly ChatMessage[], tools: readonly ToolDefinition[]): readonly ChatMessage[] {
  const content = [TOOLS_HEADING, ...tools.map((tool) => JSON.stringify(tool.function))].join('\n');
  const [first, ...rest] = messages;
  return first !== undefined && isSystem(first)
    ? [joinMessages(first, { role: first.role, content }, '\n\n'), ...rest]
    : [{ role: 'system', content }, ...messages];
}

/** A copy of JSON in which every text, keys included, is changed. */
function withEachText(value: unknown, change: (text: string) => string): unknown {
  if (typeof value === 'string') return change(value);
  if (Array.isArray(value)) return value.map((item) => withEachText(item, change));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [change(key), withEachText(item, change)]));
}

/**
 * Where prompts part that begin with the same messages or parts: where a part ends, and where the content of the next
 * message begins, behind its role. A content that the template changed has no such places.
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
      const end = start + trimmed.length;
      ends.push(
        ...(from > 0 ? [start] : []),
        ...inside.map((each) => each + shift).filter((at) => at > start && at < end),
      );
      from = end;
    }
  }
  return from > 0 ? [...ends, from] : ends;
}
