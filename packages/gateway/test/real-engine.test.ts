import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { type EngineProcess, spawnEngine } from '@warmpath/engine';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { modelPath } from '../../engine/bench/random-model/src/model-path.js';
import { closing, gatewayAt, openRequest, send, told } from './harness.js';

const CHAT = '/v1/chat/completions';

/** Random weights: the text is noise and never ends by itself; tokens, caching and aborts are real. */
let engine: EngineProcess;

beforeAll(async () => {
  engine = await spawnEngine({ port: 0, model: await modelPath('random:1m'), threads: 1 });
});

afterAll(async () => {
  await engine.stop();
});

async function metric(line: RegExp): Promise<number> {
  const { text } = await send(`${engine.url}/metrics`);
  return Number(line.exec(text)?.[1]);
}

const aborted = () => metric(/warmpath_engine_requests_total\{outcome="aborted"[^}]*\} (\d+)/);
const running = () => metric(/vllm:num_requests_running\{[^}]*\} (\d+)/);

const topics = ['granite', 'harbour', 'orchard'];

/**
 * Twelve contexts in bursts of four about one topic: four documents that a burst shares, in turning order, and a new
 * one.
 */
const contexts = topics.flatMap((topic) =>
  Array.from({ length: 4 }, (_, request) => {
    const shared = Array.from({ length: 4 }, (_, rank) => passage(topic, (rank + request) % 4));
    return shared.toSpliced(4 - request, 0, passage(topic, 10 + request));
  }),
);

function passage(topic: string, number: number) {
  const sentence = `Passage ${number} tells how the ${topic} was found, and what it was worth in year ${number}.`;
  return { id: `${topic}-${number}`, content: Array(4).fill(sentence).join(' ') };
}

const shared = Array.from({ length: 3 }, (_, number) => passage('burst', number));

interface Answer {
  readonly usage: {
    readonly prompt_tokens: number;
    readonly prompt_tokens_details: { readonly cached_tokens: number };
  };
}

/**
 * Asks about every context, one after the other, behind a system prompt of its own: nothing of an earlier run is
 * cached.
 */
async function run(policy: 'retrieval' | 'exact') {
  const gateway = closing(await gatewayAt(engine.url, { arrange: { policy, hints: false } }));
  const totals = { prompt: 0, cached: 0, predicted: 0, documents: 0 };
  for (const documents of contexts) {
    const reply = await send(gateway.url + CHAT, {
      messages: [
        { role: 'system', content: `${policy}: answer from the documents.` },
        { role: 'user', content: 'What was found?' },
      ],
      documents,
      max_tokens: 1,
    });
    expect(reply.status).toBe(200);
    const { usage } = JSON.parse(reply.text) as Answer;
    totals.prompt += usage.prompt_tokens;
    totals.cached += usage.prompt_tokens_details.cached_tokens;
    totals.predicted += Number(told(reply).predicted);
    totals.documents += documents.length;
  }
  return totals;
}

describe('in front of the real engine', () => {
  it('an arranged prompt starts with what the engine holds', async () => {
    const retrieval = await run('retrieval');
    const arranged = await run('exact');
    // The same documents and questions, so the prompts are equally long but for the length of the system prompt.
    expect(Math.abs(arranged.prompt - retrieval.prompt)).toBeLessThan(arranged.prompt * 0.02);
    expect(arranged.cached).toBeGreaterThan(retrieval.cached * 4);
    expect(arranged.cached).toBeGreaterThan(arranged.prompt * 0.5);
    // What was predicted came true: the estimate, corrected by the engine's counts, is near the cached tokens.
    expect(Math.abs(arranged.predicted - arranged.cached)).toBeLessThan(arranged.cached * 0.1);
  });

  it('foresight finds more in the cache than exact, where prompts wait that share documents', async () => {
    // Every context starts with a document of its own, which hides from `exact` what they all share.
    const burst = Array.from({ length: 6 }, (_, request) => [passage('burst', 10 + request), ...shared]);
    const cachedBy = async (policy: 'exact' | 'foresight') => {
      const upstream = { maxConcurrent: 1 };
      const gateway = closing(await gatewayAt(engine.url, { arrange: { policy, hints: false }, upstream }));
      const depth = async () => /^warmpath_queue_depth (\d+)$/m.exec((await send(`${gateway.url}/metrics`)).text)?.[1];
      const ask = (fields: object) =>
        openRequest(gateway.url + CHAT, { messages: [{ role: 'user', content: 'Go on.' }], ...fields });
      // Keeps the engine busy until all the others wait.
      const blocker = ask({ max_tokens: 12_000, stream: true }).on('error', () => {});
      const [streaming] = (await once(blocker, 'response')) as [IncomingMessage];
      streaming.on('error', () => {});
      const replies = burst.map((documents) =>
        send(gateway.url + CHAT, {
          messages: [
            { role: 'system', content: `Burst by ${policy}.` },
            { role: 'user', content: 'What was found?' },
          ],
          documents,
          max_tokens: 1,
        }),
      );
      while ((await depth()) !== String(burst.length));
      blocker.destroy();
      const answers = (await Promise.all(replies)).map(({ text }) => JSON.parse(text) as Answer);
      const cached = answers.reduce((sum, { usage }) => sum + usage.prompt_tokens_details.cached_tokens, 0);
      return cached / answers.reduce((sum, { usage }) => sum + usage.prompt_tokens, 0);
    };
    const exact = await cachedBy('exact');
    expect(await cachedBy('foresight')).toBeGreaterThan(exact + 0.4);
  });

  it('a warm-up prefills what the request then finds in the cache', async () => {
    const gateway = closing(await gatewayAt(engine.url));
    const system = { role: 'system', content: `A long instruction: ${'follow the documents closely; '.repeat(30)}` };
    const warm = () => send(`${gateway.url}/v1/warmup`, { messages: [system] });
    expect((await warm()).text).toBe('{"state":"warming"}');
    while ((await warm()).text !== '{"state":"warm"}');
    const messages = [system, { role: 'user', content: 'What was found?' }];
    const reply = await send(gateway.url + CHAT, { messages, documents: contexts[0], max_tokens: 1 });
    const { cached_tokens: cached } = (JSON.parse(reply.text) as Answer).usage.prompt_tokens_details;
    const alone = await send(gateway.url + CHAT, { messages: [system, { role: 'user', content: '' }], max_tokens: 1 });
    const whole = (JSON.parse(alone.text) as Answer).usage.prompt_tokens;
    // All but what the chat template writes behind the user's text.
    expect(cached).toBeGreaterThan(whole - 12);
    expect(cached).toBeLessThanOrEqual(whole);
  });

  it('5 of 5 streamed and 3 of 3 unstreamed aborts reach it', async () => {
    const gateway = closing(await gatewayAt(engine.url));
    const before = await aborted();
    const endless = { messages: [{ role: 'user', content: 'Go on.' }], documents: contexts[0], max_tokens: 12_000 };
    for (let i = 1; i <= 5; i++) {
      const request = openRequest(gateway.url + CHAT, { ...endless, stream: true }).on('error', () => {});
      const [response] = (await once(request, 'response')) as [IncomingMessage];
      response.on('error', () => {});
      await once(response, 'data');
      request.destroy();
      while ((await aborted()) < before + i);
    }
    for (let i = 1; i <= 3; i++) {
      const request = openRequest(gateway.url + CHAT, endless).on('error', () => {});
      while ((await running()) < 1);
      request.destroy();
      while ((await aborted()) < before + 5 + i);
    }
    expect(await aborted()).toBe(before + 8);
    expect(await running()).toBe(0);
  });

  it('lets no tenant find what another has left in the cache, with a key for salts', async () => {
    const gateway = closing(await gatewayAt(engine.url, { upstream: { cacheSaltKey: 'a secret of the gateways' } }));
    const cachedFor = async (tenant: string): Promise<number> => {
      const messages = [{ role: 'user', content: 'What did the tenants find?' }];
      const headers = { authorization: `Bearer ${tenant}` };
      const reply = await send(gateway.url + CHAT, { messages, documents: contexts[0], max_tokens: 1 }, { headers });
      return (JSON.parse(reply.text) as Answer).usage.prompt_tokens_details.cached_tokens;
    };
    expect(await cachedFor('a')).toBe(0);
    expect(await cachedFor('b')).toBe(0);
    expect(await cachedFor('a')).toBeGreaterThan(100);
  });
});
