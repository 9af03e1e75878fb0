import { expect, test } from 'vitest';
import { freePort } from '../../../../test/free-port.js';
import { startGateway } from '../../src/index.js';
import { FakeEngine } from '../fake-engine.js';
import { closing, send, told } from '../harness.js';
import { ANSWER, publisher, stored, tokenised } from './published-events.js';

// Events name tokens. Where nobody tells which tokens a prompt becomes, they tell nothing of it: what was served must
// be believed as without events.

test.each<[string, (text: string) => readonly [number, unknown]]>([
  ['has no tokenizer', () => [404, { detail: 'Not Found' }]],
  ['wants another body', () => [400, { error: 'prompt is required' }]],
  ['gives tokens without their texts', (text) => [200, { tokens: [...text].map((_, place) => place) }]],
])('an engine that publishes its events and %s is believed in as one without events', async (_, tokenise) => {
  const port = await freePort();
  const events = await publisher(port);
  const engine = closing(
    await FakeEngine.start((response, { path, body }) => {
      const [status, answer] =
        path === '/v1/chat/completions'
          ? [200, ANSWER]
          : path === '/tokenize'
            ? tokenise(body)
            : [200, { data: [{ id: 'm', owned_by: 'sglang' }] }];
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(answer));
    }),
  );
  const gateway = closing(
    await startGateway({
      server: { port: 0 },
      upstream: { url: engine.url, kvEvents: { endpoint: `tcp://127.0.0.1:${port}` } },
      log: { level: 'silent' },
    }),
  );
  await events.joined;
  const sample = async (name: string) => {
    const { text } = await send(`${gateway.url}/metrics`);
    const line = text.split('\n').find((each) => each.startsWith(name)) ?? '';
    return Number(line.slice(line.lastIndexOf(' ') + 1));
  };
  await events.publish([stored([1, 2, 3, 4])]);
  while ((await sample('warmpath_kv_events_exact')) === 0);
  const documents = ['a', 'b', 'c'].map((id) => ({ id, content: `Document ${id}. `.repeat(30) }));
  const ask = async (question: string) => {
    const body = { model: 'm', messages: [{ role: 'user', content: question }], documents };
    const { predicted } = told(await send(`${gateway.url}/v1/chat/completions`, body));
    while ((await sample('warmpath_kv_prompts_waiting')) > 0);
    return Number(predicted);
  };
  expect(await ask('What?')).toBe(0);
  for (const question of ['Why?', 'Where?', 'When?']) expect(await ask(question)).toBeGreaterThan(100);
  expect(await sample('warmpath_kv_events_total{engine="engine",kind="unlearned"}')).toBe(4);
  // An engine that has none is not asked after every answer.
  const asked = engine.received.filter(({ path }) => path === '/tokenize').length;
  expect(asked).toBe(tokenise('')[0] === 404 ? 1 : 4);
});

test.each([
  ['as many as the engine counted', 0, 1],
  ['more than the engine counted', 1, 0],
])('tokens of a translated prompt are learned only if they are %s', async (_, difference, isLearned) => {
  const port = await freePort();
  const events = await publisher(port);
  let counted = 0;
  const engine = closing(
    await FakeEngine.start((response, { path, body }) => {
      const { system, messages = [] } = JSON.parse(body || '{}') as {
        system?: string;
        messages?: readonly { content: string }[];
      };
      const message = { role: 'assistant', type: 'message', content: [{ type: 'text', text: 'A.' }] };
      if (path === '/v1/messages')
        counted = [{ content: system ?? '' }, ...messages].map((each) => each.content).join('').length;
      const answer =
        path === '/v1/messages'
          ? { ...message, usage: { input_tokens: counted + difference, output_tokens: 1 } }
          : path === '/tokenize'
            ? tokenised(body)
            : { data: [{ id: 'm', owned_by: 'vllm' }] };
      response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(answer));
    }),
  );
  const gateway = closing(
    await startGateway(
      {
        server: { port: 0 },
        upstream: { url: engine.url, kvEvents: { endpoint: `tcp://127.0.0.1:${port}` } },
        log: { level: 'silent' },
      },
      { apiRoute: 'native' },
    ),
  );
  await events.joined;
  await events.publish([stored([1, 2, 3, 4])]);
  const sample = async (name: string) => {
    const { text } = await send(`${gateway.url}/metrics`);
    return Number(
      text
        .split('\n')
        .find((line) => line.startsWith(name))
        ?.split(' ')
        .at(-1),
    );
  };
  while ((await sample('warmpath_kv_events_exact')) !== 1);
  const documents = ['a', 'b'].map((id) => ({ id, content: `Document ${id}. `.repeat(30) }));
  const body = {
    model: 'm',
    max_tokens: 1,
    system: 'Be brief.',
    messages: [{ role: 'user', content: 'What?' }],
    documents,
  };
  expect((await send(`${gateway.url}/v1/messages`, body)).status).toBe(200);
  while ((await sample('warmpath_kv_prompts_waiting')) > 0);
  expect(await sample('warmpath_kv_events_total{engine="engine",kind="unlearned"}')).toBe(1 - isLearned);
  // Without the tokens of its latest prompt, what the engine holds is not known exactly.
  expect(await sample('warmpath_kv_events_exact')).toBe(isLearned);
});

test('an engine that serves no metrics is believed in by the blocks of its events', async () => {
  const port = await freePort();
  const events = await publisher(port);
  const engine = closing(
    await FakeEngine.start((response, { path }) => {
      const answers: Record<string, object> = {
        '/v1/chat/completions': ANSWER,
        '/v1/models': { data: [{ id: 'm', owned_by: 'vllm' }] },
      };
      const answer = answers[path];
      response.writeHead(answer ? 200 : 404, { 'content-type': 'application/json' }).end(JSON.stringify(answer ?? {}));
    }),
  );
  const gateway = closing(
    await startGateway({
      server: { port: 0 },
      upstream: { url: engine.url, kvEvents: { endpoint: `tcp://127.0.0.1:${port}` } },
      log: { level: 'silent' },
    }),
  );
  await events.joined;
  const size = 96;
  await events.publish([['BlockStored', [1n], null, new Array(size).fill(7), size, null, 'GPU']]);
  const isExact = async () =>
    (await send(`${gateway.url}/metrics`)).text.includes('warmpath_kv_events_exact{engine="engine"} 1');
  while (!(await isExact()));
  const documents = ['a', 'b', 'c'].map((id) => ({ id, content: `Document ${id}. `.repeat(40) }));
  const ask = async () => {
    const body = { model: 'm', messages: [{ role: 'user', content: 'What?' }], documents };
    return Number(told(await send(`${gateway.url}/v1/chat/completions`, body)).predicted);
  };
  await ask();
  const predicted = await ask();
  expect(predicted).toBeGreaterThan(size);
  expect(predicted % size).toBe(0);
});
