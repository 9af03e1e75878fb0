import { describe, expect, it } from 'vitest';
import { chat, errorOf, type StandConfig, send, stand } from './harness.js';

const KEYS: StandConfig = {
  server: { keys: [{ name: 'alice', key: 'alice-has-this-key' }] },
};
const headers = { authorization: 'Bearer alice-has-this-key', 'x-tenant': 'alice' };
const CLOSED = 'WARMPATH_PATH_CLOSED';

async function standing(config: StandConfig = KEYS) {
  const { engine, gateway } = await stand(undefined, config, { apiRoute: 'native' });
  const ask = async (method: string, path: string, body?: string | object) => {
    const reply = await send(gateway.url + path, body, { method, headers });
    return reply.status < 400 ? reply.status : errorOf(reply).code;
  };
  return { engine, ask };
}

const STATEFUL: [method: string, path: string][] = [
  ...['files', 'files/f', 'files/f/content', 'batches', 'vector_stores/v', 'assistants', 'threads/t/messages'].map(
    (path): [string, string] => ['GET', `/v1/${path}`],
  ),
  ...['responses/r', 'responses/r/input_items', 'conversations/c', 'chat/completions', 'chat/completions/c'].map(
    (path): [string, string] => ['GET', `/v1/${path}`],
  ),
  ...['fine_tuning/jobs', 'uploads', 'containers', 'messages/batches', 'skills', 'evals', 'unknown'].map(
    (path): [string, string] => ['GET', `/v1/${path}`],
  ),
  ...['files/f', 'responses/r', 'chat/completions/c', 'models/m', 'embeddings'].map((path): [string, string] => [
    'DELETE',
    `/v1/${path}`,
  ]),
  ...['files', 'batches', 'responses/r/cancel', 'threads', 'messages/batches', 'models/m'].map(
    (path): [string, string] => ['POST', `/v1/${path}`],
  ),
  ...[
    '/v1//files',
    '/v1/FILES',
    '/v1/%66iles',
    '/v1/%2566iles',
    '/v1/files;x',
    '/v1\\files',
    '/v1/models%2f..%2ffiles',
  ].map((path): [string, string] => ['GET', path]),
  ...['/v1/models/%252e%252e/files', '/v1/models/%25252e%25252e/files', '/v1/chat%2fcompletions'].map(
    (path): [string, string] => ['GET', path],
  ),
  ['POST', '/v1/chat%2fcompletions'],
  ['POST', '/v1//chat/completions'],
  ['POST', '/v1/Chat/Completions'],
];

describe('where tenants share the account of the engine', () => {
  it('what the engine keeps is closed, however the path is written', async () => {
    const { engine, ask } = await standing();
    for (const [method, path] of STATEFUL) {
      const code = await ask(method, path, method === 'POST' ? {} : undefined);
      expect([method, path, [CLOSED, 'WARMPATH_NOT_FOUND'].includes(String(code)) ? CLOSED : code]).toEqual([
        method,
        path,
        CLOSED,
      ]);
    }
    expect(engine.received).toHaveLength(0);
  });

  it('what keeps nothing passes', async () => {
    const { ask } = await standing();
    for (const path of ['/v1/models', '/v1/models/org/m', '/v1/models/org%2Fm'])
      expect(await ask('GET', path)).toBe(200);
    for (const path of ['embeddings', 'rerank', 'score', 'tokenize', 'audio/transcriptions', 'moderations'])
      expect([path, await ask('POST', `/v1/${path}`, {})]).toEqual([path, 200]);
    for (const path of ['/tokenize', '/rerank', '/v1/messages/count_tokens'])
      expect(await ask('POST', path, {})).toBe(200);
  });

  it.each(['previous_response_id', 'conversation', 'background', 'container', 'prompt'])(
    'a prompt does not refer to what the engine keeps: %s',
    async (field) => {
      const { engine, ask } = await standing();
      const value = field === 'background' ? true : { id: 'x' };
      for (const path of ['responses', 'chat/completions', 'messages'])
        expect(await ask('POST', `/v1/${path}`, chat(undefined, { input: 'x', [field]: value }))).toBe(CLOSED);
      const escaped = `{"input":"x","messages":[],"\\u00${field.charCodeAt(0).toString(16)}${field.slice(1)}":${JSON.stringify(value)}}`;
      expect(await ask('POST', '/v1/responses', escaped)).toBe(CLOSED);
      expect(engine.received).toHaveLength(0);
      expect(await ask('POST', '/v1/responses', { input: 'x', [field]: null })).toBe(200);
      expect(await ask('POST', '/v1/completions', { prompt: 'x' })).toBe(200);
    },
  );

  it.each([
    ['input', { type: 'item_reference', id: 'msg_1' }],
    ['input', { id: 'msg_1' }],
    ['tools', { type: 'code_interpreter', container: 'cntr_1' }],
  ])('a prompt does not refer to an item that the engine keeps: %s %j', async (field, element) => {
    const { engine, ask } = await standing();
    const body = { model: 'm', input: [{ role: 'user', content: 'x' }], [field]: [{ type: 'message' }, element] };
    const written = JSON.stringify(body);
    for (const spelling of [written, written.replace('item_ref', 'item\\u005fref').replace('cont', '\\u0063ont')]) {
      expect(await ask('POST', '/v1/responses', spelling)).toBe(CLOSED);
    }
    expect(engine.received).toHaveLength(0);
  });

  it('a tool may have a parameter, and a container of its own, that is called so', async () => {
    const { ask } = await standing();
    const parameters = { type: 'object', properties: { container: { type: 'string' }, item_reference: {} } };
    const tools = [
      { type: 'function', name: 'f', parameters },
      { type: 'code_interpreter', container: { type: 'auto' } },
    ];
    const input = [{ id: 'msg_1', type: 'message', role: 'assistant', content: [] }];
    expect(await ask('POST', '/v1/responses', { input, tools })).toBe(200);
  });

  it('the operator opens paths by `passthrough`, each with all below it', async () => {
    const { ask } = await standing({ ...KEYS, passthrough: ['/v1/files', '/v1/responses/'] });
    for (const path of ['/v1/files', '/v1/files/f', '/v1/responses/r'])
      expect([path, await ask('GET', path)]).toEqual([path, 200]);
    expect(await ask('GET', '/v1/filesystem')).toBe(CLOSED);
    expect(await ask('POST', '/v1/responses', { input: 'x', previous_response_id: 'r' })).toBe(200);
  });

  it.each(<StandConfig[]>[
    { server: { trustedHeaders: { tenant: 'x-tenant' } } },
    { server: { host: '0.0.0.0', open: true }, upstream: { apiKey: 'of-the-operator' } },
  ])('is wherever they do not send keys of their own: %j', async (config) => {
    const { engine, gateway } = await stand(undefined, config);
    const reply = await send(`http://127.0.0.1:${new URL(gateway.url).port}/v1/files`, undefined, { headers });
    expect([reply.status, errorOf(reply).code]).toEqual([403, CLOSED]);
    expect(engine.received).toHaveLength(0);
  });
});

it('where the key of the client goes to the engine, everything passes', async () => {
  const { ask } = await standing({});
  expect(await ask('GET', '/v1/files')).toBe(200);
  expect(await ask('DELETE', '/v1/files/f')).toBe(200);
});

it('a prompt reaches the engine by the plain spelling of its path only', async () => {
  const { engine, ask } = await standing({ upstream: { cacheSaltKey: 'a key for salts, long enough' } });
  for (const path of [
    '/v1/chat%2fcompletions',
    '/v1//chat/completions',
    '/v1/Chat/Completions',
    '/v1/chat/completions/',
  ])
    expect([path, await ask('POST', path, chat())]).toEqual([path, 'WARMPATH_NOT_FOUND']);
  for (const path of ['/v1/messages;x', '/v1/responses/', '/v1/%2563ompletions'])
    expect([path, await ask('POST', path, chat())]).toEqual([path, 'WARMPATH_NOT_FOUND']);
  expect(engine.received).toHaveLength(0);
});
