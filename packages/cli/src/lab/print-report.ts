import type { Estimate, ExperimentReport, ServerSettings } from '@warmpath/lab';
import { percent, type Terminal } from '../terminal.js';

/** Prints what policies got from the cache, and the bounds, for a person. */
export function printExperiment(report: ExperimentReport, terminal: Terminal): void {
  const { bounds, results } = report;
  const settings = results[0]!;
  const isCompared = results.length > 1;
  terminal.line(
    `${terminal.style.bold(report.workload)}: ${report.requests} requests, adjacent Jaccard ${report.jaccard.toFixed(3)}, ` +
      `${settings.seeds.length} ${settings.seeds.length === 1 ? 'seed' : 'seeds'}, cache ${settings.cache}, ` +
      (report.server === undefined
        ? `looking ${settings.queue} requests ahead`
        : `${describeClients(report.server)}, up to ${settings.queue} waiting requests known`),
  );
  terminal.line();
  const against = isCompared ? [`minus ${settings.policy}`] : [];
  const reuse = ['policy', 'documents', ...against, 'tokens', ...against, 'uncached'];
  const reuseRows = results.map((result) => [
    result.policy,
    shareWithError(result.cachedDocumentShare),
    ...(isCompared ? [signedShare(result.difference?.cachedDocumentShare)] : []),
    shareWithError(result.cachedTokenShare),
    ...(isCompared ? [signedShare(result.difference?.cachedTokenShare)] : []),
    result.uncachedTokens.mean.toFixed(0),
  ]);
  terminal.table([reuse, ...reuseRows]);
  terminal.line();
  const times = ['policy', 'TTFT p50', 'p95', 'p99', 'mean ms', ...against, 'order p50', 'p99 µs'];
  const timeRows = results.map((result) => [
    result.policy,
    result.ttftMs.p50.toFixed(1),
    result.ttftMs.p95.toFixed(1),
    result.ttftMs.p99.toFixed(1),
    result.ttftMs.mean.toFixed(1),
    ...(isCompared ? [signed(result.difference?.ttftMs, 1)] : []),
    result.arrangeUs.p50.toFixed(1),
    result.arrangeUs.p99.toFixed(1),
  ]);
  terminal.table([times, ...timeRows]);
  terminal.line();
  terminal.line('  cached documents and tokens; uncached tokens a request; order without the first, compiling calls');
  terminal.line();
  if (report.server !== undefined) printServer(report, terminal);
  terminal.line(
    `  bounds on the documents: best order of each request alone ${percent(bounds.oracle, 2)}, seen before ${percent(bounds.seenBefore, 2)}`,
  );
  if (bounds.offline !== undefined)
    terminal.line(`  best orders of all requests together, no cache limit: ${offline(bounds.offline)}`);
}

/** By tokens, which for documents of one length is by documents. */
function offline(bound: NonNullable<ExperimentReport['bounds']['offline']>): string {
  const share = 'value' in bound ? percent(bound.value, 2) : `${percent(bound.low, 2)} to ${percent(bound.high, 2)}`;
  return `${share} of the documents' tokens`;
}

function describeClients({ clients }: ServerSettings): string {
  switch (clients.kind) {
    case 'poisson':
      return `load ${clients.load}`;
    case 'closed':
      return `${clients.clients} clients`;
    case 'sessions':
      return clients.load === undefined ? 'all sessions at once' : `sessions at load ${clients.load}`;
    case 'recorded':
      return 'recorded arrivals';
  }
}

/** What the server did, policy by policy. */
function printServer({ results }: ExperimentReport, terminal: Terminal): void {
  const header = ['policy', 'wait ms', 'between tokens p50', 'p99 ms', 'end to end p50', 'p99 ms'];
  const rows = results.map(({ policy, server }) => {
    const { waitMs, tbtMs, endToEndMs, throughput, batch, utilisation, imbalance } = server!;
    const times = [waitMs.mean, tbtMs.p50, tbtMs.p99, endToEndMs.p50, endToEndMs.p99, throughput.requestsPerSecond];
    const shares = [percent(utilisation, 0), percent(imbalance, 0)];
    return [policy, ...times.map((value) => value.toFixed(1)), `${batch.mean.toFixed(1)}, ${batch.max}`, ...shares];
  });
  const columns = [...header, 'requests a second', 'batch mean, max', 'busy', 'busiest replica'];
  terminal.table([columns, ...rows]);
  terminal.line();
}

/** Prints how much retrieval found of what was judged relevant, where that is known. */
export function printRecall(recall: number | undefined, terminal: Terminal): void {
  if (recall !== undefined) terminal.line(`  of the passages judged relevant, ${percent(recall)} were retrieved`);
}

function signed(difference: Estimate | undefined, places: number): string {
  if (difference === undefined) return '';
  return `${difference.mean < 0 ? '' : '+'}${withError(difference, places)}`;
}

function withError({ mean, se }: Estimate, places: number): string {
  return se === 0 ? mean.toFixed(places) : `${mean.toFixed(places)} ± ${se.toFixed(places)}`;
}

function shareWithError(share: Estimate): string {
  return `${withError(inPercent(share), 2)} %`;
}

/** A difference of shares, in points. */
function signedShare(difference: Estimate | undefined): string {
  return difference === undefined ? '' : `${signed(inPercent(difference), 2)} %`;
}

function inPercent({ mean, se }: Estimate): Estimate {
  return { mean: 100 * mean, se: 100 * se };
}
