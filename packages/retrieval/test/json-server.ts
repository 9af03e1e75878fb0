import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface JsonAnswer {
  readonly status?: number;
  readonly headers?: Record<string, string>;
  /** JSON, or text as it is. */
  readonly body?: unknown;
}

export interface JsonRequest {
  readonly path: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  // biome-ignore lint/suspicious/noExplicitAny: a test knows what it sends.
  readonly body: any;
}

/** A real HTTP server that answers JSON; `answer` may give `'hang'` or `'cut'` instead of an answer. */
export async function startJsonServer(
  answer: (request: JsonRequest) => JsonAnswer | 'hang' | 'cut' | Promise<JsonAnswer | 'hang' | 'cut'>,
) {
  const requests: JsonRequest[] = [];
  let closed = 0;
  const server = createServer(async (request, response: ServerResponse) => {
    response.on('close', () => {
      if (!response.writableFinished) closed++;
    });
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const asked = { path: request.url!, headers: request.headers, body: JSON.parse(Buffer.concat(chunks).toString()) };
    requests.push(asked);
    const given = await answer(asked);
    if (given === 'hang') return;
    if (given === 'cut') {
      response.writeHead(200, { 'content-length': 1000 });
      response.write('{"data": [');
      setImmediate(() => response.destroy());
      return;
    }
    const { status = 200, headers = {}, body } = given;
    response.writeHead(status, { 'content-type': 'application/json', ...headers });
    response.end(typeof body === 'string' ? body : JSON.stringify(body));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    /** Exchanges that the client ended. */
    get closed() {
      return closed;
    },
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
