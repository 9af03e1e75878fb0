import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { GatewayConfigInput } from '../../gateway/src/config/schema.js';
import { type RunningGateway, startGateway } from '../../gateway/src/start-gateway.js';
import { closing } from '../../gateway/test/harness.js';
import { accessibilityFaults, closeBrowser, live, type OpenDashboard, openDashboard } from './open-dashboard.js';
import { SimulatedEngine } from './simulated-engine.js';

afterAll(closeBrowser);

/** An engine that answers at once. */
async function engine(): Promise<SimulatedEngine> {
  const started = closing(await SimulatedEngine.start({ maxBlocks: 10_000 }));
  started.onPrompt = (prompt) => {
    prompt.first();
    prompt.end();
  };
  return started;
}

async function gatewayWith(config: Partial<GatewayConfigInput>): Promise<RunningGateway> {
  const settings = { server: { port: 0 }, log: { level: 'silent' }, ...config } as GatewayConfigInput;
  return closing(await startGateway(settings));
}

async function opened(gateway: RunningGateway, width = 1280): Promise<OpenDashboard> {
  const dashboard = await openDashboard(gateway.url, { width });
  await live(dashboard);
  return dashboard;
}

async function post(url: string, body: object): Promise<string> {
  const answer = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  const text = await answer.text();
  expect(answer.status, text).toBe(200);
  return text;
}

const question = (fields: object) => ({
  model: 'm',
  stream: true,
  messages: [{ role: 'user', content: 'What is the weight of Velka?' }],
  ...fields,
});

/** Text of the cells of a table, by the heading of its column. */
async function rowsOf(page: Page, name: string): Promise<Record<string, string>[]> {
  const region = page.getByRole('region', { name, exact: true });
  const columns = await region.locator('thead th').allTextContents();
  const rows = await region.locator('tbody tr').all();
  return Promise.all(
    rows.map(async (row) => {
      const cells = await row.locator('th, td').allTextContents();
      return Object.fromEntries(columns.map((column, i) => [column, cells[i]!]));
    }),
  );
}

async function metricOf({ url }: RunningGateway, name: string): Promise<string | undefined> {
  const text = await (await fetch(`${url}/metrics`)).text();
  return text
    .split('\n')
    .find((line) => line.startsWith(`${name} `))
    ?.slice(name.length + 1);
}

describe('several engines', () => {
  const documents = (topic: string) =>
    ['a', 'b', 'c'].map((part) => ({
      id: `${topic}-${part}`,
      content: `What is known of ${topic}, ${part}. `.repeat(9),
    }));

  it('each has its line, its tree, and its reasons', async () => {
    const [north, south] = [await engine(), await engine()];
    const gateway = await gatewayWith({
      engines: [
        { name: 'north', url: north.url },
        { name: 'south', url: south.url },
      ],
      dashboard: { names: true },
    });
    for (const topic of ['mill', 'harbour', 'mill', 'bridge', 'harbour', 'tower']) {
      await post(`${gateway.url}/v1/chat/completions`, question({ documents: documents(topic) }));
    }
    const dashboard = await opened(gateway);
    const { page } = dashboard;
    const tile = page.getByRole('region', { name: 'Engines', exact: true });
    await tile.getByText('2 of 2 ready').waitFor();

    await page.getByRole('link', { name: 'System' }).click();
    const rows = await rowsOf(page, 'Engines');
    expect(rows.map(({ Engine, State }) => [Engine, State])).toEqual([
      ['north', 'ready'],
      ['south', 'ready'],
    ]);
    for (const { Engine, Answered, Failed } of rows) {
      const count = (outcome: string) =>
        metricOf(gateway, `warmpath_engine_requests_total{engine="${Engine}",outcome="${outcome}"}`);
      expect([Answered, Failed]).toEqual([await count('served'), await count('failed')]);
      expect(Number(Answered)).toBeGreaterThan(0);
    }
    expect(await accessibilityFaults(page)).toEqual([]);

    await page.getByRole('link', { name: 'Knowledge tree' }).click();
    const behind = page.getByRole('complementary', { name: 'The selected node' }).locator('.children button');
    await behind.nth(1).waitFor();
    expect((await behind.allTextContents()).sort()).toEqual(['north', 'south']);
    // Both hold the same tenant and model, and what one of them holds is not the other's.
    await behind.getByText('north').click();
    await page.getByRole('navigation', { name: 'Path' }).getByText('north').waitFor();
    expect(await behind.count()).toBe(1);

    await page.getByRole('link', { name: 'Requests' }).click();
    await page.locator('.rows .row').first().click();
    const detail = page.getByRole('complementary', { name: 'The request' });
    const id = await detail.locator('.id').textContent();
    const record = (await (await fetch(`${gateway.url}/ui/requests/${id}`)).json()) as { engine: { name: string } };
    await detail.getByRole('heading', { name: `Engine ${record.engine.name}` }).waitFor();

    south.isReady = false;
    await page.getByRole('link', { name: 'Overview' }).click();
    await tile.getByText('1 of 2 ready').waitFor();
    await page.getByText(`The engine at ${south.url} does not answer`).waitFor();
    expect(dashboard.complaints).toEqual([]);
  });
});

describe('collections', () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'warmpath-dashboard-'));
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  const texts = ['Velka', 'Orsin', 'Tamir'].map((name) => ({ id: name, content: `The weight of ${name} is 42 kg.` }));
  const retrieval = { collection: 'handbook', k: 2 };

  it('stand with their sums and searches, as the gateway and /metrics tell them', async () => {
    const { url } = await engine();
    const names = { names: true };
    const gateway = await gatewayWith({ upstream: { url }, collections: { folder }, dashboard: names });
    const dashboard = await opened(gateway);
    const { page } = dashboard;
    await page.getByRole('link', { name: 'System' }).click();
    await page.getByText('None yet. warmpath ingest docs makes one.').waitFor();

    const at = `${gateway.url}/v1/collections/handbook`;
    await post(`${at}/documents`, { documents: texts });
    await post(`${at}/search`, { query: 'Velka' });
    await post(`${gateway.url}/v1/chat/completions`, question({ warmpath: { retrieval } }));
    // A question that cannot be is not the collection's fault.
    expect(
      (
        await fetch(`${at}/search`, {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: '{"query":"x","k":-1}',
        })
      ).status,
    ).toBe(400);
    const row = page.getByRole('region', { name: 'Collections', exact: true }).locator('tbody tr');
    await row.locator('td:nth-child(6)').getByText('2', { exact: true }).waitFor();
    const [shown, ...others] = await rowsOf(page, 'Collections');
    expect(others).toEqual([]);
    const { data } = (await (await fetch(`${gateway.url}/v1/collections`)).json()) as { data: { tokens: number }[] };
    expect(shown).toMatchObject({
      Collection: 'handbook',
      Tenant: 'default',
      Documents: '3',
      Passages: '3',
      Tokens: String(data[0]!.tokens),
      Searches: await metricOf(gateway, 'warmpath_retrieval_seconds_count'),
      Failed: '0',
    });
    expect(Number.parseFloat(shown!['Mean']!)).toBeGreaterThan(0);
    expect(await accessibilityFaults(page)).toEqual([]);

    await page.getByRole('link', { name: 'Requests' }).click();
    await page.locator('.rows .row', { hasText: '200' }).first().click();
    const detail = page.getByRole('complementary', { name: 'The request' });
    await detail.getByRole('heading', { name: 'Retrieval' }).waitFor();
    expect(await detail.locator('section', { hasText: 'Passages' }).locator('dd').first().textContent()).toBe('2');
    expect(dashboard.complaints).toEqual([]);
  });

  it('stand under short hashes unless the operator wants names, and fit a phone', async () => {
    const { url } = await engine();
    const gateway = await gatewayWith({ upstream: { url }, collections: { folder } });
    const { page } = await opened(gateway, 390);
    await page.getByRole('link', { name: 'System' }).click();
    const name = page.getByRole('region', { name: 'Collections', exact: true }).locator('tbody th');
    await name.waitFor();
    expect(await name.textContent()).toMatch(/^[0-9a-f]{8}$/);
    expect(await page.content()).not.toContain('handbook');
    await page.getByText('dashboard.names: true').waitFor();
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(390);
  });

  it('have no place where none are configured', async () => {
    const { url } = await engine();
    const { page } = await opened(await gatewayWith({ upstream: { url } }));
    await page.getByRole('link', { name: 'System' }).click();
    await page.getByRole('heading', { name: 'Engines' }).waitFor();
    expect(await page.getByRole('heading', { name: 'Collections' }).count()).toBe(0);
  });
});
