import { percent, type Terminal } from '../terminal.js';
import { type Comparison, type GradedReport, type StrategyReport, uncachedTokens } from './report.js';

/** Prints both strategies side by side, and the sentence that sums them up. */
export function printComparison(terminal: Terminal, comparison: Comparison): void {
  const { retrieval, arranged } = comparison.strategies;
  const { ratio } = comparison;
  const row = (name: string, of: (report: StrategyReport) => string, ratioText = '') => [
    name,
    of(retrieval),
    of(arranged),
    ratioText,
  ];
  const rows = [
    ['', 'retrieval order', 'arranged', 'change'],
    row('TTFT p50', ({ ttftMs }) => milliseconds(ttftMs.p50), change(ratio.ttftP50)),
    row('TTFT p95', ({ ttftMs }) => milliseconds(ttftMs.p95)),
    row('TTFT mean', ({ ttftMs }) => milliseconds(ttftMs.mean), change(ratio.ttftMean)),
    row('prompt tokens', ({ promptTokens }) => tokens(promptTokens)),
    row('uncached tokens', (report) => tokens(uncachedTokens(report)), change(ratio.uncachedTokens)),
    row('cached share', ({ cachedShare }) => (cachedShare === null ? 'not reported' : percent(cachedShare))),
  ];
  terminal.table(rows);
  terminal.line();
  terminal.line(`  ${terminal.style.bold(verdict(ratio.ttftP50))}`);
}

/** Prints how many answers are right in each order. */
export function printExactAnswers(terminal: Terminal, comparison: Comparison<GradedReport>): void {
  const { retrieval, arranged } = comparison.strategies;
  const of = `of ${comparison.requests}`;
  terminal.line(
    `  answers exact word for word: ${retrieval.exactAnswers} ${of} in retrieval order, ${arranged.exactAnswers} ${of} arranged`,
  );
}

function verdict(ratio: number): string {
  const share = percent(Math.abs(1 - ratio));
  if (ratio < 1) return `Arranged, the median answer starts ${share} sooner.`;
  return ratio === 1
    ? 'Arranged, the median answer starts at the same time.'
    : `Arranged, the median answer starts ${share} later.`;
}

function milliseconds(value: number): string {
  return `${value.toFixed(1)} ms`;
}

function tokens(count: number | null): string {
  return count === null ? 'not reported' : count.toLocaleString('en-US');
}

/** How much less, or more, arranged than in retrieval order. */
function change(ratio: number | null): string {
  if (ratio === null) return '';
  return `${ratio <= 1 ? '−' : '+'}${percent(Math.abs(1 - ratio))}`;
}
