import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import axe from 'axe-core';
import type { Browser, Page } from 'playwright-core';

/** How somebody looks at a page. */
export interface Look {
  readonly width: number;
  readonly scheme: 'light' | 'dark';
}

export const LOOKS: readonly Look[] = [
  { width: 1440, scheme: 'light' },
  { width: 1440, scheme: 'dark' },
  { width: 390, scheme: 'light' },
  { width: 390, scheme: 'dark' },
];

/** A page under test, and everything that it asked for or complained about. */
export interface OpenPage {
  readonly page: Page;
  readonly requests: readonly string[];
  readonly complaints: readonly string[];
  close(): Promise<void>;
}

/** Opens HTML from a file, as a person would who was sent it. */
export async function openPage(browser: Browser, html: string, { width, scheme }: Look): Promise<OpenPage> {
  const folder = await mkdtemp(join(tmpdir(), 'warmpath-page-'));
  const file = join(folder, 'report.html');
  await writeFile(file, html);
  const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme: scheme });
  const url = pathToFileURL(file).href;
  const requests: string[] = [];
  const complaints: string[] = [];
  page.on('request', (request) => {
    if (request.url() !== url) requests.push(request.url());
  });
  page.on('console', (message) => complaints.push(message.text()));
  page.on('pageerror', (error) => complaints.push(String(error)));
  await page.goto(url, { waitUntil: 'load' });
  const close = async () => {
    await page.close();
    await rm(folder, { recursive: true });
  };
  return { page, requests, complaints, close };
}

/** A rectangle on the page, in CSS pixels. */
export interface Box {
  readonly left: number;
  readonly top: number;
  readonly right: number;
  readonly bottom: number;
}

/** Every drawing that can be seen, with the boxes of the texts in it. */
export function drawings(page: Page): Promise<{ readonly box: Box; readonly texts: readonly Box[] }[]> {
  return page.evaluate(`(() => {
    const box = (element) => {
      const { left, top, right, bottom } = element.getBoundingClientRect();
      return { left, top, right, bottom };
    };
    return [...document.querySelectorAll('.chart svg')]
      .filter((svg) => svg.checkVisibility())
      .map((svg) => ({ box: box(svg), texts: [...svg.querySelectorAll('text')].map(box) }));
  })()`);
}

/** The cells of every table, row by row, with the header. */
export function tables(page: Page): Promise<string[][][]> {
  return page.evaluate(`[...document.querySelectorAll('table')].map((table) =>
    [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent)))`);
}

/** What axe finds against the page: ids of rules with the elements that break them. */
export async function accessibilityFaults(page: Page): Promise<string[]> {
  await page.evaluate(axe.source);
  const { violations } = (await page.evaluate('axe.run()')) as axe.AxeResults;
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' ')}`);
}
