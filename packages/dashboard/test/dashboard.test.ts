import type { Page } from 'playwright-core';
import { afterAll, describe, expect, it } from 'vitest';
import { freePort } from '../../../test/free-port.js';
import { isFull } from '../../../test/suite.js';
import { closing } from '../../gateway/test/harness.js';
import type { TreeSnapshot } from '../src/feed.js';
import { accessibilityFaults, closeBrowser, live, type OpenDashboard, openDashboard } from './open-dashboard.js';
import { visitorQuestions } from './questions.js';
import { Simulation } from './simulated-traffic.js';

afterAll(closeBrowser);

const OPERATOR = 'the-key-of-the-operator';
const START_MS = 1_000_000;

async function simulate(...settings: Parameters<typeof Simulation.start>): Promise<Simulation> {
  return closing(await Simulation.start(...settings));
}

const questions = (seconds: number, perSecond: number) =>
  visitorQuestions({
    seed: 3,
    fromMs: START_MS,
    toMs: START_MS + 1_000 * seconds,
    perSecond: () => perSecond,
    tenants: [{ key: 'one-visitor', model: 'm' }],
  });

/** The tile's value and what stands beside it. */
async function tile(page: Page, name: string): Promise<readonly string[]> {
  return page.getByRole('region', { name, exact: true }).locator('p').allTextContents();
}

interface Recorded {
  readonly blocks: readonly { readonly order: readonly number[] }[];
  readonly prefix: { readonly break: { readonly remedy: string } };
}

async function read<Answer>(url: string, headers: Record<string, string> = {}): Promise<Answer> {
  return (await (await fetch(url, { headers })).json()) as Answer;
}

/** `GET /metrics` by name and labels. */
async function metricsOf({ gateway }: Simulation): Promise<Map<string, number>> {
  const text = await (await fetch(`${gateway.url}/metrics`)).text();
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(
    lines.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ')))]),
  );
}

describe('what the page shows', () => {
  it('is what /metrics tells, asks nobody else and complains of nothing', async () => {
    const simulation = await simulate();
    // Of a prompt that fails nothing is reported, and nothing compared.
    await simulation.run(questions(120, 1).filter(({ status }) => status === undefined));
    const dashboard = await openDashboard(simulation.gateway.url);
    await live(dashboard);
    const { page } = dashboard;
    const metrics = await metricsOf(simulation);
    const cached = metrics.get('warmpath_cached_tokens_total')!;
    const prompt = metrics.get('warmpath_prompt_tokens_total')!;
    const predicted = metrics.get('warmpath_predicted_cached_tokens_total')!;
    expect(cached).toBeGreaterThan(1_000);
    const sumOf = (name: string, labels: string) =>
      [...metrics].reduce(
        (sum, [key, value]) => sum + (key.startsWith(`warmpath_${name}{`) && key.includes(labels) ? value : 0),
        0,
      );
    const gain =
      sumOf('measured_cached_tokens_total', 'changed="true"') - sumOf('baseline_tokens_total', 'changed="true"');
    expect(gain).toBeGreaterThan(1_000);
    const added = page.getByRole('region', { name: 'What did Warmpath add?' });
    const measured = sumOf('measured_prompt_tokens_total', '');
    expect(await added.locator('.value').textContent()).toBe(
      `+${((100 * gain) / measured).toFixed(1)}% of prompt tokens: ${new Intl.NumberFormat('en').format(gain)} tokens in 15 minutes`,
    );
    const reasons = await page.getByRole('region', { name: 'Why not more?' }).locator('li b').allTextContents();
    expect(reasons.reduce((sum, prompts) => sum + Number(prompts), 0)).toBe(sumOf('no_gain_total', ''));
    const [share, beside] = await tile(page, 'Prompt tokens cached');
    expect(share).toBe(`${((100 * cached) / prompt).toFixed(1)}%`);
    expect(beside).toBe(`predicted ${((100 * predicted) / prompt).toFixed(1)}%`);
    const [median] = await tile(page, 'Median TTFT, cached');
    expect(Number.parseFloat(median!)).toBeGreaterThan(10);

    await page.getByRole('link', { name: 'System' }).click();
    // Each part of the memory has words of its own.
    expect(await page.locator('.bars li').allTextContents()).not.toContainEqual(expect.stringMatching(/^[a-z]/));
    await page.getByText('Everything in /metrics').click();
    const rows = page.locator('table.metrics tbody tr');
    const shown = new Map<string, number>();
    for (const row of await rows.evaluateAll((all) =>
      all.map((each) => [...each.children].map((cell) => cell.textContent!)),
    )) {
      shown.set(row[0]!, Number(row[1]));
    }
    const fixed = [...metrics].filter(
      ([name]) => !/_bucket|cpu_seconds|resident_memory|heap_used|event_loop|requests_|overhead/.test(name),
    );
    expect(fixed.length).toBeGreaterThan(40);
    for (const [name, value] of fixed) expect(shown.get(name), name).toBe(value);
    expect(dashboard.foreign).toEqual([]);
    expect(dashboard.complaints).toEqual([]);
  });

  it.runIf(isFull)('follows the traffic', async () => {
    const simulation = await simulate();
    const dashboard = await openDashboard(simulation.gateway.url);
    await dashboard.page.getByText('No prompts in 15 minutes').waitFor();
    await simulation.run(questions(20, 1));
    await dashboard.page.getByRole('heading', { name: 'TTFT', exact: true }).waitFor();
    // The page may hear of some before the others.
    await expect.poll(async () => Number((await tile(dashboard.page, 'Prompts'))[0])).toBeGreaterThan(5);
    const lines = dashboard.page.locator('.u-over').nth(1);
    await lines.hover({ position: { x: (await lines.boundingBox())!.width - 4, y: 20 } });
    expect(await lines.locator('.tip').textContent()).toMatch(/Reported by the engine: [\d.]+%\nPredicted: [\d.]+%/);
  });

  it.runIf(isFull)('explains a request: stages, order, and why its prefix broke', async () => {
    const simulation = await simulate({ explain: { prompts: 'all' } }, { limit: 1 });
    await simulation.run(questions(30, 3));
    const dashboard = await openDashboard(simulation.gateway.url);
    const { page } = dashboard;
    await live(dashboard);
    await page.getByRole('link', { name: 'Requests' }).click();
    await page.getByRole('radio', { name: 'Prefix broken' }).check();
    await page.locator('.rows .row').first().click();
    const detail = page.getByRole('complementary', { name: 'The request' });
    await detail.getByText(/It shares [\d,]+ tokens with request/).waitFor();
    const id = await detail.locator('.id').textContent();
    const record = await read<Recorded>(`${simulation.gateway.url}/ui/requests/${id}`);
    const order = await detail.locator('.order li').allTextContents();
    expect(order.map(Number)).toEqual(record.blocks[0]!.order.map((rank) => rank + 1));
    expect(await detail.textContent()).toContain(record.prefix.break.remedy);
    await detail.getByText('Queue').waitFor();
    await detail.getByText('Prefill (to the first token)').waitFor();
  });
});

describe('who may see it', () => {
  it('is who has the operator key, which stays in the tab', async () => {
    const simulation = await simulate({ server: { operatorKey: { key: OPERATOR } } });
    const dashboard = await openDashboard(simulation.gateway.url);
    const { page } = dashboard;
    await page.getByLabel('Key', { exact: true }).fill('not-the-key-of-anybody');
    await page.getByRole('button', { name: 'Show the dashboard' }).click();
    await page.getByText('The gateway does not know this key.').waitFor();
    await page.getByLabel('Key', { exact: true }).fill(OPERATOR);
    await page.keyboard.press('Enter');
    await live(dashboard);
    await page.reload();
    await live(dashboard);
    expect(await page.evaluate('[...document.cookie, ...Object.values(localStorage)].join()')).not.toContain(OPERATOR);
    await page.getByRole('button', { name: 'Forget it' }).click();
    await page.getByLabel('Key', { exact: true }).waitFor();
    expect(await page.evaluate('sessionStorage.length')).toBe(0);
  });

  it.runIf(isFull)('is nobody where everybody could ask, and the page says what to configure', async () => {
    const simulation = await simulate({ server: { host: '0.0.0.0' } });
    const { page } = await openDashboard(simulation.gateway.url.replace('0.0.0.0', '127.0.0.1'));
    await page.getByRole('alert').getByText('configure server.operatorKey').waitFor();
  });
});

describe('texts of clients', () => {
  const HOSTILE = '<img src=x onerror=alert(1)>"\'</script><script>alert(2)</script>';
  const request = {
    atMs: START_MS,
    body: {
      model: HOSTILE,
      stream: true,
      messages: [{ role: 'user', content: 'What is it?' }],
      documents: [{ id: HOSTILE, title: HOSTILE, content: `${HOSTILE} A secret of Velmora.` }],
    },
  };

  it.runIf(isFull)('are shown as what they are, where the operator wants names', async () => {
    const simulation = await simulate({ dashboard: { names: true } });
    await simulation.run([request]);
    const dashboard = await openDashboard(simulation.gateway.url);
    const { page } = dashboard;
    await live(dashboard);
    await page.getByRole('link', { name: 'Knowledge tree' }).click();
    await page.locator('.icicle').focus();
    for (let depth = 0; depth < 3; depth++) await page.keyboard.press('ArrowDown');
    const selected = page.getByRole('complementary', { name: 'The selected node' });
    await selected.getByRole('heading', { name: HOSTILE }).waitFor();
    for (const view of ['Requests', 'System', 'Overview']) await page.getByRole('link', { name: view }).click();
    expect(await page.evaluate('document.images.length + document.scripts.length')).toBe(1);
    expect(dashboard.complaints).toEqual([]);
  });

  it('are not told at all otherwise, and texts of documents never', async () => {
    for (const names of [false, true]) {
      const simulation = await simulate({ dashboard: { names } });
      await simulation.run([request]);
      const tree = await (await fetch(`${simulation.gateway.url}/ui/tree`)).text();
      expect(tree.includes('onerror=')).toBe(true);
      expect(
        JSON.parse(tree)
          .histories[0].rows.map((row: unknown[]) => row[6] === HOSTILE)
          .includes(true),
      ).toBe(names);
      expect(tree).not.toContain('secret');
    }
  });
});

describe('a gateway that goes away', () => {
  it('is missed, and found again', async () => {
    const port = await freePort();
    const simulation = await simulate({ server: { port } });
    await simulation.run(questions(10, 1));
    const dashboard = await openDashboard(simulation.gateway.url);
    const { page } = dashboard;
    await live(dashboard);
    const prompts = await tile(page, 'Prompts');
    await simulation.gateway.close();
    await page
      .getByRole('alert')
      .getByText(/The gateway (ended the connection|does not answer)/)
      .waitFor();
    expect(await tile(page, 'Prompts')).toEqual(prompts);
    await simulate({ server: { port } });
    await page.getByRole('button', { name: 'Try now' }).click();
    await page.getByText('No prompts in 15 minutes').waitFor();
    await live(dashboard);
  });

  it.runIf(isFull)('shows an engine that fails', async () => {
    const simulation = await simulate();
    simulation.engine.isReady = false;
    const { page } = await openDashboard(simulation.gateway.url);
    await page.getByRole('region', { name: 'Engine' }).getByText('Failing').waitFor();
    await page.getByText(`The engine at ${simulation.engine.url} does not answer`).waitFor();
  });
});

describe('without a mouse', () => {
  it.runIf(isFull)('every view can be reached and used', async () => {
    const simulation = await simulate();
    await simulation.run(questions(60, 1));
    const dashboard = await openDashboard(simulation.gateway.url);
    const { page } = dashboard;
    await live(dashboard);
    const press = async (...keys: string[]) => {
      for (const key of keys) await page.keyboard.press(key);
    };
    await press('Tab', 'Tab', 'Tab', 'Tab', 'Tab', 'Tab', 'Enter');
    const grid = page.getByRole('grid', { name: 'Latest requests' });
    await grid.focus();
    await press('ArrowDown', 'ArrowDown');
    expect(await grid.getAttribute('aria-activedescendant')).toBe('row-1');
    await press('End');
    const rows = Number(await grid.getAttribute('aria-rowcount')) - 1;
    expect(await page.locator(`#row-${rows - 1}`).getAttribute('aria-selected')).toBe('true');
    await press('Escape');
    expect(await grid.getAttribute('aria-activedescendant')).toBeNull();

    await page.goto(`${simulation.gateway.url}/ui#tree`);
    const path = page.getByRole('navigation', { name: 'Path' }).locator('li');
    const tree = page.getByRole('group', { name: /Knowledge tree/ });
    await tree.focus();
    await press('ArrowDown', 'ArrowDown', 'Enter');
    expect(await path.count()).toBe(3);
    await press('Escape');
    expect(await path.count()).toBe(2);
    await press('Home', 'Enter');
    expect(await path.allTextContents()).toEqual(['Everything']);
  });
});

describe('everybody can read it', () => {
  const looks = [
    { scheme: 'dark', width: 390 },
    { scheme: 'light', width: 1280 },
    { scheme: 'dark', width: 1280 },
    { scheme: 'light', width: 390 },
  ] as const;
  it.each(isFull ? looks : looks.slice(0, 1))('$scheme, $width pixels', async (look) => {
    const simulation = await simulate({ explain: { prompts: 'all' } });
    await simulation.run(questions(120, 1));
    const dashboard = await openDashboard(simulation.gateway.url, look);
    const { page } = dashboard;
    await live(dashboard);
    for (const view of ['Overview', 'Sessions', 'Prompts', 'Knowledge tree', 'Requests', 'System']) {
      await page.getByRole('link', { name: view }).click();
      if (view === 'Knowledge tree') await page.locator('.icicle').waitFor();
      if (view === 'Requests') await page.locator('.rows .row').nth(2).click();
      expect(await accessibilityFaults(page), view).toEqual([]);
      expect(await page.evaluate('document.documentElement.scrollWidth'), view).toBe(look.width);
      const hidden =
        "(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth)(document.querySelector('header nav'))";
      expect(await page.evaluate(hidden), view).toBe(0);
    }
    expect(dashboard.complaints).toEqual([]);
  });

  it.runIf(isFull)('in the colours that the reader chose, whatever the system prefers', async () => {
    const simulation = await simulate();
    const dashboard = await openDashboard(simulation.gateway.url, { scheme: 'dark' });
    await live(dashboard);
    const background = () => dashboard.page.evaluate('getComputedStyle(document.body).backgroundColor');
    const dark = await background();
    await dashboard.page.getByRole('button', { name: /Colours/ }).click();
    expect(await background()).not.toBe(dark);
    await dashboard.page.reload();
    expect(await background()).not.toBe(dark);
  });
});

describe('10,000 nodes and 1,000 requests', () => {
  /** Counts what is drawn in each frame. */
  const COUNTING = `
    window.frames = [];
    const fill = CanvasRenderingContext2D.prototype.fillRect;
    let drawn = 0;
    CanvasRenderingContext2D.prototype.fillRect = function (...box) { drawn++; return fill.apply(this, box); };
    const request = window.requestAnimationFrame;
    window.requestAnimationFrame = (step) => request((time) => { drawn = 0; step(time); window.frames.push(drawn); });`;

  it.runIf(isFull)('are told and shown with bounded work', async () => {
    const simulation = await simulate({ server: { operatorKey: { key: OPERATOR } } });
    const many = Array.from({ length: 1_000 }, (_, i) => ({
      atMs: START_MS + 800 * i,
      body: {
        model: 'm',
        stream: true,
        messages: [{ role: 'user', content: 'Which?' }],
        documents: Array.from({ length: 12 }, (_, k) => ({ id: `${i}-${k}`, content: `Passage ${k} of ${i}.` })),
      },
    }));
    await simulation.run(many);
    const headers = { authorization: `Bearer ${OPERATOR}` };
    const tree = await read<TreeSnapshot>(`${simulation.gateway.url}/ui/tree`, headers);
    expect(tree.nodes).toBe(12_001);
    expect(tree.histories[0]!.rows).toHaveLength(10_000);
    expect(tree.omittedNodes).toBe(2_001);
    const dashboard: OpenDashboard = await openDashboard(simulation.gateway.url, { key: OPERATOR, before: COUNTING });
    const { page } = dashboard;
    await live(dashboard);
    await page.getByRole('link', { name: 'Knowledge tree' }).click();
    await page.getByText('12,001 nodes').waitFor();
    await page.getByText('the 2,001 used least recently are not shown').waitFor();
    await page.locator('.icicle').focus();
    for (const key of ['ArrowDown', 'ArrowDown', 'ArrowDown', 'Enter', 'Escape']) await page.keyboard.press(key);
    const drawn = (await page.evaluate(
      'new Promise((done) => setTimeout(() => done(window.frames.splice(0))))',
    )) as number[];
    const width = (await page.evaluate(`document.querySelector('.icicle canvas').clientWidth`)) as number;
    expect(drawn.length).toBeGreaterThan(0);
    // A rectangle has a pixel and a half at least, in each of the rows; a few more are marks.
    expect(Math.max(...drawn)).toBeLessThan(2 * 15 * width);

    await page.getByRole('link', { name: 'Requests' }).click();
    await page.getByText('Latest requests 1,000').waitFor();
    expect(await page.locator('.rows .row').count()).toBeLessThan(60);
    await page.getByRole('grid').focus();
    await page.keyboard.press('End');
    await page.locator('#row-999').waitFor();
    expect(await page.locator('.rows .row').count()).toBeLessThan(60);
    await page.getByRole('radio', { name: '15 min' }).check();
    await page
      .getByRole('img', { name: '1000 requests of the last 900 seconds' })
      .or(page.getByText('more ran beside'))
      .first()
      .waitFor();
    expect(await page.evaluate(`document.querySelectorAll('*').length`)).toBeLessThan(1_500);
  });
});
