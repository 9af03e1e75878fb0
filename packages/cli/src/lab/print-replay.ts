import { describeCache, type ReplayReport, type ReplayResult } from '@warmpath/lab';
import { formatTable, percent, type Terminal } from '../terminal.js';

/**
 * Prints what a log would have saved, for a person: the traffic, every policy cache by cache beside its bounds, the
 * finding.
 */
export function printReplay(report: ReplayReport, terminal: Terminal): void {
  const { traffic, results, bounds, finding, assumptions } = report;
  const { bold, dim } = terminal.style;
  terminal.line(
    `${bold(report.log)}: ${count(traffic.requests)} requests, ${count(traffic.documents)} documents, ${count(traffic.distinctDocuments)} of them different`,
  );
  terminal.line(
    `  adjacent requests share ${percent(traffic.jaccard)} of their documents (Jaccard); of all tokens, ${percent(traffic.seenBefore)} were seen before at any position`,
  );
  if (traffic.repeatedInSession > 0) {
    terminal.line(`  ${percent(traffic.repeatedInSession)} of the documents had been in the same session before`);
  }
  for (const { cache, oracle } of bounds) {
    const rows = results.filter((result) => result.cache === cache);
    if (rows.length === 0) continue;
    terminal.line();
    terminal.line(`  ${bold(describeCache(rows[0]!))}`);
    const header = ['policy', 'tokens cached', 'uncached a request', 'TTFT p50', 'p95', 'p99', 'mean ms'];
    for (const line of formatTable([header, ...rows.map(cells)])) terminal.line(`    ${line}`);
    terminal.line(
      dim(
        `    bounds: best order of each request alone ${percent(oracle)}, seen before ${percent(traffic.seenBefore)}`,
      ),
    );
    const { tooLong } = rows[0]!;
    if (tooLong > 0) terminal.line(`    ${count(tooLong)} requests do not fit this engine's memory and were left out`);
  }
  if (report.offline !== undefined) {
    const { low, high } = report.offline;
    const share = low === high ? percent(low) : `${percent(low)} to ${percent(high)}`;
    terminal.line();
    terminal.line(dim(`  best orders of all requests together, no cache limit: ${share} of the documents' tokens`));
  }
  terminal.line();
  terminal.line(bold(finding));
  for (const assumption of assumptions) terminal.line(dim(`  - ${assumption}`));
}

function cells({ policy, cachedTokenShare, uncachedTokens, ttftMs }: ReplayResult): readonly string[] {
  const times = [ttftMs.p50, ttftMs.p95, ttftMs.p99, ttftMs.mean].map((value) => value.toFixed(1));
  return [policy, percent(cachedTokenShare), uncachedTokens.mean.toFixed(0), ...times];
}

function count(value: number): string {
  return value.toLocaleString('en-US');
}
