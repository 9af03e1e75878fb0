import { signed } from './wording.js';

/** How the numbers of an axis are written: shares in percent, differences of shares in points. */
export type NumberFormat = 'share' | 'points' | 'count' | 'milliseconds' | 'plain';

/** What is measured along an axis. */
export interface ChartAxis {
  /** With its unit. */
  readonly title: string;
  readonly format: NumberFormat;
  /** Default `linear`. A logarithmic axis has powers of two as its ticks and takes numbers above 0 only. */
  readonly scale?: 'linear' | 'logarithmic';
}

/** One row of an interval chart. */
export interface IntervalRow {
  readonly label: string;
  readonly value: number;
  /** What the value is uncertain by; absent where it is not. */
  readonly low?: number;
  readonly high?: number;
  /** Whether the row is a bound or a baseline that the others are measured against. */
  readonly isBound?: boolean;
}

/**
 * Values with their uncertainty, one under the other: a bar from zero for each row and a whisker on it, bounds as lines
 * through all rows.
 */
export interface IntervalChart {
  readonly kind: 'intervals';
  readonly title: string;
  readonly axis: ChartAxis;
  readonly rows: readonly IntervalRow[];
  /** Whether the values are differences, with zero as a line between gains and losses. */
  readonly areDifferences?: boolean;
}

export interface ChartPoint {
  readonly x: number;
  readonly y: number;
}

export interface LineSeries {
  readonly name: string;
  /** In ascending order of `x`. */
  readonly points: readonly ChartPoint[];
  /** Whether the line is a bound that the others are measured against. */
  readonly isBound?: boolean;
}

/** How one figure depends on another, a line for each series. */
export interface LineChart {
  readonly kind: 'lines';
  readonly title: string;
  readonly x: ChartAxis;
  readonly y: ChartAxis;
  /** Whether a series keeps its value up to the next point instead of going there in a straight line. Default false. */
  readonly isStepped?: boolean;
  readonly series: readonly LineSeries[];
}

/** One row of a pair chart; `paper` is absent where the paper gives no figure. */
export interface PairRow {
  readonly label: string;
  readonly paper?: number;
  readonly ours: number;
}

/** A paper's figures beside ours, one row for each: two bars from zero. */
export interface PairChart {
  readonly kind: 'pairs';
  readonly title: string;
  readonly axis: ChartAxis;
  readonly rows: readonly PairRow[];
}

/** What a report can draw. */
export type Chart = IntervalChart | LineChart | PairChart;

/** A number as charts and their text alternatives write it. */
export function formatNumber(value: number, format: NumberFormat): string {
  switch (format) {
    case 'share':
      return `${(100 * value).toFixed(1)} %`;
    case 'points':
      return signed(100 * value, Math.abs(value) < 0.01 ? 2 : 1);
    case 'count':
      return Math.round(value).toLocaleString('en-US');
    case 'milliseconds':
      return value.toFixed(1);
    case 'plain':
      return String(Number(value.toFixed(Math.abs(value) < 1 ? 3 : Math.abs(value) < 100 ? 2 : 1)));
  }
}

/** What a chart shows, in words, for those who do not see it. */
export function describeChart(chart: Chart): string {
  switch (chart.kind) {
    case 'intervals':
      return `${chart.title}. ${chart.axis.title}: ${chart.rows.map((row) => describeInterval(row, chart.axis)).join('; ')}.`;
    case 'pairs':
      return `${chart.title}. ${chart.axis.title}, paper and ours: ${chart.rows.map((row) => describePair(row, chart.axis)).join('; ')}.`;
    case 'lines':
      return `${chart.title}. ${chart.y.title} over ${chart.x.title}: ${chart.series.map((series) => describeSeries(series, chart)).join('; ')}.`;
  }
}

function describeInterval({ label, value, low, high }: IntervalRow, { format }: ChartAxis): string {
  const range =
    low === undefined || high === undefined || low === high
      ? ''
      : ` (${formatNumber(low, format)} to ${formatNumber(high, format)})`;
  return `${label} ${formatNumber(value, format)}${range}`;
}

function describePair({ label, paper, ours }: PairRow, { format }: ChartAxis): string {
  return `${label} ${paper === undefined ? 'no figure' : formatNumber(paper, format)} and ${formatNumber(ours, format)}`;
}

function describeSeries({ name, points }: LineSeries, { x, y }: LineChart): string {
  const first = points[0];
  const last = points.at(-1);
  if (first === undefined || last === undefined) return `${name} without points`;
  const at = (point: ChartPoint) => `${formatNumber(point.y, y.format)} at ${formatNumber(point.x, x.format)}`;
  return points.length === 1 ? `${name} ${at(first)}` : `${name} from ${at(first)} to ${at(last)}`;
}
