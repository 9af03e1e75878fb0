import { isUtf8 } from 'node:buffer';
import { randomUUID } from 'node:crypto';
import { WarmpathError } from '@warmpath/core';
import { type FastifyInstance, type FastifyReply, fastify } from 'fastify';
import type { z } from 'zod';
import { answerReader } from '../chat/answer-reader.js';
import type { ChatTemplate } from '../chat/chat-template.js';
import { type SegmentedPrompt, tokenBoundaries } from '../chat/segmented-prompt.js';
import type { EngineLoop } from '../loop/engine-loop.js';
import type { GenerationRequest } from '../loop/generation.js';
import type { LoopStats } from '../loop/loop-options.js';
import type { CpuVariant } from '../native/cpu-variant.js';
import type { TokenizeOptions, Vocabulary } from '../native/vocabulary.js';
import { refuse } from '../structured/schema-node.js';
import { type AnswerForm, chatForm, forcedCallReader, jsonForm, readTools } from './answer-form.js';
import { readConversation } from './chat-request.js';
import { addEmbeddingRoutes, type EmbeddingQueue } from './embeddings.js';
import { type AnswerFormat, answer, type StreamOptions } from './exchange.js';
import type { FormCache } from './form-cache.js';
import { chatFormat, completionFormat } from './formats.js';
import { toGenerationRequest } from './generation-request.js';
import { parseJson } from './json-body.js';
import { addKvRoutes, type PromptFields } from './kv-routes.js';
import type { EngineMetrics } from './metrics.js';
import { refuseFields } from './request-fields.js';
import {
  type ChatPromptFields,
  chatCompletionSchema,
  completionSchema,
  detokenizeSchema,
  type GenerationFields,
  MAX_ANSWERS,
  parseBody,
  tokenizeSchema,
} from './schemas.js';
import { answerSeveral } from './several-answers.js';

/** What the routes stand on. */
export interface EngineApp {
  readonly model: string;
  /** Whether it is the demo model, whose answers mean little. */
  readonly isDemo: boolean;
  /** Seconds since 1970 at which the model was loaded. */
  readonly created: number;
  readonly cpuVariant: CpuVariant;
  readonly loop: EngineLoop;
  readonly vocabulary: Vocabulary;
  readonly template: ChatTemplate;
  readonly metrics: EngineMetrics;
  /** Left out where the model makes no embeddings. */
  readonly embeddings?: EmbeddingQueue | undefined;
  /** What the loop holds, with the requests for embeddings. */
  readonly stats: () => LoopStats;
  /** Forms of answers that requests have asked for. */
  readonly forms: FormCache;
  readonly defaultMaxTokens: number;
  readonly bodyLimitBytes: number;
}

/** Builds the HTTP server; it does not listen yet. */
export function createApp(app: EngineApp): FastifyInstance {
  const server = fastify({
    bodyLimit: app.bodyLimitBytes,
    // A body is JSON whatever its content type says: `curl -d` says that it is a form.
    exposeHeadRoutes: false,
    forceCloseConnections: 'idle',
  });
  server.removeAllContentTypeParsers();
  server.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => {
    try {
      done(null, parseJson(body as Buffer, app.loop.contextTokens));
    } catch (error) {
      done(error as WarmpathError);
    }
  });
  server.setErrorHandler((error, _request, reply) => {
    const known = toWarmpathError(error);
    app.metrics.onRefusedBody(known.code);
    return sendError(reply, known);
  });
  server.setNotFoundHandler((_request, reply) => sendError(reply, new WarmpathError('WARMPATH_NOT_FOUND')));
  addGenerationRoutes(server, app);
  addTokenRoutes(server, app);
  addEmbeddingRoutes(server, {
    model: app.model,
    embeddings: app.embeddings,
    checkModel: (asked) => checkModel(asked, app.model),
    tokensOf: (input, most, path, reply) => embeddedTokens(app, input, { most, path, reply }),
  });
  addStateRoutes(server, app);
  addKvRoutes(server, { ...app, promptOf: (fields, reply) => promptOf(app, fields, reply) });
  return server;
}

function addGenerationRoutes(server: FastifyInstance, app: EngineApp): void {
  const limits = { contextTokens: app.loop.contextTokens, defaultMaxTokens: app.defaultMaxTokens };

  server.post('/v1/chat/completions', async (request, reply) => {
    const body = parseBody(chatCompletionSchema, request.body);
    refuseFields(request.body, chatCompletionSchema.shape);
    checkModel(body.model, app.model);
    checkBiases(body.logit_bias, app.vocabulary);
    const form = chatForm(body, app.forms);
    const hasLogprobs = body.logprobs ?? false;
    checkLogprobs(body, form);
    const { messages, opensAnswer, ...conversation } = readConversation(body);
    const prompt = await app.template.tokenize(messages, opensAnswer, {
      ...tokenizeOptions(app, reply),
      ...conversation,
      isConstrained: form.grammar !== undefined,
      tools: form.tools,
      callChoice: form.callChoice,
    });
    const id = `chatcmpl-${randomUUID()}`;
    const topLogprobs = hasLogprobs ? (body.top_logprobs ?? 0) : undefined;
    const { syntax, shownTokens } = await app.template.syntax(form.tools !== undefined);
    const isRead = form.grammar === undefined;
    const told = body.reasoning_format === 'none' ? { ...syntax, reasoning: undefined } : syntax;
    const callable = form.callChoice === 'free' ? form.tools : undefined;
    const wishes = { ...form, topLogprobs, ...(isRead && { shownTokens }) };
    const generation = toGenerationRequest(id, prompt, body, limits, wishes);
    const head = { id, created: nowSeconds(), model: app.model };
    const format = (_: unknown, choice: number): AnswerFormat => {
      const callIds = choice === 0 ? `call_${id}` : `call_${id}_${choice}`;
      const content = isRead ? answerReader(told, callable, prompt.answerBegins) : undefined;
      const reader = form.callChoice === 'forced' ? forcedCallReader() : content;
      return chatFormat(head, { hasLogprobs, reader, callIds, isParallel: body.parallel_tool_calls ?? true });
    };
    const options = { ...streamOptions(body), fits: form.fits };
    const generations = repeated(generation, body.n ?? 1);
    return generations.length === 1
      ? answer(app.loop, generation, format(generation, 0), { reply, options })
      : answerSeveral(app.loop, generations, generations.map(format), { reply, options, promptCount: 1 });
  });

  server.post('/v1/completions', async (request, reply) => {
    const body = parseBody(completionSchema, request.body);
    refuseFields(request.body, completionSchema.shape);
    checkModel(body.model, app.model);
    checkBiases(body.logit_bias, app.vocabulary);
    const form = jsonForm(body, app.forms);
    const topLogprobs = body.logprobs ?? undefined;
    if (body.echo === true && topLogprobs !== undefined) {
      throw refuse('echo', 'This engine reports no log probabilities of a prompt');
    }
    const prompts = promptsOf(body.prompt);
    if (prompts.length * (body.n ?? 1) > MAX_ANSWERS) {
      throw refuse('prompt', `Expected at most ${MAX_ANSWERS} answers of all prompts`);
    }
    const id = `cmpl-${randomUUID()}`;
    const head = { id, created: nowSeconds(), model: app.model };
    const generations: GenerationRequest[] = [];
    const formats: AnswerFormat[] = [];
    for (const { value, path } of prompts) {
      const prompt = await segmentedPrompt({ ...body, prompt: value }, app, tokenizeOptions(app, reply), path);
      const generation = toGenerationRequest(id, prompt, body, limits, { ...form, topLogprobs });
      const echo = body.echo === true ? await textOf(value, app) : '';
      for (const each of repeated(generation, body.n ?? 1)) {
        generations.push(each);
        formats.push(completionFormat(head, { hasLogprobs: topLogprobs !== undefined }, echo));
      }
    }
    const [generation] = generations as [GenerationRequest];
    const options = { ...streamOptions(body), fits: form.fits };
    return generations.length === 1
      ? answer(app.loop, generation, formats[0]!, { reply, options })
      : answerSeveral(app.loop, generations, formats, { reply, options, promptCount: prompts.length });
  });
}

/** The same generation several times, each with random numbers of its own. */
function repeated(generation: GenerationRequest, count: number): GenerationRequest[] {
  return Array.from({ length: count }, (_, index) => ({ ...generation, seed: generation.seed + index }));
}

/** The prompts of a request: a text, token ids, or an array of either. */
function promptsOf(prompt: unknown): readonly { readonly value: unknown; readonly path: string }[] {
  const isSeveral = Array.isArray(prompt) && prompt.some((each) => typeof each === 'string' || Array.isArray(each));
  return isSeveral
    ? prompt.map((value: unknown, index) => ({ value, path: prompt.length === 1 ? 'prompt' : `prompt[${index}]` }))
    : [{ value: prompt, path: 'prompt' }];
}

/** What a prompt is as text, for an answer that repeats it. */
async function textOf(prompt: unknown, { vocabulary }: EngineApp): Promise<string> {
  return typeof prompt === 'string' ? prompt : vocabulary.detokenize(prompt as number[]);
}

/** How a prompt of a request is tokenised. */
function tokenizeOptions(app: EngineApp, { raw }: FastifyReply): Required<TokenizeOptions> {
  return { most: app.loop.contextTokens, isWanted: () => !raw.destroyed };
}

function streamOptions({ stream, stream_options: options }: GenerationFields): StreamOptions {
  return { stream: stream ?? false, includeUsage: options?.include_usage ?? false };
}

function addTokenRoutes(server: FastifyInstance, app: EngineApp): void {
  server.post('/tokenize', async (request, reply) => {
    const body = parseBody(tokenizeSchema, request.body);
    checkModel(body.model, app.model);
    const options = tokenizeOptions(app, reply);
    const text = body.content ?? body.prompt;
    let tokens: readonly number[];
    if (body.messages !== undefined) {
      ({ tokens } = await chatPrompt(app, { ...body, messages: body.messages }, options));
    } else if (text !== undefined) {
      const [plain] = await app.vocabulary.tokenize([{ text, parseSpecial: body.parse_special ?? true }], options);
      // `content` is llama-server's field and adds nothing by default; `prompt` is vLLM's and adds the BOS.
      const withBos = body.add_special ?? body.add_special_tokens ?? body.content === undefined;
      tokens = withBos ? withLeadingBos(plain!, app.vocabulary) : plain!;
    } else {
      throw new WarmpathError('WARMPATH_INVALID_REQUEST', {
        path: 'content',
        detail: 'Expected one of content, prompt and messages',
      });
    }
    const listed = body.with_pieces === true ? await tokensWithPieces(tokens, app.vocabulary) : tokens;
    return { count: tokens.length, max_model_len: app.loop.contextTokens, tokens: listed };
  });

  server.post('/detokenize', async (request) => {
    const body = parseBody(detokenizeSchema, request.body);
    checkModel(body.model, app.model);
    const text = await app.vocabulary.detokenize(tokenIds(body.tokens, app, 'tokens'));
    // llama-server calls it `content`, vLLM `prompt`.
    return { content: text, prompt: text };
  });
}

/** As llama-server lists them: a piece that is no UTF-8 by itself as its bytes. */
async function tokensWithPieces(
  tokens: readonly number[],
  vocabulary: Vocabulary,
): Promise<{ readonly id: number; readonly piece: string | number[] }[]> {
  const pieces = await vocabulary.pieces(tokens);
  return pieces.map((bytes, place) => {
    const piece = isUtf8(bytes) ? Buffer.from(bytes).toString() : [...bytes];
    return { id: tokens[place]!, piece };
  });
}

function addStateRoutes(server: FastifyInstance, app: EngineApp): void {
  const model = {
    id: app.model,
    object: 'model',
    created: app.created,
    owned_by: 'warmpath',
    max_model_len: app.loop.contextTokens,
    ...(app.isDemo && { demo: true }),
  };
  server.get('/v1/models', () => ({ object: 'list', data: [model] }));

  // A name may hold slashes.
  server.get<{ Params: { '*': string } }>('/v1/models/*', ({ params }) => {
    checkModel(params['*'], app.model);
    return model;
  });

  server.get('/health', (_request, reply) => {
    const { running, waiting, cells, usedCells, cachedCells } = app.stats();
    return reply.status(app.loop.isOpen ? 200 : 503).send({
      status: app.loop.isOpen ? 'ok' : 'unavailable',
      model: app.model,
      cpuVariant: app.cpuVariant,
      running,
      waiting,
      cells: { total: cells, used: usedCells, cached: cachedCells },
    });
  });

  server.get('/metrics', async (_request, reply) => {
    const { body, contentType } = await app.metrics.render();
    return reply.type(contentType).send(body);
  });
}

/** A missing name means the model that is served. */
function checkModel(asked: string | null | undefined, served: string): void {
  if (asked !== undefined && asked !== null && asked !== '' && asked !== served) {
    throw new WarmpathError('WARMPATH_MODEL_NOT_FOUND', {
      path: 'model',
      detail: `This engine serves the model ${served}.`,
    });
  }
}

/** A conversation as the chat route would compute it. */
function chatPrompt(
  { template }: EngineApp,
  fields: ChatPromptFields,
  options: Required<TokenizeOptions>,
): Promise<SegmentedPrompt> {
  const { messages, opensAnswer, ...conversation } = readConversation(fields);
  return template.tokenize(messages, opensAnswer, { ...options, ...conversation, tools: readTools(fields.tools) });
}

type PlainPrompt = Partial<Pick<z.output<typeof completionSchema>, 'prompt' | 'segments' | 'add_special_tokens'>>;

/**
 * A prompt for plain completion: a text, its token ids, or one of either in an array. `segments` are the places at
 * which its documents end: in the text, in UTF-16 code units, or numbers of tokens.
 */
async function segmentedPrompt(
  { prompt, segments, add_special_tokens: addsBos }: PlainPrompt,
  app: EngineApp,
  options: Required<TokenizeOptions>,
  path = 'prompt',
): Promise<SegmentedPrompt> {
  const { vocabulary } = app;
  const offsets = [...new Set(segments)].sort((a, b) => a - b);
  const single: unknown =
    Array.isArray(prompt) && prompt.length === 1 && typeof prompt[0] !== 'number' ? prompt[0] : prompt;
  if (typeof single === 'string') {
    const [plain] = single === '' ? [[]] : await vocabulary.tokenize([{ text: single, parseSpecial: true }], options);
    const tokens = single === '' || addsBos === false ? plain! : withLeadingBos(plain!, vocabulary);
    const added = tokens.length - plain!.length;
    const boundaries = tokenBoundaries([{ text: single, tokens: plain! }], offsets, vocabulary);
    return { tokens, boundaries: boundaries.map((boundary) => boundary + added) };
  }
  if (!Array.isArray(single) || !single.every((token) => Number.isInteger(token))) {
    throw new WarmpathError('WARMPATH_INVALID_REQUEST', {
      path,
      detail: 'Expected a string or an array of token ids',
    });
  }
  const tokens = tokenIds(single, app, path);
  return { tokens, boundaries: offsets.filter((offset) => offset > 0 && offset < tokens.length) };
}

/** The tokens of a text to embed, with those that the model wants around it. */
async function embeddedTokens(
  app: EngineApp,
  input: unknown,
  { most, path, reply }: { readonly most: number; readonly path: string; readonly reply: FastifyReply },
): Promise<readonly number[]> {
  const { tokens } = await segmentedPrompt({ prompt: input }, app, { ...tokenizeOptions(app, reply), most }, path);
  const { trailingEos } = app.vocabulary;
  const all = typeof input === 'string' && trailingEos !== undefined ? [...tokens, trailingEos] : tokens;
  if (all.length === 0) {
    throw new WarmpathError('WARMPATH_EMPTY_PROMPT', { path });
  }
  if (all.length > most) {
    const detail = `The maximum context length of a text to embed is ${most} tokens, but it has ${all.length}.`;
    throw new WarmpathError('WARMPATH_CONTEXT_TOO_LONG', { path, detail });
  }
  return all;
}

/** A prompt as one of the two completions routes would compute it. */
async function promptOf(
  app: EngineApp,
  { messages, prompt, segments, ...fields }: PromptFields,
  reply: FastifyReply,
): Promise<SegmentedPrompt> {
  checkModel(fields.model, app.model);
  const options = tokenizeOptions(app, reply);
  return messages === undefined
    ? segmentedPrompt({ prompt, segments }, app, options)
    : chatPrompt(app, { ...fields, messages }, options);
}

/** @throws WARMPATH_INVALID_REQUEST with the place of what is no token id; WARMPATH_CONTEXT_TOO_LONG. */
function tokenIds(values: readonly unknown[], { vocabulary, loop }: EngineApp, path: string): number[] {
  if (values.length > loop.contextTokens) {
    const detail = `The maximum context length is ${loop.contextTokens} tokens, but there are ${values.length}.`;
    throw new WarmpathError('WARMPATH_CONTEXT_TOO_LONG', { path, detail });
  }
  const index = values.findIndex(
    (token) => !Number.isInteger(token) || Number(token) < 0 || Number(token) >= vocabulary.size,
  );
  if (index >= 0) {
    throw new WarmpathError('WARMPATH_INVALID_REQUEST', {
      path: `${path}[${index}]`,
      detail: `Expected a token id below ${vocabulary.size}`,
    });
  }
  return values as number[];
}

function checkBiases(biases: GenerationFields['logit_bias'], vocabulary: Vocabulary): void {
  const unknown = Object.keys(biases ?? {}).find((token) => Number(token) >= vocabulary.size);
  if (unknown !== undefined) {
    throw new WarmpathError('WARMPATH_INVALID_REQUEST', {
      path: `logit_bias.${unknown}`,
      detail: `Expected a token id below ${vocabulary.size}`,
    });
  }
}

function checkLogprobs(
  { logprobs, top_logprobs: top }: Pick<z.output<typeof chatCompletionSchema>, 'logprobs' | 'top_logprobs'>,
  { callChoice }: AnswerForm,
): void {
  if (logprobs === true && callChoice === 'forced') {
    throw refuse('logprobs', 'This engine does not report log probabilities of a call');
  }
  if (logprobs !== true && (top ?? 0) > 0) {
    throw refuse('top_logprobs', 'Expected `logprobs: true` with it');
  }
}

function withLeadingBos(tokens: number[], vocabulary: Vocabulary): number[] {
  const bos = vocabulary.leadingBos;
  return bos === undefined || tokens[0] === bos ? tokens : [bos, ...tokens];
}

function nowSeconds(): number {
  return Math.floor(Date.now() / 1000);
}

function sendError(reply: FastifyReply, known: WarmpathError): FastifyReply {
  if (known.code === 'WARMPATH_OVERLOADED') {
    reply.header('retry-after', '1');
  }
  return reply.status(known.status).send(known.toOpenAI());
}

function toWarmpathError(error: unknown): WarmpathError {
  if (WarmpathError.isInstance(error)) {
    return error;
  }
  const { code, statusCode = 500 } = error as { code?: unknown; statusCode?: number };
  switch (code) {
    case 'FST_ERR_CTP_BODY_TOO_LARGE':
      return new WarmpathError('WARMPATH_BODY_TOO_LARGE');
    case 'FST_ERR_CTP_EMPTY_JSON_BODY':
    case 'FST_ERR_CTP_INVALID_CONTENT_LENGTH':
      return new WarmpathError('WARMPATH_INVALID_JSON', { cause: error });
    default:
      // What the framework calls the client's fault, a path that is no URL for instance.
      return new WarmpathError(statusCode < 500 ? 'WARMPATH_INVALID_REQUEST' : 'WARMPATH_INTERNAL', { cause: error });
  }
}
