import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { createMcpServer, type McpServerOptions } from './mcp-server.js';

export interface McpHttpOptions extends McpServerOptions {
  /** Default `127.0.0.1`. There is no authentication: put something that checks keys in front of any other. */
  readonly host?: string;
  /** Default 8090; 0 for any free one. */
  readonly port?: number;
}

/** A server that listens. */
export interface RunningMcp {
  /** Where clients connect, for instance `http://127.0.0.1:8090/mcp`. */
  readonly url: string;
  close(): Promise<void>;
}

const PATH = '/mcp';
const LOOPBACK = new Set(['127.0.0.1', '::1', 'localhost']);
/** Bytes of one request. */
const MAX_BODY = 33_554_432;
const REQUEST_TIMEOUT_MS = 60_000;

/**
 * Serves the tools over streamable HTTP, without sessions: each request is answered by itself, so that any number of
 * processes may stand behind one address. Pages of other origins are refused, and on a loopback address every other
 * name than this server's: a web page cannot reach it by a name that it had resolved to this machine. Error: what
 * `listen` throws.
 */
export async function startMcpHttp({
  host = '127.0.0.1',
  port = 8090,
  ...options
}: McpHttpOptions): Promise<RunningMcp> {
  let names: readonly string[] | undefined;
  const server = createServer((request, response) => {
    answer(request, response, { options, names }).catch((error: unknown) => {
      // What can be said was said by the transport; the connection is all that is left.
      response.destroy(error instanceof Error ? error : undefined);
    });
  });
  server.requestTimeout = REQUEST_TIMEOUT_MS;
  server.listen(port, host);
  await once(server, 'listening');
  const { port: bound } = server.address() as AddressInfo;
  const name = host.includes(':') ? `[${host}]` : host;
  if (LOOPBACK.has(host)) names = [`${name}:${bound}`, `localhost:${bound}`];
  return {
    url: `http://${name}:${bound}${PATH}`,
    close: async () => {
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  { options, names }: { readonly options: McpServerOptions; readonly names: readonly string[] | undefined },
): Promise<void> {
  const { origin, host = '' } = request.headers;
  if (request.url?.split('?', 1)[0] !== PATH) return refuse(response, 404, 'There is nothing at this path.');
  if (names !== undefined && !names.includes(host))
    return refuse(response, 403, 'This is not the name of this server.');
  if (origin !== undefined && origin.replace(/^https?:\/\//, '') !== host) {
    return refuse(response, 403, 'Pages of other origins have no access.');
  }
  const body = request.method === 'POST' ? await readBody(request) : undefined;
  if (body === 'too large') return refuse(response, 413, 'The body is larger than this server accepts.');
  const server = createMcpServer(options);
  const transport = new StreamableHTTPServerTransport({ enableJsonResponse: true });
  response.on('close', () => void server.close());
  // The transport's own types are wider in what they may be undefined than the interface it implements.
  await server.connect(transport as Parameters<typeof server.connect>[0]);
  await transport.handleRequest(request, response, body);
}

/** Parsed where it is JSON; what is none is left for the transport to name. */
async function readBody(request: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > MAX_BODY) return 'too large';
    chunks.push(chunk);
  }
  const text = Buffer.concat(chunks).toString('utf8');
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}

function refuse(response: ServerResponse, status: number, message: string): void {
  const error = { jsonrpc: '2.0', id: null, error: { code: -32_000, message } };
  response.writeHead(status, { 'content-type': 'application/json', connection: 'close' }).end(JSON.stringify(error));
}
