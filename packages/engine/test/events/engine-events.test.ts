import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { isFull } from '../../../../test/suite.js';
import type { EngineOptions } from '../../src/options.js';
import { type EngineProcess, spawnEngine } from '../../src/supervisor/spawn-engine.js';
import { someTokens } from '../support/engine.js';
import { KvReplica, naiveHash } from './kv-replica.js';
import { KvSubscriber, type ReceivedBatch, replay } from './kv-subscriber.js';

const BLOCK = 16;

describe('the KV events of an engine process', () => {
  let folder: string;
  let engine: EngineProcess;
  let live: KvSubscriber;
  let replayAt: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'kv-events-'));
  });
  afterEach(async () => {
    live.close();
    await engine.stop();
    await rm(folder, { recursive: true });
  });

  const open = (): EngineOptions => {
    const kvEvents = `ipc://${folder}/live`;
    replayAt = `ipc://${folder}/replay`;
    live = KvSubscriber.connect(kvEvents);
    return { port: 0, threads: 1, contextTokens: 1024, kvEvents, kvEventsReplay: replayAt };
  };
  const start = async (options: EngineOptions = {}): Promise<void> => {
    engine = await spawnEngine({ ...open(), ...options });
  };
  const complete = async (prompt: readonly number[], fields: object = {}): Promise<void> => {
    const body = JSON.stringify({ prompt, max_tokens: 1, temperature: 0, segments: [128, 256], ...fields });
    const response = await fetch(`${engine.url}/v1/completions`, { method: 'POST', body });
    expect(response.status).toBe(200);
  };
  /** Asks for something new until the live subscriber has joined, which nobody tells an engine. */
  const untilHeard = async (): Promise<void> => {
    for (let round = 10; live.batches.length === 0; round++) {
      await complete(someTokens(40, round));
    }
  };
  /** What a consumer holds that was told these batches. */
  const replicaOf = (batches: readonly ReceivedBatch[]): KvReplica => {
    const replica = new KvReplica();
    for (const [index, { sequence, events }] of batches.entries()) {
      expect(sequence).toBe(index);
      replica.apply(events);
    }
    return replica;
  };
  /**
   * All batches so far, as soon as a consumer of them holds these blocks: events may reach the publisher after the
   * answer.
   */
  const batchesWith = async (expected: readonly string[]): Promise<ReceivedBatch[]> => {
    for (;;) {
      const batches = await replay(replayAt, 0);
      const { blocks: held } = replicaOf(batches);
      if (expected.every((block) => held.has(block))) {
        return batches;
      }
    }
  };
  const blocks = (medium: string, tokens: readonly number[], salt?: string): string[] =>
    Array.from({ length: Math.floor(tokens.length / BLOCK) }, (_, index) => {
      return `${medium} ${naiveHash(tokens.slice(0, (index + 1) * BLOCK), BLOCK, salt)}`;
    });

  it('let a consumer that comes late hold what the engine holds, salts kept apart', async () => {
    await start({ hostTier: 0 });
    const [first, second] = [someTokens(100), [...someTokens(50), ...someTokens(70, 1)]];
    await complete(first);
    await complete(second);
    await complete(first);
    await complete(first, { cache_salt: 'tenant' });
    const expected = [...blocks('GPU', first), ...blocks('GPU', second), ...blocks('GPU', first, 'tenant')];
    const batches = await batchesWith(expected);
    expect(batches[0]!.events[0]).toEqual({ type: 'cleared' });
    const held = [...replicaOf(batches).blocks.keys()];
    expect(held.toSorted()).toEqual([...new Set(expected)].toSorted());
    expect(batches.flatMap(({ events }) => events)).toContainEqual(expect.objectContaining({ salt: 'tenant' }));
  });

  it('tell of what goes to the host and comes back, live and in a replay alike', async () => {
    await start({ hostTier: 2 ** 26 });
    await untilHeard();
    const prompt = someTokens(300);
    await complete(prompt);
    await complete(someTokens(600, 1));
    await complete(someTokens(400, 2));
    const gone = replicaOf(await batchesWith(blocks('CPU', prompt.slice(0, 256))));
    // What no request needs is in the cells no more.
    expect([...gone.blocks.keys()].filter((block) => block.startsWith('GPU'))).toEqual([]);
    const before = (await replay(replayAt, 0)).length;
    await complete(prompt);
    await batchesWith(blocks('CPU', prompt.slice(0, 256)));
    let replayed = await replay(replayAt, 0);
    const hasComeBack = () => {
      const stored = replayed.slice(before).flatMap(({ events }) => events.filter(({ type }) => type === 'stored'));
      return stored.some((event) => event.type === 'stored' && event.medium === 'GPU' && event.blockHashes.length > 0);
    };
    while (!hasComeBack()) {
      replayed = await replay(replayAt, 0);
    }
    // Whoever listens hears the same from the moment at which it was heard itself.
    await live.until((batches) => batches.some(({ sequence }) => sequence === replayed.at(-1)!.sequence));
    const since = replayed.slice(live.batches[0]!.sequence);
    expect(live.batches.slice(0, since.length)).toEqual(since);
  });

  it('end with a cache that is gone', async () => {
    await start();
    await untilHeard();
    expect(live.batches[0]).toMatchObject({ topic: '', rank: 0 });
    await engine.stop();
    await live.until((batches) => batches.at(-1)!.events[0]!.type === 'cleared' && batches.at(-1)!.sequence > 0);
    expect(live.batches.at(-1)!.wire).toEqual([{ type: 'AllBlocksCleared' }]);
  });

  it.runIf(isFull)('begin anew with an empty cache when the process that computes is killed', async () => {
    await start({ hostTier: 0 });
    const prompt = someTokens(100);
    await complete(prompt);
    await batchesWith(blocks('GPU', prompt));
    process.kill(engine.pid!, 'SIGKILL');
    await complete(someTokens(40, 1));
    const after = await replay(replayAt, 0);
    expect(after[0]!.events[0]).toEqual({ type: 'cleared' });
    await complete(prompt);
    await batchesWith(blocks('GPU', prompt));
    const metrics = await (await fetch(`${engine.url}/metrics`)).text();
    expect(Number(/^warmpath_engine_kv_event_next_sequence\{.*\} (\d+)$/m.exec(metrics)?.[1])).toBeGreaterThan(0);
    expect(metrics).toMatch(/^warmpath_engine_kv_event_failures\{.*\} 0$/m);
  });
});
