import { WarmpathError } from '@warmpath/core';
import type { Tier } from '@warmpath/core/internal';
import type { FastifyReply } from 'fastify';
import type {
  ChosenToken,
  GenerationHandle,
  GenerationListener,
  GenerationRequest,
  GenerationResult,
} from '../loop/generation.js';
import { isUnread } from './slow-clients.js';

const EVENT_STREAM_HEADERS = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache',
  'x-accel-buffering': 'no',
};

interface AnswerObject {
  readonly choices: readonly object[];
}

/** The shapes in which an endpoint answers. A format serves one generation, because it knows what it has sent. */
export interface AnswerFormat {
  /** The whole answer, without a stream; with its tokens where they were asked for. */
  whole(text: string, result: GenerationResult, tokens: readonly ChosenToken[]): AnswerObject;
  opening(): readonly AnswerObject[];
  /** A piece of text; `undefined` where it must wait for the next one. */
  piece(text: string, tokens: readonly ChosenToken[]): AnswerObject | undefined;
  /** The end of a stream: the last chunk with the finish reason. */
  closing(result: GenerationResult): AnswerObject;
  /** The chunk for the usage, without choices. */
  empty(): AnswerObject;
}

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

export interface GenerationTarget {
  submit(request: GenerationRequest, listener: GenerationListener): GenerationHandle;
}

/**
 * Runs the generations of one HTTP exchange, streamed or not. When the client closes the connection, or one fails, all
 * are aborted.
 *
 * A stream starts with the first text. Errors before it become an HTTP error; later ones are sent as an `error` event,
 * after which the stream ends without `[DONE]`. A stream that its client does not read is broken off after
 * `MAX_UNREAD_BYTES`.
 */
export function answer(
  target: GenerationTarget,
  choices: readonly Choice[],
  reply: FastifyReply,
  options: AnswerOptions,
): Promise<FastifyReply> {
  return new Promise((resolve, reject) => {
    const handles: GenerationHandle[] = [];
    const results: GenerationResult[] = [];
    const wholes: AnswerObject[] = [];
    const stream = options.stream ? new EventStream(reply, () => resolve(reply)) : undefined;
    let isOver = false;
    let left = choices.length;
    const fail = (error: WarmpathError): void => {
      if (isOver) return;
      isOver = true;
      for (const handle of handles) handle.abort();
      if (stream?.isBegun === true) stream.end([error.toOpenAI()]);
      else reject(error);
    };
    const finish = (): void => {
      isOver = true;
      const total = accounts(sumOf(results, options));
      if (stream === undefined) {
        resolve(reply.send({ ...wholes[0], choices: wholes.flatMap(placed), ...total }));
        return;
      }
      stream.end(options.includeUsage ? [{ ...choices[0]!.format.empty(), ...total }] : [], 'data: [DONE]\n\n');
    };
    const listener = (format: AnswerFormat, index: number): GenerationListener => {
      let text = '';
      const tokens: ChosenToken[] = [];
      let isOpened = false;
      const send = (objects: readonly AnswerObject[]): void => {
        const all = isOpened ? objects : [...format.opening(), ...objects];
        isOpened = true;
        stream?.write(all.map((object) => ({ ...object, choices: placed(object, index) })));
      };
      return {
        onText: (piece, chosen = []) => {
          text += piece;
          if (stream === undefined) {
            tokens.push(...chosen);
            return;
          }
          const chunk = format.piece(piece, chosen);
          send(chunk === undefined ? [] : [chunk]);
        },
        onFinish: (result) => {
          if (isOver) return;
          if (!isFit(text, result, options)) {
            stream?.write([]);
            fail(new WarmpathError('WARMPATH_ANSWER_UNFIT'));
            return;
          }
          if (stream === undefined) wholes[index] = format.whole(text, result, tokens);
          else send([format.closing(result)]);
          results[index] = result;
          left--;
          if (left === 0) finish();
        },
        onError: fail,
      };
    };
    onClose(reply, () => fail(new WarmpathError('WARMPATH_CLIENT_CLOSED')));
    try {
      choices.forEach(({ request, format }, index) => {
        handles.push(target.submit(request, listener(format, index)));
      });
    } catch (error) {
      fail(error as WarmpathError);
    }
  });
}

/** The events of an answer, which begin with the first call of `write`. */
class EventStream {
  isBegun = false;
  readonly #reply: FastifyReply;
  readonly #onBegin: () => void;

  constructor(reply: FastifyReply, onBegin: () => void) {
    this.#reply = reply;
    this.#onBegin = onBegin;
  }

  write(objects: readonly object[]): void {
    const { raw } = this.#reply;
    if (!this.isBegun) {
      this.isBegun = true;
      this.#reply.hijack();
      raw.writeHead(200, EVENT_STREAM_HEADERS);
      this.#onBegin();
    }
    if (objects.length > 0) raw.write(objects.map(event).join(''));
    if (isUnread(raw)) raw.destroy();
  }

  end(objects: readonly object[], last = ''): void {
    const { raw } = this.#reply;
    if (!raw.destroyed) raw.end(objects.map(event).join('') + last);
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
    if (!raw.writableEnded) callback();
  };
  if (raw.destroyed || raw.closed) closed();
  else raw.once('close', closed);
}

/** What all took together; a prompt counts once, however many answers it has. */
function sumOf(results: readonly GenerationResult[], { choicesOfPrompt }: AnswerOptions): GenerationResult {
  const prompts = results.filter((_, index) => index % choicesOfPrompt === 0);
  const sum = (value: (result: GenerationResult) => number, of = prompts): number =>
    of.reduce((total, result) => total + value(result), 0);
  const inTier = (tier: Tier): number => sum(({ cachedByTier }) => cachedByTier[tier]);
  return {
    ...results[0]!,
    promptTokens: sum(({ promptTokens }) => promptTokens),
    completionTokens: sum(({ completionTokens }) => completionTokens, [...results]),
    cachedTokens: sum(({ cachedTokens }) => cachedTokens),
    cachedByTier: { device: inTier('device'), host: inTier('host'), disk: inTier('disk') },
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
