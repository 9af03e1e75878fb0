import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RunningGateway } from '../src/start-gateway.js';
import { CHAT_RESPONSE } from './fake-engine.js';
import { gatewayAt } from './harness.js';

const KEY = 'alice-has-this-key';
/** Where a request would go that was hidden in another one: it has no key, so it is nobody's to send. */
const HIDDEN = '/v1/smuggled';

/**
 * An engine that reads HTTP as leniently as any server ever did: bare line feeds, the last of several lengths, chunked
 * wherever the word stands. What is hidden from a strict reader, it finds.
 */
class LenientEngine {
  readonly paths: string[] = [];
  /** Heads as they came. */
  readonly heads: string[] = [];
  readonly #server: Server;

  constructor() {
    this.#server = createServer((socket) => this.#serve(socket));
    this.#server.listen(0, '127.0.0.1');
  }

  async url(): Promise<string> {
    if (!this.#server.listening) await once(this.#server, 'listening');
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  close(): void {
    this.#server.close();
  }

  #serve(socket: Socket): void {
    let held = '';
    socket.on('error', () => {});
    socket.setEncoding('latin1').on('data', (text: string) => {
      held += text;
      for (;;) {
        const rest = this.#takeRequest(held);
        if (rest === undefined) return;
        held = rest;
        socket.write(
          `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${CHAT_RESPONSE.length}\r\n\r\n${CHAT_RESPONSE}`,
        );
      }
    });
  }

  /** What stands behind the first request; `undefined` until it is complete. */
  #takeRequest(text: string): string | undefined {
    const end = /\r?\n\r?\n/.exec(text);
    if (end === null) return undefined;
    const head = text.slice(0, end.index);
    const body = text.slice(end.index + end[0].length);
    const lengths = [...head.matchAll(/content-length[^\d\n]*(\d+)/gi)];
    let rest: string | undefined;
    if (/transfer-encoding[^\n]*chunked/i.test(head)) {
      const last = /(?:^|\n)0+[^\n]*\r?\n(?:[^\r\n]+\r?\n)*\r?\n/.exec(body);
      rest = last === null ? undefined : body.slice(last.index + last[0].length);
    } else {
      const length = Number(lengths.at(-1)?.[1] ?? 0);
      rest = body.length < length ? undefined : body.slice(length);
    }
    if (rest === undefined) return undefined;
    this.heads.push(head);
    this.paths.push(head.split(' ')[1] ?? '');
    return rest;
  }
}

let engine: LenientEngine;
let gateway: RunningGateway;

beforeAll(async () => {
  engine = new LenientEngine();
  gateway = await gatewayAt(await engine.url(), {
    server: { keys: [{ name: 'alice', key: KEY }] },
    upstream: { timeoutMs: 10_000, apiKey: 'of-the-gateway' },
  });
});

afterAll(async () => {
  await gateway.close();
  engine.close();
});

const BODY = '{"model":"m","messages":[],"input":"x"}';
const TYPE = 'content-type: application/json\r\n';
const SECOND = `GET ${HIDDEN} HTTP/1.1\r\nhost: x\r\n\r\n`;

/** Ways to make two readers disagree about where a request ends: its head, without what all have, and what follows. */
function variants(): [name: string, head: string, rest: string][] {
  const chunked = (body: string) => `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`;
  const none = `0\r\n\r\n${SECOND}`;
  const length = (count: number) => `content-length: ${count}\r\n`;
  const all: [string, string, string][] = [];
  const encodings = [
    ...['chunked', ' chunked', 'chunked ', '\tchunked', 'chunked\t', '\vchunked', 'chunked\f', 'Chunked', 'CHUNKED'],
    ...['xchunked', 'chunkedx', '"chunked"', "'chunked'", 'chunked;q=1', 'chunked, identity', 'identity, chunked'],
    ...[
      'chunked, chunked',
      ',chunked',
      'chunked,',
      'gzip, chunked',
      'cow',
      'identity',
      '',
      'chun\x00ked',
      '\x00chunked',
    ],
    ...['chunk\u00e9d', 'x\nchunked'],
  ];
  for (const value of encodings) {
    all.push([`length beside encoding ${JSON.stringify(value)}`, `${length(4)}transfer-encoding:${value}\r\n`, none]);
  }
  const names = ['Transfer-Encoding ', ' Transfer-Encoding', 'Transfer-Encoding\t', 'Transfer_Encoding'];
  names.push('Transfer-\nEncoding', 'X: y\nTransfer-Encoding', 'Transfer-Encoding\x00', '\x00Transfer-Encoding');
  for (const name of names) {
    all.push([`encoding named ${JSON.stringify(name)}`, `${length(4)}${name}: chunked\r\n`, none]);
  }
  all.push(['encoding, then length', `transfer-encoding: chunked\r\n${length(4)}`, none]);
  all.push(['two encodings', 'transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n', none]);
  all.push(['two encodings, other order', 'transfer-encoding: identity\r\ntransfer-encoding: chunked\r\n', none]);
  all.push(['a folded encoding', `${length(4)}transfer-encoding:\r\n chunked\r\n`, none]);
  all.push(['a folded length', `content-length:\r\n 4\r\n`, `${BODY}${SECOND}`]);
  const whole = BODY.length + SECOND.length;
  for (const value of [
    '+4',
    '-4',
    '4 4',
    '4,4',
    '4, 99',
    '0x4',
    '4a',
    '04e1',
    '',
    ' ',
    '4\v',
    '4\x00',
    '٤',
    '1e1',
    '4;5',
  ]) {
    all.push([`length ${JSON.stringify(value)}`, `content-length: ${value}\r\n`, `${BODY}${SECOND}`]);
  }
  for (const [one, two] of [
    [0, whole],
    [whole, 0],
    [4, whole],
    [BODY.length, whole],
    [whole, BODY.length],
  ] as const) {
    all.push([`lengths ${one} and ${two}`, `${length(one)}${length(two)}`, `${BODY}${SECOND}`]);
  }
  for (const name of [
    'Content-Length ',
    ' Content-Length',
    'Content_Length',
    'Content-Length\x00',
    'Content-\nLength',
  ]) {
    all.push([
      `length named ${JSON.stringify(name)}`,
      `${name}: ${whole}\r\n${length(BODY.length)}`,
      `${BODY}${SECOND}`,
    ]);
  }
  all.push(['a length beyond all numbers', 'content-length: 99999999999999999999999\r\n', `${BODY}${SECOND}`]);
  for (const extension of [';a', ';a=b', ';a="\r\n"', ';\n', ' ;a', '\t', ';a\rb', `;${'x'.repeat(200)}`]) {
    const rest = `${BODY.length.toString(16)}${extension}\r\n${BODY}\r\n0\r\n\r\n${SECOND}`;
    all.push([`chunk extension ${JSON.stringify(extension.slice(0, 9))}`, 'transfer-encoding: chunked\r\n', rest]);
  }
  for (const size of ['-1', '+5', '0x5', '5 5', 'ffffffffffffffffff', '5\n', '', 'g', '00000000000000000000', '1\r']) {
    const rest = `${size}\r\n${SECOND}\r\n0\r\n\r\n`;
    all.push([`chunk size ${JSON.stringify(size)}`, 'transfer-encoding: chunked\r\n', rest]);
  }
  all.push(['a chunk that ends with a bare LF', 'transfer-encoding: chunked\r\n', `2\r\n{}\n0\r\n\r\n${SECOND}`]);
  all.push(['a last chunk with bare LFs', 'transfer-encoding: chunked\r\n', `2\r\n{}\r\n0\n\n${SECOND}`]);
  all.push([
    'a trailer with a length',
    'transfer-encoding: chunked\r\n',
    `${chunked('{}').slice(0, -2)}${length(9)}\r\n${SECOND}`,
  ]);
  all.push(['a trailer with a request', 'transfer-encoding: chunked\r\n', `2\r\n{}\r\n0\r\n${SECOND}\r\n`]);
  all.push(['a request behind a good one', length(BODY.length), `${BODY}${SECOND}`]);
  all.push(['a request in a body', length(whole), `${BODY}${SECOND}`]);
  all.push(['an upgrade to h2c', `connection: upgrade\r\nupgrade: h2c\r\n${length(0)}`, SECOND]);
  all.push(['an upgrade to a web socket', `connection: upgrade\r\nupgrade: websocket\r\n${length(0)}`, SECOND]);
  all.push(['an upgrade with a body', `connection: upgrade\r\nupgrade: x\r\n${length(2)}`, `{}${SECOND}`]);
  all.push(['expect: 100-continue', `expect: 100-continue\r\n${length(2)}`, `{}${SECOND}`]);
  all.push(['an unknown expectation', `expect: x\r\n${length(2)}`, `{}${SECOND}`]);
  all.push(['a hidden length', `connection: content-length\r\n${length(BODY.length)}`, `${BODY}${SECOND}`]);
  all.push([
    'a hidden encoding',
    'connection: transfer-encoding\r\ntransfer-encoding: chunked\r\n',
    `${chunked(BODY)}${SECOND}`,
  ]);
  all.push(['a header that ends with a bare CR', `x: y\rtransfer-encoding: chunked\r\n${length(4)}`, none]);
  all.push(['a header that ends with a bare LF', `x: y\ntransfer-encoding: chunked\r\n${length(4)}`, none]);
  all.push(['a header without a colon', `transfer-encoding chunked\r\n${length(4)}`, none]);
  all.push(['a request in a header', `x: y\r\n\r\n${SECOND}`, '']);
  return all;
}

async function exchange(bytes: string, url = gateway.url): Promise<string> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  let answer = '';
  socket.on('error', () => {});
  socket.setEncoding('latin1').on('data', (text: string) => {
    answer += text;
  });
  // Whoever waits for more of this request than comes is told that nothing more does.
  socket.end(bytes, 'latin1');
  await once(socket, 'close');
  return answer;
}

describe('a request that is hidden in another one', () => {
  const all = variants();
  const lines = [
    ['a chat', 'POST /v1/chat/completions HTTP/1.1'],
    ['what is passed through', 'POST /v1/embeddings HTTP/1.1'],
    ['HTTP/1.0', 'POST /v1/embeddings HTTP/1.0'],
  ] as const;

  it('has a hundred forms and more, many of which an engine alone would fall for', async () => {
    expect(new Set(all.map(([name]) => name)).size).toBe(all.length);
    expect(all.length).toBeGreaterThanOrEqual(100);
    let found = 0;
    for (const [, head, rest] of all) {
      engine.paths.length = 0;
      await exchange(`POST /v1/embeddings HTTP/1.1\r\nhost: x\r\n${head}\r\n${rest}`, await engine.url());
      if (engine.paths.includes(HIDDEN)) found++;
    }
    expect(found).toBeGreaterThanOrEqual(60);
  });

  it.each(lines)('never reaches the engine: %s', async (_, line) => {
    for (const [name, head, rest] of all) {
      engine.paths.length = 0;
      engine.heads.length = 0;
      const answer = await exchange(`${line}\r\nhost: x\r\n${TYPE}authorization: Bearer ${KEY}\r\n${head}\r\n${rest}`);
      expect(engine.paths, name).not.toContain(HIDDEN);
      expect(engine.paths.length, name).toBeLessThanOrEqual(1);
      for (const sent of engine.heads) {
        const framing = sent.match(/^(?:content-length|transfer-encoding):.*$/gim) ?? [];
        expect(framing.length, `${name}: ${framing.join(', ')}`).toBeLessThanOrEqual(1);
        expect(sent, name).toContain('Bearer of-the-gateway');
      }
      // What was taken for a second request is nobody's.
      const statuses = [...answer.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => status!);
      for (const status of statuses.slice(1)) expect(['400', '401'], `${name}: ${statuses}`).toContain(status);
    }
  });
});

describe('the engine that a client asks for', () => {
  const elsewhere = 'elsewhere.example';
  const head = (extra = '') =>
    `host: ${elsewhere}\r\nauthorization: Bearer ${KEY}\r\nconnection: close\r\n${extra}\r\n`;

  it.each([
    ['a whole URL', `GET http://${elsewhere}/v1/models HTTP/1.1`, ''],
    ['a whole URL with a key in it', `GET http://user:pass@${elsewhere}:80/v1/models HTTP/1.1`, ''],
    ['a path that looks like a host', `GET //${elsewhere}/v1/models HTTP/1.1`, ''],
    ['a path with an encoded slash', `GET /v1%2f..%2f..%2f${elsewhere} HTTP/1.1`, ''],
    ['a path with a backslash', `GET /\\${elsewhere}/v1/models HTTP/1.1`, ''],
    ['a path that goes up', `GET /v1/models/../../../${elsewhere} HTTP/1.1`, ''],
    ['a path with an at sign', `GET @${elsewhere}/v1/models HTTP/1.1`, ''],
    ['a tunnel', `CONNECT ${elsewhere}:443 HTTP/1.1`, ''],
    ['an asterisk', 'OPTIONS * HTTP/1.1', ''],
    ['X-Forwarded-Host', 'GET /v1/models HTTP/1.1', `x-forwarded-host: ${elsewhere}\r\n`],
    ['Forwarded', 'GET /v1/models HTTP/1.1', `forwarded: host=${elsewhere};proto=https\r\n`],
    ['X-Original-URL', 'GET /v1/models HTTP/1.1', `x-original-url: http://${elsewhere}/\r\nx-rewrite-url: /admin\r\n`],
    ['headers of other gateways', 'GET /v1/models HTTP/1.1', `x-portkey-custom-host: http://${elsewhere}\r\n`],
  ])('is never another one: %s', async (_, line, extra) => {
    engine.paths.length = 0;
    engine.heads.length = 0;
    const answer = await exchange(`${line}\r\n${head(extra)}`);
    if (engine.heads.length === 0) expect(answer).toMatch(/^(?:HTTP\/1\.1 (?:4\d\d|200)|$)/);
    for (const sent of engine.heads) {
      const own = new URL(await engine.url()).host;
      expect(sent.match(/^host:.*$/gim)).toEqual([`host: ${own}`]);
      expect(sent.split('\r\n')[0]).toMatch(/^[A-Z]+ \/[^/\\]/);
      expect(sent.split('\r\n')[0]).not.toContain('..');
    }
  });
});
