import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type EngineProcess, spawnEngine } from '@warmpath/engine';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { modelPath } from '../../../engine/bench/random-model/src/model-path.js';
import { closing, gatewayAt, send } from '../harness.js';

const BLOCK = 16;

describe('residency by the events of a real engine', { timeout: 120_000 }, () => {
  let folder: string;
  let engine: EngineProcess;

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'warmpath-'));
  });
  afterEach(async () => {
    await engine.stop();
    await rm(folder, { recursive: true });
  });

  const start = async (options: object): Promise<void> => {
    engine = await spawnEngine({
      port: 0,
      model: await modelPath('random:1m'),
      threads: 1,
      kvEvents: `ipc://${folder}/live`,
      kvEventsReplay: `ipc://${folder}/replay`,
      ...options,
    });
  };

  const gateway = async (config: object = {}) => {
    const kvEvents = { endpoint: `ipc://${folder}/live`, replayEndpoint: `ipc://${folder}/replay` };
    return closing(
      await gatewayAt(engine.url, { upstream: { kvEvents, segments: true, ...config }, arrange: { policy: 'exact' } }),
    );
  };

  /** Until the gateway has heard all that the engine said, and knows the tokens of all prompts. */
  const settled = async (url: string): Promise<Map<string, number>> => {
    for (;;) {
      const sent = figures((await send(`${engine.url}/metrics`)).text);
      const heard = figures((await send(`${url}/metrics`)).text);
      const next = [...sent].find(([name]) => name.includes('next_sequence'))![1];
      const batches = heard.get('warmpath_kv_events_total{kind="batches"}') ?? 0;
      if (batches === next && heard.get('warmpath_kv_prompts_waiting') === 0) return heard;
    }
  };

  test('what is predicted is what the engine reports, to the block, while it evicts', async () => {
    await start({ contextTokens: 2_048, hostTier: 0 });
    const { url } = await gateway();
    // Nobody tells an engine that a subscriber has joined.
    let joined = await send(`${url}/v1/chat/completions`, chat([passage(99)]));
    while ((figures((await send(`${url}/metrics`)).text).get('warmpath_kv_events_exact') ?? 0) === 0) {
      joined = await send(`${url}/v1/chat/completions`, chat([passage(99)], String(Math.random())));
    }
    expect(joined.status).toBe(200);
    await settled(url);

    const errors: number[] = [];
    let evicted = 0;
    for (let round = 0; round < 60; round++) {
      const documents = Array.from({ length: 4 }, (_, rank) => passage((round * 5 + rank * rank * 3) % 14));
      const answer = await send(`${url}/v1/chat/completions`, chat(documents));
      const { usage } = JSON.parse(answer.text) as Usage;
      const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
      const predicted = Number(/predicted=(\d+)/.exec(String(answer.headers['x-warmpath']))?.[1] ?? 0);
      // The engine reuses single tokens, and tells of whole blocks.
      errors.push(Math.floor(cached / BLOCK) - predicted / BLOCK);
      const heard = await settled(url);
      evicted = heard.get('warmpath_kv_blocks')! < (BLOCK * round) / 2 ? evicted + 1 : evicted;
    }
    expect(Math.max(...errors)).toBeLessThanOrEqual(1);
    expect(Math.min(...errors)).toBeGreaterThanOrEqual(0);
    expect(evicted).toBeGreaterThan(20);
  });

  test('a tenant is told of its own blocks alone', async () => {
    await start({});
    const { url } = await gateway({ cacheSaltKey: 'a key of more than sixteen characters' });
    const headers = (key: string) => ({ headers: { authorization: `Bearer ${key}` } });
    const documents = [passage(1), passage(2), passage(3)];
    const ask = (key: string, question: string) =>
      send(`${url}/v1/chat/completions`, chat(documents, question), headers(key));
    for (
      let round = 0;
      (figures((await send(`${url}/metrics`)).text).get('warmpath_kv_events_exact') ?? 0) === 0;
      round++
    ) {
      await ask('first', `${round}`);
    }
    await settled(url);
    await ask('first', 'Is it known?');
    await settled(url);
    const predictions: number[] = [];
    for (const key of ['first', 'second', 'second']) {
      const { headers: answered } = await ask(key, `What does ${key} want?`);
      predictions.push(Number(/predicted=(\d+)/.exec(String(answered['x-warmpath']))?.[1] ?? 0));
      await settled(url);
    }
    expect(predictions[0]).toBeGreaterThan(100);
    expect(predictions[1]).toBe(0);
    expect(predictions[2]).toBe(predictions[0]);
  });
});

interface Usage {
  readonly usage: { readonly prompt_tokens_details?: { readonly cached_tokens: number } };
}

function passage(number: number) {
  const sentence = `Passage ${number} tells how ${number * 7} stones were laid in the year ${1_000 + number}.`;
  return {
    id: `passage-${number}`,
    content: Array(3 + (number % 3))
      .fill(sentence)
      .join(' '),
  };
}

function chat(documents: readonly object[], question = 'What was laid?') {
  return { messages: [{ role: 'user', content: question }], documents, max_tokens: 1 };
}

/** Samples of a Prometheus text, by name and labels. */
function figures(text: string): Map<string, number> {
  return new Map(
    text
      .split('\n')
      .filter((line) => line !== '' && !line.startsWith('#'))
      .map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ') + 1))]),
  );
}
