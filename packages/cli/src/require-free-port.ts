import { once } from 'node:events';
import { createServer } from 'node:net';
import { describeListenError } from './failure.js';

/** Throws `WARMPATH_PORT_IN_USE` at once if nothing can listen there, before slower work begins. Port 0 is always free. */
export async function requireFreePort(host: string, port: number): Promise<void> {
  if (port === 0) return;
  const server = createServer();
  try {
    server.listen({ host, port });
    await once(server, 'listening');
  } catch (error) {
    throw describeListenError(error, host, port);
  }
  server.close();
  await once(server, 'close');
}
