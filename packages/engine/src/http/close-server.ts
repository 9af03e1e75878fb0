import type { Server } from 'node:http';

/** How long clients may take, at shutdown, to read the rest of a complete answer. */
const READ_MARGIN_MS = 2_000;

/**
 * Closes a server of which every answer is complete: a client that does not read its own must not keep it from ending.
 */
export async function closeServer(server: Server, close: () => Promise<unknown>): Promise<void> {
  const timer = setTimeout(() => server.closeAllConnections(), READ_MARGIN_MS);
  await close();
  clearTimeout(timer);
}
