import { expect, test } from 'vitest';
import { type ErrorBody, send, stand } from './harness.js';

const TRANSLATED = { upstream: { messages: 'translate', responses: 'translate' } } as const;
const DEEP = `${'['.repeat(5_000)}${']'.repeat(5_000)}`;
const MANY = `[${'1,'.repeat(60_000)}1]`;

/** Bodies that the gateway must read, with something in them. */
const bodies = (inside: string): readonly (readonly [path: string, body: string])[] => [
  [
    '/v1/chat/completions',
    `{"model":"m","documents":[{"content":"a"}],"messages":[{"role":"user","content":"q"}],"x":${inside}}`,
  ],
  ['/v1/completions', `{"model":"m","documents":[{"content":"a"}],"prompt":"q","x":${inside}}`],
  [
    '/v1/messages',
    `{"model":"m","messages":[{"role":"user","content":"q"}],"tools":[{"name":"t","input_schema":${inside}}]}`,
  ],
  ['/v1/responses', `{"model":"m","input":"q","tools":[{"type":"function","name":"t","parameters":${inside}}]}`],
  [
    '/v1/messages/count_tokens',
    `{"model":"m","messages":[{"role":"user","content":"q"}],"tools":[{"name":"t","input_schema":${inside}}]}`,
  ],
  ['/v1/arrange', `{"documents":[{"id":"a","content":"a","metadata":{"a":${inside}}}]}`],
  ['/v1/warmup', `{"model":"m","messages":[{"role":"user","content":${inside}}]}`],
  ['/v1/observe', `{"id":"a","outcome":"failed","x":${inside}}`],
];

test.each([
  ['nested 5,000 deep', DEEP],
  ['of 60,000 values', MANY],
])('a body %s is refused on every route that would read it', async (_name, inside) => {
  const { engine, gateway } = await stand(undefined, TRANSLATED);
  for (const [path, body] of bodies(inside)) {
    const reply = await send(gateway.url + path, body);
    const { code } = (JSON.parse(reply.text) as ErrorBody).error;
    expect([path, reply.status, code]).toEqual([path, 413, 'WARMPATH_BODY_TOO_COMPLEX']);
  }
  const plan = await send(`${gateway.url}/v1/plan`, `{"contexts":${DEEP}}`);
  expect(plan.status).toBe(400);
  expect(engine.received).toHaveLength(0);
});

test('such a body goes to the engine unread where nothing is asked of the gateway', async () => {
  const { engine, gateway } = await stand();
  for (const inside of [DEEP, MANY]) {
    const body = `{"model":"m","messages":${inside}}`;
    expect((await send(`${gateway.url}/v1/chat/completions`, body)).status).toBe(200);
    expect(engine.last.body).toBe(body);
  }
});

test('the name of a model has at most 256 characters', async () => {
  const { gateway } = await stand();
  const reply = await send(`${gateway.url}/v1/arrange`, { model: 'm'.repeat(257), documents: [] });
  const { error } = JSON.parse(reply.text) as ErrorBody;
  expect([reply.status, error.code, error.param]).toEqual([400, 'WARMPATH_INVALID_REQUEST', 'model']);
});

test('an arrangement is remembered without its texts', async () => {
  const { gateway } = await stand();
  const documents = [{ id: 'a', content: 'x'.repeat(500_000), metadata: { more: 'y'.repeat(500_000) } }];
  await send(`${gateway.url}/v1/arrange`, { documents });
  const { text } = await send(`${gateway.url}/metrics`);
  const held = Number(/^warmpath_memory_bytes\{part="arrangements"\} (\d+)$/m.exec(text)?.[1]);
  expect(held).toBeGreaterThan(0);
  expect(held).toBeLessThan(2_000);
});
