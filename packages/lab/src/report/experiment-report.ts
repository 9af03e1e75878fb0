import type { ExperimentReport, ExperimentSeries, PolicyResult } from '../experiment.js';
import type { ClientSettings, ServerSettings } from '../server/settings.js';
import { type Estimate, WARM_UP_CALLS } from '../statistics.js';
import type { IntervalRow } from './chart.js';
import type { Report, ReportFact, ReportSection } from './report.js';
import { inPercent, knownAhead, percent, points, writeRanges } from './wording.js';

/** Percentiles in the table of the distribution. */
const TABLE_PERCENTILES = [1, 5, 10, 25, 50, 75, 90, 95, 99];
/** The curve of the distribution ends here: the last request of all would set the scale. */
const LAST_PERCENTILE = 99;

/**
 * The report of an experiment. `report` must hold at least one result with at least one seed, and `series` be of the
 * same experiment.
 */
export function experimentPage(report: ExperimentReport, series: ExperimentSeries): Report {
  return {
    title: `warmpath lab run: ${report.workload}`,
    finding: finding(report),
    facts: facts(report),
    sections: [
      reuseSection(report),
      ...differenceSection(report),
      latencySection(report, series),
      ...serverSection(report),
      runSection(series),
    ],
  };
}

function finding({ workload, results }: ExperimentReport): string {
  const best = results.reduce((one, other) =>
    other.cachedDocumentShare.mean > one.cachedDocumentShare.mean ? other : one,
  );
  const baseline = results[0]!;
  const reuses = `${percent(best.cachedDocumentShare.mean)} of the documents`;
  const ttft = `a mean time to first token of ${best.ttftMs.mean.toFixed(1)}\u00a0ms`;
  if (results.length === 1) return `On ${workload}, ${best.policy} reuses ${reuses}, at ${ttft}.`;
  if (best === baseline) return `On ${workload}, no policy reuses more than ${orderOf(best)}: ${reuses}, at ${ttft}.`;
  const { mean, se } = best.difference!.cachedDocumentShare;
  const gain = `${points(mean)}${se === 0 ? '' : `\u00a0±\u00a0${points(se)}`}\u00a0points`;
  const change = ttftChange(baseline.ttftMs.mean, best.ttftMs.mean);
  return `On ${workload}, ${best.policy} reuses ${reuses}, ${gain} more than ${orderOf(baseline)}, and the mean time to first token ${change}.`;
}

function orderOf({ policy }: PolicyResult): string {
  return policy === 'retrieval' ? 'retrieval order' : policy;
}

function ttftChange(before: number, after: number): string {
  const [from, to] = [before.toFixed(1), after.toFixed(1)];
  if (from === to) return `stays at ${to}\u00a0ms`;
  return `${after < before ? 'falls' : 'rises'} from ${from} to ${to}\u00a0ms`;
}

function facts({ workload, requests, jaccard, results, server }: ExperimentReport): ReportFact[] {
  const { queue, cache, seeds } = results[0]!;
  return [
    { name: 'Workload', value: `${workload}, ${requests} requests a seed` },
    { name: 'Overlap', value: `${jaccard.toFixed(3)}, the mean Jaccard index of adjacent requests` },
    { name: 'Policies', value: results.map(({ policy }) => policy).join(', ') },
    { name: 'Seeds', value: writeRanges(seeds) },
    { name: 'Cache', value: cache },
    { name: 'Requests', value: server === undefined ? 'one after another' : describeClients(server.clients) },
    ...(server === undefined ? [] : [{ name: 'Server', value: describeServer(server) }]),
    {
      name: 'Known ahead',
      value: knownAhead(queue, server === undefined ? 'trace' : 'server'),
    },
  ];
}

function describeClients(clients: ClientSettings): string {
  switch (clients.kind) {
    case 'poisson':
      return `at random, at ${clients.load} of the load that retrieval order can just serve`;
    case 'closed':
      return `of ${clients.clients} clients, each asking again ${clients.thinkMs} ms after its answer`;
    case 'sessions':
      return `turn by turn, each ${clients.thinkMs} ms after the answer before${clients.load === undefined ? '' : `, sessions at ${clients.load} of the load that retrieval order can just serve`}`;
    case 'recorded':
      return 'at the recorded times';
  }
}

/** `maxBatch: 8` as «max batch 8»; what is left to its default is not said. */
function describeServer({ clients: _clients, ...others }: ServerSettings): string {
  const words = Object.entries(others)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${name.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`)} ${value}`);
  return words.length === 0 ? 'one replica, everything by default' : words.join(', ');
}

function reuseSection({ results, bounds }: ExperimentReport): ReportSection {
  const bound = (label: string, value: number): IntervalRow => ({ label, value, isBound: true });
  const { offline } = bounds;
  return {
    heading: 'What is reused',
    text: [
      'Share of the documents that the engine finds in its cache, mean over requests, then over seeds. Whiskers show one standard error over seeds.',
    ],
    figures: [
      {
        charts: [
          {
            kind: 'intervals',
            title: 'Documents reused, by policy',
            axis: { title: 'share of documents', format: 'share' },
            rows: [
              ...results.map(({ policy, cachedDocumentShare }) => intervalRow(policy, cachedDocumentShare)),
              bound('each request alone', bounds.oracle),
              ...(offline === undefined ? [] : [offlineRow(offline)]),
              bound('seen before', bounds.seenBefore),
            ],
          },
        ],
        table: {
          caption: 'Reuse by policy, with standard errors over seeds',
          columns: ['policy', 'documents %', '±', 'tokens %', '±', 'uncached tokens, mean', 'p50'],
          rows: [
            ...results.map(({ policy, cachedDocumentShare: documents, cachedTokenShare: tokens, uncachedTokens }) => [
              policy,
              inPercent(documents.mean),
              inPercent(documents.se),
              inPercent(tokens.mean),
              inPercent(tokens.se),
              uncachedTokens.mean.toFixed(1),
              uncachedTokens.p50.toFixed(0),
            ]),
            ['bound: each request alone', inPercent(bounds.oracle), '', '', '', '', ''],
            ...(offline === undefined
              ? []
              : [['bound: all requests together', writeOffline(offline), '', '', '', '', '']]),
            ['bound: seen before', inPercent(bounds.seenBefore), '', '', '', '', ''],
          ],
        },
      },
    ],
    notes: [
      'Each request alone: the best order of each request by itself on the same cache. A policy that thinks of later requests can pass it.',
      ...(offline === undefined
        ? []
        : [
            "All requests together: the best orders of the whole run on a cache that forgets nothing, as a share of the documents' tokens.",
          ]),
      'Seen before: reuse at any position. No order of documents passes it, for a cache reuses beginnings only.',
    ],
  };
}

type Offline = NonNullable<ExperimentReport['bounds']['offline']>;

/** Proven, it is a value; else it lies somewhere between two. */
function offlineRow(offline: Offline): IntervalRow {
  const label = 'all together';
  if ('value' in offline) return { label, value: offline.value, isBound: true };
  const { low, high } = offline;
  return { label, value: (low + high) / 2, low, high, isBound: true };
}

function writeOffline(offline: Offline): string {
  return 'value' in offline ? inPercent(offline.value) : `${inPercent(offline.low)} to ${inPercent(offline.high)}`;
}

/** Where there is something to pair: a second policy, and a second seed. */
function differenceSection({ results }: ExperimentReport): ReportSection[] {
  const [baseline, ...others] = results;
  if (others.length === 0 || baseline!.seeds.length < 2) return [];
  const name = orderOf(baseline!);
  return [
    {
      heading: `Against ${name}`,
      text: [
        `The difference to ${name} on the same seed, mean over seeds with one standard error: what a seed has in common for all policies drops out.`,
      ],
      figures: [
        {
          charts: [
            {
              kind: 'intervals',
              title: `Documents reused beyond ${name}`,
              axis: { title: 'difference in percentage points', format: 'points' },
              rows: others.map(({ policy, difference }) => intervalRow(policy, difference!.cachedDocumentShare)),
              areDifferences: true,
            },
          ],
          table: {
            caption: `Difference to ${name}, paired by seed`,
            columns: ['policy', 'documents, points', '±', 'tokens, points', '±'],
            rows: others.map(({ policy, difference }) => {
              const { cachedDocumentShare: documents, cachedTokenShare: tokens } = difference!;
              const cells = [documents.mean, documents.se, tokens.mean, tokens.se];
              return [policy, ...cells.map(inPercent)];
            }),
          },
        },
      ],
      notes: [],
    },
  ];
}

function latencySection({ results }: ExperimentReport, series: ExperimentSeries): ReportSection {
  return {
    heading: 'Time to first token',
    text: ['Over the requests of all seeds, in simulated milliseconds. Further left and steeper is better.'],
    figures: [
      {
        charts: [
          {
            kind: 'lines',
            title: `Requests answered within a time (to the ${LAST_PERCENTILE}th percentile)`,
            x: { title: 'milliseconds to the first token', format: 'milliseconds' },
            y: { title: 'share of requests', format: 'share' },
            isStepped: true,
            series: series.policies.map(({ policy, ttftMs }) => ({
              name: policy,
              points: ttftMs.slice(0, LAST_PERCENTILE + 1).map((x, i) => ({ x, y: i / 100 })),
            })),
          },
        ],
        table: {
          caption: 'Milliseconds to the first token, and microseconds that ordering took',
          columns: ['policy', 'p50', 'p95', 'p99', 'mean', 'ordering p50', 'ordering p99'],
          rows: results.map(latencyRow),
        },
      },
      {
        table: {
          caption: 'More percentiles of the milliseconds to the first token',
          columns: ['policy', ...TABLE_PERCENTILES.map((percentile) => `p${percentile}`)],
          rows: series.policies.map(({ policy, ttftMs }) => [
            policy,
            ...TABLE_PERCENTILES.map((percentile) => ttftMs[percentile]!.toFixed(1)),
          ]),
        },
        foldsTable: true,
      },
    ],
    notes: [
      `The time that ordering took is that of the machine which ran this, without each policy's first ${WARM_UP_CALLS} calls, in which its code is compiled; everything else is simulated and repeats exactly.`,
    ],
  };
}

function latencyRow({ policy, ttftMs, arrangeUs }: PolicyResult): string[] {
  const { p50, p95, p99, mean } = ttftMs;
  return [policy, ...[p50, p95, p99, mean, arrangeUs.p50, arrangeUs.p99].map((value) => value.toFixed(1))];
}

/** Where a server was simulated. */
function serverSection({ results }: ExperimentReport): ReportSection[] {
  const rows = results.flatMap(({ policy, server }) => {
    if (server === undefined) return [];
    const { waitMs, endToEndMs, tbtMs, throughput, batch, utilisation } = server;
    const figures = [waitMs.mean, endToEndMs.mean, tbtMs.p99, throughput.requestsPerSecond, batch.mean];
    return [[policy, ...figures.map((value) => value.toFixed(1)), percent(utilisation)]];
  });
  if (rows.length === 0) return [];
  const columns = ['policy', 'wait ms', 'end to end ms', 'between tokens p99 ms', 'requests / s', 'batch', 'busy'];
  return [
    {
      heading: 'The server',
      text: ['What the requests met there: means over requests and seeds, in simulated time.'],
      figures: [{ table: { caption: 'The server, by policy', columns, rows } }],
      notes: [],
    },
  ];
}

function runSection({ stretchEnds, policies }: ExperimentSeries): ReportSection {
  return {
    heading: 'Over the run',
    text: [
      'Share of the prompt tokens that came from the cache, stretch by stretch, mean over seeds: how the cache warms up, and whether it keeps what it has.',
    ],
    figures: [
      {
        charts: [
          {
            kind: 'lines',
            title: 'Tokens reused in the course of the run',
            x: { title: 'requests served', format: 'count' },
            y: { title: 'share of prompt tokens', format: 'share' },
            series: policies.map(({ policy, cachedTokenShare }) => ({
              name: policy,
              points: cachedTokenShare.map((y, i) => ({ x: stretchEnds[i]!, y })),
            })),
          },
        ],
        table: {
          caption: 'Prompt tokens reused, in percent, by the last request of each stretch',
          columns: ['to request', ...policies.map(({ policy }) => policy)],
          rows: stretchEnds.map((end, i) => [
            String(end),
            ...policies.map(({ cachedTokenShare }) => inPercent(cachedTokenShare[i]!)),
          ]),
        },
        foldsTable: true,
      },
    ],
    notes: [],
  };
}

function intervalRow(label: string, { mean, se }: Estimate): IntervalRow {
  return se === 0 ? { label, value: mean } : { label, value: mean, low: mean - se, high: mean + se };
}
