import type { ServerResponse } from 'node:http';
import { describe, expect, it, test } from 'vitest';
import { heldBytes } from '../../../test/held-bytes.js';
import { isFull } from '../../../test/suite.js';
import { resolveConfig } from '../src/config/load.js';
import { dialectOf } from '../src/dialects/dialects.js';
import type { ServedPrompt } from '../src/engines/engine.js';
import { ServedHistories } from '../src/memory/served-histories.js';
import { Prewarmer, type PrewarmerParts } from '../src/warm/prewarmer.js';
import { answerJson, type FakeEngine, type ReceivedRequest } from './fake-engine.js';
import { chat, labelsIn, type Stand, type StandConfig, send, stand, told } from './harness.js';

const CHAT = '/v1/chat/completions';

const metric = async ({ gateway }: Stand, name: string) => {
  const { text } = await send(`${gateway.url}/metrics`);
  const line = text.split('\n').find((each) => each.startsWith(`warmpath_${name} `));
  return Number(line?.split(' ')[1] ?? 0);
};

/** The gateway has nothing left to prefill, for the so-manieth time. */
async function untilNothing(both: Stand, times: number): Promise<void> {
  while ((await metric(both, 'prewarms_total{outcome="nothing"}')) < times);
}

const document = (name: string) => ({
  id: name,
  content: `All that is known about ${name}, which is a lot. `.repeat(8),
});
const asked = (names: string, fields: object = {}) => chat([...names].map(document), fields);

/** Requests about one topic: documents that came along with some of the last one's are likely to come again. */
const TOPIC = ['abc', 'ade', 'abf', 'acd'];
/** Of the same documents a and b, and others besides. */
const OTHER_TOPIC = ['abp', 'aqr', 'abs', 'apq'];

const isPrefill = ({ body }: ReceivedRequest) => (JSON.parse(body) as { max_tokens?: number }).max_tokens === 1;
const prefills = ({ received }: FakeEngine) => received.filter(isPrefill);
const enabled = { prewarm: { tokensPerMinute: 20_000 } } satisfies StandConfig;

async function serve(both: Stand, names: readonly string[], headers: Record<string, string> = {}): Promise<void> {
  for (const [place, each] of names.entries()) {
    const { status } = await send(both.gateway.url + CHAT, asked(each), { headers });
    expect(status).toBe(200);
    await untilNothing(both, place + 1);
  }
}

describe('prefill ahead', () => {
  it('is off by default', async () => {
    const both = await stand();
    for (const each of TOPIC) await send(both.gateway.url + CHAT, asked(each));
    expect(both.engine.received).toHaveLength(TOPIC.length);
    expect(await metric(both, 'prewarm_tokens_total')).toBe(0);
  });

  it('asks for one token behind likely documents, as the same prompt would be written', async () => {
    const both = await stand(undefined, enabled);
    await serve(both, TOPIC, { authorization: 'Bearer own' });
    const ahead = prefills(both.engine);
    expect(ahead.length).toBeGreaterThan(0);
    for (const { path, headers, body } of ahead) {
      expect(path).toBe(CHAT);
      expect(headers.authorization).toBe('Bearer own');
      const { messages, ...fields } = JSON.parse(body) as { messages: { role: string; content: string }[] };
      expect(fields).toEqual({ model: 'm', max_tokens: 1 });
      expect(messages[0]).toEqual({ role: 'system', content: 'Answer from the documents.' });
      expect(messages[1]!.role).toBe('user');
      expect(messages[1]!.content).not.toContain('What is the weight');
    }
    expect(await metric(both, 'prewarms_total{outcome="done"}')).toBe(ahead.length);
    expect(await metric(both, 'prewarm_tokens_total')).toBeGreaterThan(0);
    // A request for what was prefilled starts with the very same text.
    const [first] = ahead;
    const labels = labelsIn(first!.body);
    await send(both.gateway.url + CHAT, asked(labels.join('')));
    const contentOf = ({ body }: ReceivedRequest) =>
      (JSON.parse(body) as { messages: { content: string }[] }).messages[1]!.content;
    const { received } = both.engine;
    const real = received.findLast((each) => !isPrefill(each))!;
    expect(contentOf(real).startsWith(contentOf(first!))).toBe(true);
  });

  it('counts what was prefilled as cached from then on', async () => {
    const predicted = async (config: StandConfig) => {
      const both = await stand(undefined, config);
      for (const [place, each] of TOPIC.entries()) {
        await send(both.gateway.url + CHAT, asked(each));
        if (config.prewarm !== undefined) await untilNothing(both, place + 1);
      }
      const ahead = prefills(both.engine).map(({ body }) => labelsIn(body).join(''));
      return { both, ahead };
    };
    const { both, ahead } = await predicted(enabled);
    const { both: plain } = await predicted({});
    const longest = ahead.toSorted((one, other) => other.length - one.length)[0]!;
    const cachedOf = async ({ gateway }: Stand) => {
      const { headers } = await send(gateway.url + CHAT, asked(longest));
      return Number(told({ headers }).predicted);
    };
    expect(await cachedOf(both)).toBeGreaterThan(await cachedOf(plain));
  });

  it('gives way at once to a request', async () => {
    const held: ServerResponse[] = [];
    const both = await stand((response, request) => {
      if (isPrefill(request)) held.push(response);
      else answerJson(response);
    }, enabled);
    for (const each of TOPIC) await send(both.gateway.url + CHAT, asked(each));
    while (held.length === 0) await both.engine.until('request', both.engine.received.length + 1);
    const reply = send(both.gateway.url + CHAT, asked('xyz'));
    await both.engine.until('abort', 1);
    expect((await reply).status).toBe(200);
    expect(await metric(both, 'prewarms_total{outcome="aborted"}')).toBeGreaterThan(0);
    expect(await metric(both, 'client_aborts_total')).toBe(0);
  });

  it('spends no more than its budget', async () => {
    const both = await stand(undefined, { prewarm: { tokensPerMinute: 1 } });
    await serve(both, TOPIC);
    expect(prefills(both.engine)).toEqual([]);
    const rich = await stand(undefined, enabled);
    await serve(rich, TOPIC);
    const all = prefills(rich.engine).length;
    // One document has some hundred tokens.
    const poor = await stand(undefined, { prewarm: { tokensPerMinute: 150 } });
    await serve(poor, TOPIC);
    expect(prefills(poor.engine).length).toBeGreaterThan(0);
    expect(prefills(poor.engine).length).toBeLessThan(all);
  });

  it('plans for the tenant who was served last, by what that tenant asked for', async () => {
    const both = await stand(undefined, enabled);
    await serve(both, TOPIC, { authorization: 'Bearer one' });
    const before = prefills(both.engine).length;
    for (const [place, each] of OTHER_TOPIC.entries()) {
      await send(both.gateway.url + CHAT, asked(each), { headers: { authorization: 'Bearer two' } });
      await untilNothing(both, TOPIC.length + place + 1);
    }
    const later = prefills(both.engine).slice(before);
    expect([before, later.length].every((count) => count > 0)).toBe(true);
    for (const { headers, body } of later) {
      expect(headers.authorization).toBe('Bearer two');
      expect(labelsIn(body).join('')).toMatch(/^[abp-s]+$/);
    }
  });

  it('gives up where the engine refuses, until the next request', async () => {
    const both = await stand((response, request) => {
      if (isPrefill(request)) response.writeHead(500).end();
      else answerJson(response);
    }, enabled);
    for (const each of TOPIC) await send(both.gateway.url + CHAT, asked(each));
    while ((await metric(both, 'prewarms_total{outcome="failed"}')) < 1);
    expect((await send(both.gateway.url + CHAT, asked('abc'))).status).toBe(200);
  });

  it('writes completions as completions', async () => {
    const both = await stand(undefined, enabled);
    for (const [place, names] of TOPIC.entries()) {
      const documents = [...names].map(document);
      await send(`${both.gateway.url}/v1/completions`, { model: 'm', prompt: 'Question?', documents, stream: false });
      await untilNothing(both, place + 1);
    }
    const [first] = prefills(both.engine);
    expect(first!.path).toBe('/v1/completions');
    const { prompt, ...fields } = JSON.parse(first!.body) as { prompt: string };
    expect(fields).toEqual({ model: 'm', max_tokens: 1 });
    expect(prompt).not.toContain('Question');
    expect(labelsIn(prompt).length).toBeGreaterThan(0);
  });
});

test.runIf(isFull)('keeps no history alive that had to go', async () => {
  const { prewarm } = resolveConfig({ upstream: { url: 'http://engine' }, ...enabled });
  const histories = new ServedHistories(1_000_000);
  const parts = { upstream: { watch: () => {} }, now: () => 0 } as unknown as PrewarmerParts;
  const prewarmer = new Prewarmer(prewarm, 10_000_000, parts);
  // Nothing is planned while the engine has something to do.
  prewarmer.busy();
  const kind = { name: 'engine', url: 'http://engine', dialect: dialectOf('generic'), kvResidency: undefined };
  const before = await heldBytes();
  for (let number = 0; number < 900; number++) {
    const state = histories.of({ number: 0, ...kind }, 't', `model ${number}`);
    prewarmer.served({
      state,
      served: { documents: [], preamble: undefined },
      bytes: 1_000,
    } as unknown as ServedPrompt);
  }
  expect(prewarmer.bytes).toBe(900_000);
  expect((await heldBytes()) - before).toBeLessThan(4 * (histories.bytes + prewarmer.bytes));
  prewarmer.close();
});
