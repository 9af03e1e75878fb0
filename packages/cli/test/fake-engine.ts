import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** How the engine behaves. */
export interface FakeEngineOptions {
  /** Words are its tokens; it caches whole blocks of so many. Default 1. */
  readonly blockSize?: number;
  /** Whether usage tells cached tokens. Default true. */
  readonly reports?: boolean;
  /** Whether it caches at all. Default true. */
  readonly caches?: boolean;
  /** What it answers to a body of `/tokenize`; it has none by default. */
  readonly tokenizes?: (body: Readonly<Record<string, unknown>>) => object;
  readonly owner?: string;
  /** The one model that it serves. Default `fake-model`. */
  readonly model?: string;
  /** Whether it says that its model is the demo model. */
  readonly isDemo?: boolean;
  /** Whether a stream brings every UTF-16 unit of an answer by itself. Default false. */
  readonly streamsUnits?: boolean;
  /** What `GET /props` answers, as llama-server does; 404 if left out. */
  readonly props?: object;
  /** What `GET /metrics` answers; 404 if left out. */
  readonly metrics?: string;
  /** Words that its chat template puts before every message and before the answer. Default 0. */
  readonly headerWords?: number;
  /** Answers every completion with this status. */
  readonly failsWith?: number;
  /** What it answers instead of `yes`, or the status that it fails with, and what it says then. */
  readonly answers?: (body: ReceivedBody) => string | number | { readonly status: number; readonly message: string };
  /** Where it listens; any free port by default. */
  readonly port?: number;
  /** The key that requests must carry. */
  readonly apiKey?: string;
}

/** The body of a completion that arrived. */
export interface ReceivedBody {
  readonly model: string;
  readonly max_tokens: number;
  readonly cache_salt?: string;
  readonly messages: readonly { readonly role: string; readonly content: string }[];
}

/** An OpenAI-compatible server with a prefix cache over words, which remembers what it was asked. */
export interface FakeEngine {
  readonly url: string;
  readonly received: readonly ReceivedBody[];
  close(): Promise<void>;
}

export async function startFakeEngine(options: FakeEngineOptions = {}): Promise<FakeEngine> {
  const received: ReceivedBody[] = [];
  const cached: string[][] = [];
  const server = createServer((request, response) => {
    void answer(request, response, { options, received, cached });
  });
  server.listen(options.port ?? 0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    received,
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

interface State {
  readonly options: FakeEngineOptions;
  readonly received: ReceivedBody[];
  readonly cached: string[][];
}

async function answer(request: IncomingMessage, response: ServerResponse, state: State): Promise<void> {
  let text = '';
  for await (const chunk of request.setEncoding('utf8')) text += chunk;
  const { options } = state;
  if (options.apiKey !== undefined && request.headers.authorization !== `Bearer ${options.apiKey}`) {
    return json(response, 401, {
      error: { message: 'no key', type: 'invalid_request_error', code: 'invalid_api_key' },
    });
  }
  if (request.url === '/v1/models') {
    return json(response, 200, {
      data: [
        { id: options.model ?? 'fake-model', object: 'model', owned_by: options.owner ?? 'fake', demo: options.isDemo },
      ],
    });
  }
  if (request.url === '/props' && options.props !== undefined) return json(response, 200, options.props);
  if (request.url === '/metrics' && options.metrics !== undefined) {
    response.writeHead(200, { 'content-type': 'text/plain' }).end(options.metrics);
    return;
  }
  if (request.url === '/tokenize' && options.tokenizes !== undefined) {
    return json(response, 200, options.tokenizes(JSON.parse(text) as Readonly<Record<string, unknown>>));
  }
  if (request.url !== '/v1/chat/completions') return json(response, 404, { error: { message: 'no such route' } });
  if (options.failsWith !== undefined) {
    return json(response, options.failsWith, { error: { message: 'out of order', type: 'server_error', code: null } });
  }
  const body = JSON.parse(text) as ReceivedBody & { stream?: boolean };
  const content = options.answers?.(body) ?? 'yes';
  if (typeof content === 'number') return json(response, content, { error: { message: 'not this one' } });
  if (typeof content === 'object') return json(response, content.status, { error: { message: content.message } });
  complete(response, body, content, state);
}

function complete(
  response: ServerResponse,
  body: ReceivedBody & { stream?: boolean },
  content: string,
  state: State,
): void {
  state.received.push(body);
  const usage = countUsage(body, state);
  const choice = { index: 0, finish_reason: 'stop' };
  if (body.stream !== true) {
    json(response, 200, { choices: [{ ...choice, message: { role: 'assistant', content } }], usage });
    return;
  }
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const chunks = [
    { choices: [{ index: 0, delta: { role: 'assistant', content: '' } }] },
    ...(state.options.streamsUnits === true ? content.split('') : [content]).map((part) => ({
      choices: [{ index: 0, delta: { content: part } }],
    })),
    { choices: [{ ...choice, delta: {} }] },
    { choices: [], usage },
  ];
  for (const chunk of chunks) response.write(`data: ${JSON.stringify({ model: body.model, ...chunk })}\n\n`);
  response.end('data: [DONE]\n\n');
}

function countUsage(body: ReceivedBody, { options, cached }: State): object {
  const header = Array<string>(options.headerWords ?? 0).fill('header');
  const texts = body.messages.map(({ role, content }) => `${role} ${content}`.split(/\s+/));
  const words = [...texts.flatMap((text) => [...header, ...text]), ...header];
  const blockSize = options.blockSize ?? 1;
  const shared = Math.min(words.length - 1, Math.max(0, ...cached.map((earlier) => commonPrefix(earlier, words))));
  const cachedTokens = options.caches === false ? 0 : Math.floor(shared / blockSize) * blockSize;
  cached.push(words);
  const details = options.reports === false ? {} : { prompt_tokens_details: { cached_tokens: cachedTokens } };
  return { prompt_tokens: words.length, completion_tokens: 1, total_tokens: words.length + 1, ...details };
}

function commonPrefix(a: readonly string[], b: readonly string[]): number {
  let length = 0;
  while (length < a.length && length < b.length && a[length] === b[length]) length += 1;
  return length;
}

function json(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(body));
}
