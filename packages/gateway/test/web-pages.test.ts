import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { launchChromium } from '../../lab/test/browser/chromium.js';
import { CHAT_RESPONSE } from './fake-engine.js';
import { chat, closing, send, stand } from './harness.js';

/** A name that leads to this machine, as a page of a hostile DNS server has it. */
const REBOUND = 'rebound.example';

let browser: Awaited<ReturnType<typeof launchChromium>>;
beforeAll(async () => {
  // Not every browser keeps pages from this machine by itself.
  const unguarded = '--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests';
  browser = await launchChromium([`--host-resolver-rules=MAP ${REBOUND} 127.0.0.1`, unguarded]);
});
afterAll(() => browser.close());

/** A gateway that keeps a document, in front of an engine that lets every page read its answers. */
async function privateGateway(cors?: string[]) {
  const folder = await mkdtemp(join(tmpdir(), 'warmpath-pages-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const { engine, gateway } = await stand(
    (response) =>
      response
        .writeHead(200, {
          'content-type': 'application/json',
          'access-control-allow-origin': '*',
          'access-control-allow-headers': '*',
          'access-control-allow-methods': '*',
        })
        .end(CHAT_RESPONSE),
    { collections: { folder }, ...(cors && { server: { cors } }) },
  );
  const documents = `${gateway.url}/v1/collections/private/documents`;
  await send(documents, { documents: [{ id: 'secret', content: 'The code of the door is 4711.' }] });
  const kept = async () => (await send(documents)).text;
  return { engine, url: gateway.url, port: new URL(gateway.url).port, kept, before: await kept() };
}

/** A page of this origin, which is not the gateway's. */
async function pageAt(origin: string) {
  const page = closing(await browser.newPage());
  await page.route(`${origin}/attack`, (route) => route.fulfill({ contentType: 'text/html', body: '<p>Hello.' }));
  await page.goto(`${origin}/attack`);
  return page;
}

/** Everything that the page tries; resolves with what it could read, by what it tried. */
const ATTACK = `async ({ base, chat }) => {
  const read = {};
  const attempt = async (name, path, init) => {
    try {
      const response = await fetch(base + path, init);
      read[name] = response.type === 'opaque' ? 'opaque' : response.status + ' ' + (await response.text()).slice(0, 200);
    } catch (error) {
      read[name] = String(error);
    }
  };
  const json = { 'content-type': 'application/json' };
  const planted = 'Planted by a web page.';
  const place = '/v1/collections/private/documents?id=planted';
  const form = new FormData();
  form.set('file', new Blob([planted]), 'planted.txt');
  for (const path of ['/v1/collections', '/v1/collections/private/documents', '/metrics', '/ui/tree', '/ui/requests/x',
    '/v1/models', '/readyz']) {
    await attempt('GET ' + path, path);
    await attempt('no-cors GET ' + path, path, { mode: 'no-cors' });
  }
  await attempt('JSON chat', '/v1/chat/completions', { method: 'POST', headers: json, body: chat });
  for (const mode of ['cors', 'no-cors']) {
    const post = (body) => ({ method: 'POST', mode, body });
    await attempt(mode + ' text chat', '/v1/chat/completions', post(chat));
    await attempt(mode + ' chat without type', '/v1/chat/completions', post(new Blob([chat])));
    await attempt(mode + ' text', place, post(planted));
    await attempt(mode + ' form', place, post(new URLSearchParams({ planted })));
    await attempt(mode + ' multipart', place, post(form));
    await attempt(mode + ' file to the engine', '/v1/files', post(form));
  }
  await attempt('JSON documents', place, { method: 'POST', headers: json,
    body: JSON.stringify({ documents: [{ id: 'planted', content: planted }] }) });
  await attempt('DELETE', '/v1/collections/private', { method: 'DELETE' });
  read.feed = await new Promise((resolve) => {
    const feed = new EventSource(base + '/ui/events');
    feed.addEventListener('start', ({ data }) => resolve('200 ' + data));
    feed.onerror = () => { feed.close(); resolve('error'); };
  });
  read.frame = await new Promise((resolve) => {
    const frame = document.createElement('iframe');
    frame.name = 'frame';
    document.body.append(frame);
    const html = document.createElement('form');
    Object.assign(html, { action: base + place, method: 'post', enctype: 'text/plain', target: 'frame' });
    document.body.append(html);
    frame.onload = () => resolve('loaded');
    html.submit();
  });
  return read;
}`;

function attacked(page: Awaited<ReturnType<typeof pageAt>>, base: string): Promise<Record<string, string>> {
  return page.evaluate(`(${ATTACK})(${JSON.stringify({ base, chat: JSON.stringify(chat()) })})`);
}

describe('a page in a browser', () => {
  it('of another origin neither reads nor writes', async () => {
    const { engine, url, kept, before } = await privateGateway();
    const site = closing(await webSite());
    const read = await attacked(await pageAt(site.url), url);
    expect(Object.keys(read).length).toBeGreaterThan(25);
    for (const [name, text] of Object.entries(read)) expect([name, text.slice(0, 3)]).not.toEqual([name, '200']);
    expect(JSON.stringify(read)).not.toContain('4711');
    expect(JSON.stringify(read)).not.toContain('private"');
    expect(await kept()).toBe(before);
    expect(engine.received).toHaveLength(0);
  });

  it('whose name leads to this machine neither reads nor writes', async () => {
    const { engine, port, kept, before } = await privateGateway();
    const origin = `http://${REBOUND}:${port}`;
    const read = await attacked(await pageAt(origin), origin);
    const { feed, frame: _frame, ...fetched } = read;
    expect(feed).toBe('error');
    for (const [name, text] of Object.entries(fetched)) expect([name, text.slice(0, 3)]).toEqual([name, '403']);
    expect(await kept()).toBe(before);
    expect(engine.received).toHaveLength(0);
  });

  it('of an origin in `server.cors` reads and writes', async () => {
    const site = closing(await webSite());
    const { url, kept, before } = await privateGateway([site.url]);
    const read = await attacked(await pageAt(site.url), url);
    expect(read['GET /v1/collections']).toContain('private');
    expect(read['JSON chat']).toMatch(/^200/);
    expect(await kept()).not.toBe(before);
  });
});

/** Another server on this machine, so another origin. */
async function webSite() {
  const server = createServer((_request, response) => response.end('<p>Hello.')).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const close = async () => {
    server.closeAllConnections();
    server.close();
  };
  return { url: `http://127.0.0.1:${port}`, close };
}
