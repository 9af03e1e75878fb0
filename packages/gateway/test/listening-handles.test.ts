import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { connect, type Socket } from 'node:net';
import { describe, expect, it } from 'vitest';
import { ListeningHandles } from '../src/intake/listening-handles.js';
import { closing } from './harness.js';

const BACKLOG = 1_024;
/** Handles in all, once there are more. */
const ALL = 16;

async function listening(answer = (): Promise<void> => Promise.resolve()) {
  const server = createServer((request, response) => {
    request.resume().on('end', () => void answer().then(() => response.end('answered')));
  });
  server.listen(0, '127.0.0.1', BACKLOG);
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  const handles = new ListeningHandles(server, BACKLOG);
  const clients: Socket[] = [];
  const open = (): Socket => {
    const client = connect({ port, host: '127.0.0.1', allowHalfOpen: true }).on('error', () => {});
    clients.push(client);
    return client;
  };
  closing({
    close: async () => {
      for (const client of clients) client.destroy();
      server.closeAllConnections();
      await Promise.all([handles.close(), server.listening && once(server.close(), 'close')]);
    },
  });
  return { server, handles, open };
}

async function untilOpen(handles: ListeningHandles): Promise<void> {
  handles.open();
  while (handles.size < ALL - 1) await new Promise(setImmediate);
}

/** Connections that each turn of the event loop accepts, where so many wait. */
async function acceptedPerTurn(server: Server, open: () => Socket, count: number): Promise<number[]> {
  const perTurn: number[] = [];
  let accepted = 0;
  const counted = () => accepted++;
  server.on('connection', counted);
  for (let i = 0; i < count; i++) open();
  for (let sum = 0; sum < count; ) {
    await new Promise(setImmediate);
    if (accepted > 0) perTurn.push(accepted);
    sum += accepted;
    accepted = 0;
  }
  server.off('connection', counted);
  return perTurn;
}

describe('a server with more handles', () => {
  it('accepts as many connections a turn', async () => {
    const { server, handles, open } = await listening();
    expect(await acceptedPerTurn(server, open, 24)).toEqual(Array(24).fill(1));
    await untilOpen(handles);
    expect(await acceptedPerTurn(server, open, 64)).toEqual(Array(4).fill(ALL));
  });

  it('serves every connection, those that come meanwhile and those that say no more as well', async () => {
    const { handles, open } = await listening();
    const texts = Array.from({ length: 400 }, async (_, i) => {
      if (i === 20) handles.open();
      const client = open();
      client.setEncoding('utf8');
      // The client's end comes with its request: it still gets its answer.
      client.end('GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n');
      let text = '';
      for await (const piece of client) text += piece as string;
      return text;
    });
    for (const text of await Promise.all(texts)) expect(text.endsWith('answered')).toBe(true);
  });

  it('is closed when the connections of all handles are, with nothing left behind', async () => {
    let answer = (): void => {};
    const asked = new Promise<void>((resolve) => {
      answer = resolve;
    });
    const { server, handles, open } = await listening(() => asked);
    await untilOpen(handles);
    const clients = Array.from({ length: 16 }, () => {
      const client = open();
      client.write('GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n');
      return client;
    });
    for (let i = 0; i < clients.length; i++) await once(server, 'request');
    let isClosed = false;
    const closed = Promise.all([handles.close(), once(server.close(), 'close')]).then(() => {
      isClosed = true;
    });
    const refused = once(open(), 'error');
    await refused;
    expect(isClosed).toBe(false);
    answer();
    const texts = await Promise.all(clients.map(async (client) => (await client.toArray()).join('')));
    expect(texts.every((text) => text.endsWith('answered'))).toBe(true);
    await closed;
  });

  it('may be closed while it asks for more', async () => {
    const { server, handles } = await listening();
    handles.open();
    await Promise.all([handles.close(), once(server.close(), 'close')]);
    expect(handles.size).toBe(0);
    handles.open();
    expect(handles.size).toBe(0);
  });
});
