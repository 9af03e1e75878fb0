import type { ServerResponse } from 'node:http';
import { readTokenCounts } from '@warmpath/core/internal';
import { describe, expect, it } from 'vitest';
import type { GatewayConfigInput } from '../src/config/schema.js';
import type { Report } from '../src/shapes/shapes.js';
import { metricOf, type StandConfig, send, stand } from './harness.js';

const CHAT = '/v1/chat/completions';
const PRICES: NonNullable<GatewayConfigInput['prices']> = [
  { models: ['claude'], input: 3, cached: 0.3, cacheWrite: 3.75 },
  { input: 2, cached: 0.5 },
];
const SYSTEM = 'Answer from the documents, and say where it stands. '.repeat(12);

const passage = (rank: number) => ({
  id: `p${rank}`,
  content: `Passage ${rank} tells of the harbour and of its ${rank} ships. `.repeat(60),
});

function usageAnswer(usage: object) {
  return (response: ServerResponse): void => {
    const message = { role: 'assistant', content: 'Yes.' };
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ choices: [{ index: 0, message, finish_reason: 'stop' }], content: [], usage }));
  };
}

async function standing(config: StandConfig, usage: object, parts: object = {}) {
  const reports: Report[] = [];
  const onRequest = (report: Report) => void (report.tenant !== undefined && reports.push(report));
  const { gateway } = await stand(usageAnswer(usage), config, { onRequest, ...parts });
  const ask = async (path: string, body: object) => {
    const before = reports.length;
    const reply = await send(gateway.url + path, body);
    expect(reply.status, reply.text).toBe(200);
    while (reports.length === before) await new Promise((resolve) => setImmediate(resolve));
    return reports.at(-1)!;
  };
  return { gateway, ask };
}

const asked = (ranks: readonly number[]) => ({
  model: 'm',
  messages: [
    { role: 'system', content: SYSTEM },
    { role: 'user', content: `What of ${ranks.join(' and ')}?` },
  ],
  documents: ranks.map(passage),
});

describe('cache writes', () => {
  it('are read apart from cached tokens', () => {
    const anthropic = { input_tokens: 50, cache_read_input_tokens: 300, cache_creation_input_tokens: 200 };
    expect(readTokenCounts(anthropic)).toEqual({ promptTokens: 550, cachedTokens: 300, cacheWriteTokens: 200 });
    expect(readTokenCounts({ prompt_tokens: 550, prompt_tokens_details: { cached_tokens: 300 } })).toEqual({
      promptTokens: 550,
      cachedTokens: 300,
    });
  });

  it('that stay for an hour cost twice the input, in each form of the counts', async () => {
    const written = { ephemeral_5m_input_tokens: 50, ephemeral_1h_input_tokens: 150 };
    const usage = { input_tokens: 50, output_tokens: 1, cache_creation_input_tokens: 200, cache_creation: written };
    const config: StandConfig = { upstream: { dialect: 'anthropic' }, prices: PRICES };
    const { ask } = await standing(config, usage, { apiRoute: 'native' });
    const body = { model: 'claude', max_tokens: 9, messages: [{ role: 'user', content: 'Hello?' }] };
    const report = await ask('/v1/messages', body);
    expect(report.cost).toBeCloseTo((50 * 3 + 50 * 3.75 + 150 * 6) / 1e6, 12);
    const details = { cached_tokens: 0, cache_creation_tokens: 200, cache_creation_token_details: written };
    expect(readTokenCounts({ prompt_tokens: 250, prompt_tokens_details: details })).toMatchObject({
      cacheWriteTokens: 200,
      hourWriteTokens: 150,
    });
  });

  it('are counted and shown where no price is configured', async () => {
    const usage = { input_tokens: 50, output_tokens: 1, cache_creation_input_tokens: 200 };
    const { ask, gateway } = await standing({ upstream: { dialect: 'anthropic' } }, usage, { apiRoute: 'native' });
    const body = { model: 'claude', max_tokens: 9, messages: [{ role: 'user', content: 'Hello?' }] };
    const report = await ask('/v1/messages', body);
    expect(report).toMatchObject({ promptTokens: 250, cachedTokens: 0, cacheWriteTokens: 200, cost: undefined });
    expect(await metricOf(gateway, 'warmpath_cache_write_tokens_total')).toBe(200);
    const record = JSON.parse((await send(`${gateway.url}/v1/requests/${report.requestId}`)).text) as object;
    expect(record).toMatchObject({ cacheWriteTokens: 200, cost: null, baselineCost: null });
  });
});

describe('the gain in money', () => {
  it('is what the same prompt would have cost without the gateway, less what it cost', async () => {
    const usage = { prompt_tokens: 4_000, completion_tokens: 1, prompt_tokens_details: { cached_tokens: 3_000 } };
    const { ask, gateway } = await standing(
      { upstream: { dialect: 'vllm' }, prices: PRICES, arrange: { hints: false } },
      usage,
    );
    await ask(CHAT, asked([1, 2, 3]));
    const report = await ask(CHAT, asked([3, 1, 2]));
    const { baselineTokens, isUnchanged, requestId } = report;
    expect(isUnchanged).toBe(false);
    expect(report.cost).toBeCloseTo((1_000 * 2 + 3_000 * 0.5) / 1e6, 12);
    const without = ((4_000 - baselineTokens!) * 2 + baselineTokens! * 0.5) / 1e6;
    expect(report.baselineCost).toBeCloseTo(without, 12);
    expect(report.baselineCost).toBeGreaterThan(report.cost!);
    const labels = '{changed="true",group="rest"}';
    expect(await metricOf(gateway, `warmpath_prompt_cost_total${labels}`)).toBeCloseTo(report.cost!, 12);
    expect(await metricOf(gateway, `warmpath_baseline_cost_total${labels}`)).toBeCloseTo(without, 12);
    const record = JSON.parse((await send(`${gateway.url}/v1/requests/${requestId}`)).text) as object;
    expect(record).toMatchObject({ cost: report.cost, baselineCost: report.baselineCost });
  });

  it('is 0 for a prompt that went out as its client wrote it', async () => {
    const usage = { prompt_tokens: 400, completion_tokens: 1, prompt_tokens_details: { cached_tokens: 300 } };
    const { ask } = await standing({ upstream: { dialect: 'vllm' }, prices: PRICES }, usage);
    const report = await ask(CHAT, { model: 'm', messages: [{ role: 'user', content: SYSTEM }] });
    expect(report).toMatchObject({ isUnchanged: true, gainTokens: 0 });
    expect(report.baselineCost).toBe(report.cost);
  });

  it('counts what breakpoints of the gateway cost, and does not lend them to the baseline', async () => {
    const usage = { input_tokens: 100, output_tokens: 1, cache_creation_input_tokens: 3_900 };
    const config: StandConfig = { upstream: { dialect: 'anthropic' }, prices: PRICES };
    const { ask } = await standing(config, usage, { apiRoute: 'native' });
    const body = {
      ...asked([1, 2, 3]),
      model: 'claude',
      max_tokens: 9,
      messages: [{ role: 'user', content: 'What?' }],
    };
    await ask('/v1/messages', body);
    const report = await ask('/v1/messages', body);
    // The client set no mark: without the gateway nothing would be written, and nothing cached.
    expect(report).toMatchObject({ isUnchanged: false, baselineTokens: 0 });
    expect(report.baselineCost).toBeCloseTo((4_000 * 3) / 1e6, 12);
    expect(report.cost).toBeCloseTo((100 * 3 + 3_900 * 3.75) / 1e6, 12);
  });

  it('counts what marks of the client write without the gateway', async () => {
    const usage = { input_tokens: 100, output_tokens: 1, cache_creation_input_tokens: 3_900 };
    const config: StandConfig = { upstream: { dialect: 'anthropic' }, prices: PRICES };
    const { ask } = await standing(config, usage, { apiRoute: 'native' });
    const system = [{ type: 'text', text: SYSTEM.repeat(12), cache_control: { type: 'ephemeral' } }];
    const messages = [{ role: 'user', content: 'What of it?' }];
    const body = { ...asked([1, 2, 3]), model: 'claude', max_tokens: 9, system, messages };
    const first = await ask('/v1/messages', body);
    // Part of the prompt is written, at the price of writes; the rest is computed.
    expect(first.baselineTokens).toBe(0);
    expect(first.baselineCost).toBeGreaterThan((4_000 * 3) / 1e6);
    expect(first.baselineCost).toBeLessThan((4_000 * 3.75) / 1e6);
    const second = await ask('/v1/messages', body);
    expect(second.baselineTokens).toBeGreaterThan(0);
    expect(second.baselineCost).toBeLessThan((4_000 * 3) / 1e6);
  });

  it.each<readonly [string, NonNullable<GatewayConfigInput['prices']>]>([
    ['no price fits the model', [{ models: ['other'], input: 1, cached: 0.1 }]],
    ['none is configured', []],
  ])('is not told where %s', async (_, prices) => {
    const usage = { prompt_tokens: 400, completion_tokens: 1, prompt_tokens_details: { cached_tokens: 0 } };
    const { ask, gateway } = await standing({ upstream: { dialect: 'vllm' }, prices }, usage);
    expect(await ask(CHAT, asked([1, 2]))).toMatchObject({ cost: undefined, baselineCost: undefined });
    expect(await metricOf(gateway, 'warmpath_prompt_cost_total{changed="false",group="rest"}')).toBe(0);
  });
});
