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

/** The shapes in which an endpoint answers; what streams and what does not differ in these alone. */
export interface AnswerFormat {
  /** The whole answer, without a stream; with its tokens where they were asked for. */
  whole(text: string, result: GenerationResult, tokens: readonly ChosenToken[]): object;
  /** What a stream begins with, before any text. */
  opening(): readonly object[];
  /** A piece of text; nothing where it must wait for the next one. */
  piece(text: string, tokens: readonly ChosenToken[]): object | undefined;
  /** The end of a stream: the last chunk with the finish reason. */
  closing(result: GenerationResult): object;
  /** The chunk with the usage, when the client asked for it. */
  usage(result: GenerationResult): object;
}

export interface StreamOptions {
  /** Whether a whole answer fits what its grammar does not keep. */
  readonly fits?: ((text: string) => boolean) | undefined;
  readonly stream: boolean;
  readonly includeUsage: boolean;
}

/** Where generations are handed in: the loop, or a stand-in for tests. */
export interface GenerationTarget {
  submit(request: GenerationRequest, listener: GenerationListener): GenerationHandle;
}

/**
 * Runs one generation for one HTTP exchange, streamed or not. When the client closes the connection, queued, waiting
 * for the answer or in the middle of a stream, the generation is aborted.
 *
 * Errors before the first byte become an HTTP error; later ones are sent as an `error` event, after which the stream
 * ends without `[DONE]`. A stream that its client does not read is broken off and aborted after `MAX_UNREAD_BYTES`.
 */
export async function answer(
  target: GenerationTarget,
  request: GenerationRequest,
  format: AnswerFormat,
  exchange: { readonly reply: FastifyReply; readonly options: StreamOptions },
): Promise<FastifyReply> {
  if (exchange.options.stream) {
    return streamAnswer(target, request, format, exchange);
  }
  const { text, result, tokens } = await generateWhole(target, request, exchange.reply);
  checkFit(text, result, exchange.options);
  return exchange.reply.send(format.whole(text, result, tokens));
}

/** @throws WARMPATH_ANSWER_UNFIT */
export function checkFit(text: string, result: GenerationResult, options: StreamOptions): void {
  if (!isFit(text, result, options)) {
    throw new WarmpathError('WARMPATH_ANSWER_UNFIT');
  }
}

/** An answer that was cut is the beginning of one that fits. */
function isFit(text: string, { finishReason, stopString }: GenerationResult, { fits }: StreamOptions): boolean {
  return fits === undefined || finishReason !== 'stop' || stopString !== undefined || fits(text);
}

/**
 * Runs one generation to its end, for a client that waits for all of it.
 *
 * @throws WARMPATH_CLIENT_CLOSED when it does not wait any more, and the generation is aborted; what the generation
 *   fails with.
 */
export async function generateWhole(
  target: GenerationTarget,
  request: GenerationRequest,
  reply: FastifyReply,
): Promise<{ readonly text: string; readonly result: GenerationResult; readonly tokens: readonly ChosenToken[] }> {
  let text = '';
  const tokens: ChosenToken[] = [];
  const result = await new Promise<GenerationResult | 'closed'>((resolve, reject) => {
    const handle = target.submit(request, {
      onText: (piece, chosen = []) => {
        text += piece;
        tokens.push(...chosen);
      },
      onFinish: resolve,
      onError: reject,
    });
    abortOnClose(reply, handle, () => resolve('closed'));
  });
  if (result === 'closed') {
    throw new WarmpathError('WARMPATH_CLIENT_CLOSED');
  }
  return { text, result, tokens };
}

/** The stream starts with the first text, so that a request that fails before it gets an ordinary HTTP error. */
function streamAnswer(
  target: GenerationTarget,
  request: GenerationRequest,
  format: AnswerFormat,
  { reply, options }: { readonly reply: FastifyReply; readonly options: StreamOptions },
): Promise<FastifyReply> {
  const { raw } = reply;
  return new Promise((resolve, reject) => {
    let begun = false;
    let whole = '';
    const begin = (): readonly object[] => {
      if (begun) {
        return [];
      }
      begun = true;
      reply.hijack();
      raw.writeHead(200, EVENT_STREAM_HEADERS);
      resolve(reply);
      return format.opening();
    };
    const handle = target.submit(request, {
      onText: (text, chosen = []) => {
        whole += text;
        const opening = begin();
        const piece = format.piece(text, chosen);
        const data = events(piece === undefined ? opening : [...opening, piece]);
        if (data !== '') {
          raw.write(data);
          if (isUnread(raw)) {
            raw.destroy();
          }
        }
      },
      onFinish: (result) => {
        const opening = begin();
        if (!isFit(whole, result, options)) {
          raw.end(event(new WarmpathError('WARMPATH_ANSWER_UNFIT').toOpenAI()));
          return;
        }
        const ending = [format.closing(result), ...(options.includeUsage ? [format.usage(result)] : [])];
        raw.end(`${events([...opening, ...ending])}data: [DONE]\n\n`);
      },
      onError: (error) => {
        if (begun) {
          raw.end(event(error.toOpenAI()));
        } else {
          reject(error);
        }
      },
    });
    abortOnClose(reply, handle, () => reject(new WarmpathError('WARMPATH_CLIENT_CLOSED')));
  });
}

/** Sends a stream that is there as a whole. */
export function sendStream(reply: FastifyReply, objects: readonly object[]): FastifyReply {
  reply.hijack();
  reply.raw.writeHead(200, EVENT_STREAM_HEADERS).end(`${events(objects)}data: [DONE]\n\n`);
  return reply;
}

function event(data: object): string {
  return `data: ${JSON.stringify(data)}\n\n`;
}

function events(all: readonly object[]): string {
  return all.map(event).join('');
}

function abortOnClose(reply: FastifyReply, handle: GenerationHandle, onAbort: () => void): void {
  const socket = reply.raw;
  const closed = (): void => {
    // `close` follows a complete answer too.
    if (!socket.writableEnded) {
      handle.abort();
      onAbort();
    }
  };
  if (socket.destroyed || socket.closed) {
    closed();
  } else {
    socket.once('close', closed);
  }
}
