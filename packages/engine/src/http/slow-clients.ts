import type { IncomingMessage, Server, ServerResponse } from 'node:http';

/** Time at shutdown for clients to read the rest of a complete answer. */
const READ_MARGIN_MS = 2_000;

/** Longest time in which a client reads nothing of an answer, or sends nothing of a request. */
const STALL_MS = 30_000;

/** Most bytes of a stream that wait for a client: about 1,000 tokens. */
const MAX_UNREAD_BYTES = 262_144;

export function isUnread({ writableLength }: ServerResponse): boolean {
  return writableLength > MAX_UNREAD_BYTES;
}

/**
 * Closes a server whose answers are complete, also where a client does not read its answer.
 */
export async function closeServer(server: Server, close: () => Promise<unknown>): Promise<void> {
  const timer = setTimeout(() => server.closeAllConnections(), READ_MARGIN_MS);
  await close();
  clearTimeout(timer);
}

/**
 * Closes the connection of a client that has stopped to read its answer, or to send its request. Call it when the
 * request's headers have come. The socket counts what the system takes from it as progress, so a slow client goes on.
 */
export function closeStalled(request: IncomingMessage, response: ServerResponse, stallMs = STALL_MS): void {
  response.setTimeout(stallMs, () => {
    if (response.writableLength > 0 || !request.complete) response.destroy();
  });
}
