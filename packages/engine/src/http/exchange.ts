import { WarmpathError } from '@warmpath/core';
import type { FastifyReply } from 'fastify';
import type {
  ChosenToken,
  GenerationHandle,
  GenerationListener,
  GenerationRequest,
  GenerationResult,
} from '../loop/generation.js';
import { isUnread } from './slow-clients.js';

/** The head of a stream of events. */
const EVENT_STREAM_HEADERS = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache',
  'x-accel-buffering': 'no',
};

/** An object of an answer, whole or a piece of it. */
interface AnswerObject {
  readonly choices: readonly object[];
}

/** The shapes in which an endpoint answers. A format serves one generation, because it knows what it has sent. */
export interface AnswerFormat {
  /** The whole answer, without a stream; with its tokens where they were asked for. */
  whole(text: string, result: GenerationResult, tokens: readonly ChosenToken[]): AnswerObject;
  /** What a stream begins with, before any text. */
  opening(): readonly AnswerObject[];
  /** A piece of text; `undefined` where it must wait for the next one. */
  piece(text: string, tokens: readonly ChosenToken[]): AnswerObject | undefined;
  /** The end of a stream: the last chunk with the finish reason. */
  closing(result: GenerationResult): AnswerObject;
  /** The chunk for the usage, without choices. */
  empty(): AnswerObject;
}

/** One choice of an answer. */
export interface Choice {
  readonly request: GenerationRequest;
  readonly format: AnswerFormat;
}

export interface AnswerOptions {
  readonly stream: boolean;
  readonly includeUsage: boolean;
  /** Whether a whole answer fits what its grammar does not keep. */
  readonly fits?: ((text: string) => boolean) | undefined;
  /** Choices of each prompt: these follow each other, and their prompt counts once. */
  readonly choicesOfPrompt: number;
}

/** Where generations are handed in: the loop, or a stand-in for tests. */
export interface GenerationTarget {
  submit(request: GenerationRequest, listener: GenerationListener): GenerationHandle;
}

/**
 * Runs the generations of one HTTP exchange, streamed or not. When the client closes the connection, or one fails, all
 * are aborted.
 *
 * Errors before the first byte become an HTTP error; later ones are sent as an `error` event, after which the stream
 * ends without `[DONE]`. A stream that its client does not read is broken off after `MAX_UNREAD_BYTES`.
 */
export async function answer(
  target: GenerationTarget,
  choices: readonly Choice[],
  reply: FastifyReply,
  options: AnswerOptions,
): Promise<FastifyReply> {
  if (options.stream) {
    return streamAnswer(target, choices, reply, options);
  }
  const answers = await generateWhole(
    target,
    choices.map(({ request }) => request),
    reply,
  );
  if (!answers.every(({ text, result }) => isFit(text, result, options))) {
    throw new WarmpathError('WARMPATH_ANSWER_UNFIT');
  }
  const wholes = answers.map(({ text, result, tokens }, index) => choices[index]!.format.whole(text, result, tokens));
  const total = sumOf(
    answers.map(({ result }) => result),
    options,
  );
  return reply.send({ ...wholes[0], choices: wholes.flatMap(placed), ...accounts(total) });
}

interface WholeAnswer {
  readonly text: string;
  readonly result: GenerationResult;
  readonly tokens: readonly ChosenToken[];
}

/**
 * Runs generations to their end, for a client that waits for all of them.
 *
 * @throws WARMPATH_CLIENT_CLOSED when it does not wait any more; what the first generation that fails, fails with. The
 *   others are aborted.
 */
async function generateWhole(
  target: GenerationTarget,
  requests: readonly GenerationRequest[],
  reply: FastifyReply,
): Promise<readonly WholeAnswer[]> {
  const handles: GenerationHandle[] = [];
  try {
    return await new Promise((resolve, reject) => {
      const generations = requests.map((request) => generateOne(target, request, handles));
      Promise.all(generations).then(resolve, reject);
      onClose(reply, () => reject(new WarmpathError('WARMPATH_CLIENT_CLOSED')));
    });
  } catch (error) {
    abortAll(handles);
    throw error;
  }
}

function generateOne(
  target: GenerationTarget,
  request: GenerationRequest,
  handles: GenerationHandle[],
): Promise<WholeAnswer> {
  let text = '';
  const tokens: ChosenToken[] = [];
  return new Promise((resolve, reject) => {
    const handle = target.submit(request, {
      onText: (piece, chosen = []) => {
        text += piece;
        tokens.push(...chosen);
      },
      onFinish: (result) => resolve({ text, result, tokens }),
      onError: reject,
    });
    handles.push(handle);
  });
}

/** The stream starts with the first text, so that a request that fails before it gets an ordinary HTTP error. */
function streamAnswer(
  target: GenerationTarget,
  choices: readonly Choice[],
  reply: FastifyReply,
  options: AnswerOptions,
): Promise<FastifyReply> {
  const { raw } = reply;
  return new Promise((resolve, reject) => {
    const handles: GenerationHandle[] = [];
    const results: GenerationResult[] = [];
    let isBegun = false;
    let isOver = false;
    let left = choices.length;
    const write = (objects: readonly object[]): void => {
      if (!isBegun) {
        isBegun = true;
        reply.hijack();
        raw.writeHead(200, EVENT_STREAM_HEADERS);
        resolve(reply);
      }
      if (objects.length > 0) {
        raw.write(objects.map(event).join(''));
      }
      if (isUnread(raw)) {
        raw.destroy();
      }
    };
    const fail = (error: WarmpathError): void => {
      if (isOver) {
        return;
      }
      isOver = true;
      abortAll(handles);
      if (!isBegun) {
        reject(error);
      } else if (!raw.destroyed) {
        raw.end(event(error.toOpenAI()));
      }
    };
    onClose(reply, () => fail(new WarmpathError('WARMPATH_CLIENT_CLOSED')));
    choices.forEach(({ request, format }, index) => {
      let text = '';
      let isOpened = false;
      const send = (objects: readonly AnswerObject[]): void => {
        const all = isOpened ? objects : [...format.opening(), ...objects];
        isOpened = true;
        write(all.map((object) => ({ ...object, choices: placed(object, index) })));
      };
      const handle = target.submit(request, {
        onText: (piece, chosen = []) => {
          text += piece;
          const chunk = format.piece(piece, chosen);
          send(chunk === undefined ? [] : [chunk]);
        },
        onFinish: (result) => {
          if (!isFit(text, result, options)) {
            write([]);
            fail(new WarmpathError('WARMPATH_ANSWER_UNFIT'));
            return;
          }
          send([format.closing(result)]);
          results[index] = result;
          left--;
          if (left === 0 && !isOver) {
            isOver = true;
            const total = accounts(sumOf(results, options));
            const usage = options.includeUsage ? event({ ...format.empty(), ...total }) : '';
            raw.end(`${usage}data: [DONE]\n\n`);
          }
        },
        onError: fail,
      });
      handles.push(handle);
    });
  });
}

function abortAll(handles: readonly GenerationHandle[]): void {
  for (const handle of handles) {
    handle.abort();
  }
}

/** An answer that was cut is the beginning of one that fits. */
function isFit(text: string, { finishReason, stopString }: GenerationResult, { fits }: AnswerOptions): boolean {
  return fits === undefined || finishReason !== 'stop' || stopString !== undefined || fits(text);
}

function placed({ choices }: AnswerObject, index: number): object[] {
  return choices.map((choice) => ({ ...choice, index }));
}

function event(data: object): string {
  return `data: ${JSON.stringify(data)}\n\n`;
}

/** Calls back when the client closes the connection before it has all of its answer, or has closed it already. */
function onClose({ raw }: FastifyReply, callback: () => void): void {
  const closed = (): void => {
    // `close` follows a complete answer too.
    if (!raw.writableEnded) {
      callback();
    }
  };
  if (raw.destroyed || raw.closed) {
    closed();
  } else {
    raw.once('close', closed);
  }
}

/** What all took together; a prompt counts once, however many answers it has. */
function sumOf(results: readonly GenerationResult[], { choicesOfPrompt }: AnswerOptions): GenerationResult {
  const sum = (value: (result: GenerationResult) => number, step = 1): number =>
    results.reduce((total, result, index) => total + (index % step === 0 ? value(result) : 0), 0);
  return {
    ...results[0]!,
    promptTokens: sum((result) => result.promptTokens, choicesOfPrompt),
    completionTokens: sum((result) => result.completionTokens),
    cachedTokens: sum((result) => result.cachedTokens, choicesOfPrompt),
    cachedByTier: {
      device: sum((result) => result.cachedByTier.device, choicesOfPrompt),
      host: sum((result) => result.cachedByTier.host, choicesOfPrompt),
      disk: sum((result) => result.cachedByTier.disk, choicesOfPrompt),
    },
  };
}

/** Usage and timings, as they stand at the end of every answer. The cached count is there also when it is 0. */
function accounts(result: GenerationResult): object {
  return {
    usage: {
      prompt_tokens: result.promptTokens,
      completion_tokens: result.completionTokens,
      total_tokens: result.promptTokens + result.completionTokens,
      prompt_tokens_details: { cached_tokens: result.cachedTokens, cached_tokens_by_tier: result.cachedByTier },
    },
    timings: result.timings,
  };
}
