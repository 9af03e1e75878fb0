import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
import {
  type Chart,
  createWorkload,
  describeChart,
  Experiment,
  experimentPage,
  experimentSeries,
  readCache,
  renderReport,
} from '../src/index.js';
import { axisDomain } from '../src/report/frame.js';
import { drawChart } from '../src/report/render-report.js';
import { settledTimes } from '../src/statistics.js';
import { HOSTILE_TEXTS, reportOf } from './hostile.js';

const ORIGIN = { command: 'warmpath lab run mixed --seeds 1..3', version: '1.2.3' };

function experiment(seeds: readonly number[] = [1, 2, 3]) {
  const policies = ['retrieval', 'sorted', 'exact'] as const;
  const running = new Experiment({
    workload: 'mixed',
    create: (seed) => createWorkload('mixed', { seed }),
    policies,
    seeds,
    queue: 0,
    cache: { name: 'unlimited', create: readCache('unlimited') },
    clock: () => 0,
  });
  while (running.step());
  const report = running.report();
  const series = experimentSeries(running.done, policies);
  return { report, series, page: experimentPage(report, series) };
}

describe('the page of an experiment', () => {
  it('opens with the result in one sentence that holds the figures', () => {
    const { report, page } = experiment();
    const [retrieval, , exact] = report.results;
    expect(page.finding).toMatch(
      /^On mixed, exact reuses [\d.]+\u00a0% of the documents, .* more than retrieval order, .*\.$/,
    );
    expect(page.finding).toContain(`${(100 * exact!.cachedDocumentShare.mean).toFixed(1)}\u00a0%`);
    expect(page.finding).toContain(
      `from ${retrieval!.ttftMs.mean.toFixed(1)} to ${exact!.ttftMs.mean.toFixed(1)}\u00a0ms`,
    );
  });

  it('pairs the differences by seed, and leaves them out where there is one seed', () => {
    const { report, page } = experiment();
    const section = page.sections.find(({ heading }) => heading === 'Against retrieval order')!;
    const [chart] = section.figures[0]!.charts!;
    const { mean, se } = report.results[2]!.difference!.cachedDocumentShare;
    expect(chart).toMatchObject({ kind: 'intervals', areDifferences: true });
    expect((chart as Extract<Chart, { kind: 'intervals' }>).rows[1]).toEqual({
      label: 'exact',
      value: mean,
      low: mean - se,
      high: mean + se,
    });
    expect(experiment([1]).page.sections.map(({ heading }) => heading)).not.toContain('Against retrieval order');
  });

  it('has series that agree with the report', () => {
    const { report, series } = experiment();
    expect(series.stretchEnds).toHaveLength(20);
    expect(series.stretchEnds.at(-1)).toBe(200);
    for (const [i, { policy, ttftMs }] of series.policies.entries()) {
      const result = report.results[i]!;
      expect(policy).toBe(result.policy);
      expect([ttftMs[50], ttftMs[95], ttftMs[99]]).toEqual([result.ttftMs.p50, result.ttftMs.p95, result.ttftMs.p99]);
      expect(ttftMs.toSorted((a, b) => a - b)).toEqual(ttftMs);
    }
  });
});

describe('renderReport', () => {
  it('gives the same bytes for the same report', async () => {
    const { page } = experiment();
    const first = await renderReport(page, ORIGIN);
    expect(await renderReport(experiment().page, ORIGIN)).toBe(first);
  });

  it('names nothing that could be fetched, whatever the texts are', async () => {
    const text = await renderReport(reportOf(HOSTILE_TEXTS), ORIGIN);
    expect(text).not.toMatch(/<(?:script|img|link|iframe|object|embed|image|use|a)\b/i);
    expect(text).not.toContain('@import');
    expect(text).not.toContain('url(');
    expect(text).not.toMatch(/[^\P{Cc}\n]|\p{Surrogate}/u);
  });

  it('has no markup that a text brought, for any text', async () => {
    const tags = (text: string) => [...text.matchAll(/<\/?[a-z][a-z0-9]*/gi)].map(([tag]) => tag).sort();
    const plain = tags(await renderReport(reportOf(['plain']), ORIGIN));
    await fc.assert(
      fc.asyncProperty(fc.oneof(fc.string({ unit: 'binary' }), fc.constantFrom(...HOSTILE_TEXTS)), async (text) => {
        // Never empty: a header without a name is no header.
        expect(tags(await renderReport(reportOf([`x${text}`]), ORIGIN))).toEqual(plain);
      }),
      { seed: 3, numRuns: runs(15) },
    );
  });
});

describe('describeChart', () => {
  it('says every value of rows, and where lines begin and end', () => {
    const axis = { title: 'share', format: 'share' } as const;
    const rows = [
      { label: 'a', value: 0.5, low: 0.4, high: 0.6 },
      { label: 'b', value: 0.7 },
    ];
    expect(describeChart({ kind: 'intervals', title: 'T', axis, rows })).toBe(
      'T. share: a 50.0 % (40.0 % to 60.0 %); b 70.0 %.',
    );
    const points = [1, 2, 3].map((x) => ({ x, y: x / 10 }));
    const x = { title: 'requests', format: 'count' } as const;
    expect(describeChart({ kind: 'lines', title: 'T', x, y: axis, series: [{ name: 'a', points }] })).toBe(
      'T. share over requests: a from 10.0 % at 1 to 30.0 % at 3.',
    );
  });
});

describe('axes', () => {
  it('hold zero and every value, whatever the values are', () => {
    const values = fc.array(fc.double({ min: -1e6, max: 1e6, noNaN: true }), { maxLength: 8 });
    fc.assert(
      fc.property(values, (drawn) => {
        const [least, most] = axisDomain(drawn);
        expect(least).toBeLessThan(most);
        for (const value of [0, ...drawn]) {
          expect(value).toBeGreaterThanOrEqual(least);
          expect(value).toBeLessThanOrEqual(most);
        }
      }),
    );
  });

  it('are in percent and points where shares are drawn', async () => {
    const rows = [
      { label: 'a', value: 0.51, low: 0.5, high: 0.52 },
      { label: 'b', value: 0.53 },
    ];
    const share = { title: 'share', format: 'share' } as const;
    const { wide } = await drawChart({ kind: 'intervals', title: 'T', axis: share, rows });
    // From zero, although all values lie between 50 and 53 percent.
    for (const label of ['0 %', '20 %', '40 %', '51.0 %', '53.0 %']) expect(wide).toContain(`>${label}<`);
    const points = { title: 'points', format: 'points' } as const;
    const differences = [
      { label: 'a', value: -0.02 },
      { label: 'b', value: 0.031 },
    ];
    const drawn = await drawChart({
      kind: 'intervals',
      title: 'T',
      axis: points,
      rows: differences,
      areDifferences: true,
    });
    for (const label of ['−2.0', '+3.1', '0', '+2']) expect(drawn.wide).toContain(`>${label}<`);
  });
});

describe('the time of ordering', () => {
  it('leaves the first 200 calls out, or the first half of fewer', () => {
    expect(settledTimes(Array.from({ length: 1_000 }, (_, call) => call))[0]).toBe(200);
    expect(settledTimes([9, 8, 7, 6, 5])).toEqual([7, 6, 5]);
    expect(settledTimes([])).toEqual([]);
  });
});
