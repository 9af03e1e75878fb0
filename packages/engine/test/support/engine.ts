import { channel } from 'node:diagnostics_channel';
import { type ClientRequest, request as httpRequest, type IncomingMessage } from 'node:http';
import type { EndEvent, StepEvent } from '../../src/loop/events.js';
import type { GenerationTimings } from '../../src/loop/generation.js';
import type { EngineOptions } from '../../src/options.js';
import { type EngineServer, startEngineServer } from '../../src/server.js';

interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  prompt_tokens_details: {
    cached_tokens: number;
    cached_tokens_by_tier: { device: number; host: number; disk: number };
  };
}

export interface Answer {
  id: string;
  object: string;
  model: string;
  choices: { text?: string; message?: { role: string; content: string }; finish_reason: string }[];
  usage: Usage;
  timings: GenerationTimings;
}

export interface Chunk {
  object: string;
  choices: { text?: string; delta?: { role?: string; content?: string }; finish_reason: string | null }[];
  usage?: Usage;
  timings?: GenerationTimings;
  error?: { code: string };
}

export interface ErrorBody {
  error: { code: string; type: string; param: string | null; message: string; remedy: string };
}

/** An engine on the demo model, and the calls that tests make. */
export class TestEngine {
  readonly server: EngineServer;

  private constructor(server: EngineServer) {
    this.server = server;
  }

  /** Threads: one, so that two test files on two cores do not wait for each other's threads. */
  static async start(options: EngineOptions = {}): Promise<TestEngine> {
    return new TestEngine(await startEngineServer({ port: 0, threads: 1, contextTokens: 8192, ...options }));
  }

  close(): Promise<void> {
    return this.server.close();
  }

  async call(
    path: string,
    body: unknown,
    headers: Record<string, string> = {},
  ): Promise<{ status: number; body: unknown; headers: Headers }> {
    const response = await fetch(this.server.url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    });
    return { status: response.status, body: await response.json(), headers: response.headers };
  }

  async get(path: string): Promise<string> {
    return (await fetch(this.server.url + path)).text();
  }

  /** Plain completion at temperature 0 unless the fields say otherwise; throws on an error. */
  async complete(prompt: string | number[], fields: object = {}): Promise<Answer> {
    return this.#answer('/v1/completions', { prompt, temperature: 0, max_tokens: 1, ...fields });
  }

  async chat(content: string, fields: object = {}): Promise<Answer> {
    const messages = [{ role: 'user', content }];
    return this.#answer('/v1/chat/completions', { messages, temperature: 0, max_tokens: 24, ...fields });
  }

  async tokenize(body: object): Promise<number[]> {
    return ((await this.call('/tokenize', body)).body as { tokens: number[] }).tokens;
  }

  async error(path: string, body: unknown): Promise<{ status: number } & ErrorBody['error']> {
    const reply = await this.call(path, body);
    return { status: reply.status, ...(reply.body as ErrorBody).error };
  }

  /** The value of one metric; labels as they are written, without the model's name. */
  async metric(name: string, labels = ''): Promise<number> {
    const text = await this.get('/metrics');
    const line = text.split('\n').find((candidate) => candidate.startsWith(`${name}{`) && candidate.includes(labels));
    if (line === undefined) {
      throw new Error(`no metric ${name}`);
    }
    return Number(line.slice(line.lastIndexOf(' ') + 1));
  }

  /** Opens a streamed request on a socket of its own. */
  stream(path: string, body: object): StreamedRequest {
    return new StreamedRequest(this.server.url + path, { temperature: 0, ...body, stream: true });
  }

  /** Sends a request whose answer nobody waits for, on a socket of its own. */
  send(path: string, body: object): ClientRequest {
    return post(this.server.url + path, body);
  }

  async #answer(path: string, body: object): Promise<Answer> {
    const reply = await this.call(path, body);
    if (reply.status !== 200) {
      throw new Error(JSON.stringify(reply.body));
    }
    return reply.body as Answer;
  }
}

function post(url: string, body: object): ClientRequest {
  const request = httpRequest(url, { method: 'POST', agent: false, headers: { 'content-type': 'application/json' } });
  request.on('error', () => undefined);
  request.end(JSON.stringify(body));
  return request;
}

/** A streamed answer as it arrives, event by event. */
export class StreamedRequest {
  readonly #request: ClientRequest;
  readonly #chunks: Promise<AsyncIterator<string>>;

  constructor(url: string, body: object) {
    this.#request = post(url, body);
    this.#chunks = new Promise<IncomingMessage>((resolve, reject) => {
      this.#request.once('response', resolve);
      this.#request.once('error', reject);
    }).then((response) => dataLines(response));
    this.#chunks.catch(() => undefined);
  }

  /** The next `data:` line, parsed; `undefined` after `[DONE]` or at the end. */
  async next(): Promise<Chunk | undefined> {
    const { value, done } = await (await this.#chunks).next();
    return done === true || value === '[DONE]' ? undefined : (JSON.parse(value) as Chunk);
  }

  async rest(): Promise<Chunk[]> {
    const chunks: Chunk[] = [];
    for (let chunk = await this.next(); chunk !== undefined; chunk = await this.next()) {
      chunks.push(chunk);
    }
    return chunks;
  }

  /** Closes the connection as a client does that goes away. */
  destroy(): void {
    this.#request.destroy();
  }
}

async function* dataLines(response: IncomingMessage): AsyncGenerator<string> {
  let buffer = '';
  response.setEncoding('utf8');
  for await (const part of response) {
    buffer += part as string;
    for (let end = buffer.indexOf('\n\n'); end >= 0; end = buffer.indexOf('\n\n')) {
      const line = buffer.slice(0, end);
      buffer = buffer.slice(end + 2);
      yield line.replace(/^data: /, '');
    }
  }
}

/** The text of a stream. */
export function textOf(chunks: readonly Chunk[]): string {
  return chunks.map(({ choices: [choice] }) => choice?.text ?? choice?.delta?.content ?? '').join('');
}

/** Follows what the loop announces. Close it, or it listens on. */
export class EventLog {
  readonly steps: StepEvent[] = [];
  readonly ends: EndEvent[] = [];
  #waiting: { isDone: () => boolean; resolve: () => void }[] = [];
  readonly #onStep = (event: unknown): void => {
    this.steps.push(event as StepEvent);
    this.#check();
  };
  readonly #onEnd = (event: unknown): void => {
    this.ends.push(event as EndEvent);
    this.#check();
  };

  constructor() {
    channel('warmpath:engine:step').subscribe(this.#onStep);
    channel('warmpath:engine:end').subscribe(this.#onEnd);
  }

  /** Waits until something is true, looked at after every event. */
  until(isDone: () => boolean): Promise<void> {
    return new Promise((resolve) => {
      this.#waiting.push({ isDone, resolve });
      this.#check();
    });
  }

  close(): void {
    channel('warmpath:engine:step').unsubscribe(this.#onStep);
    channel('warmpath:engine:end').unsubscribe(this.#onEnd);
  }

  #check(): void {
    const done = this.#waiting.filter(({ isDone }) => isDone());
    this.#waiting = this.#waiting.filter((waiter) => !done.includes(waiter));
    for (const { resolve } of done) {
      resolve();
    }
  }
}

/** Token ids that stand for ordinary text in the demo model, different for every `offset`. */
export function someTokens(count: number, offset = 0): number[] {
  return Array.from(
    { length: count },
    (_, index) => 260 + ((index * 7 + offset * 131 + ((index * index) % 97)) % 1200),
  );
}
