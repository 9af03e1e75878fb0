import { WarmpathError } from '@warmpath/core';
import type { FastifyReply } from 'fastify';
import type {
  ChosenToken,
  GenerationHandle,
  GenerationListener,
  GenerationRequest,
  GenerationResult,
} from '../loop/generation.js';

/** Most bytes of a stream that wait for a client to read them: some 1,000 tokens. */
const MAX_UNREAD_BYTES = 262_144;

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
  readonly stream: boolean;
  readonly includeUsage: boolean;
}

/** Where generations are handed in: the loop, or what stands before it. */
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
  const { reply, options } = exchange;
  return options.stream
    ? streamAnswer(target, request, format, reply, options.includeUsage)
    : wholeAnswer(target, request, format, reply);
}

async function wholeAnswer(
  target: GenerationTarget,
  request: GenerationRequest,
  format: AnswerFormat,
  reply: FastifyReply,
): Promise<FastifyReply> {
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
  return reply.send(format.whole(text, result, tokens));
}

/** The head goes out with the first text, so that a request that fails before it gets an ordinary HTTP error. */
function streamAnswer(
  target: GenerationTarget,
  request: GenerationRequest,
  format: AnswerFormat,
  reply: FastifyReply,
  includeUsage: boolean,
): Promise<FastifyReply> {
  const socket = reply.raw;
  const send = (data: object): void => {
    socket.write(`data: ${JSON.stringify(data)}\n\n`);
    if (socket.writableLength > MAX_UNREAD_BYTES) {
      socket.destroy();
    }
  };
  return new Promise((resolve, reject) => {
    let begun = false;
    const begin = (): void => {
      if (!begun) {
        begun = true;
        sendHead(reply);
        for (const data of format.opening()) {
          send(data);
        }
        resolve(reply);
      }
    };
    const handle = target.submit(request, {
      onText: (text, tokens = []) => {
        begin();
        const piece = format.piece(text, tokens);
        if (piece !== undefined) {
          send(piece);
        }
      },
      onFinish: (result) => {
        begin();
        send(format.closing(result));
        if (includeUsage) {
          send(format.usage(result));
        }
        socket.end('data: [DONE]\n\n');
      },
      onError: (error) => {
        if (begun) {
          send(error.toOpenAI());
          socket.end();
        } else {
          reject(error);
        }
      },
    });
    abortOnClose(reply, handle, () => reject(new WarmpathError('WARMPATH_CLIENT_CLOSED')));
  });
}

function sendHead(reply: FastifyReply): void {
  reply.hijack();
  reply.raw.writeHead(200, {
    ...plainHeaders(reply),
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-cache',
    'x-accel-buffering': 'no',
  });
}

/** Headers that hooks have set on the reply, which a hijacked reply would lose. */
function plainHeaders(reply: FastifyReply): Record<string, string | number | string[]> {
  const entries = Object.entries(reply.getHeaders()).filter(
    (entry): entry is [string, string | number | string[]] => entry[1] !== undefined,
  );
  return Object.fromEntries(entries);
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
