import type { Spec } from 'vega';
import type { Chart } from './chart.js';
import { CHART_WIDTHS, type ChartWidth } from './frame.js';
import { intervalSpec } from './interval-chart.js';
import { lineSpec } from './line-chart.js';
import { pairSpec } from './pair-chart.js';

/** A chart as SVG, drawn for a wide page and for a narrow one. */
export interface DrawnChart {
  readonly wide: string;
  readonly narrow: string;
}

/**
 * Draws a chart with Vega, which needs no document for that; it is loaded when first asked for. Vega escapes text.
 * Cost: milliseconds.
 */
export async function drawChart(chart: Chart): Promise<DrawnChart> {
  const [wide, narrow] = await Promise.all([draw(chart, CHART_WIDTHS.wide), draw(chart, CHART_WIDTHS.narrow)]);
  return { wide, narrow };
}

async function draw(chart: Chart, width: ChartWidth): Promise<string> {
  const { Error: errorLevel, parse, View } = await import('vega');
  const view = new View(parse(withoutRoles(specOf(chart, width))), { renderer: 'none', logLevel: errorLevel });
  try {
    return await view.toSVG();
  } finally {
    view.finalize();
  }
}

/** The drawing as a whole has a text alternative; roles of its parts would repeat it piecemeal. */
function withoutRoles(spec: Spec): Spec {
  const silence = <Part extends object>(parts: readonly Part[] = []) => parts.map((part) => ({ ...part, aria: false }));
  return { ...spec, marks: silence(spec.marks), axes: silence(spec.axes) };
}

function specOf(chart: Chart, width: ChartWidth): Spec {
  switch (chart.kind) {
    case 'intervals':
      return intervalSpec(chart, width);
    case 'lines':
      return lineSpec(chart, width);
    case 'pairs':
      return pairSpec(chart, width);
  }
}
