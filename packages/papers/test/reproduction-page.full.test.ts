import { renderReport } from '@warmpath/lab';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { launchChromium } from '../../lab/test/browser/chromium.js';
import { readablePageCases } from '../../lab/test/browser/readable-page.cases.js';
import { reproduce } from '../src/papers.js';
import { reproductionPage } from '../src/reproduction-page.js';

let browser: Browser;
beforeAll(async () => {
  browser = await launchChromium();
});
afterAll(() => browser.close());

const createPage = () => reproductionPage('ragcache++', reproduce('ragcache++', 'table-1'));

readablePageCases('a reproduction', () => browser, createPage);

describe('the page of a reproduction', () => {
  it('counts the figures that come within a tenth', () => {
    const figures = (ours: number) => [{ name: 'p50 ms', paper: 100, ours }];
    const rows = [100, 109.9, 90.1, 111].map((ours) => ({ label: `row ${ours}`, figures: figures(ours) }));
    const page = reproductionPage('a paper', [{ title: 'Table 1', model: 'a model', rows, notes: [] }]);
    expect(page.finding).toContain('Of 4 figures of a paper, the simulator comes within a tenth of 3');
  });

  it('gives the same bytes for the same tables', async () => {
    const origin = { command: 'npm run papers -- ragcache++ table-1', version: '1.2.3' };
    const page = createPage();
    expect(await renderReport(page, origin)).toBe(await renderReport(page, origin));
  });
});
