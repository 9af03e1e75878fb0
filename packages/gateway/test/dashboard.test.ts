import { once } from 'node:events';
import { mkdtemp, readdir, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { type ClientRequest, request as httpRequest, type IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import type { FeedStart, FeedTick, TreeSnapshot } from '@warmpath/dashboard';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { DAY_SLOT_MS, TrafficSeries } from '../src/observe/traffic-series.js';
import { NO_GAIN_REASONS } from '../src/shapes/shapes.js';
import type { RunningGateway } from '../src/start-gateway.js';
import { answerAsAsked } from './fake-engine.js';
import { chat, closing, DOCUMENTS, errorOf, gatewayAt, type Stand, type StandConfig, send, stand } from './harness.js';

const OPERATOR = { authorization: 'Bearer the-key-of-the-operator' };
const CLOSED: StandConfig = { server: { operatorKey: { key: 'the-key-of-the-operator' } } };
const DATA = ['/ui/events', '/ui/tree', '/ui/requests/one'] as const;

interface Viewer {
  readonly response: IncomingMessage;
  next<Event>(name: 'start' | 'tick'): Promise<Event>;
  close(): Promise<void>;
}

/** Somebody who watches. */
async function watch({ gateway }: { readonly gateway: RunningGateway }, headers: object = {}): Promise<Viewer> {
  const request: ClientRequest = httpRequest(`${gateway.url}/ui/events`, { agent: false, headers: { ...headers } });
  request.end();
  request.on('error', () => {});
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  response.on('error', () => {});
  let held = '';
  const lines = response.setEncoding('utf8')[Symbol.asyncIterator]();
  const next = async <Event>(name: string): Promise<Event> => {
    for (;;) {
      const end = held.indexOf('\n\n');
      if (end >= 0) {
        const event = held.slice(0, end);
        held = held.slice(end + 2);
        if (event.startsWith(`event: ${name}\n`)) return JSON.parse(event.slice(event.indexOf('data: ') + 6)) as Event;
        continue;
      }
      const { done, value } = await lines.next();
      if (done === true) throw new Error('the feed ended');
      held += value as string;
    }
  };
  const close = async () => {
    if (response.destroyed) return;
    const closed = new Promise((resolve) => response.once('close', resolve));
    request.destroy();
    await closed;
  };
  return closing({ response, next, close });
}

async function ask({ gateway }: Pick<Stand, 'gateway'>, id: string, fields: object = {}, headers: object = {}) {
  await send(`${gateway.url}/v1/chat/completions`, chat(DOCUMENTS, { stream: true, ...fields }), {
    headers: { 'x-request-id': id, ...headers },
  });
}

describe('the page', () => {
  it('is open to all, holds no data, and may run its own script alone', async () => {
    const { gateway } = await stand(undefined, CLOSED);
    const { status, headers, text } = await send(`${gateway.url}/ui`);
    expect(status).toBe(200);
    const policy = String(headers['content-security-policy']);
    expect(policy).toMatch(
      /^default-src 'none'; script-src 'sha256-[^ ]+'; style-src 'sha256-[^ ]+'; connect-src 'self';/,
    );
    expect(policy).toContain("frame-ancestors 'none'");
    expect(policy).not.toContain('unsafe');
    expect(headers['x-content-type-options']).toBe('nosniff');
    expect(text).not.toMatch(/(?:src|href)="(?!data:)/);
    expect(Buffer.byteLength(text)).toBeLessThanOrEqual(144 * 1_024);
    const small = await send(`${gateway.url}/ui`, undefined, { headers: { 'accept-encoding': 'br, gzip' } });
    expect(small.headers['content-encoding']).toBe('gzip');
    expect(gunzipSync(small.body).toString()).toBe(text);
    expect(small.body.length).toBeLessThan(52_000);
  });

  it.each<[string, StandConfig]>([
    ['without keys', {}],
    ['behind keys', { server: { ...CLOSED.server, keys: [{ name: 'alice', key: 'alice-has-this-key' }] } }],
  ])('is where browsers are led to, %s', async (_, config) => {
    const { gateway } = await stand(undefined, config);
    for (const [path, status] of [
      ['/', 302],
      ['/ui/', 302],
      ['/ui', 200],
    ] as const) {
      const browser = await send(gateway.url + path, undefined, { headers: { accept: 'text/html,*/*' } });
      expect([path, browser.status, browser.headers.location]).toEqual([
        path,
        status,
        status === 302 ? '/ui' : undefined,
      ]);
    }
  });

  it('is named to other clients at /, with the base path of the API', async () => {
    const { gateway } = await stand(undefined, CLOSED);
    const { status, text } = await send(gateway.url);
    expect([status, JSON.parse(text)]).toEqual([
      200,
      { name: 'warmpath', api: '/v1', page: '/ui', health: '/healthz', ready: '/readyz' },
    ]);
  });
});

describe('who may watch', () => {
  it('has the operator key where there is one, and no key of a client', async () => {
    const keys = [{ name: 'alice', key: 'alice-has-this-key' }];
    const one = await stand(answerAsAsked, { server: { ...CLOSED.server, keys } });
    await ask(one, 'one', {}, { authorization: 'Bearer alice-has-this-key' });
    const others: readonly Record<string, string>[] = [{}, { authorization: 'Bearer alice-has-this-key' }];
    for (const path of DATA) {
      for (const headers of others) {
        const reply = await send(`${one.gateway.url}${path}`, undefined, { headers });
        expect([reply.status, errorOf(reply).code]).toEqual([401, 'WARMPATH_UNAUTHORIZED']);
      }
    }
    expect((await send(`${one.gateway.url}/ui/tree`, undefined, { headers: OPERATOR })).status).toBe(200);
    const { text } = await send(`${one.gateway.url}/ui/requests/one`, undefined, { headers: OPERATOR });
    expect(JSON.parse(text)).toMatchObject({ id: 'one', status: 200, durationMs: expect.any(Number) });
    await (await watch(one, OPERATOR)).next<FeedStart>('start');
  });

  it('is nobody on a public host without an operator key, and everybody with `open`', async () => {
    const closed = await stand(undefined, { server: { host: '0.0.0.0' } });
    const open = await stand(undefined, { server: { host: '0.0.0.0', open: true } });
    const [no, yes] = [closed, open].map(({ gateway }) => gateway.url.replace('0.0.0.0', '127.0.0.1'));
    for (const path of DATA) expect((await send(`${no}${path}`)).status).toBe(403);
    expect((await send(`${yes}/ui/tree`)).status).toBe(200);
  });

  it('is no page of another site: neither by a name that leads here nor by CORS', async () => {
    const { gateway } = await stand(undefined, { server: { cors: ['*'] } });
    const { port } = new URL(gateway.url);
    for (const [host, status] of [
      [`localhost:${port}`, 200],
      [`127.0.0.1:${port}`, 200],
      [`[::1]:${port}`, 200],
      [`attacker.example:${port}`, 403],
    ] as const) {
      const reply = await send(`${gateway.url}/ui/tree`, undefined, {
        headers: { host, origin: 'https://attacker.example' },
      });
      expect(reply.status, host).toBe(status);
      expect(reply.headers['access-control-allow-origin']).toBeUndefined();
    }
  });
});

describe('the feed', () => {
  it('tells the past at once, then what ended, with the figures of /metrics', async () => {
    const one = await stand(answerAsAsked);
    await ask(one, 'before');
    const viewer = await watch(one);
    const start = await viewer.next<FeedStart>('start');
    expect(start.requests.map(({ id, documents }) => [id, documents])).toEqual([['before', 3]]);
    expect(start.slots.reduce((sum, { cachedTokens }) => sum + cachedTokens, 0)).toBe(96);
    await viewer.next<FeedTick>('tick');
    await ask(one, 'after');
    for (;;) {
      const tick = await viewer.next<FeedTick>('tick');
      if (tick.requests.length === 0) continue;
      expect(tick.requests[0]).toMatchObject({ id: 'after', status: 200, promptTokens: 120, cachedTokens: 96 });
      expect(tick.metrics['warmpath_cached_tokens_total']).toBe(192);
      expect(tick.engines).toMatchObject([{ url: one.engine.url, inFlight: 0, queued: 0 }]);
      break;
    }
    expect(JSON.stringify(start)).not.toMatch(/Velka|Orsin|weight/);
  });

  it('costs the engine and the gateway nothing while nobody watches', async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
    try {
      const one = await stand(answerAsAsked);
      await ask(one, 'one');
      const probes = () => one.engine.received.filter(({ path }) => path === '/v1/models').length;
      const others = vi.getTimerCount();
      expect(probes()).toBe(0);
      const [viewer, other] = [await watch(one), await watch(one)];
      await viewer.next<FeedTick>('tick');
      await one.engine.until('request', 2);
      expect([probes(), vi.getTimerCount()]).toEqual([1, others + 1]);
      await viewer.close();
      await other.close();
      for (let turns = 0; vi.getTimerCount() > others && turns < 10_000; turns++) {
        await new Promise((resolve) => setImmediate(resolve));
      }
      expect(vi.getTimerCount()).toBe(others);
      // Viewers leave as a rule; clients that do are another matter.
      const { text } = await send(`${one.gateway.url}/metrics`);
      expect(text).toMatch(/^warmpath_client_aborts_total 0$/m);
      expect(text).not.toContain('status="499"');
    } finally {
      vi.useRealTimers();
    }
  });

  it('is for sixteen at once', async () => {
    const one = await stand();
    for (let i = 0; i < 16; i++) await watch(one);
    const reply = await send(`${one.gateway.url}/ui/events`);
    expect([reply.status, errorOf(reply).code]).toEqual([429, 'WARMPATH_OVERLOADED']);
  });

  it('drops a viewer that does not read, and goes on for the others', async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
    try {
      const one = await stand(answerAsAsked);
      const [slow, quick] = [await watch(one), await watch(one)];
      await quick.next<FeedStart>('start');
      slow.response.pause();
      const inFlight = async () => {
        vi.advanceTimersByTime(1_000);
        return (await quick.next<FeedTick>('tick')).metrics['warmpath_requests_in_flight'];
      };
      expect(await inFlight()).toBe(2);
      let ticks = 0;
      while ((await inFlight()) === 2) expect(++ticks).toBeLessThan(20_000);
      expect(await inFlight()).toBe(1);
      await quick.close();
    } finally {
      vi.useRealTimers();
    }
  });

  it('ends when the gateway shuts down', async () => {
    const one = await stand(undefined, {}, { drainMs: 60_000 });
    const viewer = await watch(one);
    await viewer.next<FeedTick>('tick');
    const closed = one.gateway.close();
    await expect(viewer.next('start')).rejects.toThrow('ended');
    await closed;
  });
});

describe('the tree', () => {
  it('tells small trees whole, and of large ones what was used last', async () => {
    const one = await stand(answerAsAsked);
    const documents = (request: number) =>
      Array.from({ length: 800 }, (_, i) => ({ id: `${request}-${i}`, content: `Passage ${i} of ${request}.` }));
    for (let i = 0; i < 20; i++) await ask(one, `${i}`, { documents: documents(i), model: i < 10 ? 'one' : 'other' });
    await ask(one, 'small', { model: 'small' });
    const tree = JSON.parse((await send(`${one.gateway.url}/ui/tree`)).text) as TreeSnapshot;
    expect(tree.histories.map(({ model, nodes }) => [model, nodes])).toEqual([
      ['one', 8_001],
      ['other', 8_001],
      ['small', 4],
    ]);
    const small = tree.histories[2];
    expect(tree.histories.map(({ rows }) => rows.length)).toEqual([4_998, 4_998, 4]);
    expect(tree.omittedNodes).toBe(16_006 - 10_000);
    for (const { rows } of tree.histories) {
      for (const [place, [parent]] of rows.entries()) expect(parent).toBeLessThan(place);
      expect(rows.filter(([parent]) => parent === -1)).toHaveLength(1);
    }
    expect(small!.rows.every(([, , hits, confirmed]) => hits === 1 && confirmed === 1)).toBe(true);
    expect(small!.rows.map((row) => row[6]).join()).not.toMatch(/velka|orsin|tamir/);
  });
});

describe('the series', () => {
  const report = (status: number, fields: object) => ({ status, ...fields }) as Parameters<TrafficSeries['add']>[0];

  it('keeps a quarter of an hour, and tells quantiles to 5 %', () => {
    const series = TrafficSeries.recent();
    series.add(report(200, { promptTokens: 100, cachedTokens: 50, predictedCachedTokens: 70, ttftMs: 200 }), 10_000);
    series.add(report(200, { promptTokens: 100, cachedTokens: 49, predictedCachedTokens: 170, ttftMs: 800 }), 10_001);
    series.add(report(503, {}), 10_002);
    series.add(report(499, {}), 10_003);
    const [slot, ...others] = series.since(0, 12_000);
    expect(others).toEqual([]);
    expect(slot).toMatchObject({ slot: 2, requests: 4, errors: 1, reported: 2, promptTokens: 200, cachedTokens: 99 });
    expect(slot!.predictedTokens).toBe(170);
    expect([slot!.ttftCached[1], slot!.ttftComputed[1]]).toEqual([1, 1]);
    expect(series.since(3, 12_000)).toEqual([]);
    // The place of slot 2 is taken a quarter of an hour later, and only then.
    expect(series.since(0, 10_000 + 179 * 5_000)).toHaveLength(1);
    expect(series.since(0, 10_000 + 180 * 5_000)).toEqual([]);
    series.add(report(200, {}), 10_000 + 180 * 5_000);
    expect(series.since(0, 10_000 + 180 * 5_000)).toMatchObject([{ slot: 182, requests: 1, promptTokens: 0 }]);
  });
});

it('names the model of a request, its engine, and its tenant by a hash unless names are shown', async () => {
  for (const names of [false, true]) {
    const keys = [{ name: 'museum', key: 'the-key-of-the-museum' }];
    const server = { keys, operatorKey: { key: 'the-key-of-the-operator' } };
    const one = await stand(answerAsAsked, { server, dashboard: { names } });
    await send(`${one.gateway.url}/v1/chat/completions`, chat(), {
      headers: { authorization: 'Bearer the-key-of-the-museum' },
    });
    const { requests } = await (await watch(one, OPERATOR)).next<FeedStart>('start');
    expect(requests).toMatchObject([{ model: 'm', engine: null, baselineTokens: 0 }]);
    expect(requests[0]!.tenant).toMatch(names ? /^museum/ : /^[0-9a-f]{8}$/);
  }
});

describe('the series of a day', () => {
  it('survives a restart, a damaged file, and a folder that cannot be written', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'warmpath-traffic-'));
    onTestFinished(() => rm(folder, { recursive: true }));
    const stateFolder = join(folder, 'state');
    const daySlots = async (gateway: RunningGateway) => {
      const viewer = await watch({ gateway });
      const { daySlots: found } = await viewer.next<FeedStart>('start');
      await viewer.close();
      return found;
    };
    const one = await stand(answerAsAsked, {}, { stateFolder });
    await ask(one, 'one');
    await one.gateway.close();
    const filesOf = async () => (await readdir(stateFolder)).filter((name) => name.startsWith('traffic'));
    const [closed, ...rest] = await filesOf();
    expect(rest).toEqual([]);
    expect((await stat(join(stateFolder, closed!))).mode & 0o777).toBe(0o600);
    const again = () => gatewayAt(one.engine.url, {}, { stateFolder });
    const later = await again();
    const [slot, ...others] = await daySlots(later);
    expect(others).toEqual([]);
    expect(slot).toMatchObject({ requests: 1, promptTokens: 120, cachedTokens: 96 });
    // A gateway beside it has a history of its own, and leaves the other one's alone.
    const beside = await again();
    expect(await daySlots(beside)).toEqual([]);
    await beside.close();
    await later.close();
    expect(await filesOf()).toHaveLength(1);
    const both = [await again(), await again()];
    const seen = await Promise.all(both.map(daySlots));
    expect(seen.map((slots) => slots.length).toSorted()).toEqual([0, 1]);
    for (const gateway of both) await gateway.close();
    for (const text of [
      '',
      '{',
      '[]',
      '{"format":"warmpath-traffic","version":2,"reasons":[],"slots":[{"slot":"x","noGain":[]}]}',
      '0'.repeat(99),
    ]) {
      for (const name of await filesOf()) await rm(join(stateFolder, name));
      await writeFile(join(stateFolder, 'traffic.json'), text);
      const old = new Date(Date.now() - 3_600_000);
      await utimes(join(stateFolder, 'traffic.json'), old, old);
      const damaged = await again();
      expect(await daySlots(damaged)).toEqual([]);
      await damaged.close();
    }
    // Reasons of another version are known by their names.
    for (const name of await filesOf()) await rm(join(stateFolder, name));
    const now = Math.floor(Date.now() / DAY_SLOT_MS);
    const reasons = ['of-another-version', 'holdout'];
    const slots = [{ slot: now, requests: 5, noGain: [0, 2, 1, 3] }];
    await writeFile(
      join(stateFolder, 'traffic.closed.json'),
      JSON.stringify({ format: 'warmpath-traffic', version: 2, reasons, slots }),
    );
    const renumbered = await again();
    const holdout = Object.keys(NO_GAIN_REASONS).indexOf('holdout');
    expect(await daySlots(renumbered)).toMatchObject([{ requests: 5, noGain: [holdout, 3] }]);
    await renumbered.close();
    await writeFile(join(folder, 'file'), '');
    const without = closing(await gatewayAt(one.engine.url, {}, { stateFolder: join(folder, 'file', 'state') }));
    expect(await daySlots(without)).toEqual([]);
  });
});

it('a gateway on the same port later is another one to viewers', async () => {
  const one = await stand(answerAsAsked);
  await ask(one, 'one');
  const { port } = new URL(one.gateway.url);
  await one.gateway.close();
  const later = closing(await gatewayAt(one.engine.url, { server: { port: Number(port) } }));
  const start = await (await watch({ gateway: later })).next<FeedStart>('start');
  expect([start.requests, start.slots]).toEqual([[], []]);
});
