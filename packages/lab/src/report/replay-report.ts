import { describeCache, type ReplayReport, type ReplayResult } from '../replay/replay-report.js';
import { WARM_UP_CALLS } from '../statistics.js';
import type { Chart, IntervalRow, LineSeries } from './chart.js';
import type { Report, ReportFact, ReportSection } from './report.js';
import { inPercent, knownAhead, percent } from './wording.js';

/** The page of a replay; the report must hold at least one result. */
export function replayPage(report: ReplayReport): Report {
  return {
    title: `warmpath lab replay: ${report.log}`,
    finding: report.finding,
    facts: facts(report),
    sections: [
      ...savingSection(report),
      reuseSection(report),
      ...sizeSection(report),
      latencySection(report),
      assumptions(report),
    ],
  };
}

function facts({ log, traffic, arrivals, queue, results, offline }: ReplayReport): ReportFact[] {
  return [
    { name: 'Log', value: log },
    {
      name: 'Counted requests',
      value: `${results[0]!.requests.toLocaleString('en-US')}, after ${traffic.warmUp} to warm up`,
    },
    { name: 'Overlap', value: `${traffic.jaccard.toFixed(3)}, the mean Jaccard index of adjacent requests` },
    { name: 'Seen before', value: `${percent(traffic.seenBefore)} of the prompt tokens` },
    { name: 'Repeated in a session', value: `${percent(traffic.repeatedInSession)} of the documents` },
    { name: 'Requests', value: arrivals === 'recorded' ? 'at the times of the log' : 'one after another' },
    {
      name: 'Known ahead',
      value: knownAhead(queue, arrivals === 'recorded' ? 'server' : 'trace'),
    },
    ...(offline === undefined
      ? []
      : [
          {
            name: 'Best orders of all requests together',
            value: `${percent(offline.low)} to ${percent(offline.high)} of the documents' tokens, in a cache that forgets nothing`,
          },
        ]),
  ];
}

function savingSection({ savings, results }: ReplayReport): ReportSection[] {
  if (savings.length === 0) return [];
  const named = (cache: string) => describeCache(results.find((result) => result.cache === cache)!);
  const chart: Chart = {
    kind: 'intervals',
    title: 'Tokens to prefill that are saved',
    axis: { title: 'share saved', format: 'share' },
    rows: savings.map(({ policy, cache, uncachedTokens }) => ({ label: `${policy}, ${cache}`, value: uncachedTokens })),
    areDifferences: true,
  };
  return [
    {
      heading: 'What you would save',
      text: [
        'Share of the tokens that retrieval order prefills on the same cache. Left of zero, a policy would cost you.',
      ],
      figures: [
        {
          charts: [chart],
          table: {
            caption: 'Savings against retrieval order',
            columns: ['policy, cache', 'engine', 'uncached tokens', 'mean time to first token'],
            rows: savings.map(({ policy, cache, uncachedTokens, ttft }) => [
              `${policy}, ${cache}`,
              named(cache),
              percent(uncachedTokens),
              percent(ttft),
            ]),
          },
        },
      ],
      notes: [],
    },
  ];
}

function reuseSection({ results, bounds, traffic }: ReplayReport): ReportSection {
  const caches = [...new Set(results.map(({ cache }) => cache))];
  return {
    heading: 'What is reused',
    text: ['Share of the prompt tokens that come from the cache, cache by cache, beside what no order can pass.'],
    figures: [
      {
        charts: caches.map((cache): Chart => {
          const own = results.filter((result) => result.cache === cache);
          const oracle = bounds.find((bound) => bound.cache === cache);
          const limits: IntervalRow[] = [
            ...(oracle === undefined ? [] : [{ label: 'each alone', value: oracle.oracle, isBound: true }]),
            { label: 'seen before', value: traffic.seenBefore, isBound: true },
          ];
          return {
            kind: 'intervals',
            title: describeCache(own[0]!),
            axis: { title: 'share of prompt tokens', format: 'share' },
            rows: [
              ...own.map(({ policy, cachedTokenShare }) => ({ label: policy, value: cachedTokenShare })),
              ...limits,
            ],
          };
        }),
        table: {
          caption: 'Reuse by policy and cache',
          columns: ['policy, cache', 'documents %', 'tokens %', 'bound: each alone %', 'uncached tokens', 'a request'],
          rows: results.map(({ policy, cache, cachedDocumentShare, cachedTokenShare, uncachedTokens }) => [
            `${policy}, ${cache}`,
            inPercent(cachedDocumentShare),
            inPercent(cachedTokenShare),
            percentOf(bounds.find((bound) => bound.cache === cache)?.oracle),
            uncachedTokens.total.toLocaleString('en-US'),
            uncachedTokens.mean.toFixed(1),
          ]),
        },
      },
    ],
    notes: [
      'Each alone: the best order of each request by itself on that cache. A policy that thinks of later requests can pass it.',
      'Seen before: tokens that earlier requests held at any position. No order of documents passes it.',
    ],
  };
}

/** Where an engine was replayed with caches of several sizes. */
function sizeSection({ results }: ReplayReport): ReportSection[] {
  const engines = [...new Set(results.map(({ engine }) => engine))];
  const charts = engines.flatMap((engine): Chart[] => {
    const sized = results.filter((result) => result.engine === engine && result.capacityTokens !== null);
    if (new Set(sized.map(({ capacityTokens }) => capacityTokens)).size < 2) return [];
    return [
      {
        kind: 'lines',
        title: engine,
        x: { title: 'tokens of room', format: 'count', scale: 'logarithmic' },
        y: { title: 'share of prompt tokens', format: 'share' },
        series: seriesOf(sized),
      },
    ];
  });
  if (charts.length === 0) return [];
  const sized = results.filter(({ capacityTokens }) => capacityTokens !== null);
  return [
    {
      heading: 'The size of the cache',
      text: ['Share of the prompt tokens reused, by the room that the engine has for them.'],
      figures: [
        {
          charts,
          table: {
            caption: 'Prompt tokens reused, by room',
            columns: ['policy', 'engine', 'tokens of room', 'reused %'],
            rows: sized.map(({ policy, engine, capacityTokens, cachedTokenShare }) => [
              policy,
              engine,
              capacityTokens!.toLocaleString('en-US'),
              inPercent(cachedTokenShare),
            ]),
          },
        },
      ],
      notes: [],
    },
  ];
}

function seriesOf(results: readonly ReplayResult[]): LineSeries[] {
  const policies = [...new Set(results.map(({ policy }) => policy))];
  return policies.map((policy) => ({
    name: policy,
    points: results
      .filter((result) => result.policy === policy)
      .map(({ capacityTokens, cachedTokenShare }) => ({ x: capacityTokens!, y: cachedTokenShare }))
      .sort((a, b) => a.x - b.x),
  }));
}

function latencySection({ results }: ReplayReport): ReportSection {
  return {
    heading: 'Time to first token',
    text: ['In simulated milliseconds, by the latency named below.'],
    figures: [
      {
        charts: (['mean', 'p95'] as const).map(
          (figure): Chart => ({
            kind: 'intervals',
            title: figure === 'mean' ? 'Mean' : '95th percentile',
            axis: { title: 'milliseconds to the first token', format: 'milliseconds' },
            rows: results.map(({ policy, cache, ttftMs }) => ({ label: `${policy}, ${cache}`, value: ttftMs[figure] })),
          }),
        ),
        table: {
          caption: 'Milliseconds to the first token, and microseconds that ordering took',
          columns: ['policy, cache', 'p50', 'p95', 'p99', 'mean', 'ordering p50', 'ordering p99'],
          rows: results.map(({ policy, cache, ttftMs, arrangeUs }) => [
            `${policy}, ${cache}`,
            ...[ttftMs.p50, ttftMs.p95, ttftMs.p99, ttftMs.mean, arrangeUs.p50, arrangeUs.p99].map((value) =>
              value.toFixed(1),
            ),
          ]),
        },
      },
    ],
    notes: [
      `The time that ordering took is that of the machine which ran this, without each policy's first ${WARM_UP_CALLS} calls on a cache, in which its code is compiled.`,
    ],
  };
}

/** Nothing where there is no share. */
function percentOf(share: number | undefined): string {
  return share === undefined ? '' : inPercent(share);
}

function assumptions(report: ReplayReport): ReportSection {
  return { heading: 'Under which assumptions', text: [], figures: [], notes: report.assumptions };
}
