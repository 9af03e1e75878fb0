import { randomUUID } from 'node:crypto';
import type { FastifyInstance } from 'fastify';
import { answerReader } from '../chat/answer-reader.js';
import type { EngineLoop } from '../loop/engine-loop.js';
import type { GenerationRequest } from '../loop/generation.js';
import type { Vocabulary } from '../native/vocabulary.js';
import { refuse } from '../structured/schema-node.js';
import { chatForm, forcedCallReader, jsonForm } from './answer-form.js';
import { readConversation } from './chat-request.js';
import { type AnswerOptions, answer, type Choice } from './exchange.js';
import type { FormCache } from './form-cache.js';
import { type AnswerHead, chatFormat, completionFormat } from './formats.js';
import { toGenerationRequest } from './generation-request.js';
import { type PromptSource, plainPrompt, promptsOf, tokenizeOptions } from './prompts.js';
import { refuseFields } from './request-fields.js';
import {
  chatCompletionSchema,
  checkModel,
  completionSchema,
  type GenerationFields,
  MAX_ANSWERS,
  parseBody,
} from './schemas.js';

interface GenerationRoutes extends PromptSource {
  readonly model: string;
  readonly loop: EngineLoop;
  readonly forms: FormCache;
  /** Most tokens of an answer when the request names no limit. */
  readonly defaultMaxTokens: number;
}

/** `POST /v1/chat/completions` and `POST /v1/completions`. */
export function addGenerationRoutes(server: FastifyInstance, app: GenerationRoutes): void {
  const { template, vocabulary, loop, forms, model } = app;
  const limits = { contextTokens: loop.contextTokens, defaultMaxTokens: app.defaultMaxTokens };

  server.post('/v1/chat/completions', async (request, reply) => {
    const body = parseBody(chatCompletionSchema, request.body);
    refuseFields(request.body, chatCompletionSchema.shape);
    checkModel(body.model, model);
    checkBiases(body.logit_bias, vocabulary);
    const form = chatForm(body, forms);
    const hasLogprobs = body.logprobs ?? false;
    if (hasLogprobs && form.callChoice === 'forced') {
      throw refuse('logprobs', 'This engine does not report log probabilities of a call');
    }
    if (!hasLogprobs && (body.top_logprobs ?? 0) > 0) throw refuse('top_logprobs', 'Expected `logprobs: true` with it');
    const { messages, opensAnswer, ...conversation } = readConversation(body);
    const prompt = await template.tokenize(messages, opensAnswer, {
      ...tokenizeOptions(app, reply),
      ...conversation,
      isConstrained: form.grammar !== undefined,
      tools: form.tools,
      describesTools: body.tool_choice !== 'none',
    });
    const head = headOf('chatcmpl', model);
    const { syntax, shownTokens } = await template.syntax(form.tools !== undefined);
    const isRead = form.grammar === undefined;
    const told = body.reasoning_format === 'none' ? { ...syntax, reasoning: undefined } : syntax;
    const callable = form.callChoice === 'free' ? form.tools : undefined;
    const topLogprobs = hasLogprobs ? (body.top_logprobs ?? 0) : undefined;
    const wishes = { ...form, topLogprobs, ...(isRead && { shownTokens }) };
    const generation = toGenerationRequest(head.id, prompt, body, limits, wishes);
    const choices = repeated(generation, body.n ?? 1).map((each, index): Choice => {
      const callIds = index === 0 ? `call_${head.id}` : `call_${head.id}_${index}`;
      const content = isRead ? answerReader(told, callable, prompt.answerBegins) : undefined;
      const reader = form.callChoice === 'forced' ? forcedCallReader() : content;
      const isParallel = body.parallel_tool_calls ?? true;
      return { request: each, format: chatFormat(head, { hasLogprobs, reader, callIds, isParallel }) };
    });
    return answer(loop, choices, reply, answerOptions(body, form.fits));
  });

  server.post('/v1/completions', async (request, reply) => {
    const body = parseBody(completionSchema, request.body);
    refuseFields(request.body, completionSchema.shape);
    checkModel(body.model, model);
    checkBiases(body.logit_bias, vocabulary);
    const form = jsonForm(body, forms);
    const topLogprobs = body.logprobs ?? undefined;
    if (body.echo === true && topLogprobs !== undefined) {
      throw refuse('echo', 'This engine reports no log probabilities of a prompt');
    }
    const prompts = promptsOf(body.prompt, 'prompt');
    const count = body.n ?? 1;
    if (prompts.length * count > MAX_ANSWERS) {
      throw refuse('prompt', `Expected at most ${MAX_ANSWERS} answers of all prompts`);
    }
    const head = headOf('cmpl', model);
    const choices: Choice[] = [];
    for (const each of prompts) {
      const prompt = await plainPrompt(app, each, body, tokenizeOptions(app, reply));
      const generation = toGenerationRequest(head.id, prompt, body, limits, { ...form, topLogprobs });
      const text = async (): Promise<string> =>
        typeof each.value === 'string' ? each.value : vocabulary.detokenize(prompt.tokens);
      const echo = body.echo === true ? await text() : '';
      for (const one of repeated(generation, count)) {
        choices.push({ request: one, format: completionFormat(head, topLogprobs !== undefined, echo) });
      }
    }
    return answer(loop, choices, reply, answerOptions(body, form.fits));
  });
}

function headOf(kind: string, model: string): AnswerHead {
  return { id: `${kind}-${randomUUID()}`, created: Math.floor(Date.now() / 1000), model };
}

/** The same generation several times, each with random numbers of its own. */
function repeated(generation: GenerationRequest, count: number): GenerationRequest[] {
  return Array.from({ length: count }, (_, index) => ({ ...generation, seed: generation.seed + index }));
}

function answerOptions({ stream, stream_options, n }: GenerationFields, fits: AnswerOptions['fits']): AnswerOptions {
  return {
    stream: stream ?? false,
    includeUsage: stream_options?.include_usage ?? false,
    fits,
    choicesOfPrompt: n ?? 1,
  };
}

function checkBiases(biases: GenerationFields['logit_bias'], vocabulary: Vocabulary): void {
  const unknown = Object.keys(biases ?? {}).find((token) => Number(token) >= vocabulary.size);
  if (unknown !== undefined) throw refuse(`logit_bias.${unknown}`, `Expected a token id below ${vocabulary.size}`);
}
