import { once } from 'node:events';
import { createServer, type IncomingMessage, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type EngineProcess, spawnEngine } from '@warmpath/engine';
import { type RunningGateway, startGateway } from '@warmpath/gateway';
import { fetch as undiciFetch } from 'undici';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { isFull } from '../../../test/suite.js';
import { modelPath } from '../../engine/bench/random-model/src/model-path.js';
import { type Fetch, Warmpath } from '../src/index.js';

const MESSAGES = [
  { role: 'system', content: 'Answer from the documents.' },
  { role: 'user', content: 'What is the weight of Velka?' },
];
const DOCUMENTS = [
  { id: 'velka', title: 'Velka', content: 'The weight of Velka is 42 kg. The colour of Velka is teal.' },
  { id: 'orsin', title: 'Orsin', content: 'The weight of Orsin is 17 kg. The founder of Orsin is Mirela.' },
];

const open: { close(): unknown }[] = [];
afterEach(async () => {
  for (const resource of open.splice(0)) await resource.close();
});

/** A server in place of a gateway, for what a healthy one does not do. */
async function serve(listener: RequestListener): Promise<string> {
  const server = createServer(listener);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  open.push({
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function bodyOf(request: IncomingMessage): Promise<Record<string, unknown>> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return JSON.parse(Buffer.concat(chunks).toString()) as Record<string, unknown>;
}

describe('through a gateway to the real engine', () => {
  let engine: EngineProcess;
  let gateway: RunningGateway;

  beforeAll(async () => {
    engine = await spawnEngine({ port: 0, model: 'demo', threads: 1 });
    gateway = await startGateway({ server: { port: 0 }, upstream: { url: engine.url }, log: { level: 'silent' } });
  });

  afterAll(async () => {
    await gateway.close();
    await engine.stop();
  });

  it('chats, and finds the documents cached when they come the other way round', async () => {
    const warmpath = new Warmpath({ baseURL: gateway.url, model: 'warmpath-tiny' });
    const first = await warmpath.chat({ messages: MESSAGES, documents: DOCUMENTS, temperature: 0 });
    expect(first.text).toContain('42');
    expect(first.gateway).toMatchObject({ policy: 'foresight', predictedCachedTokens: 0, fallback: undefined });
    const again = await warmpath.chat({ messages: MESSAGES, documents: DOCUMENTS.toReversed(), temperature: 0 });
    expect(again.usage.cachedTokens!).toBeGreaterThan(again.usage.promptTokens! / 2);
    expect(again.gateway.predictedCachedTokens).toBeGreaterThan(0);
    expect(again.body['object']).toBe('chat.completion');
  });

  it('streams the same answer piece by piece, with usage at its end', async () => {
    const warmpath = new Warmpath({ baseURL: `${gateway.url}/v1/`, fetch: undiciFetch as unknown as Fetch });
    const request = { messages: MESSAGES, documents: DOCUMENTS, temperature: 0 };
    const { text } = await warmpath.chat(request);
    const stream = await warmpath.stream(request);
    expect(stream.gateway.policy).toBe('foresight');
    const pieces: string[] = [];
    for await (const piece of stream) pieces.push(piece.text);
    expect(pieces.join('')).toBe(text);
    expect(pieces.length).toBeGreaterThan(2);
    expect(stream.usage.promptTokens).toBeGreaterThan(50);
  });

  it('refuses a conversation that the gateway does not know, unless it is to be marked', async () => {
    const warmpath = new Warmpath({ baseURL: gateway.url, model: 'warmpath-tiny' }).session('forgotten');
    const messages = [...MESSAGES, { role: 'assistant', content: '42 kg.' }, { role: 'user', content: 'And Orsin?' }];
    const asked = warmpath.chat({ messages, documents: DOCUMENTS });
    await expect(asked).rejects.toMatchObject({ code: 'WARMPATH_CONVERSATION_FORGOTTEN', status: 409 });
    const marked = { messages, documents: DOCUMENTS, warmpath: { forgotten: 'mark' } } as const;
    expect((await warmpath.chat(marked)).gateway.conversation).toBe('forgotten');
  });

  it('plans and warms up', async () => {
    const warmpath = new Warmpath({ baseURL: gateway.url });
    const plan = await warmpath.plan({ contexts: [['a', 'b'], ['c'], ['b', 'a']] });
    expect(plan.steps.map(({ index }) => index).sort()).toEqual([0, 1, 2]);
    expect(plan.reuse).toBeCloseTo(0.4);
    const messages = [{ role: 'system', content: 'Warm this.' }, MESSAGES[1]!];
    expect(await warmpath.warmup({ messages })).toBe('warming');
  });

  it.runIf(isFull)('ends the engine’s work when the reader leaves, or aborts', async () => {
    const endless = await spawnEngine({ port: 0, model: await modelPath('random:1m'), threads: 1 });
    open.push({ close: () => endless.stop() });
    const aborted = async () => {
      const metrics = await (await fetch(`${endless.url}/metrics`)).text();
      return Number(/warmpath_engine_requests_total\{outcome="aborted"[^}]*\} (\d+)/.exec(metrics)?.[1] ?? 0);
    };
    const warmpath = new Warmpath({ baseURL: endless.url });
    const request = { messages: MESSAGES, max_tokens: 16_000 };
    for await (const { body } of await warmpath.stream(request)) {
      expect(body['object']).toBe('chat.completion.chunk');
      break;
    }
    await expect.poll(aborted).toBe(1);
    const controller = new AbortController();
    const reading = (async () => {
      for await (const _ of await warmpath.stream(request, { signal: controller.signal })) {
        controller.abort(new Error('enough'));
      }
    })();
    await expect(reading).rejects.toThrow('enough');
    await expect.poll(aborted).toBe(2);
  });
});

describe('what is sent', () => {
  it('has documents, switches, session, model and key, and nothing of its own', async () => {
    const received: { headers: IncomingMessage['headers']; body: Record<string, unknown> }[] = [];
    const baseURL = await serve(async (request, response) => {
      received.push({ headers: request.headers, body: await bodyOf(request) });
      response.setHeader('content-type', 'application/json').end('{"choices":[]}');
    });
    const warmpath = new Warmpath({ baseURL, apiKey: 'key', model: 'm', headers: { 'x-team': 't' } }).session('s1');
    const messages = [MESSAGES[1]!];
    await warmpath.chat({ messages });
    await warmpath.chat({
      messages,
      documents: DOCUMENTS,
      model: 'n',
      warmpath: { session: 's2', maxShift: 1 },
      seed: 7,
    });
    await new Warmpath({ baseURL }).chat({ messages });
    const ada = new Warmpath({ baseURL }).session('s3', 'ada');
    await ada.chat({ messages, warmpath: { forgotten: 'mark' } });
    await ada.chat({ messages, user: 'bob' });
    expect(received.map(({ body }) => body)).toEqual([
      { messages, model: 'm', warmpath: { session: 's1' }, stream: false },
      { messages, documents: DOCUMENTS, model: 'n', seed: 7, warmpath: { session: 's2', maxShift: 1 }, stream: false },
      { messages, stream: false },
      { messages, user: 'ada', warmpath: { session: 's3', forgotten: 'mark' }, stream: false },
      { messages, user: 'bob', warmpath: { session: 's3' }, stream: false },
    ]);
    expect(received[0]!.headers).toMatchObject({ authorization: 'Bearer key', 'x-team': 't' });
    expect(received[2]!.headers).not.toHaveProperty('authorization');
  });
});

describe('what goes wrong', () => {
  const chat = (baseURL: string, signal?: AbortSignal) =>
    new Warmpath({ baseURL }).chat({ messages: MESSAGES }, signal === undefined ? {} : { signal });
  const read = async (baseURL: string) => {
    const pieces: string[] = [];
    for await (const { text } of await new Warmpath({ baseURL }).stream({ messages: MESSAGES })) pieces.push(text);
    return pieces;
  };

  it.each([
    ['a code of the table', 429, '{"error":{"code":"WARMPATH_OVERLOADED","message":"full"}}', 'WARMPATH_OVERLOADED'],
    [
      'a conversation that is forgotten',
      409,
      '{"error":{"code":"WARMPATH_CONVERSATION_FORGOTTEN","message":"unknown"}}',
      'WARMPATH_CONVERSATION_FORGOTTEN',
    ],
    ['an engine’s own error', 400, '{"error":{"code":"boom","message":"too hot"}}', 'WARMPATH_UPSTREAM_ERROR'],
    ['an error without a body', 500, '', 'WARMPATH_UPSTREAM_ERROR'],
    ['an answer that is no JSON', 200, '<html>', 'WARMPATH_UPSTREAM_ERROR'],
  ])('%s', async (_, status, text, code) => {
    const baseURL = await serve((__, response) => void response.writeHead(status).end(text));
    await expect(chat(baseURL)).rejects.toMatchObject({ code });
  });

  it('a gateway that is not there, or a URL that is none', async () => {
    await expect(chat('http://127.0.0.1:1')).rejects.toMatchObject({ code: 'WARMPATH_GATEWAY_UNREACHABLE' });
    expect(() => new Warmpath({ baseURL: 'nowhere' })).toThrow(expect.objectContaining({ path: 'baseURL' }));
  });

  it('an abort before the answer', async () => {
    const controller = new AbortController();
    const baseURL = await serve(() => controller.abort(new Error('too late')));
    await expect(chat(baseURL, controller.signal)).rejects.toThrow('too late');
    await expect(chat(baseURL, controller.signal)).rejects.toThrow('too late');
  });

  it('a stream that breaks, ends early, or brings an error', async () => {
    const chunk = 'data: {"choices":[{"delta":{"content":"a"}}]}\n\n';
    const error = 'data: {"error":{"code":"WARMPATH_UPSTREAM_TIMEOUT","message":"late"}}\n\n';
    const broken = await serve((_, response) => void response.write(chunk, () => response.destroy()));
    const early = await serve((_, response) => void response.end(chunk));
    const failed = await serve((_, response) => void response.end(chunk + error));
    await expect(read(broken)).rejects.toMatchObject({ code: 'WARMPATH_UPSTREAM_CUT' });
    await expect(read(early)).rejects.toMatchObject({ code: 'WARMPATH_UPSTREAM_CUT' });
    await expect(read(failed)).rejects.toMatchObject({ code: 'WARMPATH_UPSTREAM_TIMEOUT' });
  });
});
