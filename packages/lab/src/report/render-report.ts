import type { Spec } from 'vega';
import { type Chart, describeChart } from './chart.js';
import { CHART_WIDTHS, type ChartWidth } from './frame.js';
import { Html, html } from './html.js';
import { intervalSpec } from './interval-chart.js';
import { lineSpec, lineStyles } from './line-chart.js';
import type { SeriesStyle } from './marks.js';
import { PAIR_STYLES, pairSpec } from './pair-chart.js';
import type { Report, ReportFigure, ReportOrigin, ReportSection, ReportTable } from './report.js';
import { STYLE } from './style.js';

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

/**
 * A report as one page of HTML: no script, no request to anywhere (its policy forbids both), the same bytes for the
 * same report. Charts are SVG with a text alternative and a table of their figures; hostile text comes out as text.
 * Cost: milliseconds a chart, and the loading of Vega once.
 */
export async function renderReport(report: Report, origin: ReportOrigin): Promise<string> {
  const sections: Html[] = [];
  for (const section of report.sections) sections.push(await renderSection(section));
  const page = html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="Warmpath ${origin.version}">
<title>${report.title}</title>
<style>${new Html(STYLE)}</style>
</head>
<body>
<main>
<h1>${report.title}</h1>
<p class="finding">${report.finding}</p>
<dl>${report.facts.map(({ name, value }) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>
<pre tabindex="0" aria-label="The command that gives these figures"><code>${commandWords(origin.command)}</code></pre>
${sections}
<footer>Made by Warmpath ${origin.version}.</footer>
</main>
</body>
</html>
`;
  return page.text;
}

/** Words that a line end may part, but not where an option's dashes are. */
function commandWords(command: string): readonly Html[] {
  return command.split(' ').map((word, i) => html`${i > 0 && ' '}<span>${word}</span>`);
}

async function renderSection({ heading, text, figures, notes }: ReportSection): Promise<Html> {
  const rendered: Html[] = [];
  for (const figure of figures) rendered.push(await renderFigure(figure));
  return html`<section>
<h2>${heading}</h2>
${text.map((paragraph) => html`<p>${paragraph}</p>`)}
${rendered}
${notes.length > 0 && html`<ul class="notes">${notes.map((note) => html`<li>${note}</li>`)}</ul>`}
</section>
`;
}

async function renderFigure({ charts = [], table, foldsTable }: ReportFigure): Promise<Html> {
  const rendered: Html[] = [];
  for (const chart of charts) rendered.push(await renderChart(chart, charts.length > 1));
  const legendHtml = charts[0] === undefined ? undefined : renderLegend(charts[0]);
  const tableHtml = renderTable(table);
  return html`<figure>
${charts.length > 1 && legendHtml}
${charts.length > 1 ? html`<div class="charts">${rendered}</div>` : rendered}
${foldsTable === true ? html`<details><summary>${table.caption}</summary>${tableHtml}</details>` : tableHtml}
</figure>
`;
}

/** One chart with its title; one of several is drawn for a narrow page only, for that is the room it has on any. */
async function renderChart(chart: Chart, isOneOfSeveral: boolean): Promise<Html> {
  const { wide, narrow } = await drawChart(chart);
  const drawings = isOneOfSeveral
    ? new Html(narrow)
    : html`<div class="wide">${new Html(wide)}</div><div class="narrow">${new Html(narrow)}</div>`;
  return html`<div>
<p class="chart-title">${chart.title}</p>
${!isOneOfSeveral && renderLegend(chart)}
<div class="chart" role="img" aria-label="${describeChart(chart)}">${drawings}</div>
</div>
`;
}

function renderTable({ caption, groups = [], columns, rows }: ReportTable): Html {
  return html`<div class="scroll" tabindex="0" role="group" aria-label="${caption}">
<table${groups.length > 0 && html` class="grouped"`}>
<caption>${caption}</caption>
<thead>${groups.length > 0 && groupHeader(groups)}<tr>${columns.map((name) => headerCell(name, 'col'))}</tr></thead>
<tbody>
${rows.map(([name, ...cells]) => html`<tr>${headerCell(name!, 'row')}${cells.map((cell) => html`<td>${cell}</td>`)}</tr>\n`)}</tbody>
</table>
</div>`;
}

/** A header without a name would be announced as one. */
function headerCell(name: string, scope: 'col' | 'row'): Html {
  return name === '' ? html`<td></td>` : html`<th scope="${scope}">${name}</th>`;
}

function groupHeader(groups: NonNullable<ReportTable['groups']>): Html {
  return html`<tr><td></td>${groups.map(({ name, columns }) => html`<th scope="colgroup" colspan="${columns}">${name}</th>`)}</tr>`;
}

/** Which line is which. The text alternative names the series already, so it is for the eye only. */
function renderLegend(chart: Chart): Html | undefined {
  switch (chart.kind) {
    case 'lines': {
      const styles = lineStyles(chart);
      return legend(chart.series.map(({ name }, i) => html`<li>${lineSwatch(styles[i]!)}${name}</li>`));
    }
    case 'pairs': {
      const names = { paper: 'paper', ours: 'simulator' } as const;
      return legend((['paper', 'ours'] as const).map((whose) => html`<li>${pairSwatch(whose)}${names[whose]}</li>`));
    }
    case 'intervals':
      return undefined;
  }
}

function legend(entries: readonly Html[]): Html {
  return html`<ul class="legend" aria-hidden="true">${entries}</ul>`;
}

function lineSwatch({ colour, dash }: SeriesStyle): Html {
  return html`<svg width="34" height="10" viewBox="0 0 34 10"><line x1="1" y1="5" x2="33" y2="5" stroke="${colour}" stroke-width="2" stroke-dasharray="${dash.join(' ')}"/></svg>`;
}

function pairSwatch(whose: keyof typeof PAIR_STYLES): Html {
  const { colour } = PAIR_STYLES[whose];
  const fill = whose === 'paper' ? 'none' : colour;
  const mark = html`<rect x="1" y="3" width="12" height="8" fill="${fill}" stroke="${colour}" stroke-width="2"/>`;
  return html`<svg width="14" height="14" viewBox="0 0 14 14">${mark}</svg>`;
}
