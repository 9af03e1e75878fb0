import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** How the engine answers a chat completion. */
export type ChatAnswer = (response: ServerResponse, isStream: boolean) => void;

/** Bodies of at most as many bytes are kept to be looked at. */
const KEPT_BYTES = 1e6;

/**
 * An engine that speaks chat completions only and keeps nothing of large bodies, so that only the gateway's memory
 * counts.
 */
export class SinkEngine {
  /** The latest body, if it is not large. */
  lastBody = '';
  requests = 0;
  answer: ChatAnswer = answerChat;
  readonly #server: Server;

  private constructor() {
    this.#server = createServer((request, response) => void this.#serve(request, response));
  }

  static async start(): Promise<SinkEngine> {
    const engine = new SinkEngine();
    engine.#server.listen(0, '127.0.0.1');
    await once(engine.#server, 'listening');
    return engine;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const kept: Buffer[] = [];
    let bytes = 0;
    try {
      for await (const chunk of request as AsyncIterable<Buffer>) {
        bytes += chunk.length;
        if (bytes <= KEPT_BYTES) kept.push(chunk);
      }
    } catch {
      return;
    }
    if (!request.url!.endsWith('/completions')) {
      response.writeHead(404, { 'content-type': 'application/json' }).end('{"detail":"Not Found"}');
      return;
    }
    this.requests++;
    this.lastBody = bytes <= KEPT_BYTES ? Buffer.concat(kept).toString('utf8') : '';
    this.answer(response, /"stream":\s*true/.test(this.lastBody));
  }
}

const ANSWER = JSON.stringify({
  id: 'c',
  object: 'chat.completion',
  model: 'm',
  choices: [{ index: 0, message: { role: 'assistant', content: 'It is 42 kg.' }, finish_reason: 'stop' }],
});

function answerChat(response: ServerResponse): void {
  response.writeHead(200, { 'content-type': 'application/json' }).end(ANSWER);
}

/**
 * A stream in which this many calls of tools are begun, one after the other, before the first of them gets an argument;
 * then each gets one, in the same order.
 */
export function answerInterleaved(calls: number): ChatAnswer {
  return (response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const chunk = (delta: object) => `data: ${JSON.stringify({ id: 'c', choices: [{ index: 0, delta }] })}\n\n`;
    const steps = 2 * calls;
    let step = 0;
    const write = (): void => {
      while (step < steps) {
        const index = step % calls;
        const begins = step < calls;
        const call = begins
          ? { index, id: `call_${index}`, type: 'function', function: { name: 'weigh', arguments: '' } }
          : { index, function: { arguments: '{}' } };
        step++;
        if (!response.write(chunk({ tool_calls: [call] }))) {
          response.once('drain', write);
          return;
        }
      }
      const end = { id: 'c', choices: [{ index: 0, delta: {}, finish_reason: 'tool_calls' }] };
      response.end(`data: ${JSON.stringify(end)}\n\ndata: [DONE]\n\n`);
    };
    write();
  };
}
