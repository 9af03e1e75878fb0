/**
 * How one of several series looks. Lines differ in dashes and dots in shape as well, for those who cannot tell the
 * colours.
 */
export interface SeriesStyle {
  /** A CSS colour that follows the page's light or dark theme. */
  readonly colour: string;
  /** Lengths in pixels of strokes and gaps; empty for a solid line. */
  readonly dash: readonly number[];
  readonly shape: 'circle' | 'square' | 'triangle-up' | 'diamond' | 'triangle-down' | 'cross';
}

/** Colours of the page's style sheet, after Okabe and Ito's palette for all kinds of colour vision. */
const COLOURS = 6;
const DASHES: readonly (readonly number[])[] = [[], [7, 3], [2, 3], [9, 3, 2, 3]];
const SHAPES = ['circle', 'square', 'triangle-up', 'diamond', 'triangle-down', 'cross'] as const;

/** Ink of axes, labels and bounds. */
export const INK = {
  text: 'var(--ink)',
  soft: 'var(--ink-soft)',
  grid: 'var(--line)',
  bound: 'var(--ink-soft)',
} as const;

/** Dashes of a bound. */
export const BOUND_DASH: readonly number[] = [3, 3];

/** The look of the series at that place; no two of the first 24 are alike. */
export function seriesStyle(place: number): SeriesStyle {
  return {
    colour: `var(--series-${(place % COLOURS) + 1})`,
    dash: DASHES[(place + Math.floor(place / COLOURS)) % DASHES.length]!,
    shape: SHAPES[place % SHAPES.length]!,
  };
}
