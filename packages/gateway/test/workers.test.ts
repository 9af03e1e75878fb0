import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { Agent } from 'node:http';
import { connect } from 'node:net';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { startGateway } from '../src/start-gateway.js';
import { answerAsAsked, CHAT_RESPONSE, CHAT_STREAM, FakeEngine, startStream } from './fake-engine.js';
import {
  chat,
  closing,
  DOCUMENTS,
  errorOf,
  gatewayAt,
  labelsIn,
  metricOf,
  openRequest,
  type Reply,
  send,
  stand,
  told,
  untilMetric,
} from './harness.js';

const CHAT = '/v1/chat/completions';
const [VELKA, ORSIN, TAMIR] = DOCUMENTS;
/** Workers are real processes, and two cores may be shared by many. */
const TIMEOUT = { timeout: 60_000 };
const WORKERS = { workers: 2 };

/** Processes that this one started and that live: the workers of the gateways of this file. */
function workers(): number[] {
  const children = readdirSync('/proc').filter((name) => {
    try {
      const stat = readFileSync(`/proc/${name}/stat`, 'utf8');
      const [state, parent] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      const isOurs = Number(parent) === process.pid && state !== 'Z';
      return isOurs && readFileSync(`/proc/${name}/cmdline`, 'utf8').includes('/workers/worker.js');
    } catch {
      return false;
    }
  });
  return children.map(Number);
}

describe('a gateway with workers', TIMEOUT, () => {
  it.each([
    ['JSON', {}, CHAT_RESPONSE],
    ['a stream', { stream: true }, CHAT_STREAM],
  ])('answers by %s as one process does, and knows what the engine counted', async (_, fields, answer) => {
    const { engine, gateway } = await stand(answerAsAsked, {}, WORKERS);
    const alone = await stand(answerAsAsked);
    for (const documents of [DOCUMENTS, DOCUMENTS.toReversed(), []]) {
      const [here, there] = [
        await send(gateway.url + CHAT, chat(documents, fields)),
        await send(alone.gateway.url + CHAT, chat(documents, fields)),
      ];
      expect([here.status, here.text]).toEqual([200, answer]);
      expect(engine.last.body).toBe(alone.engine.last.body);
      const { overhead: _here, ...summary } = told(here);
      const { overhead: _there, ...expected } = told(there);
      expect(summary).toEqual(expected);
      const id = String(here.headers['x-request-id']);
      const record = JSON.parse((await send(`${gateway.url}/v1/requests/${id}`)).text) as object;
      const same = (await send(`${alone.gateway.url}/v1/requests/${String(there.headers['x-request-id'])}`)).text;
      expect(Object.keys(record)).toEqual(Object.keys(JSON.parse(same) as object));
    }
    expect(await metricOf(gateway, 'warmpath_cached_tokens_total')).toBe(
      await metricOf(alone.gateway, 'warmpath_cached_tokens_total'),
    );
    expect(await metricOf(gateway, 'warmpath_workers')).toBe(2);
    expect(await metricOf(gateway, 'warmpath_requests_total{route="/v1/chat/completions",status="200"}')).toBe(3);
  });

  it('knows a conversation whose every turn comes through another worker', async () => {
    const { engine, gateway } = await stand(undefined, {}, WORKERS);
    let messages: object[] = [{ role: 'user', content: 'Q0' }];
    for (let turn = 0; turn < 12; turn++) {
      const fields = { warmpath: { session: 's' }, messages };
      const reply = await send(gateway.url + CHAT, chat([VELKA, ORSIN, TAMIR], fields));
      expect(reply.status).toBe(200);
      expect(told(reply)['conversation']).toBe(turn === 0 ? 'new' : 'known');
      const [{ message }] = (JSON.parse(reply.text) as { choices: [{ message: object }] }).choices;
      messages = [...messages, message, { role: 'user', content: `Q${turn + 1}` }];
    }
    expect(labelsIn(engine.last.body).toSorted()).toEqual(['orsin', 'tamir', 'velka']);
    // Each request had a connection of its own, and the connections took turns.
    expect(workers()).toHaveLength(2);
  });

  it('limits a key over all workers', async () => {
    const key = 'a-key-of-the-clients';
    const keys = [{ name: 'k', key, requestsPerMinute: 5 }];
    const { gateway } = await stand(undefined, { server: { keys, open: true } }, WORKERS);
    const headers = { authorization: `Bearer ${key}` };
    const statuses = [];
    for (let i = 0; i < 8; i++) statuses.push((await send(gateway.url + CHAT, chat(), { headers })).status);
    expect(statuses).toEqual([200, 200, 200, 200, 200, 429, 429, 429]);
    expect((await send(gateway.url + CHAT, chat())).status).toBe(401);
  });

  it('tells the engine when a client leaves, before and in the middle of its answer', async () => {
    const { engine, gateway } = await stand(
      (response, { body }) => {
        if (body.includes('"stream":true')) startStream(response).write(CHAT_STREAM.slice(0, 300));
      },
      {},
      WORKERS,
    );
    const early = openRequest(gateway.url + CHAT, chat());
    early.on('error', () => {});
    await engine.until('request', 1);
    early.destroy();
    await engine.until('abort', 1);
    const late = openRequest(gateway.url + CHAT, chat(undefined, { stream: true }));
    late.on('error', () => {});
    const [response] = (await once(late, 'response')) as [NodeJS.ReadableStream];
    await once(response, 'data');
    late.destroy();
    await engine.until('abort', 2);
    await untilMetric(gateway, 'warmpath_client_aborts_total', 2);
    await untilMetric(gateway, 'warmpath_upstream_in_flight', 0);
  });

  it('loses the connections of a worker that dies and nothing else, and starts it again', async () => {
    let finish = () => {};
    const { engine, gateway } = await stand(
      (response, { body }) => {
        if (!body.includes('"stream":true')) {
          answerAsAsked(response, { method: '', path: '', headers: {}, body });
          return;
        }
        startStream(response).write(CHAT_STREAM.slice(0, 300));
        const before = finish;
        finish = () => {
          before();
          response.end(CHAT_STREAM.slice(300));
        };
      },
      {},
      WORKERS,
    );
    const before = workers();
    // One on each worker.
    const streams = Promise.allSettled([1, 2].map(() => send(gateway.url + CHAT, chat(undefined, { stream: true }))));
    await engine.until('request', 2);
    process.kill(before[0]!, 'SIGKILL');
    await engine.until('abort', 1);
    finish();
    const broken = (await streams).map((one) => one.status === 'rejected' || one.value.broken);
    expect(broken.toSorted()).toEqual([false, true]);
    // The engine hears of its end first: until the gateway does, a connection may be given to the one that is dying.
    let reply: Reply | undefined;
    while (reply === undefined) reply = await send(gateway.url + CHAT, chat()).catch(() => undefined);
    for (let i = 0; i < 6; i++) expect((await send(gateway.url + CHAT, chat())).status).toBe(200);
    await untilMetric(gateway, 'warmpath_worker_restarts_total', 1);
    await untilMetric(gateway, 'warmpath_workers', 2);
    await untilMetric(gateway, 'warmpath_upstream_in_flight', 0);
    // Beside the question itself.
    await untilMetric(gateway, 'warmpath_requests_in_flight', 1);
    expect(workers()).not.toContain(before[0]);
  });

  it('serves by itself while no worker lives', async () => {
    const { gateway } = await stand(undefined, {}, WORKERS);
    for (const worker of workers()) process.kill(worker, 'SIGKILL');
    while (workers().length > 0) await new Promise((resolve) => setImmediate(resolve));
    // The first connections may still have been given to those that were dying.
    let reply: Reply | undefined;
    while (reply === undefined) reply = await send(gateway.url + CHAT, chat()).catch(() => undefined);
    expect(reply.status).toBe(200);
    await untilMetric(gateway, 'warmpath_workers', 2);
  });

  it('moves a prompt on to another engine, and tells who failed where there is none', async () => {
    const failing = closing(await FakeEngine.start((response) => response.writeHead(503).end('{"error":{}}')));
    const good = closing(await FakeEngine.start());
    const engines = [
      { name: 'failing', url: failing.url },
      { name: 'good', url: good.url },
    ];
    const both = closing(await startGateway({ engines, server: { port: 0 }, log: { level: 'silent' } }, WORKERS));
    for (let i = 0; i < 6; i++) expect((await send(both.url + CHAT, chat())).status).toBe(200);
    expect(failing.received.length).toBeGreaterThan(0);
    const one = closing(await gatewayAt(failing.url, {}, WORKERS));
    const reply = await send(one.url + CHAT, chat());
    expect([reply.status, reply.text, told(reply)['error']]).toEqual([503, '{"error":{}}', 'upstream']);
    await failing.close();
    const gone = await send(one.url + CHAT, chat());
    expect([gone.status, errorOf(gone).code]).toEqual([502, 'WARMPATH_UPSTREAM_UNREACHABLE']);
    expect(told(gone)['error']).toBe('upstream');
    await untilMetric(one, 'warmpath_errors_total{code="WARMPATH_UPSTREAM_UNREACHABLE",source="upstream"}', 1);
  });

  it('takes and sends large bodies, and refuses too large ones before they are sent', async () => {
    const { engine, gateway } = await stand(
      (response, { body }) => response.writeHead(200, { 'content-type': 'application/json' }).end(body),
      { server: { bodyLimitBytes: 4_000_000 } },
      WORKERS,
    );
    const content = 'x'.repeat(3_000_000);
    const reply = await send(gateway.url + CHAT, { model: 'm', messages: [{ role: 'user', content }] });
    expect(reply.text).toBe(engine.last.body);
    expect(reply.text).toContain(content);
    const { hostname, port } = new URL(gateway.url);
    const socket = connect(Number(port), hostname).setEncoding('utf8');
    socket.write(
      `POST ${CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 5000000\r\n\r\n`,
    );
    const [text] = (await once(socket, 'data')) as [string];
    expect(text).toContain('WARMPATH_BODY_TOO_LARGE');
    socket.destroy();
    const malformed = connect(Number(port), hostname).setEncoding('utf8');
    malformed.write('nonsense\r\n\r\n');
    expect(String((await once(malformed, 'data'))[0])).toMatch(/^HTTP\/1.1 400/);
    malformed.destroy();
    await untilMetric(gateway, 'warmpath_errors_total{code="WARMPATH_INVALID_REQUEST"', 1);
  });

  it('sends what it writes itself: translated answers of any size, headers for browsers, events', async () => {
    const content = 'word '.repeat(200_000);
    const { gateway } = await stand(
      (response) => {
        response.writeHead(200, { 'content-type': 'application/json' });
        response.end(
          JSON.stringify({ choices: [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }] }),
        );
      },
      { upstream: { messages: 'translate' }, server: { cors: ['https://app.example'] } },
      WORKERS,
    );
    const message = { model: 'm', max_tokens: 9, messages: [{ role: 'user', content: 'Hello' }] };
    const origin = { origin: 'https://app.example' };
    const translated = await send(`${gateway.url}/v1/messages`, message, { headers: origin });
    expect((JSON.parse(translated.text) as { content: [{ text: string }] }).content[0].text).toBe(content);
    const relayed = await send(gateway.url + CHAT, chat(), { headers: origin });
    for (const { headers } of [translated, relayed]) {
      expect(headers['access-control-allow-origin']).toBe('https://app.example');
      expect(headers['x-request-id']).toMatch(/^[0-9a-f-]{36}$/);
    }
    expect(translated.headers['request-id']).toBe(translated.headers['x-request-id']);
    expect((await send(`${gateway.url}/nowhere`)).status).toBe(404);
    expect(await send(`${gateway.url}/healthz`, undefined, { method: 'HEAD' })).toMatchObject({
      status: 200,
      text: '',
    });
    const feed = openRequest(`${gateway.url}/ui/events`);
    const [events] = (await once(feed, 'response')) as [NodeJS.ReadableStream];
    expect(String((await once(events, 'data'))[0])).toContain('event:');
    feed.on('error', () => {});
    feed.destroy();
  });

  it('lets answers in flight finish when it closes, and leaves no process behind', async () => {
    let finish = () => {};
    const { engine, gateway } = await stand(
      (response) => {
        startStream(response).write(CHAT_STREAM.slice(0, 200));
        finish = () => response.end(CHAT_STREAM.slice(200));
      },
      {},
      WORKERS,
    );
    const agent = new Agent({ keepAlive: true });
    const idle = await send(`${gateway.url}/healthz`, undefined, { agent });
    expect(idle.status).toBe(200);
    const answer = send(gateway.url + CHAT, chat(undefined, { stream: true }));
    await engine.until('request', 1);
    const closed = gateway.close();
    finish();
    expect(await answer).toMatchObject({ text: CHAT_STREAM, broken: false });
    await closed;
    await expect(send(`${gateway.url}/healthz`)).rejects.toMatchObject({ code: 'ECONNREFUSED' });
    expect(workers()).toEqual([]);
    agent.destroy();
  });

  it('cuts what is not over in time', async () => {
    const { engine, gateway } = await stand(
      (response) => void startStream(response),
      { server: { drainMs: 50 } },
      WORKERS,
    );
    const answer = send(gateway.url + CHAT, chat(undefined, { stream: true }));
    await engine.until('request', 1);
    await gateway.close();
    expect((await answer.catch(() => ({ broken: true }))).broken).toBe(true);
    expect(workers()).toEqual([]);
  });

  it('are started again once there are files for a process, and nothing ends meanwhile', async () => {
    const script = fileURLToPath(new URL('workers-without-files.js', import.meta.url));
    const command = `ulimit -n 400; exec "${process.execPath}" "${script}"`;
    await expect(promisify(execFile)('sh', ['-c', command])).resolves.toMatchObject({ stdout: '' });
  });
});
