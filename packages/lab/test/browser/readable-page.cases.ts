import type { Browser } from 'playwright-core';
import { beforeAll, describe, expect, it } from 'vitest';
import { type Report, renderReport } from '../../src/index.js';
import { accessibilityFaults, drawings, LOOKS, openPage } from './open-page.js';

const ORIGIN = { command: 'warmpath lab run mixed --seeds 1..3', version: '1.2.3' };

/** Tests that a report page asks for nothing, fits its screen, shows every chart and has no accessibility fault. */
export function readablePageCases(
  name: string,
  browser: () => Browser,
  create: () => Report,
  looks: readonly (typeof LOOKS)[number][] = LOOKS,
): void {
  describe(`the page of ${name}`, () => {
    let report: Report;
    let html: string;
    beforeAll(async () => {
      report = create();
      html = await renderReport(report, ORIGIN);
    });

    it.each(looks)('is complete and can be read at $width pixels, $scheme', async (look) => {
      const { page, requests, complaints, close } = await openPage(browser(), html, look);
      try {
        expect({ requests, complaints }).toEqual({ requests: [], complaints: [] });
        expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(look.width);
        const seen = await drawings(page);
        expect(seen).toHaveLength(
          report.sections.flatMap(({ figures }) => figures.flatMap(({ charts }) => charts ?? [])).length,
        );
        for (const { box, texts } of seen) {
          expect(box.right - box.left).toBeGreaterThan(200);
          expect(box.bottom - box.top).toBeGreaterThan(50);
          expect(box.left).toBeGreaterThanOrEqual(0);
          expect(box.right).toBeLessThanOrEqual(look.width);
          expect(texts.length).toBeGreaterThan(2);
          for (const text of texts) {
            expect(text.left).toBeGreaterThanOrEqual(box.left - 1);
            expect(text.right).toBeLessThanOrEqual(box.right + 1);
            expect(text.bottom).toBeLessThanOrEqual(box.bottom + 1);
          }
        }
        // Contrast depends on the one, layout on the other: two of the four looks see both.
        if ((look.width === 390) === (look.scheme === 'dark')) expect(await accessibilityFaults(page)).toEqual([]);
      } finally {
        await close();
      }
    });
  });
}
