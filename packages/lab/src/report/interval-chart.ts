import type { Mark, Spec } from 'vega';
import { formatNumber, type IntervalChart } from './chart.js';
import {
  axisDomain,
  type ChartWidth,
  FONT_SIZE,
  frame,
  horizontalAxis,
  horizontalScale,
  layoutRows,
  type RowLayout,
  rowLabels,
} from './frame.js';
import { BOUND_DASH, INK } from './marks.js';

/** Room for a row's value behind the plot. */
const VALUE_WIDTH = 58;
const CAP = 5;

/** Bars from zero with whiskers, a row each; the value stands at the end of its row. */
export function intervalSpec({ axis, rows, areDifferences = false }: IntervalChart, width: ChartWidth): Spec {
  const layout = layoutRows(
    rows.map(({ label }) => label),
    width,
  );
  const values = rows.map((row, i) => ({
    row: i,
    text: layout.texts[i]!,
    value: row.value,
    low: row.low ?? row.value,
    high: row.high ?? row.value,
    shown: formatNumber(row.value, axis.format),
    isBound: row.isBound === true,
  }));
  const ends = values.flatMap(({ value, low, high }) => [value, low, high]);
  return {
    ...frame({
      width,
      padding: { left: layout.left, right: VALUE_WIDTH, top: 8 },
      height: rows.length * layout.rowHeight,
    }),
    data: [
      { name: 'rows', values },
      { name: 'bounds', values: values.filter(({ isBound }) => isBound) },
      { name: 'measured', values: values.filter(({ isBound }) => !isBound) },
    ],
    scales: [
      horizontalScale(axis, areDifferences ? differenceDomain(ends) : axisDomain(ends)),
      { name: 'y', type: 'band', domain: values.map(({ row }) => row), range: 'height' },
    ],
    axes: [horizontalAxis(axis, width)],
    marks: [
      rowLabels(layout),
      bars(layout),
      zeroLine,
      boundLines,
      boundMarks(layout),
      errorBar(layout),
      ...errorCaps(layout),
      valueTexts(layout),
    ],
  };
}

/** Ends of an axis of differences; where there are none, as far to either side of zero. */
function differenceDomain(ends: readonly number[]): [number, number] {
  return ends.every((end) => end === 0) ? [-0.1, 0.1] : axisDomain(ends);
}

/** Pixels that a bar is high. */
const BAR = 14;

function bars({ markBand }: RowLayout): Mark {
  return {
    type: 'rect',
    from: { data: 'measured' },
    encode: {
      enter: {
        x: { scale: 'x', value: 0 },
        x2: { scale: 'x', field: 'value' },
        y: { scale: 'y', field: 'row', band: markBand, offset: -BAR / 2 },
        height: { value: BAR },
        fill: { value: 'var(--series-1)' },
        // The whisker must be seen on the bar too.
        fillOpacity: { value: 0.72 },
      },
    },
  };
}

const zeroLine: Mark = {
  type: 'rule',
  encode: {
    enter: {
      x: { scale: 'x', value: 0 },
      y: { value: 0 },
      y2: { signal: 'height' },
      stroke: { value: INK.text },
      strokeWidth: { value: 1 },
    },
  },
};

const boundLines: Mark = {
  type: 'rule',
  from: { data: 'bounds' },
  encode: {
    enter: {
      x: { scale: 'x', field: 'value' },
      y: { value: 0 },
      y2: { signal: 'height' },
      stroke: { value: INK.bound },
      strokeDash: { value: [...BOUND_DASH] },
    },
  },
};

function errorBar({ markBand }: RowLayout): Mark {
  return {
    type: 'rule',
    from: { data: 'rows' },
    encode: {
      enter: {
        x: { scale: 'x', field: 'low' },
        x2: { scale: 'x', field: 'high' },
        y: { scale: 'y', field: 'row', band: markBand },
        stroke: { value: INK.text },
        strokeWidth: { value: 1.5 },
      },
    },
  };
}

function errorCaps({ markBand }: RowLayout): readonly Mark[] {
  return (['low', 'high'] as const).map((end) => ({
    type: 'rule',
    from: { data: 'measured' },
    encode: {
      enter: {
        x: { scale: 'x', field: end },
        y: { scale: 'y', field: 'row', band: markBand, offset: -CAP },
        y2: { scale: 'y', field: 'row', band: markBand, offset: CAP },
        stroke: { value: INK.text },
        strokeWidth: { value: 1.5 },
      },
    },
  }));
}

/** Which of the dashed lines is a bound's own. */
function boundMarks({ markBand }: RowLayout): Mark {
  return {
    type: 'symbol',
    from: { data: 'bounds' },
    encode: {
      enter: {
        x: { scale: 'x', field: 'value' },
        y: { scale: 'y', field: 'row', band: markBand },
        shape: { value: 'diamond' },
        size: { value: 70 },
        fill: { value: 'var(--paper)' },
        stroke: { value: INK.bound },
        strokeWidth: { value: 1.5 },
      },
    },
  };
}

function valueTexts({ markBand }: RowLayout): Mark {
  return {
    type: 'text',
    from: { data: 'rows' },
    encode: {
      enter: {
        x: { signal: `width + ${VALUE_WIDTH}` },
        y: { scale: 'y', field: 'row', band: markBand },
        align: { value: 'right' },
        baseline: { value: 'middle' },
        text: { field: 'shown' },
        fill: { value: INK.text },
        fontSize: { value: FONT_SIZE },
      },
    },
  };
}
