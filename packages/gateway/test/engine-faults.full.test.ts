import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { ERROR_TABLE } from '@warmpath/core/internal';
import { expect, it } from 'vitest';
import { CHAT_RESPONSE, CHAT_STREAM } from './fake-engine.js';
import { chat, closing, type ErrorBody, gatewayAt, memoryOf, metricOf, type Reply, send } from './harness.js';

const PATH = '/v1/chat/completions';
/** Answers that go wrong; `npm run faults` for more. */
const FAULTS = Number(process.env['WARMPATH_FAULTS'] ?? 68);

type Outcome =
  /** Nothing of the engine's answer reached the client: an error of the table. */
  | 'error'
  /** The answer had begun: the client can see that it is not complete. */
  | 'broken'
  /** Odd, but an answer. */
  | 'answered';

interface Fault {
  readonly name: string;
  readonly outcomes: readonly Outcome[];
  /** What the engine does with the connection on which a request came. */
  play(socket: Socket, below: (limit: number) => number): void;
}

const JSON_HEAD = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n';
const STREAM_HEAD = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n';
const WHOLE = `${JSON_HEAD}content-length: ${CHAT_RESPONSE.length}\r\n\r\n${CHAT_RESPONSE}`;
const chunk = (text: string) => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;

function fault(name: string, outcomes: Outcome | readonly Outcome[], play: Fault['play']): Fault {
  return { name, outcomes: typeof outcomes === 'string' ? [outcomes] : outcomes, play };
}

const sends = (text: string) => (socket: Socket) => void socket.end(text, 'latin1');

const ALL: readonly Fault[] = [
  fault('reset at once', 'error', (socket) => socket.resetAndDestroy()),
  fault('closed at once', 'error', (socket) => socket.destroy()),
  fault('half closed without an answer', 'error', (socket) => void socket.end()),
  fault('silence', 'error', () => {}),
  fault('a head that never ends', 'error', (socket) => void socket.write('HTTP/1.1 200 OK\r\nx: ')),
  fault('a head that is cut', 'error', (socket, below) => void socket.end(WHOLE.slice(0, 1 + below(50)))),
  fault('no HTTP', 'error', sends('GARBAGE\r\n\r\n')),
  fault('bytes', 'error', (socket, below) => {
    socket.end(Buffer.from(Array.from({ length: 1 + below(300) }, () => below(256))));
  }),
  fault('another protocol', 'error', sends('SSH-2.0-OpenSSH_9.2\r\n')),
  fault('a status that is none', 'error', sends('HTTP/1.1 9999 OK\r\n\r\n')),
  fault('two lengths', 'error', sends(`${JSON_HEAD}content-length: 2\r\ncontent-length: 3\r\n\r\n{}`)),
  fault(
    'length and encoding',
    ['error', 'broken'],
    sends(`${JSON_HEAD}content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}`),
  ),
  fault('a length that is no number', 'error', sends(`${JSON_HEAD}content-length: two\r\n\r\n{}`)),
  fault('a header without a colon', 'error', sends(`${JSON_HEAD}nonsense\r\n\r\n{}`)),
  fault('a header with a NUL', 'error', sends(`${JSON_HEAD}x: \x00\r\n\r\n{}`)),
  fault('huge headers', 'error', sends(`${JSON_HEAD}x: ${'x'.repeat(200_000)}\r\n\r\n{}`)),
  fault('a thousand headers', ['error', 'answered'], (socket) => {
    const many = Array.from({ length: 1_000 }, (_, i) => `x-${i}: ${i}\r\n`).join('');
    socket.end(WHOLE.replace('content-length', `${many}content-length`));
  }),
  fault('a storm of 1xx', ['error', 'answered'], sends('HTTP/1.1 102 Processing\r\n\r\n'.repeat(2_000) + WHOLE)),
  fault('100 and nothing', 'error', sends('HTTP/1.1 100 Continue\r\n\r\n')),
  fault('101', 'error', sends('HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\nx')),
  fault('a body that is cut', 'broken', (socket, below) => {
    socket.end(WHOLE.slice(0, WHOLE.length - 1 - below(CHAT_RESPONSE.length - 1)));
  }),
  fault('a body that is reset', 'broken', (socket) => {
    socket.write(WHOLE.slice(0, -9), () => setImmediate(() => socket.resetAndDestroy()));
  }),
  fault('a body that stops', 'broken', (socket) => void socket.write(WHOLE.slice(0, -9))),
  fault('more than was said', 'answered', sends(`${WHOLE}${WHOLE}`)),
  fault('an answer of HTTP/1.0 that ends with the connection', 'answered', (socket) => {
    socket.end(`HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n${CHAT_RESPONSE}`);
  }),
  fault('a stream that is cut between events', 'broken', (socket) => {
    socket.end(STREAM_HEAD + chunk(CHAT_STREAM.slice(0, CHAT_STREAM.indexOf('\n\n') + 2)));
  }),
  fault('a stream that is cut in a chunk', 'broken', (socket, below) => {
    socket.end(STREAM_HEAD + chunk(CHAT_STREAM).slice(0, 5 + below(200)));
  }),
  fault('a stream that is reset', 'broken', (socket) => {
    socket.write(STREAM_HEAD + chunk('data: {"choices":[]}\n\n'), () => setImmediate(() => socket.resetAndDestroy()));
  }),
  fault('a stream that stops', 'broken', (socket) => void socket.write(STREAM_HEAD + chunk(CHAT_STREAM.slice(0, 90)))),
  fault('a chunk whose size is none', 'broken', sends(`${STREAM_HEAD}${chunk('data: {}\n\n')}zz\r\n`)),
  fault('a chunk that is longer than it says', 'broken', sends(`${STREAM_HEAD}2\r\ndata: {}\r\n`)),
  fault('a chunk of more bytes than there are', 'broken', sends(`${STREAM_HEAD}${chunk('data: {}\n\n')}ffffffff\r\nx`)),
  fault('no last chunk', 'broken', sends(STREAM_HEAD + chunk(CHAT_STREAM))),
  fault('a whole answer, then a reset', ['answered', 'broken'], (socket) => {
    socket.write(WHOLE, () => setImmediate(() => socket.resetAndDestroy()));
  }),
];

/** An engine that plays one fault after the other. */
async function faultyEngine() {
  const open = new Set<Socket>();
  let next: (socket: Socket) => void = () => {};
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    open.add(socket);
    let held = '';
    socket.on('error', () => {});
    socket.on('close', () => open.delete(socket));
    socket.on('end', () => socket.end());
    socket.setEncoding('latin1').on('data', (text: string) => {
      held += text;
      const length = Number(/content-length: (\d+)/i.exec(held)?.[1] ?? 0);
      const head = held.indexOf('\r\n\r\n');
      if (head < 0 || held.length < head + 4 + length) return;
      held = '';
      next(socket);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    open,
    plays: (play: (socket: Socket) => void) => {
      next = play;
    },
    close: async () => {
      for (const socket of open) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

/** What a client makes of a reply; a sentence where it could be misled. */
function outcomeOf({ status, text, broken }: Reply): Outcome | string {
  if (broken) return 'broken';
  if (status === 200) {
    const isStream = text.startsWith('data:') || text.startsWith(':');
    if (isStream)
      return text.includes('"error"') ? 'broken' : text.includes('[DONE]') ? 'answered' : 'a cut stream ends well';
    try {
      JSON.parse(text);
      return 'answered';
    } catch {
      return `a body that is none ends well: ${text.slice(0, 80)}`;
    }
  }
  const { error } = JSON.parse(text) as ErrorBody;
  const entry = ERROR_TABLE[error.code as keyof typeof ERROR_TABLE];
  if (entry === undefined) return `${status} with the unknown code ${error.code}`;
  return status >= 500 ? 'error' : `status ${status}`;
}

it(`${FAULTS} answers that go wrong: each client is told, and nothing is left behind`, {
  timeout: 600_000,
}, async () => {
  const engine = closing(await faultyEngine());
  const gateway = closing(await gatewayAt(engine.url, { upstream: { timeoutMs: 500, maxConcurrent: 4 } }));
  let state = 17;
  const below = (limit: number) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
  const seen = new Map<string, number>();
  const serve = async (times: number) => {
    engine.plays((socket) => void socket.write(WHOLE));
    for (let i = 0; i < times; i++) expect((await send(gateway.url + PATH, chat())).status).toBe(200);
  };
  await serve(3);
  const kept = await memoryOf(gateway);
  expect(kept).toMatchObject({ bodies: 0, arrangements: 0 });
  for (let i = 0; i < FAULTS; i++) {
    const { name, outcomes, play } = ALL[i % ALL.length]!;
    engine.plays((socket) => play(socket, below));
    const reply = await send(gateway.url + PATH, chat(undefined, { stream: below(2) === 0 }));
    const outcome = outcomeOf(reply);
    expect(outcomes, `${name}: ${outcome}, ${reply.status}, ${reply.text.slice(0, 200)}`).toContain(outcome);
    seen.set(outcome, (seen.get(outcome) ?? 0) + 1);
  }
  expect([...seen.keys()].sort()).toEqual(['answered', 'broken', 'error']);
  await serve(1);
  // The request for the metrics is in flight itself.
  expect(await metricOf(gateway, 'warmpath_requests_in_flight')).toBe(1);
  for (const name of ['queue_depth', 'upstream_in_flight', 'fail_open_total']) {
    expect(await metricOf(gateway, `warmpath_${name}`), name).toBe(0);
  }
  // Of requests that are over, only the records that can be asked for.
  const held = await memoryOf(gateway);
  expect(held).toEqual({ ...kept, requests: expect.any(Number), histories: expect.any(Number) });
  // Each history counts the last hundred requests.
  expect(held['histories']! - kept['histories']!).toBeLessThan(20_000);
  // The last answer's connection is kept, and none of those that failed.
  while (engine.open.size > 1) await once([...engine.open][0]!, 'close');
});
