// The gateway of the benchmarks, in a process of its own so that its CPU time and memory are its own.
import { startGateway } from '@warmpath/gateway';

const [, , url, given = '{}'] = process.argv;
const { server, upstream, ...config } = JSON.parse(given);
const gateway = await startGateway({
  ...config,
  server: { ...server, port: 0 },
  upstream: { ...upstream, url },
  log: { level: 'silent' },
});
process.on('message', () => {
  const { user, system } = process.cpuUsage();
  process.send({ cpuUs: user + system, residentBytes: process.memoryUsage.rss() });
});
process.send({ url: gateway.url });
