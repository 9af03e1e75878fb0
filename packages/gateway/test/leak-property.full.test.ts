import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { GatewayConfigInput } from '../src/config/schema.js';
import { MemoryConversationStore } from '../src/conversation/conversation-memory.js';
import { startGateway } from '../src/start-gateway.js';
import { type Fault, naiveGateway } from './leak/naive-gateway.js';
import { describeReport, isClean, runLeak } from './leak-property.js';
import { RedisServer } from './redis-server.js';

describe('documents of conversations', () => {
  let redis: RedisServer;

  beforeAll(async () => {
    redis = await RedisServer.start();
  });

  afterAll(() => redis.close());

  it.each([1, 2, 3])('enter no prompt but their own, and are in every one of these (seed %i)', async (seed) => {
    const report = await runLeak({
      seed,
      requests: 1_000,
      redisUrl: redis.url,
      translates: true,
      start: (config, { conversationBytes: maxBytes, ...parts }) =>
        startGateway(config as GatewayConfigInput, {
          ...(maxBytes !== undefined && { sessions: new MemoryConversationStore({ maxBytes }) }),
          ...parts,
        }),
    });
    expect(isClean(report), describeReport(report)).toBe(true);
    // The requests did what they are for.
    expect(report.counts.replays).toBeGreaterThan(50);
    expect(report.counts.refused).toBeGreaterThan(10);
    expect(report.counts.marked).toBeGreaterThan(10);
  });
});

describe('the property itself', () => {
  const runNaive = (requests: number, fault?: Fault) =>
    runLeak({
      ...{ seed: 4, requests, findsAll: fault !== undefined },
      ...{ redisUrl: 'redis://unused', translates: false, start: naiveGateway(fault) },
    });

  it('finds nothing wrong with the shortest gateway that keeps the contract', async () => {
    const report = await runNaive(1_500);
    expect(isClean(report), describeReport(report)).toBe(true);
    expect(report.counts.replays).toBeGreaterThan(150);
    expect(report.counts.crossings).toBeGreaterThan(20);
  });

  it.each<[Fault, string]>([
    ['deletes for everybody', 'forgot what it knows'],
    ['ignores end users', 'leak: of another end user'],
    ['knows no numbers', 'leak: of another end user'],
    ['takes a cache key for a name', 'leak: into a request without a name'],
    ['never says forgotten', 'claims to remember'],
    ['repeats labels', 'one label for two texts'],
    ['no references', 'a document of the request neither shown nor referred to'],
  ])('finds out one that %s', async (fault, kind) => {
    const { findings } = await runNaive(3_000, fault);
    expect([...findings.keys()]).toContain(kind);
    // Reduced to a few things that happen one after the other.
    expect(findings.get(kind)!.first.actions.length).toBeLessThan(20);
  });
});
