import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { gzipSync } from 'node:zlib';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { describe, expect, it } from 'vitest';
import { isFull } from '../../../test/suite.js';
import { chatOnlyEngine } from './chat-only-engine.js';
import { type Answer, startStream } from './fake-engine.js';
import { closing, DOCUMENTS, gatewayAt, labelsIn, openRequest, type Stand, send, stand, told } from './harness.js';

const [VELKA, ORSIN, TAMIR] = DOCUMENTS;
const PATHS = { messages: '/v1/messages', responses: '/v1/responses' } as const;
const APIS = ['messages', 'responses'] as const;
type Api = (typeof APIS)[number];

function body(api: Api, fields: object = {}): object {
  const question = { role: 'user', content: 'What do they weigh?' };
  return {
    model: 'm',
    ...(api === 'messages' ? { max_tokens: 9, messages: [question] } : { input: [question] }),
    ...fields,
  };
}

const CHAT_CHUNK = `data: ${JSON.stringify({ id: 'a', model: 'm', choices: [{ index: 0, delta: { content: 'half' } }] })}\n\n`;

const SCHEMA = { type: 'object' as const, properties: { id: { type: 'string' } } };

describe('the official clients call tools of an engine that speaks chat completions only', () => {
  it.each(['whole', 'streamed'])("Anthropic's, %s", async (form) => {
    const { engine, gateway } = await stand(chatOnlyEngine());
    const client = new Anthropic({ baseURL: gateway.url, apiKey: 'secret', maxRetries: 0 });
    const tools = [{ name: 'weigh', description: 'Weighs.', input_schema: SCHEMA }];
    const ask = async (messages: Anthropic.MessageParam[]) => {
      const params = { model: 'm', max_tokens: 9, tools, messages };
      return form === 'whole' ? client.messages.create(params) : client.messages.stream(params).finalMessage();
    };
    const question: Anthropic.MessageParam = { role: 'user', content: 'What do they weigh?' };
    const first = await ask([question]);
    expect(first.stop_reason).toBe('tool_use');
    expect(first.content).toMatchObject([
      { type: 'text', text: 'Let me wéigh them. 🦀' },
      { type: 'tool_use', id: 'call_a', name: 'weigh', input: { id: 'velka' } },
      { type: 'tool_use', id: 'call_b', name: 'weigh', input: { id: 'orsin' } },
    ]);
    expect(first.usage).toMatchObject({ input_tokens: 24, cache_read_input_tokens: 96, output_tokens: 8 });
    const results = ['call_a', 'call_b'].map((id) => ({
      type: 'tool_result' as const,
      tool_use_id: id,
      content: '42',
    }));
    const second = await ask([
      question,
      { role: 'assistant', content: first.content },
      { role: 'user', content: results },
    ]);
    expect(second.stop_reason).toBe('end_turn');
    const sent = JSON.parse(engine.last.body) as { messages: object[]; tools: object[] };
    expect(sent.messages).toMatchObject([
      question,
      { role: 'assistant', content: 'Let me wéigh them. 🦀', tool_calls: [{ id: 'call_a' }, { id: 'call_b' }] },
      { role: 'tool', tool_call_id: 'call_a', content: '42' },
      { role: 'tool', tool_call_id: 'call_b', content: '42' },
    ]);
    expect(sent.tools).toMatchObject([{ type: 'function', function: { name: 'weigh', parameters: SCHEMA } }]);
    expect(engine.last.headers.authorization).toBe('Bearer secret');
    expect(Object.keys(engine.last.headers).filter((name) => /^(x-api-key|anthropic-)/.test(name))).toEqual([]);
  });

  it.each(['whole', 'streamed'])("OpenAI's, %s", async (form) => {
    const { engine, gateway } = await stand(chatOnlyEngine());
    const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: 'secret', maxRetries: 0 });
    const tools = [{ type: 'function' as const, name: 'weigh', parameters: SCHEMA, strict: false }];
    const ask = async (input: OpenAI.Responses.ResponseInput) => {
      const params = { model: 'm', tools, input };
      return form === 'whole' ? client.responses.create(params) : client.responses.stream(params).finalResponse();
    };
    const question = { role: 'user' as const, content: 'What do they weigh?' };
    const first = await ask([question]);
    expect(first.output_text).toBe('Let me wéigh them. 🦀');
    const output = first.output as readonly OpenAI.Responses.ResponseOutputItem[];
    const calls = output.flatMap((item) => (item.type === 'function_call' ? [item] : []));
    expect(calls.map(({ call_id, name, arguments: text }) => [call_id, name, text])).toEqual([
      ['call_a', 'weigh', '{"id": "velka", "n": 12345678901234567890}'],
      ['call_b', 'weigh', '{"id": "orsin"}'],
    ]);
    const outputs = calls.map(({ call_id }) => ({ type: 'function_call_output' as const, call_id, output: '42' }));
    const second = await ask([question, ...(first.output as OpenAI.Responses.ResponseInput), ...outputs]);
    expect(second.output_text).toBe('They weigh 59 kg.');
    const sent = JSON.parse(engine.last.body) as { messages: object[] };
    expect(sent.messages).toMatchObject([
      question,
      { role: 'assistant', content: 'Let me wéigh them. 🦀', tool_calls: [{ id: 'call_a' }, { id: 'call_b' }] },
      { role: 'tool', tool_call_id: 'call_a', content: '42' },
      { role: 'tool', tool_call_id: 'call_b', content: '42' },
    ]);
  });
});

describe.each(APIS)('%s, towards an engine that speaks chat completions only', (api) => {
  const path = PATHS[api];

  it('documents are arranged, hints given, warnings told, and the answer teaches what is cached', async () => {
    const { engine, gateway } = await stand(chatOnlyEngine());
    await send(gateway.url + path, body(api, { documents: [VELKA, ORSIN] }));
    const left = api === 'messages' ? { service_tier: 'auto' } : { truncation: 'auto' };
    const documents = [TAMIR, ORSIN, VELKA, VELKA];
    const reply = await send(
      gateway.url + path,
      body(api, { documents, warmpath: { hints: true }, stream: true, ...left }),
    );
    expect(labelsIn(engine.last.body)).toEqual(['velka', 'orsin', 'tamir']);
    expect(engine.last.body).toContain('In order of relevance');
    expect(engine.last.path).toBe('/v1/chat/completions');
    expect(reply.headers['content-type']).toBe('text/event-stream; charset=utf-8');
    expect(Number(told(reply).predicted)).toBeGreaterThan(20);
    expect(told(reply).warnings).toBe(
      `WARMPATH_NOT_TRANSLATABLE ${Object.keys(left)[0]}, WARMPATH_DUPLICATE_DOCUMENT documents[3]`,
    );
    const metrics = (await send(`${gateway.url}/metrics`)).text;
    expect(metrics).toContain('warmpath_prompt_tokens_total 240');
    expect(metrics).toContain('warmpath_cached_tokens_total 192');
    expect(metrics).toContain('warmpath_ttft_seconds_count 1');
  });

  it('asks the engine once what it speaks, however many wait', async () => {
    const { engine, gateway } = await stand(chatOnlyEngine());
    const replies = await Promise.all(Array.from({ length: 5 }, () => send(gateway.url + path, body(api))));
    expect(replies.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200]);
    expect(engine.received.filter((request) => request.path === path).map((request) => request.body)).toEqual(['{}']);
    expect(replies[0]!.headers).toMatchObject({ 'x-engine': 'yes', 'content-type': 'application/json; charset=utf-8' });
  });

  it('asks again when the answer said nothing, and meanwhile sends the request as it is', async () => {
    let status = 401;
    const { engine, gateway } = await stand((response, request) => {
      if (status === 401)
        response.writeHead(401, { 'content-type': 'application/json' }).end('{"error":"Unauthorized"}');
      else chatOnlyEngine()(response, request);
    });
    const refused = await send(gateway.url + path, body(api));
    expect(refused).toMatchObject({ status: 401, text: '{"error":"Unauthorized"}' });
    status = 404;
    expect((await send(gateway.url + path, body(api))).status).toBe(200);
    expect(engine.received.map((request) => request.path)).toEqual([path, path, path, '/v1/chat/completions']);
  });

  it.each(['native', 'translate'] as const)('asks nothing where it is known: %s', async (way) => {
    const { engine, gateway } = await stand(chatOnlyEngine(), {}, { apiRoute: way });
    const reply = await send(gateway.url + path, body(api));
    expect(reply.status).toBe(way === 'native' ? 404 : 200);
    expect(engine.received.map((request) => request.path)).toEqual([way === 'native' ? path : '/v1/chat/completions']);
  });

  it.each([400, 401, 429, 500, 503])('an error %i of the engine is told in its own words', async (status) => {
    const { gateway } = await stand(
      chatOnlyEngine((response) => {
        response.writeHead(status, { 'content-type': 'application/json', 'retry-after': '7' });
        response.end('{"error":{"message":"engine says no","type":"x","param":null,"code":"c"}}');
      }),
    );
    const reply = await send(gateway.url + path, body(api, { stream: true }));
    expect(reply.status).toBe(status);
    expect({ ...reply.headers, ...told(reply) }).toMatchObject({ 'retry-after': '7', error: 'upstream' });
    const answer = JSON.parse(reply.text) as { type?: string; error: object };
    expect(answer.error).toMatchObject({ message: 'engine says no', code: 'c' });
    if (api === 'messages') {
      expect(answer.type).toBe('error');
      expect(answer.error).toMatchObject({ type: expect.stringMatching(/^[a-z_]+_error$/) as string });
    }
  });

  it.each([
    ["an older vLLM's", '{"object":"error","message":"too long","type":"BadRequestError","code":400}'],
    ["FastAPI's", '{"detail":"too long"}'],
    ['a plain', '{"error":"too long"}'],
  ])('%s error keeps its message', async (_, written) => {
    const { gateway } = await stand(
      chatOnlyEngine((response) => response.writeHead(400, { 'content-type': 'application/json' }).end(written)),
    );
    const reply = await send(gateway.url + path, body(api));
    expect(JSON.parse(reply.text)).toMatchObject({ error: { message: 'too long' } });
  });

  it("errors of the gateway are told in its own words, with the path in the client's body", async () => {
    const { engine, gateway } = await stand(chatOnlyEngine());
    const tell = async (sent: string | object) => {
      const reply = await send(gateway.url + path, sent);
      expect(told(reply).error).toBe('gateway');
      const answer = JSON.parse(reply.text) as { type?: string; request_id?: string; error: object };
      if (api === 'messages')
        expect(answer).toMatchObject({ type: 'error', request_id: reply.headers['x-request-id'] });
      return answer.error;
    };
    const type = 'invalid_request_error';
    expect(await tell('{"model":')).toMatchObject({ type, code: 'WARMPATH_INVALID_JSON' });
    expect(await tell(body(api, { documents: [{ content: 7 }] }))).toMatchObject({
      type,
      code: 'WARMPATH_INVALID_DOCUMENT',
      param: 'documents[0].content',
    });
    const format = { format: { type: 'grammar' } };
    const form = api === 'messages' ? { output_config: format } : { text: format };
    expect(await tell(body(api, form))).toMatchObject({
      type,
      code: 'WARMPATH_NOT_TRANSLATABLE',
      param: `${Object.keys(form)[0]!}.format.type`,
    });
    const nested = JSON.stringify(body(api, { metadata: { user_id: 0 } })).replace(
      ':0',
      `:${'['.repeat(5_000)}${']'.repeat(5_000)}`,
    );
    expect(await tell(nested)).toMatchObject({
      type: api === 'messages' ? 'request_too_large' : type,
      code: 'WARMPATH_BODY_TOO_COMPLEX',
    });
    expect(await tell(body(api, { tools: [7] }))).toMatchObject({
      type,
      code: 'WARMPATH_INVALID_REQUEST',
      param: 'tools[0]',
    });
    expect(engine.received.some((request) => request.path === '/v1/chat/completions')).toBe(false);
  });

  it('a compressed body is translated as any other', async () => {
    const { engine, gateway } = await stand(chatOnlyEngine());
    const headers = { 'content-encoding': 'gzip' };
    const reply = await send(gateway.url + path, gzipSync(JSON.stringify(body(api))), { headers });
    expect(reply.status).toBe(200);
    expect(engine.last.path).toBe('/v1/chat/completions');
    expect(engine.last.headers['content-encoding']).toBeUndefined();
  });

  it('an engine that is down is told in its own words', async () => {
    const gateway = closing(await gatewayAt('http://127.0.0.1:1', {}, { apiRoute: 'translate' }));
    const reply = await send(gateway.url + path, body(api));
    expect(reply.status).toBe(502);
    expect(JSON.parse(reply.text)).toMatchObject({ error: { code: 'WARMPATH_UPSTREAM_UNREACHABLE' } });
  });

  it('a stream that breaks off ends in an error and a broken connection', async () => {
    const { gateway } = await stand(
      chatOnlyEngine((response) => {
        startStream(response);
        response.write(CHAT_CHUNK, () => response.destroy());
      }),
    );
    const reply = await send(gateway.url + path, body(api, { stream: true, documents: [VELKA] }));
    expect(reply).toMatchObject({ status: 200, broken: true });
    expect(reply.text).toContain('half');
    const last = /event: (\S+)\ndata: (.*)\n\n$/.exec(reply.text)!;
    expect(last[1]).toBe('error');
    if (api === 'responses') expect(reply.text).toContain('event: response.failed');
    expect(last[2]).toContain('WARMPATH_UPSTREAM_CUT');
  });

  it('an error in the middle of a stream ends it, and the engine is let go', async () => {
    const { engine, gateway } = await stand(
      chatOnlyEngine((response) => {
        startStream(response);
        response.write(`${CHAT_CHUNK}data: {"error":{"message":"boom"}}\n\n`);
      }),
    );
    const reply = await send(gateway.url + path, body(api, { stream: true }));
    expect(reply.broken).toBe(true);
    expect(reply.text).toContain('boom');
    await engine.until('abort', 1);
  });

  it('a stream with more tool calls than are taken ends in an error, and the engine is let go', async () => {
    const { engine, gateway } = await stand(
      chatOnlyEngine((response) => {
        startStream(response);
        for (let index = 0; index < 2_000; index++) {
          const call = { index, id: `c${index}`, function: { name: 'f', arguments: '{' } };
          response.write(`data: ${JSON.stringify({ choices: [{ delta: { tool_calls: [call] } }] })}\n\n`);
        }
      }),
    );
    const reply = await send(gateway.url + path, body(api, { stream: true }));
    expect(reply).toMatchObject({ status: 200, broken: true });
    const last = /event: (\S+)\ndata: (.*)\n\n$/.exec(reply.text)!;
    expect(last[1]).toBe('error');
    expect(JSON.parse(last[2]!)).toMatchObject({
      error: { code: 'WARMPATH_UPSTREAM_ERROR', message: expect.stringContaining('1024 tool calls') as string },
    });
    await engine.until('abort', 1);
  });

  it.each([
    ['while streaming', (response: ServerResponse) => startStream(response).write(CHAT_CHUNK)],
    ['while the engine has not answered', () => {}],
  ])('a client that leaves %s ends the work of the engine', async (_, then) => {
    const both = await stand(chatOnlyEngine(then as Answer));
    const request = openRequest(both.gateway.url + path, body(api, { stream: true })).on('error', () => {});
    // The first request asked what the engine speaks.
    await both.engine.until('request', 2);
    request.destroy();
    await both.engine.until('abort', 1);
    await abortsCounted(both, 1);
  });

  it('a client that leaves while the engine is asked what it speaks costs no prompt', async () => {
    const held: (() => void)[] = [];
    const both = await stand((response) => held.push(() => response.writeHead(404).end()));
    const request = openRequest(both.gateway.url + path, body(api)).on('error', () => {});
    await both.engine.until('request', 1);
    request.destroy();
    await abortsCounted(both, 1);
    both.engine.answer = chatOnlyEngine();
    held[0]!();
    // The next one finds out what is spoken from the same answer.
    expect((await send(both.gateway.url + path, body(api))).status).toBe(200);
    expect(both.engine.received.map((each) => each.path)).toEqual([path, '/v1/chat/completions']);
  });

  it.runIf(isFull)('waits for a slow reader instead of buffering, and loses nothing', async () => {
    const chunks = 400;
    const text = 'x'.repeat(100_000);
    const chunk = `data: ${JSON.stringify({ id: 'a', model: 'm', choices: [{ index: 0, delta: { content: text } }] })}\n\n`;
    let written = 0;
    const answer = chatOnlyEngine((response) => {
      startStream(response);
      const fill = () => {
        while (written < chunks) {
          written++;
          if (!response.write(chunk)) {
            response.once('drain', fill);
            return;
          }
        }
        response.end(
          `data: ${JSON.stringify({ id: 'a', choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] })}\n\n`,
        );
      };
      fill();
    });
    const { gateway } = await stand(answer, { server: { bodyLimitBytes: 100_000_000 } });
    const request = openRequest(gateway.url + path, body(api, { stream: true }));
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    for (let i = 0; i < 300 && written < chunks; i++) await send(`${gateway.url}/healthz`);
    expect(written).toBeLessThan(chunks);
    let received = '';
    for await (const part of response.setEncoding('utf8')) received += part as string;
    const deltas = received.split('\n').filter((line) => /^data: .*(text_delta|output_text\.delta)/.test(line));
    expect(deltas).toHaveLength(chunks);
    expect(deltas.every((line) => line.includes(text))).toBe(true);
  });

  it('an answer longer than is taken ends in an error', async () => {
    const { engine, gateway } = await stand(
      chatOnlyEngine((response) => {
        response.writeHead(200, { 'content-type': 'application/json' });
        response.write(`{"choices":[],"x":"${'x'.repeat(5_000)}`);
      }),
      { server: { bodyLimitBytes: 2_000 } },
    );
    const reply = await send(gateway.url + path, body(api));
    expect(reply.status).toBe(502);
    expect(JSON.parse(reply.text)).toMatchObject({ error: { code: 'WARMPATH_UPSTREAM_ERROR' } });
    await engine.until('abort', 1);
  });
});

async function abortsCounted({ gateway }: Stand, count: number): Promise<void> {
  while (!(await send(`${gateway.url}/metrics`)).text.includes(`warmpath_client_aborts_total ${count}\n`));
}

describe('a conversation', () => {
  const NAMED = { headers: { 'x-warmpath-session': 's' } };

  it.each(APIS)(
    'of %s that has a name goes on: what was sent stays the same, documents still shown are referred to',
    async (api) => {
      const { engine, gateway } = await stand(chatOnlyEngine());
      const question = { role: 'user', content: 'What do they weigh?' };
      const first = await send(gateway.url + PATHS[api], body(api, { documents: [VELKA, ORSIN] }), NAMED);
      const sent = (JSON.parse(engine.last.body) as { messages: object[] }).messages;
      const answer = JSON.parse(first.text) as { content: object[]; output: { call_id?: string }[] };
      const next = { role: 'user', content: 'And Tamir?' };
      const calls = ['call_a', 'call_b'];
      const messages = [
        question,
        { role: 'assistant', content: answer.content },
        { role: 'user', content: calls.map((id) => ({ type: 'tool_result', tool_use_id: id, content: '42' })) },
        next,
      ];
      const outputs = calls.map((id) => ({ type: 'function_call_output', call_id: id, output: '42' }));
      const turn =
        api === 'messages' ? { messages } : { input: [question, ...(answer.output ?? []), ...outputs, next] };
      const reply = await send(gateway.url + PATHS[api], body(api, { ...turn, documents: [TAMIR, VELKA] }), NAMED);
      const again = (JSON.parse(engine.last.body) as { messages: object[] }).messages;
      expect(told(reply)).toMatchObject({ conversation: 'known', replayed: '1', references: '1' });
      expect(again.slice(0, sent.length)).toEqual(sent);
      expect(engine.last.body.split('The weight of Velka').length).toBe(2);
      expect(JSON.stringify(again.at(-1))).toContain('The weight of Tamir');
      expect(JSON.stringify(again.at(-1))).toContain('[velka]');
    },
  );
});

describe('keys', () => {
  it.each([
    ['vllm', { authorization: 'Bearer own' }, 'x-api-key'],
    ['anthropic', { 'x-api-key': 'own' }, 'authorization'],
  ] as const)("the engine's own is sent as %s wants it, the client's is not", async (dialect, expected, absent) => {
    for (const way of ['native', 'translate'] as const) {
      const upstream = { apiKey: 'own', dialect };
      const { engine, gateway } = await stand(undefined, { upstream }, { apiRoute: way });
      const headers = { 'x-api-key': 'client', authorization: 'Bearer client' };
      await send(gateway.url + PATHS.messages, body('messages'), { headers });
      expect(engine.last.headers).toMatchObject(expected);
      expect(engine.last.headers).not.toHaveProperty(absent);
    }
  });

  it('clients that differ in `x-api-key` share nothing', async () => {
    const { gateway } = await stand(chatOnlyEngine());
    const predicted = [];
    for (const key of ['a', 'a', 'b']) {
      const options = { headers: { 'x-api-key': key } };
      const reply = await send(gateway.url + PATHS.messages, body('messages', { documents: [VELKA] }), options);
      predicted.push(Number(told(reply).predicted) > 0);
    }
    expect(predicted).toEqual([false, true, false]);
  });
});

describe('POST /v1/messages/count_tokens', () => {
  const path = `${PATHS.messages}/count_tokens`;

  it('is estimated where the engine cannot count, as the engine counted before', async () => {
    const { gateway } = await stand(chatOnlyEngine());
    const client = new Anthropic({ baseURL: gateway.url, apiKey: 'k', maxRetries: 0 });
    const messages = [{ role: 'user' as const, content: 'What do they weigh? '.repeat(20) }];
    const before = await client.messages.countTokens({ model: 'm', messages });
    expect(before.input_tokens).toBeGreaterThan(60);
    const more = { model: 'm', messages, documents: DOCUMENTS } as Anthropic.MessageCountTokensParams;
    const withDocuments = await client.messages.countTokens(more);
    expect(withDocuments.input_tokens).toBeGreaterThan(before.input_tokens + 30);
    // The engine counts 120 tokens in a prompt of fewer than that.
    await client.messages.create({ max_tokens: 1, ...body('messages', { documents: [VELKA] }) } as never);
    expect((await client.messages.countTokens({ model: 'm', messages })).input_tokens).toBeGreaterThan(
      before.input_tokens,
    );
  });

  it("is the engine's where it can", async () => {
    const { engine, gateway } = await stand(
      (response) => response.end('{"input_tokens":7}'),
      {},
      { apiRoute: 'native' },
    );
    const sent = JSON.stringify(body('messages'));
    expect((await send(gateway.url + path, sent)).text).toBe('{"input_tokens":7}');
    expect(engine.last).toMatchObject({ path, body: sent });
  });
});
