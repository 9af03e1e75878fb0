import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { GatewayConfigInput } from '../src/config.js';
import { startGateway } from '../src/server.js';
import { describeReport, isClean, runLeak } from './leak-property.js';
import { RedisServer } from './redis-server.js';

const TIMEOUT = { timeout: 180_000 };

let redis: RedisServer;

beforeAll(async () => {
  redis = await RedisServer.start();
});

afterAll(() => redis.close());

describe('documents of conversations', TIMEOUT, () => {
  it.each([1, 2, 3])('enter no prompt but their own, and are in every one of these (seed %i)', async (seed) => {
    const report = await runLeak({
      seed,
      requests: 500,
      redisUrl: redis.url,
      start: (config) => startGateway(config as GatewayConfigInput),
    });
    expect(isClean(report), describeReport(report)).toBe(true);
    // The requests did what they are for.
    expect(report.counts.replays).toBeGreaterThan(50);
    expect(report.counts.refused).toBeGreaterThan(10);
    expect(report.counts.marked).toBeGreaterThan(10);
  });
});
