import { once } from 'node:events';
import { createServer } from 'node:net';
import { WarmpathError } from '@warmpath/core';

/** Where a server is to listen, and the option that says so. */
export interface ListenAddress {
  readonly host: string;
  readonly port: number;
  readonly option: '--port';
}

/**
 * Throws at once if nothing can listen there, before slower work begins: `WARMPATH_PORT_IN_USE`, or
 * `WARMPATH_CONFIG_INVALID` for an address that is not this machine's or not allowed. Port 0 is always free.
 */
export async function requireFreePort(address: ListenAddress): Promise<void> {
  const server = createServer();
  try {
    server.listen({ host: address.host, port: address.port });
    await once(server, 'listening');
  } catch (error) {
    throw describeListenError(error, address);
  }
  server.close();
  await once(server, 'close');
}

/** An error of `listen` under a code of the table; any other error as it is. */
export function describeListenError(error: unknown, { host, port, option }: ListenAddress): unknown {
  const { code, syscall } = error as NodeJS.ErrnoException;
  const options = { path: option, detail: `${host}:${port} is taken`, cause: error };
  if (code === 'EADDRINUSE') return new WarmpathError('WARMPATH_PORT_IN_USE', options);
  if (syscall !== 'listen' && syscall !== 'getaddrinfo') return error;
  return new WarmpathError('WARMPATH_CONFIG_INVALID', {
    ...options,
    detail: `cannot listen at ${host}:${port} (${code})`,
  });
}
