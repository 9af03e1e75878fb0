import { once } from 'node:events';
import { createServer, request as httpRequest, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Page } from 'playwright-core';
import { afterAll, describe, expect, it } from 'vitest';
import { startGateway } from '../../gateway/src/start-gateway.js';
import { closing } from '../../gateway/test/harness.js';
import { closeBrowser, live, type OpenDashboard, openDashboard } from './open-dashboard.js';
import { SimulatedEngine } from './simulated-engine.js';

afterAll(closeBrowser);

/** Markup that would call `hacked`, for every place where a text may stand. */
const HOSTILE = [
  '<img src=x onerror=hacked()>',
  '</script><script>hacked()</script>',
  '"><svg onload=hacked()>',
  "'onmouseover='hacked()' autofocus onfocus='hacked()",
  'javascript:hacked()',
  '<iframe srcdoc="<script>parent.hacked()</script>">',
  '</style><style>*{background:url(http://elsewhere.example)}</style>',
  '{{constructor.constructor("hacked()")()}}',
  '<base href=http://elsewhere.example/><a href=javascript:hacked()>x</a>',
] as const;

const OPERATOR = 'the-key-of-the-operator';

async function gatewayFor(tenants: readonly string[]) {
  const engine = closing(await SimulatedEngine.start({ maxBlocks: 10_000 }));
  engine.onPrompt = (prompt) => {
    prompt.first();
    prompt.end();
  };
  const gateway = await startGateway({
    server: { port: 0, trustedHeaders: { tenant: 'x-tenant' }, operatorKey: { key: OPERATOR } },
    engines: [{ name: 'only', url: engine.url, models: [...HOSTILE] }],
    dashboard: { names: true },
    explain: { prompts: 'all' },
    log: { level: 'silent' },
  });
  closing(gateway);
  for (const [i, tenant] of tenants.entries()) {
    const answer = await fetch(`${gateway.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-tenant': tenant, 'x-request-id': HOSTILE[i % HOSTILE.length]! },
      body: JSON.stringify({
        model: HOSTILE[i % HOSTILE.length],
        stream: true,
        messages: [{ role: 'user', content: HOSTILE[0] }],
        documents: HOSTILE.map((id) => ({ id, title: id, content: `${id} and more` })),
      }),
    });
    expect(answer.status, await answer.text()).toBe(200);
    // What a client calls its request is a plain token, or not what the gateway calls it.
    expect(answer.headers.get('x-request-id')).toMatch(/^[\w.:-]+$/);
  }
  return gateway;
}

/** Opens the page, whose script is to find `hacked` called, if ever. */
async function opened(url: string): Promise<OpenDashboard> {
  const before = 'window.calls = 0; window.hacked = () => { window.calls++; };';
  const dashboard = await openDashboard(url, { before, key: OPERATOR });
  await live(dashboard);
  return dashboard;
}

/** Goes through all views, and through what each of them opens. */
async function lookAtEverything({ page }: OpenDashboard): Promise<string> {
  const texts: string[] = [];
  const note = async () => texts.push(await page.evaluate('document.body.innerText'));
  for (const view of ['Overview', 'Knowledge tree', 'Requests', 'System']) {
    await page.getByRole('link', { name: view }).click();
    if (view === 'Knowledge tree') {
      await page.locator('.icicle').focus();
      for (let depth = 0; depth < 4; depth++) {
        await page.keyboard.press('ArrowDown');
        for (let beside = 0; beside < HOSTILE.length; beside++) {
          await note();
          await page.keyboard.press('ArrowRight');
        }
      }
    }
    if (view === 'Requests') {
      await page.locator('.rows .row').first().click();
      await page.getByRole('complementary', { name: 'The request' }).getByText('Stages').waitFor();
    }
    if (view === 'System') await page.getByText('Everything in /metrics').click();
    await note();
    await hoverEverything(page);
  }
  return texts.join('\n');
}

/** Handlers of the mouse and of the focus would be called. */
async function hoverEverything(page: Page): Promise<void> {
  await page.evaluate(`for (const each of document.querySelectorAll('body *')) {
    for (const name of ['mouseover', 'mouseenter', 'focus']) each.dispatchEvent(new Event(name, { bubbles: true }));
  }`);
}

/** Of many names the page shows some, and these letter by letter. */
function expectShown(text: string): void {
  expect(HOSTILE.filter((each) => text.includes(each)).length).toBeGreaterThanOrEqual(5);
}

async function expectHarmless({ page, complaints, foreign }: OpenDashboard): Promise<void> {
  expect(await page.evaluate('window.calls')).toBe(0);
  // The page's own script, and nothing that a text could have become.
  expect(await page.evaluate('document.scripts.length')).toBe(1);
  const made =
    'img, iframe, base, object, embed, form[action], [onerror], [onload], [onmouseover], [onfocus], [srcdoc]';
  expect(await page.locator(made).count()).toBe(0);
  expect(
    await page.evaluate(`[...document.querySelectorAll('[href], [src]')].every((each) => {
    const target = each.getAttribute('href') ?? each.getAttribute('src');
    return /^(#|data:)/.test(target);
  })`),
  ).toBe(true);
  expect(complaints).toEqual([]);
  expect(foreign).toEqual([]);
}

describe('texts that are markup', () => {
  it('of clients, tenants and models are shown letter by letter, and nothing in them runs', async () => {
    const gateway = await gatewayFor(HOSTILE);
    const dashboard = await opened(gateway.url);
    const shown = await lookAtEverything(dashboard);
    expectShown(shown);
    await expectHarmless(dashboard);
  });

  it('cannot be the name of an engine', async () => {
    const url = 'http://127.0.0.1:1';
    await expect(startGateway({ engines: [{ name: HOSTILE[0], url }] })).rejects.toThrow('engines.0.name');
  });

  it('are harmless wherever else the page shows one, were the gateway to let it through', async () => {
    const gateway = await gatewayFor(['one', 'two', 'one']);
    const liar = closing(await LyingProxy.start(gateway.url));
    const dashboard = await opened(liar.url);
    const shown = await lookAtEverything(dashboard);
    expectShown(shown);
    await expectHarmless(dashboard);
  });
});

describe('the policy of the page', () => {
  it.each([
    ['a script', 'script-src-elem', "add('script', { textContent: 'hacked()' })"],
    ['a script from elsewhere', 'script-src-elem', "add('script', { src: 'http://elsewhere.example/x.js' })"],
    ['a script of the gateway', 'script-src-elem', "add('script', { src: '/metrics' })"],
    [
      'a handler in an attribute',
      'script-src-attr',
      "add('i', { innerHTML: '<b onclick=hacked()>' }).firstChild.click()",
    ],
    ['code from a text', 'script-src', "setTimeout('hacked()')"],
    ['an address that is a script', 'script-src-elem', "add('a', { href: 'javascript:hacked()' }).click()"],
    ['a style', 'style-src-elem', "add('style', { textContent: '*{color:red}' })"],
    ['an image from elsewhere', 'img-src', "add('img', { src: 'http://elsewhere.example/x.png' })"],
    ['a frame', 'frame-src', "add('iframe', { src: '/ui' })"],
    ['a plug-in', 'object-src', "add('object', { data: '/ui' })"],
    ['a form', 'form-action', "add('form', { action: 'http://elsewhere.example/' }).submit()"],
    ['a base', 'base-uri', "add('base', { href: 'http://elsewhere.example/' })"],
    ['a worker', 'worker-src', "new Worker('/metrics')"],
    ['a question to somebody else', 'connect-src', "fetch('http://elsewhere.example/').catch(() => {})"],
  ])('refuses %s', async (_, directive, attempt) => {
    const gateway = await gatewayFor([]);
    const { page } = await opened(gateway.url);
    const violated = await page.evaluate(`new Promise((resolve) => {
      document.addEventListener('securitypolicyviolation', (event) => resolve([event.effectiveDirective, event.disposition]));
      const add = (name, properties) => document.body.appendChild(Object.assign(document.createElement(name), properties));
      try { ${attempt}; } catch {}
    })`);
    expect(violated).toEqual([directive, 'enforce']);
    expect(await page.evaluate('window.calls')).toBe(0);
  });

  it('cannot be framed, and tells nobody where its reader comes from', async () => {
    const { headers } = await fetch(`${(await gatewayFor([])).url}/ui`);
    expect(headers.get('content-security-policy')).toContain("default-src 'none'");
    expect(headers.get('content-security-policy')).toContain("frame-ancestors 'none'");
    expect(headers.get('content-security-policy')).not.toMatch(/unsafe|\*|https?:/);
    expect(headers.get('x-frame-options')).toBe('DENY');
    expect(headers.get('referrer-policy')).toBe('no-referrer');
    expect(headers.get('x-content-type-options')).toBe('nosniff');
  });
});

/** Words that the page chooses what to draw by, and that only the gateway's own code makes. */
const WORDS: ReadonlySet<string> = new Set(['id', 'state', 'cacheKnown', 'speculation', 'decided']);

/** Passes the page on, and puts markup in place of every text that the gateway tells it. */
class LyingProxy {
  readonly #server: Server;
  #count = 0;

  private constructor(target: string) {
    this.#server = createServer(({ url = '/', headers }, response) => {
      const { host: _host, ...sent } = { ...headers, 'accept-encoding': 'identity' };
      httpRequest(target + url, { headers: sent }, (answer: IncomingMessage) => {
        const { 'content-length': _length, ...told } = answer.headers;
        response.writeHead(answer.statusCode!, told);
        let held = '';
        const isPage = url === '/ui';
        answer.setEncoding('utf8').on('data', (text: string) => {
          if (isPage) response.write(text);
          else {
            const events = (held + text).split('\n\n');
            held = events.pop()!;
            for (const event of events) response.write(`${event.replace(/{.*}/, (json) => this.#lie(json))}\n\n`);
          }
        });
        answer.on('end', () => response.end(held === '' ? '' : this.#lie(held)));
        answer.on('error', () => response.destroy());
        response.on('close', () => answer.destroy());
      }).end();
    });
  }

  static async start(target: string): Promise<LyingProxy> {
    const proxy = new LyingProxy(target);
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    return proxy;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  close(): Promise<void> {
    this.#server.closeAllConnections();
    return new Promise((resolve) => this.#server.close(() => resolve()));
  }

  #lie(json: string): string {
    return JSON.stringify(JSON.parse(json), (key, value: unknown) => {
      if (key === 'metrics') {
        return { ...(value as object), [`warmpath_engine_up{engine="${this.#next()}"}`]: 1 };
      }
      return typeof value === 'string' && !WORDS.has(key) ? this.#next() : value;
    });
  }

  #next(): string {
    return HOSTILE[this.#count++ % HOSTILE.length]!;
  }
}
