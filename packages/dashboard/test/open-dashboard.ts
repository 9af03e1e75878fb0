import axe from 'axe-core';
import type { Browser, Page } from 'playwright-core';
import { closing } from '../../gateway/test/harness.js';
import { launchChromium } from '../../lab/test/browser/chromium.js';

/** The page in a browser, and everything that it asked for or complained about. */
export interface OpenDashboard {
  readonly page: Page;
  /** Addresses that are not the gateway's. */
  readonly foreign: readonly string[];
  readonly complaints: readonly string[];
}

export interface Look {
  readonly width?: number;
  readonly scheme?: 'light' | 'dark';
  readonly key?: string;
  /** Runs before the page's own script. */
  readonly before?: string;
}

/** One for all tests of a file, which closes it. */
let browser: Promise<Browser> | undefined;

/** Opens the page as an operator would, in a page of its own; closed after the test. */
export async function openDashboard(
  url: string,
  { width = 1280, scheme = 'light', key, before }: Look = {},
): Promise<OpenDashboard> {
  browser ??= launchChromium();
  const page = closing(await (await browser).newPage({ viewport: { width, height: 900 }, colorScheme: scheme }));
  page.setDefaultTimeout(300_000);
  const foreign: string[] = [];
  const complaints: string[] = [];
  page.on('request', (request) => {
    if (!request.url().startsWith(url) && !request.url().startsWith('data:')) foreign.push(request.url());
  });
  page.on('console', (message) => complaints.push(message.text()));
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('dialog', (dialog) => {
    complaints.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  if (before !== undefined) await page.addInitScript(before);
  if (key !== undefined) await page.addInitScript(`sessionStorage.setItem('warmpath-operator-key', '${key}')`);
  await page.goto(`${url}/ui`);
  return { page, foreign, complaints };
}

export async function closeBrowser(): Promise<void> {
  await (await browser)?.close();
  browser = undefined;
}

/** Resolves when the page shows what the gateway tells. */
export function live({ page }: OpenDashboard): Promise<void> {
  return page.getByRole('status').getByText('Live').waitFor();
}

/** What axe finds against the page: ids of rules with the elements that break them. */
export async function accessibilityFaults(page: Page): Promise<string[]> {
  await page.evaluate(axe.source);
  const { violations } = (await page.evaluate('axe.run()')) as axe.AxeResults;
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' ')}`);
}
