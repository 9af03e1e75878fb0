import { EventEmitter, once } from 'node:events';
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';

/** A request as it reached the fake engine. */
export interface ReceivedRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

export type Answer = (response: ServerResponse, request: ReceivedRequest) => void;

/**
 * A plain HTTP server in place of an engine, for what a healthy engine does not do: fail in chosen ways, at chosen
 * bytes.
 */
export class FakeEngine {
  readonly received: ReceivedRequest[] = [];
  /**
   * Emits `request` when one has come completely, and `abort` when its client's connection closed before the answer was
   * complete.
   */
  readonly events = new EventEmitter();
  answer: Answer;
  aborted = 0;
  readonly #server: Server;

  private constructor(answer: Answer) {
    this.answer = answer;
    this.events.setMaxListeners(100);
    this.#server = createServer((request, response) => void this.#serve(request, response));
  }

  static async start(answer: Answer = answerJson): Promise<FakeEngine> {
    const engine = new FakeEngine(answer);
    engine.#server.listen(0, '127.0.0.1');
    await once(engine.#server, 'listening');
    return engine;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  get last(): ReceivedRequest {
    return this.received.at(-1)!;
  }

  /** Resolves when `count` requests were received, or aborted, since the start. */
  async until(event: 'request' | 'abort', count: number): Promise<void> {
    while ((event === 'request' ? this.received.length : this.aborted) < count) await once(this.events, event);
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    response.on('close', () => {
      if (response.writableFinished) return;
      this.aborted++;
      this.events.emit('abort');
    });
    const chunks: Buffer[] = [];
    try {
      for await (const chunk of request) chunks.push(chunk as Buffer);
    } catch {
      return;
    }
    const received: ReceivedRequest = {
      method: request.method!,
      path: request.url!,
      headers: request.headers,
      body: Buffer.concat(chunks).toString('utf8'),
    };
    this.received.push(received);
    this.events.emit('request');
    this.answer(response, received);
  }
}

/** A complete chat response, as llama-server, vLLM and the embedded engine write it. */
export const CHAT_RESPONSE = JSON.stringify({
  id: 'chatcmpl-1',
  object: 'chat.completion',
  created: 1_790_000_000,
  model: 'm',
  choices: [{ index: 0, message: { role: 'assistant', content: 'The weight is 42 kg.' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 120, completion_tokens: 8, total_tokens: 128, prompt_tokens_details: { cached_tokens: 96 } },
});

/** A complete stream with usage, as OpenAI's API writes it. */
export const CHAT_STREAM = [
  '{"id":"chatcmpl-1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}',
  '{"id":"chatcmpl-1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"The wéight"},"finish_reason":null}],"usage":null}',
  '{"id":"chatcmpl-1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":" is \\"usage\\" 42 kg. 🦀"},"finish_reason":null}],"usage":null}',
  '{"id":"chatcmpl-1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}',
  '{"id":"chatcmpl-1","object":"chat.completion.chunk","model":"m","choices":[],"usage":{"prompt_tokens":120,"completion_tokens":8,"total_tokens":128,"prompt_tokens_details":{"cached_tokens":96}}}',
  '[DONE]',
]
  .map((data) => `data: ${data}\n\n`)
  .join('');

export function answerJson(response: ServerResponse): void {
  response.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(CHAT_RESPONSE) });
  response.end(CHAT_RESPONSE);
}

export function answerStream(response: ServerResponse): void {
  startStream(response);
  response.end(CHAT_STREAM);
}

/** Headers of a stream, sent at once. */
export function startStream(response: ServerResponse): ServerResponse {
  response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
  response.flushHeaders();
  return response;
}

/** Answers as the request asked: a stream if it has `"stream": true`. */
export function answerAsAsked(response: ServerResponse, request: ReceivedRequest): void {
  if (/"stream":\s*true/.test(request.body)) answerStream(response);
  else answerJson(response);
}
