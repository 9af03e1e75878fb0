import { expect, test } from 'vitest';
import { type ErrorBody, send, stand } from './harness.js';

const TRANSLATED = { apiRoute: 'translate' } as const;
const DEEP = `${'['.repeat(5_000)}${']'.repeat(5_000)}`;
const valuesOf = (count: number) => `[${'1,'.repeat(count - 1)}1]`;
/** More than becomes JavaScript objects, and more than is looked at. */
const MANY = valuesOf(60_000);
const TOO_MANY = valuesOf(2_100_000);

/** Where a body becomes JavaScript objects as a whole. */
const PARSED_WHOLE: ReadonlySet<string> = new Set([
  '/v1/messages',
  '/v1/responses',
  '/v1/messages/count_tokens',
  '/v1/observe',
]);

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

async function expectRefused(requests: ReturnType<typeof bodies>): Promise<void> {
  const { engine, gateway } = await stand(undefined, {}, TRANSLATED);
  for (const [path, body] of requests) {
    const reply = await send(gateway.url + path, body);
    const { code } = (JSON.parse(reply.text) as ErrorBody).error;
    expect([path, reply.status, code]).toEqual([path, 413, 'WARMPATH_BODY_TOO_COMPLEX']);
  }
  const plan = await send(`${gateway.url}/v1/plan`, `{"contexts":${DEEP}}`);
  expect(plan.status).toBe(400);
  expect(engine.received).toHaveLength(0);
}

test.each([
  ['nested 5,000 deep', DEEP],
  ['of 2,100,000 values', TOO_MANY],
])('a body %s is refused on every route that would look into it', (_name, inside) => expectRefused(bodies(inside)));

test('a body of 60,000 values is refused where all of it would be parsed', () =>
  expectRefused(bodies(MANY).filter(([path]) => PARSED_WHOLE.has(path))));

test('and goes through, byte for byte, where the gateway only adds to it', async () => {
  const { engine, gateway } = await stand(undefined, {}, TRANSLATED);
  for (const [path, body] of bodies(MANY).filter(([path]) => path.endsWith('completions'))) {
    expect((await send(gateway.url + path, body)).status).toBe(200);
    expect(engine.last.body.endsWith(`,"x":${MANY}}`)).toBe(true);
    expect(engine.last.body).toContain('<document');
  }
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
