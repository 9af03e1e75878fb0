// The gateway of the benchmark, in a process of its own so that its CPU time and memory are its own.
import { startGateway } from '@warmpath/gateway';

const [, , upstream, config = '{}'] = process.argv;
const gateway = await startGateway({
  ...JSON.parse(config),
  server: { port: 0 },
  upstream: { url: upstream },
  log: { level: 'silent' },
});
process.on('message', () => {
  const { user, system } = process.cpuUsage();
  process.send({ cpuUs: user + system, residentBytes: process.memoryUsage.rss() });
});
process.send({ url: gateway.url });
