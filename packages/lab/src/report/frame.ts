import type { Axis, Config, Mark, Scale, Spec } from 'vega';
import type { ChartAxis } from './chart.js';
import { cleanText } from './html.js';
import { INK } from './marks.js';

/** Sizes of a drawing, in CSS pixels. Every chart is drawn twice, because text must not shrink with the page. */
export interface ChartWidth {
  readonly total: number;
  readonly isNarrow: boolean;
}

/** For a page of 680 pixels and more, and for a phone. */
export const CHART_WIDTHS = {
  wide: { total: 720, isNarrow: false },
  narrow: { total: 340, isNarrow: true },
} as const satisfies Record<string, ChartWidth>;

export const FONT_SIZE = 12;
/** Width of a character, on average, at that size. */
const CHARACTER = 6.7;
/** The same where text may fill the whole width and must not pass it. */
const WIDE_CHARACTER = 8;
/** Height of a row, and of one with its name above the marks. */
const ROW = 28;
const TALL_ROW = 44;
/** Below the plot: ticks and the axis' title. */
const BELOW = 44;

/** Of the width, at most, for the names of rows. */
const LABEL_SHARE = { wide: 0.42, narrow: 0.36 } as const;

/** Where the names of rows stand, and the marks that belong to them. */
export interface RowLayout {
  /** Names, cut where even a line of their own is too short. */
  readonly texts: readonly string[];
  /** Pixels before the plot. */
  readonly left: number;
  readonly rowHeight: number;
  /** Place of the marks in their row, from 0 at its top to 1. */
  readonly markBand: number;
  readonly labelBand: number;
}

/** Names before the plot where there is room for them, and above their marks where there is not. */
export function layoutRows(labels: readonly string[], { total, isNarrow }: ChartWidth): RowLayout {
  const beside = Math.floor((total * LABEL_SHARE[isNarrow ? 'narrow' : 'wide']) / CHARACTER);
  const longest = Math.max(0, ...labels.map((label) => [...label].length));
  if (longest <= beside) {
    const texts = labels.map((label) => cutText(label, beside));
    return { texts, left: Math.ceil(longest * CHARACTER) + 12, rowHeight: ROW, markBand: 0.5, labelBand: 0.5 };
  }
  const above = Math.floor(total / WIDE_CHARACTER);
  const texts = labels.map((label) => cutText(label, above));
  return { texts, left: 18, rowHeight: TALL_ROW, markBand: 0.7, labelBand: 0.3 };
}

/** A title of an axis, cut to the room there is. */
export function fitTitle(title: string, { total }: ChartWidth): string {
  return cutText(title, Math.floor((0.65 * total) / CHARACTER));
}

function cutText(text: string, most: number): string {
  const characters = [...cleanText(text)];
  return characters.length <= most ? characters.join('') : `${characters.slice(0, most - 1).join('')}…`;
}

/** Ends of an axis that shows all values and zero: no axis is cut, so lengths and heights can be compared. */
export function axisDomain(values: readonly number[]): [number, number] {
  const finite = values.filter(Number.isFinite);
  const least = Math.min(0, ...finite);
  const most = Math.max(0, ...finite);
  return least === most ? [0, 1] : [least, most];
}

/** Ticks as the format writes them, without places that say nothing. */
export function tickLabels({ format, scale }: ChartAxis): Pick<Axis, 'format' | 'encode'> {
  if (scale === 'logarithmic') return { format: ',~r' };
  switch (format) {
    case 'share':
      return labelled("format(100 * datum.value, ',~r') + ' %'");
    case 'points':
      return labelled("(datum.value > 0 ? '+' : '') + format(100 * datum.value, ',~r')");
    default:
      return { format: ',~r' };
  }
}

function labelled(signal: string): Pick<Axis, 'encode'> {
  return { encode: { labels: { update: { text: { signal } } } } };
}

/** A horizontal scale over those ends. */
export function horizontalScale({ scale }: ChartAxis, domain: readonly [number, number]): Scale {
  if (scale === 'logarithmic') return { name: 'x', type: 'log', base: 2, domain: [...domain], range: 'width' };
  return { name: 'x', type: 'linear', domain: [...domain], range: 'width', nice: true, zero: false };
}

/** The axis below a plot. */
export function horizontalAxis(axis: ChartAxis, width: ChartWidth): Axis {
  return {
    scale: 'x',
    orient: 'bottom',
    title: fitTitle(axis.title, width),
    grid: true,
    tickCount: width.isNarrow ? 4 : 8,
    labelOverlap: true,
    ...tickLabels(axis),
  };
}

/** The names of rows; `rows` is a data set with `row` and `text`. */
export function rowLabels({ left, labelBand }: RowLayout): Mark {
  return {
    type: 'text',
    from: { data: 'rows' },
    encode: {
      enter: {
        x: { value: -left },
        y: { scale: 'y', field: 'row', band: labelBand },
        baseline: { value: 'middle' },
        text: { field: 'text' },
        fill: { value: INK.text },
        fontSize: { value: FONT_SIZE },
      },
    },
  };
}

/** What all charts have in common. */
export function frame(parts: {
  readonly width: ChartWidth;
  readonly padding: { readonly left: number; readonly right: number; readonly top: number };
  readonly height: number;
}): Pick<Spec, 'width' | 'height' | 'padding' | 'autosize' | 'config'> {
  const { width, padding, height } = parts;
  return {
    width: width.total - padding.left - padding.right,
    height,
    padding: { ...padding, bottom: BELOW },
    autosize: 'none',
    config: CONFIG,
  };
}

const CONFIG: Config = {
  background: 'transparent',
  axis: {
    domainColor: INK.soft,
    tickColor: INK.soft,
    gridColor: INK.grid,
    labelColor: INK.soft,
    labelFontSize: 11,
    titleColor: INK.text,
    titleFontSize: FONT_SIZE,
    titleFontWeight: 'normal',
    titlePadding: 8,
  },
};
