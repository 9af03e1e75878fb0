import { randomUUID } from 'node:crypto';
import { EventEmitter, once } from 'node:events';
import {
  createServer,
  request as httpRequest,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { spawnEngine } from '@warmpath/engine';
import { type GatewayConfigInput, startGateway } from '@warmpath/gateway';

/** A request on its way, and what was answered. */
interface Passed {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: Record<string, unknown>;
  /** Headers of the answer; empty until it begins. */
  answerHeaders: IncomingHttpHeaders;
  /** The answer so far. */
  answer: string;
  isOver: boolean;
  /** Whether the side that asked left before the answer was complete. */
  left: boolean;
}

/** In place of an answer of the other side. */
export type Scripted = (response: ServerResponse) => void;

/** Stands between two sides and notes what passes. */
class Witness {
  readonly passed: Passed[] = [];
  /** Taken one a POST, before the other side is asked. */
  readonly script: Scripted[] = [];
  readonly events = new EventEmitter();
  readonly #server = createServer((request, response) => void this.#pass(request, response));
  readonly #target: () => string;

  constructor(target: () => string) {
    this.#target = target;
  }

  async listen(): Promise<string> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  async #pass(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const sent = Buffer.concat(chunks);
    const body = sent.length === 0 ? {} : (JSON.parse(sent.toString()) as Record<string, unknown>);
    const passed: Passed = {
      path: request.url!,
      headers: request.headers,
      body,
      answerHeaders: {},
      answer: '',
      isOver: false,
      left: false,
    };
    this.passed.push(passed);
    const scripted = request.method === 'POST' ? this.script.shift() : undefined;
    response.on('close', () => {
      passed.isOver = true;
      passed.left = !response.writableFinished;
      this.events.emit('over');
    });
    if (scripted !== undefined) return scripted(response);
    const { 'transfer-encoding': _, ...headers } = request.headers;
    const onward = httpRequest(`${this.#target()}${request.url}`, { method: request.method!, headers, agent: false });
    response.on('close', () => onward.destroy());
    onward.on('error', () => response.destroy());
    onward.on('response', (answer) => {
      passed.answerHeaders = answer.headers;
      response.writeHead(answer.statusCode!, answer.headers);
      answer.on('error', () => response.destroy());
      answer.on('data', (chunk: Buffer) => {
        passed.answer += chunk.toString();
      });
      answer.pipe(response);
    });
    onward.end(sent);
  }
}

/** A prompt as the engine got it. */
export interface SentPrompt {
  readonly messages: readonly { readonly role: string; readonly content: string; readonly [field: string]: unknown }[];
  readonly [field: string]: unknown;
}

/**
 * A gateway in front of the embedded engine with the demo model, as a framework's user has it, and witnesses on both
 * sides of it. The demo model calls no tools: `script` has an answer of another engine come first.
 */
export interface RealGateway {
  /** Where clients connect, without `/v1`. */
  readonly url: string;
  /** What clients asked of the gateway, in order. */
  readonly asked: readonly Passed[];
  /** Prompts that the gateway sent to the engine, in order. */
  prompts(): readonly SentPrompt[];
  /** The same with what was answered. */
  sent(): readonly Passed[];
  /** An answer in place of the engine's next one. */
  script(answer: Scripted): void;
  /** The gateway's account of the request that was asked at that place. */
  account(place: number): Promise<Account>;
  /** Resolves when the gateway has answered so many requests to that path. */
  heard(path: string, count: number): Promise<void>;
  /** Resolves when the gateway has let go of the prompt at that place before its answer was complete. */
  left(place: number): Promise<void>;
  /** Forgets what passed. */
  forget(): void;
  close(): Promise<void>;
}

/** What the gateway says of a request that it served. */
interface Account {
  readonly promptTokens: number | null;
  readonly cachedTokens: number | null;
  readonly references: number;
  readonly deduplicatedTokens: number;
  readonly blocks: readonly { readonly documents: number; readonly order: readonly number[] }[];
}

export async function realGateway(config: Omit<GatewayConfigInput, 'upstream'> = {}): Promise<RealGateway> {
  const engine = await spawnEngine({ port: 0, model: 'demo', threads: 1 });
  const behind = new Witness(() => engine.url);
  // With a key for salts, tests that call themselves by different keys share nothing in the engine either.
  const upstream = { url: await behind.listen(), cacheSaltKey: 'a key of the tests' };
  const gateway = await startGateway({ log: { level: 'silent' }, ...config, server: { port: 0 }, upstream });
  const before = new Witness(() => gateway.url);
  const sent = () => behind.passed.filter(({ path }) => path === '/v1/chat/completions');
  return {
    url: await before.listen(),
    asked: before.passed,
    sent,
    prompts: () => sent().map(({ body }) => body as unknown as SentPrompt),
    script: (answer) => behind.script.push(answer),
    account: async (place) => {
      const { answerHeaders, headers } = before.passed[place]!;
      const { authorization } = headers;
      const answer = await fetch(`${gateway.url}/v1/requests/${String(answerHeaders['x-request-id'])}`, {
        headers: authorization === undefined ? {} : { authorization },
      });
      return (await answer.json()) as Account;
    },
    heard: async (path, count) => {
      const heard = () => before.passed.filter((one) => one.path === path && one.isOver).length;
      while (heard() < count) await once(before.events, 'over');
    },
    left: async (place) => {
      while (!sent()[place]!.left) await once(behind.events, 'over');
    },
    forget: () => {
      for (const witness of [before, behind]) witness.passed.length = 0;
    },
    close: async () => {
      before.close();
      behind.close();
      await gateway.close();
      await engine.stop();
    },
  };
}

/** An answer of chat completions that calls a tool, streamed if `stream` is set. */
export function callsTool(name: string, args: object, stream = false): Scripted {
  const call = { id: `call_${randomUUID()}`, type: 'function', function: { name, arguments: JSON.stringify(args) } };
  const head = { id: `chatcmpl-${randomUUID()}`, created: 1_790_000_000, model: 'warmpath-tiny' };
  const usage = { prompt_tokens: 9, completion_tokens: 1, total_tokens: 10 };
  return (response) => {
    if (!stream) {
      const message = { role: 'assistant', content: null, tool_calls: [call] };
      const choices = [{ index: 0, message, finish_reason: 'tool_calls' }];
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify({ ...head, object: 'chat.completion', choices, usage }));
      return;
    }
    const chunks = [
      {
        choices: [{ index: 0, delta: { role: 'assistant', tool_calls: [{ index: 0, ...call }] }, finish_reason: null }],
      },
      { choices: [{ index: 0, delta: {}, finish_reason: 'tool_calls' }] },
      { choices: [], usage },
    ];
    response.setHeader('content-type', 'text/event-stream');
    for (const chunk of chunks) {
      response.write(`data: ${JSON.stringify({ ...head, object: 'chat.completion.chunk', ...chunk })}\n\n`);
    }
    response.end('data: [DONE]\n\n');
  };
}

/** An error of the engine, as OpenAI's API tells it. */
export function failsWith(status: number, message: string): Scripted {
  return (response) => {
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ error: { message, type: 'server_error', param: null, code: null } }));
  };
}

/** Allows every prompt kind that a gateway has found, as `warmpath prompts allow` does, once it has found `count`. */
export async function allowPrompts(
  url: string,
  count: number,
  headers: Readonly<Record<string, string>> = {},
  labels: 'kept' | 'mapped' = 'kept',
): Promise<void> {
  interface Listed {
    readonly data: readonly { readonly id: string }[];
  }
  const list = async () => ((await (await fetch(`${url}/v1/prompts`, { headers })).json()) as Listed).data;
  let kinds = await list();
  while (kinds.length < count) kinds = await list();
  for (const { id } of kinds) {
    const answer = await fetch(`${url}/v1/prompts/${id}`, {
      method: 'POST',
      headers: { ...headers, 'content-type': 'application/json' },
      body: JSON.stringify({ state: 'allowed', labels }),
    });
    if (!answer.ok) throw new Error(await answer.text());
  }
}

/** Different lists of the documents' first letters, three and four in each. */
export function letterLists(): readonly string[] {
  const letters = [...'vota'];
  const lists = letters.flatMap((a) =>
    letters.flatMap((b) => letters.flatMap((c) => (new Set([a, b, c]).size < 3 ? [] : [a + b + c]))),
  );
  return lists.flatMap((list) => [list, list + letters.find((letter) => !list.includes(letter))!]);
}

const ENTITIES = { velka: 42, orsin: 17, tamir: 8, ardun: 23 } as const;

/** Documents that the demo model answers from, by the first letters of their names. */
export function passages(letters: string): { readonly id: string; readonly content: string }[] {
  return [...letters].map((letter) => {
    const id = Object.keys(ENTITIES).find((name) => name.startsWith(letter)) as keyof typeof ENTITIES;
    const name = id[0]!.toUpperCase() + id.slice(1);
    const content = `The weight of ${name} is ${ENTITIES[id]} kg. The colour of ${name} is teal. `.repeat(4).trim();
    return { id, content };
  });
}

/** First letters of the documents in the order in which a prompt has them in full. */
export function lettersIn(prompt: SentPrompt): string {
  const text = prompt.messages.map(({ content }) => textOf(content)).join('\n');
  return [...text.matchAll(/<document id="(\w)\w*"[^>]*>\s*The weight/g)].map(([, letter]) => letter).join('');
}

/** How often the text of a document stands in a prompt. */
export function timesIn(prompt: SentPrompt, letter: string): number {
  const { content } = passages(letter)[0]!;
  return (
    prompt.messages
      .map((message) => textOf(message.content))
      .join('\n')
      .split(content).length - 1
  );
}

/** The text of a message's content, in parts or in one. */
export function textOf(content: unknown): string {
  if (typeof content === 'string') return content;
  return Array.isArray(content) ? content.map((part) => (part as { readonly text?: string }).text ?? '').join('') : '';
}
