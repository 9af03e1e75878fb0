import { mkdtemp, rm } from 'node:fs/promises';
import type { IncomingHttpHeaders } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type EngineOptions, type EngineProcess, spawnEngine } from '@warmpath/engine';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { freePort } from '../../../../test/free-port.js';
import { modelPath } from '../../../engine/bench/random-model/src/model-path.js';
import { closing, gatewayAt, send } from '../harness.js';

const BLOCK = 16;

describe('residency by the events of a real engine', () => {
  let folder: string;
  let engine: EngineProcess;

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'warmpath-'));
  });
  afterEach(async () => {
    await engine.stop();
    await rm(folder, { recursive: true });
  });

  const start = async (options: EngineOptions): Promise<void> => {
    engine = await spawnEngine({
      port: 0,
      model: await modelPath('random:1m'),
      threads: 1,
      kvEvents: `ipc://${folder}/live`,
      kvEventsReplay: `ipc://${folder}/replay`,
      ...options,
    });
  };

  const gateway = async (upstream: object = {}): Promise<string> => {
    const kvEvents = { endpoint: `ipc://${folder}/live`, replayEndpoint: `ipc://${folder}/replay` };
    const config = {
      upstream: { kvEvents, dialect: 'embedded', ...upstream } as const,
      arrange: { policy: 'exact' as const },
    };
    return closing(await gatewayAt(engine.url, config)).url;
  };

  const sample = async (url: string, name: string): Promise<number> => {
    const { text } = await send(`${url}/metrics`);
    const line = text.split('\n').find((each) => each.startsWith(name));
    if (line === undefined) throw new Error(`no sample of ${name}`);
    return Number(line.slice(line.lastIndexOf(' ') + 1));
  };

  /** Until the gateway has received all that the engine sent, and knows the tokens of all prompts. */
  const settled = async (url: string): Promise<void> => {
    // Events leave after the answer, between two turns of the engine, where it also looks for what nobody has stored.
    expect((await send(`${engine.url}/kv/flush`, { cache_salt: 'nobody' })).status).toBe(200);
    for (;;) {
      const next = await sample(engine.url, 'warmpath_engine_kv_event_next_sequence');
      const heard = await sample(url, 'warmpath_kv_next_sequence');
      if (heard === next && (await sample(url, 'warmpath_kv_prompts_waiting')) === 0) return;
    }
  };

  /** Asks for something new until events are heard: nobody tells an engine that a subscriber has joined. */
  const untilHeard = async (url: string): Promise<void> => {
    for (let round = 0; (await sample(url, 'warmpath_kv_events_exact')) === 0; round++) {
      await ask(url, [passage(99)], { question: `Question ${round}?` });
    }
    await settled(url);
  };

  test('what is predicted is what the engine reports, within a block, while it evicts', async () => {
    await start({ contextTokens: 2_048, hostTier: 0 });
    const url = await gateway();
    await untilHeard(url);
    const errors: number[] = [];
    let evicting = 0;
    let reused = 0;
    for (let round = 0; round < 60; round++) {
      const documents = Array.from({ length: 4 }, (_, rank) => passage((round * 5 + rank * rank * 3) % 14));
      const { cached, predicted } = await ask(url, documents);
      errors.push(cached - predicted);
      reused += cached;
      await settled(url);
      if ((await sample(url, 'warmpath_kv_blocks')) < (BLOCK * round) / 2) evicting++;
    }
    // It tells of whole blocks and reuses single tokens: what the next document begins with alike comes on top.
    expect(Math.max(...errors)).toBeLessThanOrEqual(BLOCK);
    expect(Math.min(...errors)).toBeGreaterThanOrEqual(-BLOCK);
    expect(reused).toBeGreaterThan(60 * BLOCK);
    expect(evicting).toBeGreaterThan(20);
  });

  test('a tenant is told of its own blocks alone', async () => {
    await start({});
    const url = await gateway({ cacheSaltKey: 'a key of more than sixteen characters' });
    await untilHeard(url);
    const documents = [passage(1), passage(2), passage(3)];
    await ask(url, documents, { key: 'first' });
    await settled(url);
    const predictions: number[] = [];
    for (const key of ['first', 'second', 'second']) {
      predictions.push((await ask(url, documents, { key, question: `What does ${key} want?` })).predicted);
      await settled(url);
    }
    expect(predictions[0]).toBeGreaterThan(100);
    expect(predictions[1]).toBe(0);
    expect(predictions[2]).toBe(predictions[0]);
  });

  test('an engine that was restarted holds nothing, and a gateway that comes late hears what it holds', async () => {
    const port = await freePort();
    await start({ port });
    const url = await gateway();
    await untilHeard(url);
    const documents = [passage(1), passage(2)];
    await ask(url, documents);
    await settled(url);
    expect((await ask(url, documents)).predicted).toBeGreaterThan(50);
    await settled(url);

    await engine.stop();
    await start({ port });
    for (
      let number = 200;
      (await sample(url, 'warmpath_kv_events_total{engine="engine",kind="restarts"}')) === 0;
      number++
    ) {
      await ask(url, [passage(number)]);
    }
    await settled(url);
    expect(await ask(url, documents)).toEqual({ status: 200, cached: expect.any(Number), predicted: 0 });
    await settled(url);

    const late = await gateway();
    await untilHeard(late);
    expect(await sample(late, 'warmpath_kv_events_total{engine="engine",kind="losses"}')).toBe(0);
    expect(await sample(late, 'warmpath_kv_blocks')).toBe(await sample(url, 'warmpath_kv_blocks'));
  });
});

interface AskOptions {
  readonly question?: string;
  /** Whose request it is. */
  readonly key?: string;
}

/** Cached tokens as the engine reports them, and as the gateway predicted. */
async function ask(url: string, documents: readonly object[], { question = 'What was laid?', key }: AskOptions = {}) {
  const body = { messages: [{ role: 'user', content: question }], documents, max_tokens: 1 };
  const headers: Record<string, string> = key === undefined ? {} : { authorization: `Bearer ${key}` };
  const answer = await send(`${url}/v1/chat/completions`, body, { headers });
  const { usage } = JSON.parse(answer.text) as Usage;
  const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
  return { status: answer.status, cached, predicted: predictedOf(answer.headers) };
}

interface Usage {
  readonly usage: { readonly prompt_tokens_details?: { readonly cached_tokens: number } };
}

function predictedOf(headers: IncomingHttpHeaders): number {
  return Number(/predicted=(\d+)/.exec(String(headers['x-warmpath']))?.[1] ?? 0);
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
