import { LAYOUT_NAMES } from '@warmpath/core/internal';
import { describe, expect, it } from 'vitest';
import { CHAT_RESPONSE } from './fake-engine.js';
import { chat, closing, DOCUMENTS, errorOf, gatewayAt, send, stand, told } from './harness.js';

const [VELKA, ORSIN, TAMIR] = DOCUMENTS;

describe('passthrough', () => {
  it.each([
    ['GET', '/v1/models?limit=2', undefined],
    ['DELETE', '/v1/files/f-1', undefined],
    ['POST', '/v1/embeddings', '{"documents":[],"input":["a"],  "warmpath":1}'],
    ['POST', '/v1/moderations', 'not json at all'],
  ])('%s %s', async (method, path, body) => {
    const { engine, gateway } = await stand();
    const headers = { 'content-type': 'application/x-own', 'x-own': 'kept', 'accept-encoding': 'br', te: 'trailers' };
    const reply = await send(gateway.url + path, body, { method, headers });
    expect(reply.text).toBe(CHAT_RESPONSE);
    expect(engine.last).toMatchObject({ method, path, body: body ?? '' });
    expect(engine.last.headers).toMatchObject({
      'content-type': 'application/x-own',
      'x-own': 'kept',
      'accept-encoding': 'br',
    });
    expect(engine.last.headers).not.toHaveProperty('te');
  });

  it('keeps binary bodies', async () => {
    const bytes = Buffer.from([0, 255, 254, 128, 10, 13]);
    const { engine, gateway } = await stand((response) => response.end(bytes));
    const reply = await send(`${gateway.url}/v1/audio/speech`, bytes);
    expect(reply.body.equals(bytes)).toBe(true);
    expect(engine.last.headers['content-length']).toBe('6');
  });

  it.each(['', '/', '/v1', '/v1/'])('finds the engine at a base URL that ends in %j', async (end) => {
    const { engine } = await stand();
    const gateway = closing(await gatewayAt(`${engine.url}/base${end}`));
    await send(`${gateway.url}/v1/models`);
    expect(engine.last.path).toBe('/base/v1/models');
  });
});

describe('what engines have beside /v1/', () => {
  it.each(['/tokenize', '/detokenize', '/rerank', '/v2/rerank', '/v1/rerank', '/score', '/embed', '/embeddings'])(
    'passes %s on as it is',
    async (path) => {
      const { engine, gateway } = await stand();
      const body = '{"query": "a",  "texts": ["b"]}';
      const reply = await send(`${gateway.url}${path}?truncate=true`, body);
      expect([reply.status, reply.text]).toEqual([200, CHAT_RESPONSE]);
      expect(engine.last).toMatchObject({ method: 'POST', path: `${path}?truncate=true`, body });
    },
  );

  it.each([
    ['POST', '/sleep'],
    ['POST', '/reset_prefix_cache'],
    ['POST', '/flush_cache'],
    ['POST', '/kv/flush'],
    ['GET', '/kv'],
    ['GET', '/slots'],
    ['POST', '/lora-adapters'],
    ['POST', '/collective_rpc'],
    ['GET', '/tokenize'],
    ['POST', '/v1/load_lora_adapter'],
    ['POST', '/v1/unload_lora_adapter'],
    ['POST', '/v1//load_lora_adapter'],
    ['POST', '/v1/load_lora_adapter/'],
    ['POST', '/v1/Load_Lora_Adapter'],
    ['POST', '/v1/%6coad_lora_adapter'],
    ['POST', '/v1/%256coad_lora_adapter'],
    ['POST', '/v1/load_lora_adapter;x=1'],
    ['POST', '/v1/internal/model/load'],
    ['POST', '/v1/model/unload'],
  ])("keeps the engine's operator's %s %s", async (method, path) => {
    const { engine, gateway } = await stand();
    const reply = await send(gateway.url, method === 'GET' ? undefined : '{}', { method, path });
    expect([reply.status, errorOf(reply).code]).toEqual([404, 'WARMPATH_NOT_FOUND']);
    expect(engine.received).toEqual([]);
  });

  it('tells a client whose base URL lacks /v1', async () => {
    const { gateway } = await stand();
    expect(errorOf(await send(`${gateway.url}/chat/completions`, {})).message).toContain('lacks its /v1');
    expect(errorOf(await send(`${gateway.url}/models`)).message).toContain('/v1/models');
    expect(errorOf(await send(`${gateway.url}/elsewhere`, {})).message).not.toContain('lacks');
  });
});

describe('errors that say where and what to do', () => {
  it('names the place where a body stops being JSON, and nothing of what stands there', async () => {
    const { gateway } = await stand();
    const reply = await send(`${gateway.url}/v1/chat/completions`, '{"messages": [],\n "documents": [hunter2]}');
    expect(errorOf(reply)).toMatchObject({
      code: 'WARMPATH_INVALID_JSON',
      message: expect.stringContaining('line 2, column 16'),
    });
    expect(reply.text).not.toContain('hunter2');
  });

  it.each([
    ['documents of a request', {}, { documents: Array(1_001).fill({ content: 'x' }) }, '`server.bodyLimitBytes`'],
    ['length of a document', {}, { documents: [{ content: 'x'.repeat(1_000_001) }] }, '`server.bodyLimitBytes`'],
    ['bytes of a body', { server: { bodyLimitBytes: 99 } }, { documents: DOCUMENTS }, '`server.bodyLimitBytes`'],
  ])('names the key that raises the limit: %s', async (_, config, fields, key) => {
    const { gateway } = await stand(undefined, config);
    const body = { messages: [{ role: 'user', content: 'Hi' }], ...fields };
    expect(errorOf(await send(`${gateway.url}/v1/chat/completions`, body)).message).toContain(key);
  });
});

describe('request ids', () => {
  it.each([
    ['a sane one is kept', 'abc-1.2:3', 'abc-1.2:3'],
    ['an odd one is replaced', 'a b', undefined],
    ['a long one is replaced', 'x'.repeat(129), undefined],
  ])('%s', async (_, given, expected) => {
    const { engine, gateway } = await stand();
    const reply = await send(`${gateway.url}/v1/models`, undefined, { headers: { 'x-request-id': given } });
    const id = reply.headers['x-request-id'];
    if (expected === undefined) expect(id).toMatch(/^[0-9a-f-]{36}$/);
    else expect(id).toBe(expected);
    expect(engine.last.headers['x-request-id']).toBe(id);
  });
});

describe('health', () => {
  it('is healthy and ready with an engine', async () => {
    const { gateway } = await stand();
    expect(await send(`${gateway.url}/healthz`)).toMatchObject({ status: 200, text: '{"status":"ok"}' });
    expect(await send(`${gateway.url}/readyz`)).toMatchObject({
      status: 200,
      text: '{"status":"ready","sessionStore":"up"}',
    });
  });

  it('an engine that wants a key is there', async () => {
    const { gateway } = await stand((response) => response.writeHead(401).end());
    expect((await send(`${gateway.url}/readyz`)).status).toBe(200);
  });

  it.each([
    ['is down', undefined, 'WARMPATH_UPSTREAM_UNREACHABLE'],
    ['fails', 500, 'WARMPATH_UPSTREAM_UNREACHABLE'],
    ['does not answer', 0, 'WARMPATH_UPSTREAM_TIMEOUT'],
  ])('is not ready when the engine %s', async (_, status, code) => {
    const { engine } = await stand((response) => {
      if (status) response.writeHead(status).end();
    });
    const url = status === undefined ? 'http://127.0.0.1:1' : engine.url;
    const gateway = closing(await gatewayAt(url, status === 0 ? { upstream: { timeoutMs: 200 } } : {}));
    const reply = await send(`${gateway.url}/readyz`);
    expect(reply.status).toBe(503);
    expect(errorOf(reply).code).toBe(code);
    expect((await send(`${gateway.url}/healthz`)).status).toBe(200);
  });
});

describe('unknown paths', () => {
  it.each(['/', '/v2/chat/completions', '/v1', '/%zz'])('%s', async (path) => {
    const { engine, gateway } = await stand();
    const reply = await send(gateway.url + path, path === '/%zz' ? undefined : '{}');
    expect(errorOf(reply).code).toBe(path === '/%zz' ? 'WARMPATH_INVALID_REQUEST' : 'WARMPATH_NOT_FOUND');
    expect(told(reply).error).toBe('gateway');
    expect(engine.received).toHaveLength(0);
  });
});

describe('POST /v1/arrange', () => {
  interface Answer {
    readonly documents: { id: string; label: string; rank: number }[];
    readonly order: number[];
    readonly hint: { labels: string[]; text: string } | null;
    readonly text: string;
    readonly predictedCachedTokens: number;
    readonly trace: { policy: string; moves: number[] };
  }

  it('orders documents after what it ordered before, without an engine', async () => {
    const gateway = closing(await gatewayAt('http://127.0.0.1:1'));
    const ask = async (fields: object) => JSON.parse((await send(`${gateway.url}/v1/arrange`, fields)).text) as Answer;
    const first = await ask({ documents: [VELKA, ORSIN], preamble: 'Be brief.' });
    expect(first).toMatchObject({ order: [0, 1], hint: null, predictedCachedTokens: 0 });
    const second = await ask({ documents: [ORSIN, VELKA], preamble: 'Be brief.' });
    expect(second.documents.map(({ id, rank }) => [id, rank])).toEqual([
      ['velka', 1],
      ['orsin', 0],
    ]);
    expect(second.hint?.labels).toEqual(['orsin', 'velka']);
    expect(second.text).toBe(first.text + second.hint!.text);
    expect(second.predictedCachedTokens).toBeGreaterThan(20);
    expect(second.trace).toMatchObject({ policy: 'foresight', moves: [1, -1] });
    for (const apart of [{ preamble: 'Be long.' }, { model: 'other', preamble: 'Be brief.' }]) {
      expect((await ask({ documents: [ORSIN, VELKA], ...apart })).order).toEqual([0, 1]);
    }
  });

  it.each(LAYOUT_NAMES)('knows of chats whose system message is its preamble: layout %s', async (layout) => {
    const { gateway } = await stand(undefined, { arrange: { layout, hints: false } });
    const orderOf = async (fields: object) => {
      const body = { model: 'm', documents: [ORSIN, VELKA], ...fields };
      return (JSON.parse((await send(`${gateway.url}/v1/arrange`, body)).text) as Answer).order;
    };
    const question = { role: 'user', content: 'How heavy is Velka?' };
    const system = { role: 'system', content: 'Answer from the documents.' };
    await send(`${gateway.url}/v1/chat/completions`, chat([VELKA, ORSIN], { messages: [system, question] }));
    expect(await orderOf({ preamble: '' })).toEqual([0, 1]);
    expect(await orderOf({ preamble: system.content, model: 'other' })).toEqual([0, 1]);
    expect(await orderOf({ preamble: system.content })).toEqual([1, 0]);
    await send(`${gateway.url}/v1/chat/completions`, chat([TAMIR, VELKA], { messages: [question] }));
    expect(await orderOf({ preamble: '', documents: [VELKA, TAMIR] })).toEqual([1, 0]);
  });

  it('hears what became of a prompt, from the tenant that asked for its order, once', async () => {
    const gateway = closing(await gatewayAt('http://127.0.0.1:1'));
    const post = async (path: string, body: object, key = 'a') => {
      const reply = await send(gateway.url + path, body, { headers: { authorization: key } });
      return JSON.parse(reply.text) as Answer & { readonly id: string; readonly state: string };
    };
    const ask = (documents: readonly object[]) => post('/v1/arrange', { documents });
    const { id } = await ask([VELKA, ORSIN]);
    const failed = { id, outcome: 'failed' };
    expect((await post('/v1/observe', failed, 'b')).state).toBe('forgotten');
    expect((await post('/v1/observe', failed)).state).toBe('observed');
    expect((await post('/v1/observe', failed)).state).toBe('forgotten');
    const second = await ask([ORSIN, VELKA]);
    expect(second.order).toEqual([0, 1]);
    const report = { outcome: 'completed', promptTokens: 120, cachedTokens: 0 };
    expect((await post('/v1/observe', { id: second.id, ...report })).state).toBe('observed');
    const [third] = [await ask([VELKA, ORSIN]), await ask([VELKA])];
    expect(third.order).toEqual([1, 0]);
    const fourth = await ask([VELKA]);
    await post('/v1/observe', { id: fourth.id, outcome: 'completed', promptTokens: 80, cachedTokens: 64 });
    // What was forgotten or failed counts nothing.
    const metrics = (await send(`${gateway.url}/metrics`)).text;
    expect(metrics).toContain('warmpath_open_arrangements 2\n');
    expect(metrics).toContain('warmpath_prompt_tokens_total 200\n');
    expect(metrics).toContain('warmpath_cached_tokens_total 64\n');
  });

  it.each([
    ['an unknown field', { id: 'x', outcome: 'failed', tokens: 3 }, 'tokens'],
    ['no id', { outcome: 'failed' }, 'id'],
    ['an unknown outcome', { id: 'x', outcome: 'done' }, 'outcome'],
    ['a count that is none', { id: 'x', outcome: 'completed', cachedTokens: -1 }, 'cachedTokens'],
  ])('refuses a report with %s', async (_, body, param) => {
    const gateway = closing(await gatewayAt('http://127.0.0.1:1'));
    const reply = await send(`${gateway.url}/v1/observe`, body);
    expect(errorOf(reply)).toMatchObject({ code: 'WARMPATH_INVALID_REQUEST', param });
  });

  it.each([
    ['no documents', {}, 'WARMPATH_INVALID_DOCUMENTS', 'documents'],
    ['an unknown policy', { documents: [VELKA], policy: 'x' }, 'WARMPATH_UNKNOWN_POLICY', 'policy'],
    ['an unknown field', { documents: [VELKA], polcy: 'x' }, 'WARMPATH_INVALID_REQUEST', 'polcy'],
    ['a preamble that is no text', { documents: [VELKA], preamble: 3 }, 'WARMPATH_INVALID_REQUEST', 'preamble'],
  ])('refuses %s', async (_, body, code, param) => {
    const gateway = closing(await gatewayAt('http://127.0.0.1:1'));
    const reply = await send(`${gateway.url}/v1/arrange`, body);
    expect(reply.status).toBe(400);
    expect(errorOf(reply)).toMatchObject({ code, param });
  });
});
