import { WarmpathError } from '@warmpath/core';
import type { FastifyReply } from 'fastify';
import type {
  ChosenToken,
  GenerationHandle,
  GenerationListener,
  GenerationRequest,
  GenerationResult,
} from '../loop/generation.js';
import { type AnswerOrigin, answerRecord, RECORDS_HEADER } from '../supervisor/answer-records.js';

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
  /** Stream in records, for a front that has another worker go on; events alone when left out. */
  readonly records?: AnswerOrigin;
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
  return options.stream ? streamAnswer(target, request, format, exchange) : wholeAnswer(target, request, format, reply);
}

async function wholeAnswer(
  target: GenerationTarget,
  request: GenerationRequest,
  format: AnswerFormat,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const { text, result, tokens } = await generateWhole(target, request, reply);
  return reply.send(format.whole(text, result, tokens));
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

/** The head goes out with the first text, so that a request that fails before it gets an ordinary HTTP error. */
function streamAnswer(
  target: GenerationTarget,
  request: GenerationRequest,
  format: AnswerFormat,
  { reply, options }: { readonly reply: FastifyReply; readonly options: StreamOptions },
): Promise<FastifyReply> {
  const { includeUsage, records } = options;
  const socket = reply.raw;
  const event = (data: object): string => `data: ${JSON.stringify(data)}\n\n`;
  const events = (all: readonly object[]): string => all.map(event).join('');
  return new Promise((resolve, reject) => {
    let begun = false;
    // What an earlier worker has streamed is gone through again, and not sent.
    let repeated = request.answered?.length ?? 0;
    let isSent = repeated === 0;
    let tokens: number[] = [];
    const begin = (): readonly object[] => {
      if (begun) {
        return [];
      }
      begun = true;
      sendHead(reply, records);
      resolve(reply);
      return format.opening();
    };
    const handle = target.submit(request, {
      ...(records !== undefined && {
        onToken: (token) => {
          isSent = repeated === 0;
          if (isSent) {
            tokens.push(token);
          } else {
            repeated--;
          }
        },
      }),
      onText: (text, chosen = []) => {
        const opening = begin();
        const piece = format.piece(text, chosen);
        const data = events(piece === undefined ? opening : [...opening, piece]);
        if (isSent && data !== '') {
          socket.write(records === undefined ? data : answerRecord(data, tokens));
          tokens = [];
          if (socket.writableLength > MAX_UNREAD_BYTES) {
            socket.destroy();
          }
        }
      },
      onFinish: (result) => {
        const opening = isSent ? begin() : [];
        const ending = [format.closing(result), ...(includeUsage ? [format.usage(result)] : [])];
        const data = `${events([...opening, ...ending])}data: [DONE]\n\n`;
        begin();
        socket.end(records === undefined ? data : answerRecord(data, 'end'));
      },
      onError: (error) => {
        if (!begun) {
          reject(error);
        } else if (records !== undefined && error.code === 'WARMPATH_ENGINE_FAILED') {
          // The front has it computed further, here or by the next worker.
          socket.destroy();
        } else {
          const data = event(error.toOpenAI());
          socket.end(records === undefined ? data : answerRecord(data, 'end'));
        }
      },
    });
    abortOnClose(reply, handle, () => reject(new WarmpathError('WARMPATH_CLIENT_CLOSED')));
  });
}

function sendHead(reply: FastifyReply, records: AnswerOrigin | undefined): void {
  reply.hijack();
  reply.raw.writeHead(200, {
    ...plainHeaders(reply),
    ...(records !== undefined && { [RECORDS_HEADER]: JSON.stringify(records) }),
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
