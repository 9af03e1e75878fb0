import { WarmpathError } from '@warmpath/core';
import type { Fallback } from '../shapes/shapes.js';
import type { Log } from './log.js';
import type { Metrics } from './metrics.js';
import type { ReportBuilder } from './report.js';

/** Counts, records and logs a defect that cost an order, not an answer. */
export type FailOpen = (report: ReportBuilder, fallback: Fallback, defect: unknown) => void;

export function failOpenTo({ metrics, log }: { readonly metrics: Metrics; readonly log: Log }): FailOpen {
  return (report, fallback, defect) => {
    metrics.failedOpen(fallback);
    const reason = WarmpathError.isInstance(defect) ? defect.code : describeDefect(defect).name;
    report.wentWithout({ fallback, reason });
    log.error({ requestId: report.requestId, fallback, ...describeDefect(defect) }, 'failed open');
  };
}

/** Where a defect is, without its message, which may quote the request. */
export function describeDefect(defect: unknown): { name: string; at: string | undefined } {
  if (!(defect instanceof Error)) return { name: typeof defect, at: undefined };
  const frames = defect.stack?.split('\n').filter((line) => line.startsWith('    at '));
  return { name: defect.name, at: frames?.[0]?.trim() };
}
