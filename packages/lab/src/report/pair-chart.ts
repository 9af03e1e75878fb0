import type { Mark, Spec } from 'vega';
import type { PairChart } from './chart.js';
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
import { INK, type SeriesStyle } from './marks.js';

/** How the two marks of a row look. */
export const PAIR_STYLES = {
  paper: { colour: 'var(--series-2)', dash: [], shape: 'square' },
  ours: { colour: 'var(--series-1)', dash: [], shape: 'circle' },
} as const satisfies Record<string, SeriesStyle>;

/** Two marks a row, joined by a line: its length is the difference. */
export function pairSpec({ axis, rows }: PairChart, width: ChartWidth): Spec {
  const layout = layoutRows(
    rows.map(({ label }) => label),
    width,
  );
  const values = rows.map(({ paper, ours }, row) => ({ row, text: layout.texts[row]!, paper: paper ?? null, ours }));
  const both = values.filter(({ paper }) => paper !== null);
  return {
    ...frame({ width, padding: { left: layout.left, right: 14, top: 8 }, height: rows.length * layout.rowHeight }),
    data: [
      { name: 'rows', values },
      { name: 'both', values: both },
    ],
    scales: [
      horizontalScale(
        axis,
        axisDomain(rows.flatMap(({ paper, ours }) => (paper === undefined ? [ours] : [paper, ours]))),
      ),
      { name: 'y', type: 'band', domain: values.map(({ row }) => row), range: 'height' },
    ],
    axes: [horizontalAxis(axis, width)],
    marks: [rowLabels(layout), difference(layout), dots('both', 'paper', layout), dots('rows', 'ours', layout)],
  };
}

function difference({ markBand }: RowLayout): Mark {
  return {
    type: 'rule',
    from: { data: 'both' },
    encode: {
      enter: {
        x: { scale: 'x', field: 'paper' },
        x2: { scale: 'x', field: 'ours' },
        y: { scale: 'y', field: 'row', band: markBand },
        stroke: { value: INK.text },
        strokeWidth: { value: 1.5 },
      },
    },
  };
}

function dots(data: string, whose: 'paper' | 'ours', { markBand }: RowLayout): Mark {
  const { colour, shape } = PAIR_STYLES[whose];
  return {
    type: 'symbol',
    from: { data },
    encode: {
      enter: {
        x: { scale: 'x', field: whose },
        y: { scale: 'y', field: 'row', band: markBand },
        shape: { value: shape },
        size: { value: whose === 'paper' ? 110 : 60 },
        // The paper's mark is hollow, so that ours shows inside it where the two agree.
        fill: { value: whose === 'paper' ? 'transparent' : colour },
        stroke: { value: colour },
        strokeWidth: { value: 2 },
      },
    },
  };
}
