import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isFull } from '../../../../test/suite.js';
import {
  createWorkload,
  EVALUATION_STRATEGIES,
  Experiment,
  evaluationPage,
  evaluationReport,
  experimentPage,
  experimentSeries,
  Replay,
  type Report,
  RTX_4090,
  readCache,
  renderReport,
  replayPage,
} from '../../src/index.js';
import { HOSTILE_TEXTS, reportOf } from '../hostile.js';
import { findChromium, launchChromium } from './chromium.js';
import { LOOKS, openPage, tables } from './open-page.js';
import { readablePageCases } from './readable-page.cases.js';

let browser: Browser;
beforeAll(async () => {
  browser = await launchChromium();
});
afterAll(() => browser.close());

const ORIGIN = {
  command: 'warmpath lab run mixed --policies retrieval,exact,foresight --seeds 1..3',
  version: '1.2.3',
};

function experiment() {
  const policies = ['retrieval', 'exact', 'foresight'] as const;
  const running = new Experiment({
    workload: 'mixed',
    create: (seed) => createWorkload('mixed', { seed }),
    policies,
    seeds: [1, 2, 3],
    queue: 0,
    cache: { name: 'unlimited', create: readCache('unlimited') },
    server: { clients: { kind: 'poisson', load: 0.9 } },
    clock: () => 0,
  });
  while (running.step());
  const report = running.report();
  return { report, page: experimentPage(report, experimentSeries(running.done, policies)) };
}

function replay() {
  const running = new Replay({
    log: 'requests.jsonl',
    policies: ['retrieval', 'exact'],
    caches: ['64', '256', 'radix:4096', 'slots:2:4096'].map((name) => ({ name, create: readCache(name) })),
    queue: 0,
    warmUp: 0,
    preambleTokens: 28,
    latency: { name: 'rtx-4090', model: RTX_4090 },
    clock: () => 0,
  });
  const { requests } = createWorkload('headline-a', { seed: 1 });
  for (const [i, { documents, question }] of requests.entries()) {
    running.next({
      line: i + 1,
      documents: documents.map(({ id, tokens }) => ({ id, tokens })),
      timestampMs: undefined,
      session: undefined,
      queryTokens: question.tokens,
    });
  }
  running.finish();
  return running.report();
}

function evaluation() {
  const answered = Array.from({ length: 40 }, (_, i) =>
    EVALUATION_STRATEGIES.map((strategy, s) => {
      const exact = (i * 7 + s) % 3 === 0 ? 1 : 0;
      const score = { exact, contains: exact, f1: (exact + 0.5) / 1.5 };
      return {
        question: `q${i}`,
        strategy,
        answer: String(exact),
        score,
        ttftMs: 50 - s,
        promptTokens: 900,
        cachedTokens: 100 * s,
        placesMoved: s,
      };
    }),
  ).flat();
  const failed = [
    { question: 'q99', strategy: 'arranged', code: 'WARMPATH_UPSTREAM_TIMEOUT' },
    { question: 'q98', strategy: 'retrieval', code: 'WARMPATH_CONTEXT_TOO_LONG' },
  ] as const;
  const settings = {
    data: 'beir',
    engine: 'http://127.0.0.1:8000',
    model: 'm',
    policy: 'exact',
    topK: 5,
    passages: 'found by BM25',
  };
  const run = { ...settings, strategies: EVALUATION_STRATEGIES, concurrency: 1, seed: 1, contextTokens: null };
  const questions = Array.from({ length: 40 }, (_, i) => ({
    id: `q${i}`,
    gold: { answers: ['yes'] },
    kind: i % 2 === 0 ? 'first turn' : 'document new',
    conversation: { id: `c${i >> 1}`, before: [] },
  }));
  return evaluationReport(run, { answered, failed, questions })!;
}

const REPORTS: readonly (readonly [string, () => Report])[] = [
  ['an experiment', () => experiment().page],
  ['a replay', () => replayPage(replay())],
  ['an evaluation', () => evaluationPage(evaluation())],
  ['hostile texts', () => reportOf(HOSTILE_TEXTS)],
];

const looks = isFull ? LOOKS : LOOKS.slice(0, 1);
const reports = REPORTS.filter(([name]) => isFull || name === 'an experiment');
for (const [name, create] of reports) readablePageCases(name, () => browser, create, looks);

describe('the page in a browser', () => {
  it('shows in its tables the figures of the JSON', async () => {
    const { report, page: content } = experiment();
    const { page, close } = await openPage(browser, await renderReport(content, ORIGIN), LOOKS[0]!);
    const [reuse, difference, latency] = await tables(page);
    await close();
    for (const [i, result] of report.results.entries()) {
      const { cachedDocumentShare: documents, cachedTokenShare: tokens, uncachedTokens, ttftMs } = result;
      const shares = [documents.mean, documents.se, tokens.mean, tokens.se].map((value) => (100 * value).toFixed(2));
      expect(reuse![i + 1]).toEqual([
        result.policy,
        ...shares,
        uncachedTokens.mean.toFixed(1),
        uncachedTokens.p50.toFixed(0),
      ]);
      const times = [ttftMs.p50, ttftMs.p95, ttftMs.p99, ttftMs.mean].map((value) => value.toFixed(1));
      expect(latency![i + 1]!.slice(0, 5)).toEqual([result.policy, ...times]);
    }
    expect(reuse!.slice(-2).map((row) => row[1])).toEqual([
      (100 * report.bounds.oracle).toFixed(2),
      (100 * report.bounds.seenBefore).toFixed(2),
    ]);
    const [retrieval, exact] = report.results.map((result) => result.cachedDocumentShare.mean);
    expect(difference![1]![1]).toBe((100 * (exact! - retrieval!)).toFixed(2));
  });

  it('takes hostile texts for what they are, and runs nothing', async () => {
    const { page, requests, close } = await openPage(
      browser,
      await renderReport(reportOf(HOSTILE_TEXTS), ORIGIN),
      LOOKS[0]!,
    );
    // HTML parsers make one line end of each kind; control characters and lone surrogates are replaced.
    const written = HOSTILE_TEXTS.map((text) => text.replace(/[^\P{Cc}\n]|\p{Surrogate}/gu, '\ufffd'));
    const [shown] = await tables(page);
    expect(shown![0]!.slice(1)).toEqual(written);
    expect(shown!.slice(1).map(([name]) => name)).toEqual(written);
    expect(await page.title()).toBe(written[0]);
    const names = (await page.evaluate(`[...new Set([...document.querySelectorAll('*')].flatMap((element) =>
      [element.localName, ...element.getAttributeNames().map((name) => '@' + name)]))]`)) as string[];
    expect(
      names.filter((name) => /^(script|img|image|a|iframe|object|use|link|@on.*|@(xlink:)?href|@src)$/.test(name)),
    ).toEqual([]);
    expect(requests).toEqual([]);
    await close();
  });

  it.runIf(isFull)('follows the light or dark setting, and is not the same in both', async () => {
    const html = await renderReport(reportOf(['text']), ORIGIN);
    const backgrounds: string[] = [];
    for (const scheme of ['light', 'dark'] as const) {
      const { page, close } = await openPage(browser, html, { width: 800, scheme });
      backgrounds.push(await page.evaluate('getComputedStyle(document.body).backgroundColor'));
      await close();
    }
    expect(new Set(backgrounds).size).toBe(2);
  });
});

describe('findChromium', () => {
  it('takes what CHROMIUM names, and says what to install where there is none', () => {
    expect(findChromium({ CHROMIUM: '/opt/chromium' })).toBe('/opt/chromium');
    expect(() => findChromium({ PATH: '/nowhere' })).toThrow(/apt-get install chromium.*CHROMIUM/);
  });
});
