// Does a document of one user ever enter another's prompt? Random conversations through real gateways and a real Redis
// server, as in test/leak-property.full.test.ts, but as many as asked for.
// `node bench/leak.js [--requests 100000] [--seed 1] [--all]`; with --all it goes on after a violation, for one of
// every kind. Exits with 1 after a violation and prints how to see it again.
import { parseArgs } from 'node:util';
import { MemoryConversationStore, startGateway } from '@warmpath/gateway';
import { describeReport, isClean, runLeak } from '../dist-test/packages/gateway/test/leak-property.js';
import { RedisServer } from '../dist-test/packages/gateway/test/redis-server.js';

const PROGRESS_MS = 2_000;

const { values } = parseArgs({
  options: {
    requests: { type: 'string', default: '100000' },
    seed: { type: 'string', default: '1' },
    all: { type: 'boolean', default: false },
  },
});

const redis = await RedisServer.start();
let told = performance.now();
try {
  const report = await runLeak({
    seed: Number(values.seed),
    requests: Number(values.requests),
    findsAll: values.all,
    redisUrl: redis.url,
    start: (config, { conversationBytes: maxBytes, ...parts }) =>
      startGateway(config, {
        ...(maxBytes !== undefined && { sessions: new MemoryConversationStore({ maxBytes }) }),
        ...parts,
      }),
    translates: true,
    onProgress: ({ requests, replays, refused, marked }) => {
      if (performance.now() - told < PROGRESS_MS) return;
      told = performance.now();
      console.error(`${requests} requests, ${replays} with replays, ${refused} refused, ${marked} marked`);
    },
  });
  console.log(describeReport(report));
  if (!isClean(report)) process.exitCode = 1;
} finally {
  await redis.close();
}
