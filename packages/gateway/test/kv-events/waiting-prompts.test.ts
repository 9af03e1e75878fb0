import type { ServerResponse } from 'node:http';
import { expect, test } from 'vitest';
import { freePort } from '../../../../test/free-port.js';
import { startGateway } from '../../src/index.js';
import { FakeEngine } from '../fake-engine.js';
import { closing, send } from '../harness.js';
import { ANSWER, publisher, stored } from './published-events.js';

test('prompts that wait for their tokens are bounded in bytes', async () => {
  const port = await freePort();
  const events = await publisher(port);
  const unanswered: ServerResponse[] = [];
  const engine = closing(
    await FakeEngine.start((response, { path }) => {
      if (path === '/tokenize') {
        unanswered.push(response);
        return;
      }
      const answer = path === '/v1/chat/completions' ? ANSWER : { data: [{ id: 'm', owned_by: 'vllm' }] };
      response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(answer));
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
  const ask = async (number: number, length: number) => {
    const documents = [{ id: 'a', content: `Document ${number}. `.repeat(30) }];
    const messages = [{ role: 'user', content: 'w'.repeat(length) }];
    const { status } = await send(`${gateway.url}/v1/chat/completions`, { model: 'm', messages, documents });
    expect(status).toBe(200);
  };
  /** Prompts that wait, and those that are not followed, once all that were sent are one or the other. */
  const counts = async (sent: number): Promise<readonly [waiting: number, unlearned: number]> => {
    for (;;) {
      const waiting = await sample('warmpath_kv_prompts_waiting');
      const unlearned = await sample('warmpath_kv_events_total{engine="engine",kind="unlearned"}');
      if (waiting + unlearned === sent) return [waiting, unlearned];
    }
  };
  // One is asked about. Of the others three find room: each is kept as it came, and as it went out.
  for (let number = 0; number < 8; number++) await ask(number, 1_200_000);
  expect(await counts(8)).toEqual([4, 4]);
  // Small ones still do.
  await ask(8, 1_000);
  expect(await counts(9)).toEqual([5, 4]);
});
