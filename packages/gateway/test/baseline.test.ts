import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { estimateTokens } from '@warmpath/core';
import { describe, expect, it } from 'vitest';
import type { Report } from '../src/shapes/shapes.js';
import type { ReceivedRequest } from './fake-engine.js';
import { memoryOf, metricOf, type Stand, type StandConfig, send, stand, told } from './harness.js';

const CHAT = '/v1/chat/completions';
const SYSTEM = 'Answer from the documents, and say where it stands. '.repeat(12);
const VLLM: StandConfig = { upstream: { dialect: 'vllm' }, arrange: { hints: false } };

function passage(number: number) {
  return {
    id: `p${number}`,
    content: `Passage ${number} tells of the harbour and of its ${number} ships. `.repeat(12),
  };
}

function asked(ranks: readonly number[], fields: object = {}) {
  return {
    model: 'm',
    messages: [
      { role: 'system', content: SYSTEM },
      { role: 'user', content: `What of ${ranks.join(' and ')}?` },
    ],
    documents: ranks.map(passage),
    ...fields,
  };
}

/** Counts prompts by their length, and says that so much of them was cached. */
function counting(cachedTokens: number | undefined) {
  return (response: ServerResponse, { body }: ReceivedRequest): void => {
    const { messages } = JSON.parse(body) as { readonly messages: readonly { readonly content: string }[] };
    const promptTokens = messages.reduce((sum, { content }) => sum + estimateTokens(content) + 5, 0);
    const details = cachedTokens === undefined ? null : { cached_tokens: cachedTokens };
    const answer = JSON.stringify({
      choices: [{ index: 0, message: { role: 'assistant', content: 'Ships.' }, finish_reason: 'stop' }],
      usage: { prompt_tokens: promptTokens, completion_tokens: 3, prompt_tokens_details: details },
    });
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(answer) });
    response.end(answer);
  };
}

async function standing(config: StandConfig, cachedTokens?: number) {
  const reports: Report[] = [];
  const found = await stand(counting(cachedTokens), config, {
    onRequest: (report) => {
      if (report.tenant !== undefined) reports.push(report);
    },
  });
  return { ...found, reports, ask: asking(found, reports) };
}

function asking({ gateway }: Pick<Stand, 'gateway'>, reports: Report[]) {
  return async (body: object, headers: Record<string, string> = {}) => {
    const before = reports.length;
    const reply = await send(gateway.url + CHAT, body, { headers });
    expect(reply.status, reply.text).toBe(200);
    while (reports.length === before) await new Promise((resolve) => setImmediate(resolve));
    return { reply, report: reports.at(-1)! };
  };
}

describe('the baseline of a prompt', () => {
  it('is what its documents in retrieval order share with earlier prompts in retrieval order', async () => {
    const { ask } = await standing(VLLM, 400);
    const first = await ask(asked([1, 2, 3]));
    expect(first.report.baselineTokens).toBe(0);
    // As before, up to the question.
    const same = await ask(asked([1, 2, 3, 4]));
    const shared = same.report.baselineTokens!;
    expect(shared % 16).toBe(0);
    expect(shared).toBeGreaterThan(0.6 * first.report.promptTokens!);
    // The order is changed, so that the engine has all of it; in retrieval order it would have had the instructions.
    const other = await ask(asked([2, 1, 3]));
    expect(other.report.documentsMoved).toBeGreaterThan(0);
    expect(other.report.baselineTokens).toBeGreaterThan(0);
    expect(other.report.baselineTokens).toBeLessThan(0.3 * other.report.promptTokens!);
    expect(other.report).toMatchObject({
      cachedTokens: 400,
      gainTokens: 400 - other.report.baselineTokens!,
      isUnchanged: false,
      noGain: undefined,
    });
    expect(Number(told(other.reply).baseline)).toBeGreaterThan(0);
  });

  it('is told at /v1/requests and /metrics, as tokens', async () => {
    const { ask, gateway } = await standing(VLLM, 400);
    await ask(asked([1, 2, 3]));
    const { report } = await ask(asked([3, 2, 1]));
    const { requestId, baselineTokens, gainTokens, promptTokens } = report;
    const record = JSON.parse((await send(`${gateway.url}/v1/requests/${requestId}`)).text) as object;
    expect(record).toMatchObject({ baselineTokens, gainTokens, noGain: null });
    const changed = (name: string) => metricOf(gateway, `warmpath_${name}{changed="true",group="rest"}`);
    expect(await changed('measured_prompt_tokens_total')).toBe(promptTokens);
    expect(await changed('measured_cached_tokens_total')).toBe(400);
    expect(await changed('baseline_tokens_total')).toBe(baselineTokens);
  });

  it('of two prompts at once does not count the other before the engine has computed it', async () => {
    const reports: Report[] = [];
    const { engine, gateway } = await stand(counting(0), VLLM, { onRequest: (report) => reports.push(report) });
    const answer = engine.answer;
    const held: (() => void)[] = [];
    engine.answer = (response, request) => held.push(() => answer(response, request));
    const both = [1, 2].map(() => send(gateway.url + CHAT, asked([1, 2, 3])));
    await engine.until('request', 2);
    for (const go of held) go();
    await Promise.all(both);
    engine.answer = answer;
    await send(gateway.url + CHAT, asked([1, 2, 3]));
    while (reports.length < 3) await once(engine.events, 'request');
    expect(reports.map(({ baselineTokens }) => baselineTokens! > 0)).toEqual([false, false, true]);
  });

  it('counts a failed prompt as not computed', async () => {
    const { ask, engine, gateway } = await standing(VLLM, 0);
    const answer = engine.answer;
    engine.answer = (response) => response.writeHead(500).end();
    expect((await send(gateway.url + CHAT, asked([1, 2, 3]))).status).toBe(500);
    engine.answer = answer;
    expect((await ask(asked([1, 2, 3]))).report.baselineTokens).toBe(0);
  });

  it('is apart for tenants that share nothing in the engine', async () => {
    const keys = ['one', 'two'].map((name) => ({ name, key: `the-key-of-tenant-${name}` }));
    const server = { keys };
    const salted = {
      ...VLLM,
      server,
      upstream: { dialect: 'vllm', cacheSaltKey: 'a-secret-of-many-letters' },
    } as const;
    for (const [config, isShared] of [
      [salted, false],
      [{ ...VLLM, server }, true],
    ] as const) {
      const { ask } = await standing(config as StandConfig, 0);
      await ask(asked([1, 2, 3]), { authorization: `Bearer ${keys[0]!.key}` });
      const other = await ask(asked([1, 2, 3]), { authorization: `Bearer ${keys[1]!.key}` });
      expect(other.report.baselineTokens! > 0).toBe(isShared);
      const own = await ask(asked([1, 2, 3]), { authorization: `Bearer ${keys[0]!.key}` });
      expect(own.report.baselineTokens).toBeGreaterThan(0);
    }
  });

  it('is 0 below the least that a hosted API caches, and where it caches up to marks that the client did not set', async () => {
    const short = await standing({ upstream: { dialect: 'openai' } }, 0);
    await short.ask({ model: 'm', messages: [{ role: 'user', content: 'Hello there, how is it? '.repeat(20) }] });
    const again = { model: 'm', messages: [{ role: 'user', content: 'Hello there, how is it? '.repeat(20) }] };
    expect((await short.ask(again)).report.baselineTokens).toBe(0);
    const marked = await stand(undefined, { upstream: { dialect: 'anthropic' } }, { apiRoute: 'native' });
    marked.engine.answer = (response) => {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ usage: { input_tokens: 3_000, output_tokens: 3 }, content: [] }));
    };
    const baselines: (number | undefined)[] = [];
    for (const mark of [{}, {}, { cache_control: { type: 'ephemeral' } }, { cache_control: { type: 'ephemeral' } }]) {
      const system = [{ type: 'text', text: SYSTEM.repeat(12), ...mark }];
      const body = { model: 'claude', max_tokens: 9, system, messages: [{ role: 'user', content: 'Hello?' }] };
      const { headers } = await send(`${marked.gateway.url}/v1/messages`, body);
      const record = await send(`${marked.gateway.url}/v1/requests/${headers['x-request-id']}`);
      baselines.push((JSON.parse(record.text) as { baselineTokens: number }).baselineTokens);
    }
    expect(baselines.map((tokens) => tokens! > 0)).toEqual([false, false, false, true]);
  });

  it('of a conversation counts earlier turns as they would have been in retrieval order', async () => {
    const { ask } = await standing(VLLM, 1_000);
    await ask(asked([1, 2, 3]));
    const messages: object[] = [
      { role: 'system', content: SYSTEM },
      { role: 'user', content: 'What of the harbour?' },
    ];
    const warmpath = { session: 'one' };
    const first = await ask({ model: 'm', messages, documents: [3, 1, 2].map(passage), warmpath });
    expect(first.report.documentsMoved).toBeGreaterThan(0);
    messages.push({ role: 'assistant', content: 'Ships.' }, { role: 'user', content: 'And then?' });
    const second = await ask({ model: 'm', messages, documents: [4, 5].map(passage), warmpath });
    // All of the first turn would have been cached.
    expect(second.report.baselineTokens).toBeGreaterThan(first.report.promptTokens! - 64);
    expect(second.report.baselineTokens).toBeLessThan(first.report.promptTokens! + 64);
  });

  it('is of a cache that forgets what was used least recently, as long as its share of the memory lasts', async () => {
    const { ask, gateway } = await standing({ ...VLLM, limits: { memoryBytes: 16_777_216 } }, 0);
    await ask(asked([1]));
    for (let i = 0; i < 60; i++) {
      const text = Array.from({ length: 2_000 }, (_, word) => `word${(i * 7_919 + word * word) % 100_003}`).join(' ');
      await ask({ model: 'm', messages: [{ role: 'user', content: text }] });
    }
    expect((await memoryOf(gateway))['baselines']).toBeLessThanOrEqual((2 / 64) * 16_777_216);
    expect((await ask(asked([1]))).report.baselineTokens).toBe(0);
  });

  it('is of a cache as large as the engine says, in blocks of its size', async () => {
    const reports: Report[] = [];
    const { engine, gateway } = await stand(
      undefined,
      { arrange: { policy: 'retrieval' } },
      {
        onRequest: (report) => reports.push(report),
        onEngine: () => {},
      },
    );
    const count = counting(0);
    engine.answer = (response, request) => {
      if (request.method === 'POST') return count(response, request);
      response.writeHead(200, { 'content-type': 'application/json' });
      if (request.path === '/v1/models') response.end('{"data":[{"id":"m","owned_by":"vllm"}]}');
      else response.end('vllm:cache_config_info{block_size="32",engine="0",num_gpu_blocks="48"} 1.0\n');
    };
    await engine.until('request', 1);
    while (!engine.received.some(({ path }) => path === '/metrics')) await once(engine.events, 'request');
    const baselineOf = async (ranks: readonly number[]) => {
      const before = reports.length;
      await send(gateway.url + CHAT, asked(ranks));
      while (reports.length === before) await new Promise((resolve) => setImmediate(resolve));
      return reports.at(-1)!.baselineTokens!;
    };
    await baselineOf([1, 2, 3]);
    const again = await baselineOf([1, 2, 3]);
    expect(again % 32).toBe(0);
    expect(again).toBeGreaterThan(300);
    // 1,536 tokens have room for two such prompts.
    for (const first of [4, 7, 10]) await baselineOf([first, first + 1, first + 2]);
    expect(await baselineOf([1, 2, 3])).toBeLessThan(0.5 * again);
  });

  it('is not told where the engine counts nothing, and says so', async () => {
    const { ask } = await standing({ upstream: { dialect: 'generic' } });
    const { report } = await ask(asked([1, 2, 3]));
    expect(report).toMatchObject({ cachedTokens: undefined, gainTokens: undefined, noGain: 'not-counted' });
  });
});

describe('why nothing was gained', () => {
  const cases: readonly [reason: string, body: object][] = [
    ['no-documents', { ...asked([1]), documents: undefined }],
    ['few-documents', asked([1])],
    ['no-better-order', asked([1, 2, 3])],
    ['bypass', asked([1, 2, 3], { warmpath: { bypass: true } })],
  ];

  it.each(cases)('%s', async (reason, body) => {
    const { ask, gateway } = await standing(VLLM, 0);
    expect((await ask(body)).report.noGain).toBe(reason);
    expect(await metricOf(gateway, `warmpath_no_gain_total{reason="${reason}"}`)).toBe(1);
  });

  it('no-better-order: retrieval order is the best', async () => {
    const { ask } = await standing(VLLM, 500);
    await ask(asked([1, 2, 3]));
    expect((await ask(asked([1, 2, 3]))).report.noGain).toBe('no-better-order');
  });
});

describe('a prompt that brings no documents', () => {
  it('has the counts of the engine as well', async () => {
    const { ask, gateway } = await standing(VLLM, 32);
    const plain = { model: 'm', messages: [{ role: 'user', content: SYSTEM }] };
    expect((await ask(plain)).report).toMatchObject({ cachedTokens: 32, baselineTokens: 0, gainTokens: 0 });
    expect((await ask(plain)).report.baselineTokens).toBeGreaterThan(64);
    expect(await metricOf(gateway, 'warmpath_cached_tokens_total')).toBe(64);
    expect(await metricOf(gateway, 'warmpath_measured_cached_tokens_total{changed="false",group="rest"}')).toBe(64);
  });
});

describe('what keeps the beginning of a prompt the same', () => {
  const TOOLS = ['read', 'write'].map((name) => ({ name, description: `Use it to ${name}. `.repeat(60) }));
  const functions = TOOLS.map((tool) => ({ type: 'function', function: { ...tool, parameters: {} } }));
  const schemas = TOOLS.map((tool) => ({ ...tool, input_schema: {} }));
  const billed = (values: string) => `x-anthropic-billing-header: ${values};`;
  const asking = (system: unknown, fields: object = {}) => ({
    model: 'm',
    max_tokens: 9,
    messages: [
      ...(typeof system === 'string' ? [{ role: 'system', content: system }] : []),
      { role: 'user', content: 'And?' },
    ],
    ...(typeof system !== 'string' && { system }),
    ...fields,
  });
  const part = (text: string, fields: object = {}) => ({ type: 'text', text, ...fields });
  const mark = { cache_control: { type: 'ephemeral' } };
  const long = SYSTEM.repeat(4);

  it.each<[string, string, 'native' | 'translate', readonly [object, object], boolean]>([
    [
      'a billing line',
      CHAT,
      'native',
      [asking(`${billed('a=1')}\n${long}`), asking(`${billed('a=2')}\n${long}`)],
      true,
    ],
    [
      'other tools first',
      CHAT,
      'native',
      [asking('S', { tools: functions }), asking('S', { tools: [...functions].reverse() })],
      true,
    ],
    ['marks that move', CHAT, 'native', [asking(long, mark), asking(long)], false],
    [
      'a billing line of Messages',
      '/v1/messages',
      'translate',
      [asking([part(billed('a=1')), part(long, mark)]), asking([part(billed('a=2')), part(long)])],
      true,
    ],
    [
      'other tools first in Messages',
      '/v1/messages',
      'translate',
      [asking([part('S')], { tools: schemas }), asking([part('S')], { tools: [...schemas].reverse() })],
      true,
    ],
  ])('counts as gain: %s', async (_, path, apiRoute, [first, second], isGain) => {
    const reports: Report[] = [];
    const usage = { prompt_tokens: 600, completion_tokens: 3, prompt_tokens_details: { cached_tokens: 560 } };
    const answer = {
      choices: [{ index: 0, message: { role: 'assistant', content: 'Yes.' }, finish_reason: 'stop' }],
      usage,
    };
    const found = await stand(
      (response) => {
        response.writeHead(200, { 'content-type': 'application/json' });
        response.end(JSON.stringify(answer));
      },
      VLLM,
      { onRequest: (report) => void (report.tenant !== undefined && reports.push(report)), apiRoute },
    );
    for (const body of [first, first, second, second]) {
      const before = reports.length;
      const reply = await send(found.gateway.url + path, body);
      expect(reply.status, reply.text).toBe(200);
      while (reports.length === before) await new Promise((resolve) => setImmediate(resolve));
    }
    const [, again, changed, same] = reports;
    const all = found.engine.received.map(({ body }) => body);
    if (isGain) expect(all[2]).toBe(all[1]);
    expect(changed!.isUnchanged).toBe(!isGain);
    expect(changed!.gainTokens! > 300).toBe(isGain);
    // A client that sends the same again has it cached without the gateway as well.
    for (const report of [again!, same!]) expect(Math.abs(report.gainTokens!)).toBeLessThanOrEqual(48);
  });
});

describe('the group that is left as it is', () => {
  const HALF: StandConfig = { ...VLLM, holdout: 0.5 };

  it('has about its share of conversations, and all turns of each, in every gateway', async () => {
    const one = await standing(HALF, 0);
    const other = await standing(HALF, 0);
    const held: boolean[] = [];
    for (let i = 0; i < 40; i++) {
      const first = { role: 'user', content: `Question ${i} of many?` };
      const system = { role: 'system', content: SYSTEM };
      const { report } = await one.ask({ model: 'm', messages: [system, first] });
      const later = [system, first, { role: 'assistant', content: 'Yes.' }, { role: 'user', content: 'Why?' }];
      for (const { ask } of [one, other])
        expect((await ask({ model: 'm', messages: later })).report.isHeldOut).toBe(report.isHeldOut);
      const named = { model: 'm', messages: [system, first], warmpath: { session: `s${i}` } };
      const { report: turn } = await one.ask(named);
      expect((await one.ask({ ...named, messages: later })).report.isHeldOut).toBe(turn.isHeldOut);
      held.push(report.isHeldOut, turn.isHeldOut);
    }
    const count = held.filter(Boolean).length;
    expect(count).toBeGreaterThan(20);
    expect(count).toBeLessThan(60);
  });

  it('keeps its documents in retrieval order, without hints, and in the text as they are', async () => {
    const { ask, engine, gateway } = await standing({ ...HALF, arrange: { hints: true } }, 300);
    const orders = new Map<boolean, Set<string>>([
      [true, new Set()],
      [false, new Set()],
    ]);
    await ask(asked([1, 2, 3]));
    for (let i = 0; i < 20; i++) {
      const body = asked([3, 2, 1], { messages: [{ role: 'user', content: `Question ${i}?` }] });
      const { report } = await ask(body);
      const order = [...engine.last.body.matchAll(/id=\\"(p\d)\\"/g)].map(([, id]) => id).join();
      orders.get(report.isHeldOut)!.add(order);
      if (!report.isHeldOut) continue;
      expect(report).toMatchObject({ gainTokens: 0, noGain: 'holdout', isUnchanged: true, documentsMoved: 0 });
    }
    expect([...orders.get(true)!]).toEqual(['p3,p2,p1']);
    expect(orders.get(false)!.size).toBeGreaterThan(0);
    expect(
      await metricOf(gateway, 'warmpath_measured_cached_tokens_total{changed="false",group="holdout"}'),
    ).toBeGreaterThan(0);
  });

  it('is empty where it is not configured', async () => {
    const { ask } = await standing(VLLM, 0);
    for (let i = 0; i < 20; i++) {
      const { report } = await ask({ model: 'm', messages: [{ role: 'user', content: `Question ${i}?` }] });
      expect(report.isHeldOut).toBe(false);
    }
  });
});
