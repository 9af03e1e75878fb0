import { type EngineProcess, spawnEngine } from '@warmpath/engine';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isFull } from '../../../test/suite.js';
import { modelPath } from '../../engine/bench/random-model/src/model-path.js';
import type { Report } from '../src/shapes/shapes.js';
import { closing, gatewayAt, send } from './harness.js';

const CHAT = '/v1/chat/completions';

/** Random weights: the text is noise; tokens and caching are real. */
let engine: EngineProcess;

beforeAll(async () => {
  engine = await spawnEngine({ port: 0, model: await modelPath('random:1m'), threads: 1 });
});

afterAll(async () => {
  await engine.stop();
});

const TOPICS = ['granite', 'harbour', 'orchard', 'lighthouse', 'quarry'];

function passage(topic: string, number: number) {
  const sentence = `Passage ${number} tells how the ${topic} was found, and what it was worth in year ${18 * number}.`;
  return {
    id: `${topic}-${number}`,
    content: Array(3 + (number % 4))
      .fill(sentence)
      .join(' '),
  };
}

/** Numbers that look random and are the same in each run. */
function* numbers(seed: number): Generator<number> {
  for (let state = seed; ; ) {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    yield state >>> 8;
  }
}

/** Contexts of four documents of ten, in an order of their own. */
function contexts(count: number, seed: number) {
  const random = numbers(seed);
  const next = (below: number) => random.next().value! % below;
  return Array.from({ length: count }, () => {
    const topic = TOPICS[next(2)]!;
    const chosen = new Set<number>();
    while (chosen.size < 4) chosen.add(next(next(2) + 5));
    return [...chosen].map((number) => passage(topic, number));
  });
}

/** Sends requests one after the other and sums what was reported. */
async function served(bodies: readonly object[], config: Parameters<typeof gatewayAt>[1] = {}) {
  const reports: Report[] = [];
  const gateway = closing(
    await gatewayAt(
      engine.url,
      { ...config, upstream: { dialect: 'embedded' } },
      { onRequest: (report) => reports.push(report) },
    ),
  );
  for (const body of bodies) {
    const reply = await send(gateway.url + CHAT, { max_tokens: 4, ...body });
    expect(reply.status, reply.text).toBe(200);
  }
  while (reports.length < bodies.length) await new Promise((resolve) => setImmediate(resolve));
  const sum = (count: (report: Report) => number | undefined) =>
    reports.reduce((total, report) => total + (count(report) ?? Number.NaN), 0);
  const totals = {
    prompt: sum(({ promptTokens }) => promptTokens),
    cached: sum(({ cachedTokens }) => cachedTokens),
    baseline: sum(({ baselineTokens }) => baselineTokens),
    gain: sum(({ gainTokens }) => gainTokens),
  };
  return totals;
}

describe('the baseline, with the embedded engine', () => {
  it.runIf(isFull)('agrees with the reported count where documents stay in retrieval order', async () => {
    const system = 'Retrieval order: answer from the documents.';
    const bodies = contexts(60, 7).map((documents, place) => ({
      messages: [
        { role: 'system', content: system },
        { role: 'user', content: `What was found in case ${place}?` },
      ],
      documents,
    }));
    const config = { arrange: { policy: 'retrieval', hints: false } } as const;
    const { prompt, cached, baseline, gain } = await served(bodies, config);
    expect(cached).toBeGreaterThan(0.1 * prompt);
    expect(Math.abs(baseline - cached)).toBeLessThan(0.02 * prompt);
    expect(gain).toBe(0);
  });

  it.runIf(isFull)('agrees with it for prompts with documents in the text that the client asks to leave', async () => {
    const system = 'Text: answer from the passages.';
    const bodies = contexts(60, 11).map((documents, place) => ({
      messages: [
        { role: 'system', content: system },
        { role: 'user', content: `${documents.map(({ content }) => content).join('\n\n')}\n\nCase ${place}?` },
      ],
      warmpath: { bypass: true },
    }));
    const { prompt, cached, baseline } = await served(bodies);
    expect(cached).toBeGreaterThan(0.1 * prompt);
    expect(Math.abs(baseline - cached)).toBeLessThan(0.02 * prompt);
  });

  it('agrees with it for conversations, with answers of the engine in them, in several alphabets', async () => {
    const reports: Report[] = [];
    const gateway = closing(
      await gatewayAt(
        engine.url,
        { upstream: { dialect: 'embedded' } },
        { onRequest: (report) => reports.push(report) },
      ),
    );
    const questions = ['What is this about?', 'Was war der Grund dafür?', '为什么会这样？', 'И что было потом?'];
    for (const [place, topic] of TOPICS.entries()) {
      // Some clients write other alphabets as escapes.
      const messages: object[] = [{ role: 'system', content: `Conversation ${place} about the ${topic}.` }];
      for (const question of questions) {
        messages.push({ role: 'user', content: `${question} ${passage(topic, 1).content}` });
        const body = JSON.stringify({ messages, max_tokens: 4 }).replace(/[\u0080-\uffff]/g, (character) => {
          return place % 2 === 0 ? character : `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
        });
        const { text } = await send(gateway.url + CHAT, body);
        messages.push((JSON.parse(text) as { choices: { message: object }[] }).choices[0]!.message);
      }
    }
    while (reports.length < TOPICS.length * questions.length) await new Promise((resolve) => setImmediate(resolve));
    const sum = (key: 'promptTokens' | 'cachedTokens' | 'baselineTokens') =>
      reports.reduce((total, report) => total + report[key]!, 0);
    expect(sum('cachedTokens')).toBeGreaterThan(0.3 * sum('promptTokens'));
    expect(Math.abs(sum('baselineTokens') - sum('cachedTokens'))).toBeLessThan(0.02 * sum('promptTokens'));
  });

  it('stays what it was where documents are arranged, and the gain is what is above it', async () => {
    const run = (policy: 'retrieval' | 'exact') => {
      const system = `Policy ${policy.padEnd(9, '.')}: answer from the documents.`;
      const bodies = contexts(60, 13).map((documents, place) => ({
        messages: [
          { role: 'system', content: system },
          { role: 'user', content: `What was found in case ${place}?` },
        ],
        documents,
      }));
      return served(bodies, { arrange: { policy, hints: false } });
    };
    const retrieval = await run('retrieval');
    const arranged = await run('exact');
    expect(Math.abs(arranged.baseline - retrieval.cached)).toBeLessThan(0.02 * retrieval.prompt);
    expect(arranged.gain).toBeGreaterThan(0.1 * arranged.prompt);
    expect(Math.abs(arranged.gain - (arranged.cached - retrieval.cached))).toBeLessThan(0.02 * arranged.prompt);
  });
});
