import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type EngineProcess, spawnEngine } from '@warmpath/engine';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isFull } from '../../../test/suite.js';
import { modelPath } from '../../engine/bench/random-model/src/model-path.js';
import { type RunningGateway, startGateway } from '../src/start-gateway.js';
import { closing, openRequest, send, told } from './harness.js';

const CHAT = '/v1/chat/completions';
const HEALTH = { checkMs: 3_600_000, failures: 3, ejectMs: 1_000 };

let folder: string;
let engines: EngineProcess[];

/** Random weights: the text is noise and never ends by itself; tokens, caches and crashes are real. */
async function start(name: string): Promise<EngineProcess> {
  const kv = join(folder, name);
  return spawnEngine({
    port: 0,
    model: await modelPath('random:1m'),
    threads: 1,
    kvEvents: `ipc://${kv}-live`,
    kvEventsReplay: `ipc://${kv}-replay`,
  });
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-'));
  engines = await Promise.all(['a', 'b'].map(start));
});

afterAll(async () => {
  for (const engine of engines) await engine.stop();
  await rm(folder, { recursive: true });
});

async function gatewayBefore(withEvents = false): Promise<RunningGateway> {
  const listed = engines.map(({ url }, place) => {
    const name = 'ab'[place]!;
    const kv = join(folder, name);
    const kvEvents = { endpoint: `ipc://${kv}-live`, replayEndpoint: `ipc://${kv}-replay` };
    return { name, url, ...(withEvents && { kvEvents }) };
  });
  return closing(
    await startGateway(
      {
        server: { port: 0 },
        log: { level: 'silent' },
        upstream: { dialect: 'embedded' },
        arrange: { policy: 'exact' },
        engines: listed,
      },
      { health: HEALTH },
    ),
  );
}

const passage = (topic: string, number: number) => {
  const sentence = `Passage ${number} tells how the ${topic} was found, and what it was worth in year ${number}.`;
  return { id: `${topic}-${number}`, content: Array(4).fill(sentence).join(' ') };
};

const request = (documents: readonly object[], fields: object = {}) => ({
  messages: [{ role: 'user', content: 'What was found?' }],
  documents,
  max_tokens: 2,
  ...fields,
});

interface Served {
  readonly engine: string | undefined;
  readonly cached: number;
}

async function ask(gateway: RunningGateway, documents: readonly object[]): Promise<Served> {
  const reply = await send(gateway.url + CHAT, request(documents));
  expect(reply.status).toBe(200);
  const { usage } = JSON.parse(reply.text) as {
    usage: { prompt_tokens_details: { cached_tokens: number } };
  };
  return { engine: told(reply)['engine'], cached: usage.prompt_tokens_details.cached_tokens };
}

describe('two real engines', () => {
  it('each keep the documents of their own topic, and reuse them whatever order they come in', async () => {
    const gateway = await gatewayBefore();
    const contexts = (topic: string) =>
      [
        [0, 1, 2, 3],
        [3, 1, 0, 2],
        [4, 2, 0, 1],
      ].map((numbers) => numbers.map((number) => passage(topic, number)));
    const served = new Map<string, Served[]>();
    for (let turn = 0; turn < 3; turn++) {
      for (const topic of ['granite', 'harbour']) {
        served.set(topic, [...(served.get(topic) ?? []), await ask(gateway, contexts(topic)[turn]!)]);
      }
    }
    const [granite, harbour] = [served.get('granite')!, served.get('harbour')!];
    expect(new Set(granite.map(({ engine }) => engine)).size).toBe(1);
    expect(new Set(harbour.map(({ engine }) => engine)).size).toBe(1);
    expect(granite[0]!.engine).not.toBe(harbour[0]!.engine);
    // The second has the same documents, the third shares three of four.
    for (const [, second, third] of [granite, harbour]) {
      expect(second!.cached).toBeGreaterThan(200);
      expect(third!.cached).toBeGreaterThan(100);
    }
  });

  it('tell by their own events what each holds', async () => {
    const gateway = await gatewayBefore(true);
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
    // Nobody tells an engine that a subscriber has joined.
    for (let round = 0; ; round++) {
      const exact = [
        await sample('warmpath_kv_events_exact{engine="a"}'),
        await sample('warmpath_kv_events_exact{engine="b"}'),
      ];
      if (exact.every((value) => value === 1)) break;
      await ask(gateway, [passage('beginning', round)]);
    }
    const context = [0, 1, 2, 3].map((number) => passage('orchard', number));
    const first = await ask(gateway, context);
    while ((await sample(`warmpath_kv_prompts_waiting{engine="${first.engine}"}`)) > 0);
    const reply = await send(gateway.url + CHAT, request([context[2]!, context[0]!, context[3]!, context[1]!]));
    const { usage } = JSON.parse(reply.text) as { usage: { prompt_tokens_details: { cached_tokens: number } } };
    expect(told(reply)['engine']).toBe(first.engine);
    const predicted = Number(told(reply)['predicted']);
    expect(predicted).toBeGreaterThan(200);
    expect(Math.abs(usage.prompt_tokens_details.cached_tokens - predicted)).toBeLessThanOrEqual(16);
  });

  it.runIf(isFull)(
    'replace each other: one is killed in the middle of a stream, and then before it answers',
    async () => {
      const gateway = await gatewayBefore();
      const context = [0, 1, 2].map((number) => passage('quarry', number));
      const { engine: name } = await ask(gateway, context);
      const place = name === 'a' ? 0 : 1;
      const stream = openRequest(gateway.url + CHAT, request(context, { stream: true, max_tokens: 2_000 }));
      const text = await new Promise<string>((resolve, reject) => {
        stream.on('error', reject);
        stream.on('response', (response) => {
          expect(told(response)['engine']).toBe(name);
          let received = '';
          let isKilled = false;
          response.on('data', (chunk: Buffer) => {
            received += chunk.toString();
            if (isKilled || !received.includes('"content"')) return;
            isKilled = true;
            process.kill(engines[place]!.pid!, 'SIGKILL');
            void engines[place]!.stop(0);
          });
          response.on('error', () => {});
          response.on('close', () => resolve(received));
        });
      });
      expect(text).toContain('WARMPATH_ENGINE_FAILED');
      expect(text).not.toContain('[DONE]');
      // Nothing listens there any more: whoever comes gets an answer of the other one.
      for (let i = 0; i < 4; i++) expect((await ask(gateway, context)).engine).not.toBe(name);
      engines[place] = await start(`${name}-again`);
      const listed = engines.map(({ url }, at) => ({ name: at === place ? 'new' : 'ab'[at]!, url }));
      await gateway.reload({ engines: listed });
      const seen = new Set<string | undefined>();
      for (let i = 0; i < 4; i++) seen.add((await ask(gateway, [passage(`fresh ${i}`, i)])).engine);
      expect(seen).toEqual(new Set(['new', name === 'a' ? 'b' : 'a']));
    },
  );
});
