import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { connect, type Socket } from 'node:net';
import { describe, expect, it } from 'vitest';
import { CHAT_RESPONSE, CHAT_STREAM, startStream } from './fake-engine.js';
import { stand } from './harness.js';

const CLIENTS = 20;

/** A client that keeps its connection: one request, and everything that comes back until the connection ends. */
class KeepAliveClient {
  readonly #socket: Socket;
  text = '';
  /** Resolves to whether the connection was reset. */
  readonly closed: Promise<boolean>;

  constructor(url: string) {
    const { hostname, port } = new URL(url);
    this.#socket = connect(Number(port), hostname);
    this.#socket.setEncoding('utf8').on('data', (text: string) => {
      this.text += text;
    });
    this.closed = new Promise((resolve) => {
      let isReset = false;
      this.#socket.on('error', () => {
        isReset = true;
      });
      this.#socket.on('close', () => resolve(isReset));
    });
  }

  ask(body: string): void {
    const head = `POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: keep-alive\r\ncontent-type: application/json`;
    this.#socket.write(`${head}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
  }

  /** Until so many answers have come. */
  async untilText(text: string): Promise<void> {
    while (!this.text.includes(text)) await once(this.#socket, 'data');
  }
}

describe('clients that keep their connections', () => {
  it.each([
    ['whole', false],
    ['a stream that has begun', true],
  ])('get the answer that is under way at a shutdown, %s, and no reset', async (_, isStream) => {
    const held: ServerResponse[] = [];
    const { engine, gateway } = await stand((response) => {
      if (engine.received.length <= CLIENTS) {
        response.writeHead(200, { 'content-type': 'application/json' }).end(CHAT_RESPONSE);
        return;
      }
      held.push(response);
      if (isStream) startStream(response).write(CHAT_STREAM.slice(0, 200));
    });
    const clients = Array.from({ length: CLIENTS }, () => new KeepAliveClient(gateway.url));
    // Each has had an answer on its connection before.
    for (const client of clients) client.ask('{"model":"m","messages":[]}');
    for (const client of clients) await client.untilText(CHAT_RESPONSE);
    for (const client of clients) {
      client.text = '';
      client.ask(`{"model":"m","messages":[],"stream":${isStream}}`);
    }
    await engine.until('request', 2 * CLIENTS);
    if (isStream) for (const client of clients) await client.untilText('data: ');
    const stopped = gateway.close();
    for (const response of held) {
      if (isStream) response.end(CHAT_STREAM.slice(200));
      else response.writeHead(200, { 'content-type': 'application/json' }).end(CHAT_RESPONSE);
    }
    const resets = await Promise.all(clients.map(({ closed }) => closed));
    await stopped;
    expect(resets).not.toContain(true);
    for (const { text } of clients) {
      expect(text).toContain(isStream ? '[DONE]' : CHAT_RESPONSE);
      // The head of a stream that has begun is gone.
      if (!isStream) expect(text.split('\r\n\r\n')[0]).toMatch(/^connection: close$/im);
    }
  });
});
