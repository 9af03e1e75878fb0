import type { Data, Mark, Spec } from 'vega';
import type { LineChart } from './chart.js';
import { axisDomain, type ChartWidth, fitTitle, frame, horizontalAxis, horizontalScale, tickLabels } from './frame.js';
import { BOUND_DASH, INK, type SeriesStyle, seriesStyle } from './marks.js';

const LEFT = 54;
const HEIGHT = { wide: 300, narrow: 220 } as const;
/** More points than this are a curve, and dots on it only noise. */
const MAX_DOTS = 24;

/** The look of every series of a chart: bounds are dashed ink, the others follow the palette. */
export function lineStyles({ series }: Pick<LineChart, 'series'>): readonly SeriesStyle[] {
  let measured = 0;
  return series.map(({ isBound }) =>
    isBound === true ? { colour: INK.bound, dash: BOUND_DASH, shape: 'diamond' } : seriesStyle(measured++),
  );
}

/** Lines over a common axis. The legend is the page's, so that it wraps with it. */
export function lineSpec(chart: LineChart, width: ChartWidth): Spec {
  const { series, x, y } = chart;
  const points = series.flatMap((each) => each.points);
  const horizontal = points.map((point) => point.x);
  const isLogarithmic = x.scale === 'logarithmic';
  // A logarithmic axis has no zero to begin at; its powers of two say where it does.
  const ends = isLogarithmic ? ([Math.min(...horizontal), Math.max(...horizontal)] as const) : axisDomain(horizontal);
  const styles = lineStyles(chart);
  return {
    ...frame({
      width,
      padding: { left: LEFT, right: 26, top: 34 },
      height: width.isNarrow ? HEIGHT.narrow : HEIGHT.wide,
    }),
    data: series.map((each, i): Data => ({ name: `series${i}`, values: each.points.map((point) => ({ ...point })) })),
    scales: [
      { ...horizontalScale(x, points.length === 0 ? [1, 2] : ends), ...(!isLogarithmic && { nice: false }) },
      {
        name: 'y',
        type: 'linear',
        domain: axisDomain(points.map((point) => point.y)),
        range: 'height',
        nice: true,
        zero: false,
      },
    ],
    axes: [
      horizontalAxis(x, width),
      {
        scale: 'y',
        orient: 'left',
        title: fitTitle(y.title, width),
        grid: true,
        tickCount: 6,
        ...tickLabels(y),
        titleAngle: 0,
        titleAlign: 'left',
        titleAnchor: 'start',
        titleBaseline: 'bottom',
        titleX: -LEFT,
        titleY: -14,
      },
    ],
    marks: series.flatMap((each, i) => [
      line(`series${i}`, styles[i]!, chart.isStepped === true),
      ...(each.points.length <= MAX_DOTS ? [dots(`series${i}`, styles[i]!)] : []),
    ]),
  };
}

function line(data: string, { colour, dash }: SeriesStyle, isStepped: boolean): Mark {
  return {
    type: 'line',
    from: { data },
    encode: {
      enter: {
        x: { scale: 'x', field: 'x' },
        y: { scale: 'y', field: 'y' },
        stroke: { value: colour },
        strokeWidth: { value: 2 },
        strokeDash: { value: [...dash] },
        interpolate: { value: isStepped ? 'step-after' : 'linear' },
      },
    },
  };
}

function dots(data: string, { colour, shape }: SeriesStyle): Mark {
  return {
    type: 'symbol',
    from: { data },
    encode: {
      enter: {
        x: { scale: 'x', field: 'x' },
        y: { scale: 'y', field: 'y' },
        shape: { value: shape },
        size: { value: 45 },
        fill: { value: colour },
      },
    },
  };
}
