import type { Mark, Spec } from 'vega';
import { formatNumber, type PairChart } from './chart.js';
import {
  axisDomain,
  type ChartWidth,
  frame,
  horizontalAxis,
  horizontalScale,
  layoutRows,
  type RowLayout,
  rowLabels,
} from './frame.js';
import type { SeriesStyle } from './marks.js';
import { INK } from './marks.js';

/** How the two bars of a row look. */
export const PAIR_STYLES = {
  paper: { colour: 'var(--series-2)', dash: [], shape: 'square' },
  ours: { colour: 'var(--series-1)', dash: [], shape: 'square' },
} as const satisfies Record<string, SeriesStyle>;

/** Pixels that a bar is high, and that a row with two of them needs more than others. */
const BAR = 11;
const EXTRA_HEIGHT = 6;
/** Room for a row's values behind the plot. */
const VALUE_WIDTH = 52;

/** Two bars a row, the paper's above ours, with their values behind them. */
export function pairSpec({ axis, rows }: PairChart, width: ChartWidth): Spec {
  const layout = layoutRows(
    rows.map(({ label }) => label),
    width,
  );
  const data = rows.map(({ paper, ours }, row) => ({
    row,
    text: layout.texts[row]!,
    paper: paper ?? null,
    ours,
    paperShown: paper === undefined ? '' : formatNumber(paper, axis.format),
    oursShown: formatNumber(ours, axis.format),
  }));
  const both = data.filter(({ paper }) => paper !== null);
  return {
    ...frame({
      width,
      padding: { left: layout.left, right: VALUE_WIDTH, top: 8 },
      height: rows.length * (layout.rowHeight + EXTRA_HEIGHT),
    }),
    data: [
      { name: 'rows', values: data },
      { name: 'both', values: both },
    ],
    scales: [
      horizontalScale(
        axis,
        axisDomain(rows.flatMap(({ paper, ours }) => (paper === undefined ? [ours] : [paper, ours]))),
      ),
      { name: 'y', type: 'band', domain: data.map(({ row }) => row), range: 'height' },
    ],
    axes: [horizontalAxis(axis, width)],
    marks: [
      rowLabels(layout),
      bars('both', 'paper', layout),
      bars('rows', 'ours', layout),
      values('both', 'paper', layout),
      values('rows', 'ours', layout),
    ],
  };
}

/** From the middle of a row to the top of a bar. */
function topOf(whose: 'paper' | 'ours'): number {
  return whose === 'paper' ? -BAR : 0;
}

function bars(data: string, whose: 'paper' | 'ours', { markBand }: RowLayout): Mark {
  const { colour } = PAIR_STYLES[whose];
  return {
    type: 'rect',
    from: { data },
    encode: {
      enter: {
        x: { scale: 'x', value: 0 },
        x2: { scale: 'x', field: whose },
        y: { scale: 'y', field: 'row', band: markBand, offset: topOf(whose) },
        height: { value: BAR },
        // The paper's bar is hollow: different without colours too.
        fill: { value: whose === 'paper' ? 'transparent' : colour },
        stroke: { value: colour },
        strokeWidth: { value: 1.5 },
      },
    },
  };
}

function values(data: string, whose: 'paper' | 'ours', { markBand }: RowLayout): Mark {
  return {
    type: 'text',
    from: { data },
    encode: {
      enter: {
        x: { signal: `width + ${VALUE_WIDTH}` },
        y: { scale: 'y', field: 'row', band: markBand, offset: topOf(whose) + BAR / 2 },
        align: { value: 'right' },
        baseline: { value: 'middle' },
        text: { field: `${whose}Shown` },
        fill: { value: INK.text },
        fontSize: { value: 10 },
      },
    },
  };
}
