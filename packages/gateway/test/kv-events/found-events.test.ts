import { expect, test } from 'vitest';
import { freePort } from '../../../../test/free-port.js';
import { startGateway } from '../../src/index.js';
import { FakeEngine } from '../fake-engine.js';
import { closing, send, told, untilMetric } from '../harness.js';
import { ANSWER, publisher, stored, tokenised } from './published-events.js';

// KV events that the configuration does not name: the engine says where it publishes them.

const CHAT = '/v1/chat/completions';
const source = (port: number) => ({ enable_kv_cache_events: true, endpoint: `tcp://*:${port}`, replay_endpoint: null });
const documents = ['a', 'b', 'c'].map((id) => ({ id, content: `Document ${id}. `.repeat(30) }));

async function before(ranks: () => object, config: object = {}) {
  const held: (() => void)[] = [];
  const hold = { isHeld: false };
  const engine = closing(
    await FakeEngine.start((response, { path, body }) => {
      const answers: Readonly<Record<string, () => object>> = {
        '/v1/models': () => ({ data: [{ id: 'm', owned_by: 'vllm' }] }),
        '/kv_event_sources': ranks,
        '/tokenize': () => tokenised(body),
        [CHAT]: () => ANSWER,
      };
      const answer = answers[path]?.();
      const status = answer === undefined ? 404 : 200;
      const end = () =>
        void response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(answer));
      if (hold.isHeld && path === CHAT) held.push(end);
      else end();
    }),
  );
  let found = () => {};
  const isFound = new Promise<void>((resolve) => {
    found = resolve;
  });
  const gateway = closing(
    await startGateway(
      { server: { port: 0 }, upstream: { url: engine.url, ...config }, log: { level: 'silent' } },
      { onEngine: () => found() },
    ),
  );
  await isFound;
  const ask = async () =>
    told(await send(gateway.url + CHAT, { model: 'm', messages: [{ role: 'user', content: 'What?' }], documents }));
  const lastTokens = () =>
    tokenised(engine.received.findLast(({ path }) => path === CHAT)!.body).tokens.map(({ id }) => id);
  const metrics = async () => (await send(`${gateway.url}/metrics`)).text;
  /** Prompts are answered when `release` is called. */
  const holdAnswers = () => {
    hold.isHeld = true;
    return () => {
      for (const end of held) end();
    };
  };
  return { engine, gateway, ask, lastTokens, metrics, holdAnswers };
}

const batches = 'warmpath_kv_events_total{engine="engine",kind="batches"}';

test('events are followed where the engine says that it publishes them', async () => {
  const port = await freePort();
  const { joined, publish } = await publisher(port);
  const { gateway, ask, lastTokens, metrics } = await before(() => ({ 0: source(port) }));
  await joined;
  await publish([stored([1, 2, 3, 4])]);
  await untilMetric(gateway, batches, 1);
  await untilMetric(gateway, 'warmpath_kv_events_exact{engine="engine"}', 1);
  await ask();
  await publish([stored(lastTokens())]);
  await untilMetric(gateway, batches, 2);
  await untilMetric(gateway, 'warmpath_kv_prompts_waiting{engine="engine"}', 0);
  expect(Number((await ask())['predicted'])).toBeGreaterThan(100);
  expect(await metrics()).toContain('kind="unlearned"} 0');
});

test('a prompt that is being computed counts as cached, though it was evicted before', async () => {
  const port = await freePort();
  const { joined, publish } = await publisher(port);
  const { engine, gateway, ask, lastTokens, holdAnswers } = await before(() => ({ 0: source(port) }));
  await joined;
  await publish([stored([1, 2, 3, 4])]);
  await untilMetric(gateway, batches, 1);
  await ask();
  const blocks = stored(lastTokens());
  await publish([blocks]);
  await untilMetric(gateway, batches, 2);
  await untilMetric(gateway, 'warmpath_kv_prompts_waiting{engine="engine"}', 0);
  await publish([['BlockRemoved', blocks[1], 'GPU']]);
  await untilMetric(gateway, batches, 3);
  const release = holdAnswers();
  const sent = engine.received.filter(({ path }) => path === CHAT).length;
  const first = ask();
  while (engine.received.filter(({ path }) => path === CHAT).length === sent) await new Promise(setImmediate);
  const second = ask();
  while (engine.received.filter(({ path }) => path === CHAT).length === sent + 1) await new Promise(setImmediate);
  release();
  expect(Number((await first)['predicted'])).toBe(0);
  expect(Number((await second)['predicted'])).toBeGreaterThan(100);
});

test('events are followed again where the engine publishes them after a restart', async () => {
  const ports = [await freePort(), await freePort()] as const;
  let port = ports[0];
  const first = await publisher(ports[0]);
  const { gateway } = await before(() => ({ 0: source(port) }));
  await first.joined;
  const second = await publisher(ports[1]);
  port = ports[1];
  await first.close();
  await second.joined;
  await second.publish([stored([1, 2, 3, 4])]);
  await untilMetric(gateway, batches, 1);
});

test.each<[string, (port: number) => object, object]>([
  ['nothing listens where they should be', (port) => ({ 0: source(port) }), {}],
  ['each rank has its own', (port) => ({ 0: source(port), 1: source(port + 1) }), {}],
  ['they are off', () => ({}), {}],
  ['the kind of the engine is configured as one without them', (port) => ({ 0: source(port) }), { dialect: 'generic' }],
])('no tokens are asked for where %s', async (_, ranks, config) => {
  const port = await freePort(2);
  const { engine, ask, metrics } = await before(() => ranks(port), config);
  await ask();
  await ask();
  expect(engine.received.some(({ path }) => path === '/tokenize')).toBe(false);
  expect(await metrics()).not.toContain('warmpath_kv_events_exact{');
});
