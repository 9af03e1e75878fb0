import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { launchChromium } from '../../lab/test/browser/chromium.js';
import { type Passage, visitorQuestions } from '../test/questions.js';
import { type SimulatedRequest, Simulation } from '../test/simulated-traffic.js';
import { withPalette } from './palette-png.js';

const FOLDER = join(import.meta.dirname, '../../../docs/images/dashboard');
const OPERATOR_KEY = 'the-key-of-the-operator';
const START_MS = 1_000_000;
const NOW_MS = START_MS + 900_000;
/** What is captured: the bodies of the last prompts before the pictures. */
const CAPTURE_FROM_MS = NOW_MS - 12_000;
const CAPTURED_REQUESTS = 60;
const VIEWS = ['overview', 'prompts', 'tree', 'requests', 'sessions', 'system'] as const;

let simulation: Simulation;
let browser: Browser;
let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-screenshots-'));
  const keys = ['museum', 'school', 'newspaper'].map((name) => ({ name, key: `the-key-of-the-${name}` }));
  simulation = await Simulation.start(
    {
      server: { keys, operatorKey: { key: OPERATOR_KEY } },
      explain: { prompts: 'all' },
      collections: { folder },
      dashboard: { names: true },
      prices: [{ input: 0.4, cached: 0.1 }],
    },
    { maxBlocks: 6_000, limit: 4 },
  );
  const requests = visitorQuestions({
    seed: 7,
    fromMs: START_MS,
    toMs: NOW_MS,
    perSecond: (atMs) => 1.1 + 0.8 * Math.sin((atMs - START_MS) / 140_000) + (atMs > NOW_MS - 200_000 ? 0.5 : 0),
    tenants: [
      { key: 'the-key-of-the-museum', model: 'velmora-8b' },
      { key: 'the-key-of-the-school', model: 'velmora-8b', write: questionLast },
      { key: 'the-key-of-the-newspaper', model: 'velmora-32b', write: numbered },
    ],
  });
  await simulation.run([...requests, ...agentTurns()], CAPTURE_FROM_MS);
  await capture();
  await simulation.run([], NOW_MS);
  for (const tenant of ['museum', 'school']) await fillCollection(tenant, `${tenant}-guide`);
  browser = await launchChromium();
  await mkdir(FOLDER, { recursive: true });
}, 300_000);

afterAll(async () => {
  await browser.close();
  await simulation.close();
  await rm(folder, { recursive: true, force: true });
});

/** Programs of two tenants that write their documents into the prompt. */
function questionLast(passages: readonly Passage[], question: string): string {
  const context = passages.map(({ content }) => content).join('\n\n');
  return `Use the following pieces of context to answer the question at the end.\n\n${context}\n\nQuestion: ${question}\nHelpful answer:`;
}

function numbered(passages: readonly Passage[], question: string): string {
  const sources = passages.map(({ content }, i) => `[${i + 1}] ${content}`).join('\n\n');
  return `Sources of the archive:\n\n${sources}\n\nQuestion: ${question}`;
}

/** A coding agent of the school's, and one that it started: its rules change in the middle of the session. */
function agentTurns(): readonly SimulatedRequest[] {
  const turn = (number: number) => [
    { role: 'assistant', content: `I read file ${number}.` },
    { role: 'user', content: `File ${number} has ${number} lines. `.repeat(80) },
  ];
  const prompt = (rules: string, turns: number) => {
    const system = { role: 'system', content: `${rules} Read before you write, and say what you did. `.repeat(40) };
    const history = Array.from({ length: turns }, (_, number) => turn(number)).flat();
    return {
      model: 'velmora-32b',
      stream: true,
      messages: [system, { role: 'user', content: 'Mend it.' }, ...history],
    };
  };
  const sent = (place: number, headers: object, body: object): SimulatedRequest => ({
    atMs: CAPTURE_FROM_MS - 120_000 + 10_000 * place,
    headers: { authorization: 'Bearer the-key-of-the-school', ...headers },
    body,
  });
  const main = [0, 1, 2, 3, 4, 5].map((turns) =>
    sent(turns, { 'x-session-id': 'ses_main' }, prompt(turns < 3 ? 'First rules.' : 'Other rules.', turns)),
  );
  const agent = { 'x-session-id': 'ses_agent', 'x-parent-session-id': 'ses_main' };
  return [...main, sent(6, agent, prompt('Look only.', 0)), sent(7, agent, prompt('Look only.', 1))];
}

async function capture(): Promise<void> {
  const headers = { authorization: `Bearer ${OPERATOR_KEY}`, 'content-type': 'application/json' };
  const body = JSON.stringify({ requests: CAPTURED_REQUESTS });
  const url = `${simulation.gateway.url}/v1/capture`;
  expect((await fetch(url, { method: 'POST', headers, body })).status).toBe(200);
}

async function fillCollection(tenant: string, name: string): Promise<void> {
  const post = async (path: string, body: object): Promise<void> => {
    const headers = { authorization: `Bearer the-key-of-the-${tenant}`, 'content-type': 'application/json' };
    const url = `${simulation.gateway.url}/v1/collections/${name}/${path}`;
    expect((await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) })).status).toBe(200);
  };
  const documents = Array.from({ length: 40 }, (_, i) => ({
    id: `${i}.md`,
    content: `Room ${i} of the ${tenant}. `.repeat(30),
  }));
  await post('documents', { documents });
  for (let i = 0; i < tenant.length; i++) await post('search', { query: `room ${i}` });
}

for (const scheme of ['light', 'dark'] as const) {
  for (const width of [1280, 390]) {
    it(`${width} pixels, ${scheme}`, async () => {
      const page = await browser.newPage({
        viewport: { width, height: width === 390 ? 844 : 800 },
        colorScheme: scheme,
      });
      page.setDefaultTimeout(60_000);
      await page.addInitScript(`sessionStorage.setItem('warmpath-operator-key', '${OPERATOR_KEY}')`);
      for (const view of VIEWS) {
        await page.goto(`${simulation.gateway.url}/ui#${view}`);
        await page.reload();
        await ready(page, view);
        // Every conversation is a session: the list goes on for pages.
        const picture = await page.screenshot({ fullPage: view !== 'sessions', animations: 'disabled' });
        await writeFile(join(FOLDER, `${view}-${width}-${scheme}.png`), withPalette(picture));
        expect(await page.evaluate('document.documentElement.scrollWidth'), view).toBe(width);
      }
      await page.close();
    });
  }
}

/** The view as somebody sees it who has looked around in it. */
async function ready(page: Page, view: (typeof VIEWS)[number]): Promise<void> {
  await page.getByRole('status').getByText('Live').waitFor();
  if (view === 'overview') {
    await page.locator('.charts .u-over').first().waitFor();
    await page.getByText('Ready', { exact: true }).waitFor();
  }
  if (view === 'prompts') await page.locator('.program').waitFor();
  if (view === 'tree') {
    await page.locator('.icicle').press('ArrowDown');
    await page.keyboard.press('ArrowDown');
  }
  if (view === 'requests') {
    await page.getByRole('radio', { name: 'Prefix broken' }).check();
    await page.locator('.rows .row').first().click();
    await page.getByRole('heading', { name: 'Captured body' }).waitFor();
    await page.getByRole('radio', { name: 'All' }).check();
  }
  if (view === 'sessions') {
    await page.getByRole('button', { name: /opencode .* tokens lost/ }).click();
    await page.getByRole('region', { name: 'The session' }).getByText('system prompt:').waitFor();
  }
  if (view === 'system') await page.locator('td .status.good').first().waitFor();
  // Charts and canvases are drawn in the frame after.
  await page.evaluate('new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))');
}
