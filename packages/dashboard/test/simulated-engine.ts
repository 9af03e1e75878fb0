import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** Characters of one block of the cache, and of one token. */
const BLOCK = 64;
const TOKEN = 4;

/** A prompt that the engine has. */
export interface EnginePrompt {
  /** Its `x-request-id`. */
  readonly id: string;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  /** Sends the first token of a stream. */
  first(): void;
  /** Sends what is left, with the usage. */
  end(): void;
  /** Answers with an error in place of all that. */
  fail(status: number): void;
}

/**
 * An engine with a prefix cache of blocks, least recently used first, that streams when it is told to: whoever drives
 * it decides when time passes.
 */
export class SimulatedEngine {
  /** Called for each prompt. */
  onPrompt: (prompt: EnginePrompt) => void = () => {};
  /** Whether anything but prompts is answered. */
  isReady = true;
  readonly #server: Server;
  readonly #maxBlocks: number;
  readonly #blocks = new Map<string, true>();

  private constructor(maxBlocks: number) {
    this.#maxBlocks = maxBlocks;
    this.#server = createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        const id = String(request.headers['x-request-id']);
        if (request.method === 'GET') this.#tellState(response);
        else this.#serve(id, Buffer.concat(chunks).toString('utf8'), response);
      });
    });
  }

  static async start({ maxBlocks }: { readonly maxBlocks: number }): Promise<SimulatedEngine> {
    const engine = new SimulatedEngine(maxBlocks);
    await new Promise<void>((resolve) => engine.#server.listen(0, '127.0.0.1', resolve));
    return engine;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  close(): Promise<void> {
    this.#server.closeAllConnections();
    return new Promise((resolve) => this.#server.close(() => resolve()));
  }

  #tellState(response: ServerResponse): void {
    response.writeHead(this.isReady ? 200 : 503, { 'content-type': 'application/json' });
    response.end('{"object":"list","data":[]}');
  }

  #serve(id: string, body: string, response: ServerResponse): void {
    const { messages } = JSON.parse(body) as { messages: { content: string }[] };
    const text = messages.map(({ content }) => content).join('\n');
    const cachedTokens = (this.#cache(text) * BLOCK) / TOKEN;
    const promptTokens = Math.ceil(text.length / TOKEN);
    const send = (data: object) => response.write(`data: ${JSON.stringify(data)}\n\n`);
    this.onPrompt({
      id,
      promptTokens,
      cachedTokens,
      first: () => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        send({ choices: [{ index: 0, delta: { role: 'assistant', content: 'It ' } }] });
      },
      end: () => {
        send({ choices: [{ index: 0, delta: { content: 'is 42 kg.' }, finish_reason: 'stop' }] });
        const usage = { prompt_tokens: promptTokens, prompt_tokens_details: { cached_tokens: cachedTokens } };
        send({ choices: [], usage: { ...usage, completion_tokens: 5, total_tokens: promptTokens + 5 } });
        response.end('data: [DONE]\n\n');
      },
      fail: (status) => {
        response.writeHead(status, { 'content-type': 'application/json' });
        response.end('{"error":{"message":"no"}}');
      },
    });
  }

  /** Blocks of this text that the cache had; it has all of them now. */
  #cache(text: string): number {
    let known = 0;
    let isPrefix = true;
    for (let end = BLOCK; end <= text.length; end += BLOCK) {
      const block = text.slice(0, end);
      if (!this.#blocks.delete(block)) isPrefix = false;
      if (isPrefix) known++;
      this.#blocks.set(block, true);
    }
    for (const block of this.#blocks.keys()) {
      if (this.#blocks.size <= this.#maxBlocks) break;
      this.#blocks.delete(block);
    }
    return known;
  }
}
