import type { FastifyReply } from 'fastify';
import type { GenerationHandle, GenerationRequest, GenerationResult } from '../loop/generation.js';
import {
  type AnswerFormat,
  checkFit,
  type GenerationTarget,
  generateWhole,
  type StreamOptions,
  sendStream,
} from './exchange.js';

/** An object of an answer, whole or a piece of it. */
interface AnswerObject {
  readonly choices: readonly object[];
}

/**
 * Runs several generations for one HTTP exchange: one choice each, in their order. A stream of them begins when all are
 * there.
 *
 * @param formats One for each generation, because a format knows what it has sent.
 * @param promptCount Prompts of the request; generations of the same prompt follow each other.
 * @throws What the first generation that fails, fails with; the others are aborted.
 */
export async function answerSeveral(
  target: GenerationTarget,
  requests: readonly GenerationRequest[],
  formats: readonly AnswerFormat[],
  {
    reply,
    options,
    promptCount,
  }: { readonly reply: FastifyReply; readonly options: StreamOptions; readonly promptCount: number },
): Promise<FastifyReply> {
  const answers = await generateAll(target, requests, reply);
  for (const { text, result } of answers) {
    checkFit(text, result, options);
  }
  const result = sumOf(
    answers.map((each) => each.result),
    requests.length / promptCount,
  );
  const usage = formats[0]!.usage(result) as AnswerObject;
  if (!options.stream) {
    const wholes = answers.map(
      (each, index) => formats[index]!.whole(each.text, each.result, each.tokens) as AnswerObject,
    );
    return reply.send({
      ...wholes[0],
      ...usage,
      object: (wholes[0] as { object?: unknown }).object,
      choices: wholes.flatMap(atPlace),
    });
  }
  const chunks = answers.map((each, index) => {
    const format = formats[index]!;
    const piece = each.text === '' && each.tokens.length === 0 ? undefined : format.piece(each.text, each.tokens);
    return [
      ...format.opening(),
      ...(piece === undefined ? [] : [piece]),
      format.closing(each.result),
    ] as AnswerObject[];
  });
  const placed = chunks.flatMap((each, index) => each.map((chunk) => ({ ...chunk, choices: atPlace(chunk, index) })));
  return sendStream(reply, [...placed, ...(options.includeUsage ? [usage] : [])]);
}

function atPlace({ choices }: AnswerObject, index: number): object[] {
  return choices.map((choice) => ({ ...choice, index }));
}

async function generateAll(target: GenerationTarget, requests: readonly GenerationRequest[], reply: FastifyReply) {
  const handles: GenerationHandle[] = [];
  const noting: GenerationTarget = {
    submit: (request, listener) => {
      const handle = target.submit(request, listener);
      handles.push(handle);
      return handle;
    },
  };
  // Each waits for the end of the connection.
  reply.raw.setMaxListeners(reply.raw.getMaxListeners() + requests.length);
  try {
    return await Promise.all(requests.map((request) => generateWhole(noting, request, reply)));
  } catch (error) {
    for (const handle of handles) {
      handle.abort();
    }
    throw error;
  }
}

/** What all took together; a prompt counts once, however many answers it has. */
function sumOf(results: readonly GenerationResult[], answersOfPrompt: number): GenerationResult {
  const [first] = results;
  const sum = (value: (result: GenerationResult) => number, step = 1): number =>
    results.reduce((total, result, index) => total + (index % step === 0 ? value(result) : 0), 0);
  return {
    ...first!,
    promptTokens: sum((result) => result.promptTokens, answersOfPrompt),
    completionTokens: sum((result) => result.completionTokens),
    cachedTokens: sum((result) => result.cachedTokens, answersOfPrompt),
    cachedByTier: {
      device: sum((result) => result.cachedByTier.device, answersOfPrompt),
      host: sum((result) => result.cachedByTier.host, answersOfPrompt),
      disk: sum((result) => result.cachedByTier.disk, answersOfPrompt),
    },
  };
}
