import type { IncomingHttpHeaders, ServerResponse } from 'node:http';
import { WarmpathError } from '@warmpath/core';
import type { Dispatcher } from 'undici';

export interface RelayedRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

const CONNECTION_HEADERS = new Set([
  'connection',
  'expect',
  'host',
  'keep-alive',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/**
 * Sends a request to the worker, and its answer to the client as it comes. Aborts it when the client leaves; reads no
 * faster than the client.
 *
 * @throws WARMPATH_ENGINE_FAILED when the worker breaks the connection off. Where the client has nothing of the answer
 *   yet, the request can be sent again.
 */
export function relay(
  pool: Pick<Dispatcher, 'dispatch'>,
  { method, path, headers, body }: RelayedRequest,
  client: ServerResponse,
): Promise<void> {
  return new Promise((resolve, reject) => {
    let controller: Dispatcher.DispatchController | undefined;
    /** Whether the last bytes end an event of a stream. */
    let endsEvent = true;
    const leave = (): void => {
      controller?.abort(new WarmpathError('WARMPATH_CLIENT_CLOSED'));
      resolve();
    };
    client.once('close', leave);
    client.on('drain', () => controller?.resume());
    const options = { method: method as Dispatcher.HttpMethod, path, headers: endToEnd(headers) };
    pool.dispatch(body.length > 0 ? { ...options, body } : options, {
      onRequestStart: (started) => {
        controller = started;
        if (client.destroyed) leave();
      },
      onResponseStart: (_, status, answered) => {
        if (status >= 200) {
          // They leave with the first bytes, so that a failure before these is an ordinary error.
          client.statusCode = status;
          client.setHeaders(new Map(Object.entries(endToEnd(answered))));
        }
      },
      onResponseData: (reading, chunk) => {
        endsEvent = chunk.subarray(-2).toString() === '\n\n';
        if (!client.write(chunk)) reading.pause();
      },
      onResponseEnd: () => {
        client.off('close', leave);
        client.end();
        resolve();
      },
      onResponseError: (_, cause) => {
        client.off('close', leave);
        if (!endsEvent && isEventStream(client)) client.write('\n\n');
        const detail = 'The engine process ended while it computed this request.';
        reject(new WarmpathError('WARMPATH_ENGINE_FAILED', { detail, cause }));
      },
    });
  });
}

/**
 * Answers with an error of the table. A stream that has begun ends with an error event and without `[DONE]`, as the
 * engine itself ends one. Any other half answer gets no clean end.
 */
export function sendError(client: ServerResponse, error: WarmpathError): void {
  const body = JSON.stringify(error.toOpenAI());
  if (client.headersSent) {
    if (isEventStream(client)) client.end(`data: ${body}\n\n`);
    else client.destroy();
    return;
  }
  for (const name of client.getHeaderNames()) client.removeHeader(name);
  client.writeHead(error.status, {
    ...(error.code === 'WARMPATH_OVERLOADED' && { 'retry-after': '1' }),
    'content-type': 'application/json; charset=utf-8',
    'content-length': Buffer.byteLength(body),
  });
  client.end(body);
}

function isEventStream(client: ServerResponse): boolean {
  return String(client.getHeader('content-type')).startsWith('text/event-stream');
}

function endToEnd(headers: IncomingHttpHeaders): Record<string, string | string[]> {
  const kept: Record<string, string | string[]> = {};
  for (const [name, value] of Object.entries(headers)) {
    if (value !== undefined && !CONNECTION_HEADERS.has(name)) kept[name] = value;
  }
  return kept;
}
