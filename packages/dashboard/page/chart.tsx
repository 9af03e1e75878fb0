import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import { clock, short, timeStep } from './format.ts';
import { colours, wallTime } from './state.ts';

interface Series {
  readonly name: string;
  /** One for each end; `null` where there is none. */
  readonly values: readonly (number | null)[];
  /** Over all of the time that is shown. */
  readonly whole: number | null;
  /** A custom property of the style sheet. */
  readonly colour: string;
  readonly dashed?: boolean;
  readonly filled?: boolean;
}

interface ChartProps {
  readonly title: string;
  readonly note: string;
  /** Said where there is no value: what it takes for one. */
  readonly whenEmpty?: string;
  /** Ends of the bins on the gateway's monotonic clock. */
  readonly ends: readonly number[];
  readonly series: readonly Series[];
  /** The first series is the sum, the second is drawn over it: then its values are the difference. */
  readonly stacked?: boolean;
  readonly format: (value: number | null) => string;
  readonly scale: { readonly kind: 'log'; readonly range: [number, number] } | { readonly kind: 'share' | 'count' };
}

const HEIGHT = 200;

/** A line chart over time with its legend, and the same figures as a table. */
export function Chart(props: ChartProps) {
  const { title, note, whenEmpty = 'Nothing in this time', series, format } = props;
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const isEmpty = series.every(({ values }) => values.every((value) => value === null || value === 0));
  const look = colours.value;

  useEffect(() => {
    if (isEmpty) return;
    const element = place.current!;
    const drawn = new uPlot(optionsFor(element, latest), dataOf(latest.current), element);
    plot.current = drawn;
    const observer = new ResizeObserver(() => {
      if (element.clientWidth > 0 && element.clientWidth !== drawn.width) {
        drawn.setSize({ width: element.clientWidth, height: HEIGHT });
      }
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
      drawn.destroy();
      plot.current = null;
    };
  }, [look, isEmpty]);

  useEffect(() => plot.current?.setData(dataOf(props)));

  return (
    <figure class="card chart">
      <figcaption>
        <h2>{title}</h2>
        <p class="beside">{note}</p>
      </figcaption>
      <ul class="legend">
        {series.map(({ name, colour, dashed, whole }) => (
          <li key={name}>
            <span class={dashed ? 'key-line dashed' : 'key-line'} style={{ color: `var(${colour})` }} />
            {name}
            <b>{format(whole)}</b>
          </li>
        ))}
      </ul>
      {isEmpty ? <p class="nothing">{whenEmpty}</p> : <div ref={place} class="plot" aria-hidden="true" />}
      <FigureTable {...props} />
    </figure>
  );
}

/** The latest points that have a value, for readers who cannot see the lines. */
function FigureTable({ title, ends, series, format, ...props }: ChartProps) {
  const rows = ends
    .map((end, i) => ({ end, i }))
    .filter(({ i }) => series.some(({ values }) => values[i] !== null && values[i] !== 0))
    .slice(-12);
  return (
    <details>
      <summary>
        Figures<span class="hidden"> of {title}</span>
      </summary>
      <table>
        <thead>
          <tr>
            <th scope="col">Until</th>
            {series.map(({ name }) => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(({ end, i }) => (
            <tr key={end}>
              <th scope="row">{clock(wallTime(end))}</th>
              {series.map(({ name }, place) => (
                <td key={name}>{format(shownValue({ series, ...props }, place, i))}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </details>
  );
}

/** Of stacked series, the first is drawn as the sum and told without the second. */
function shownValue({ series, stacked }: Pick<ChartProps, 'series' | 'stacked'>, place: number, i: number) {
  const value = series[place]!.values[i] ?? null;
  return stacked === true && place === 0 && value !== null ? value - (series[1]!.values[i] ?? 0) : value;
}

function dataOf({ ends, series }: ChartProps): uPlot.AlignedData {
  return [ends.map((end) => wallTime(end) / 1_000), ...series.map(({ values }) => values as (number | null)[])];
}

function optionsFor(element: HTMLElement, latest: { readonly current: ChartProps }): uPlot.Options {
  const { series, scale, format } = latest.current;
  const style = getComputedStyle(element);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const grid = { stroke: colour('--line'), width: 1 };
  const axis = { stroke: colour('--soft'), font: `12px ${style.fontFamily}`, ticks: { show: false } };
  return {
    width: element.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    // The last time stands half beyond the end of its axis.
    padding: [10, 20, 0, 0],
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
    plugins: [tooltip(latest)],
    scales: {
      x: { time: false },
      y:
        scale.kind === 'log'
          ? { distr: 3, range: () => (latest.current.scale as typeof scale).range }
          : { range: (_plot, _least, most) => [0, scale.kind === 'share' ? 1 : niceMaximum(most)] },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        size: 26,
        splits: (plot, _axis, first, last) => timeSplits(first, last, plot.width),
        values: (_plot, at) => at.map((second) => hourOf(second)),
      },
      {
        ...axis,
        grid,
        size: 58,
        ...(scale.kind === 'log' && {
          filter: (_plot: uPlot, splits: number[]) => splits,
          splits: (_plot: uPlot, _axis: number, least: number, most: number) => logSplits(least, most),
        }),
        ...(scale.kind === 'share' && { splits: () => [0, 0.25, 0.5, 0.75, 1] }),
        values: (_plot, at) =>
          at.map((value) =>
            value === null ? '' : scale.kind === 'count' ? short(value) : axisText(scale.kind, value, format),
          ),
      },
    ],
    series: [
      {},
      ...series.map(({ name, colour: property, dashed = false, filled = false }) => ({
        label: name,
        stroke: colour(property),
        width: filled ? 1 : 2,
        // A gap in time is a gap in the line. What stands alone is a point.
        spanGaps: false,
        points: { show: true, size: 4, fill: colour(property), filter: pointsAlone },
        ...(dashed && { dash: [5, 4] }),
        ...(filled && { fill: colour(property) }),
      })),
    ],
  };
}

/** Values without a neighbour: no line shows them. */
function pointsAlone(plot: uPlot, series: number): number[] {
  const values = plot.data[series]!;
  const isValue = (place: number) => typeof values[place] === 'number';
  return [...values.keys()].filter((place) => isValue(place) && !isValue(place - 1) && !isValue(place + 1));
}

function axisText(kind: string, value: number, format: (value: number) => string): string {
  if (kind === 'share') return `${Math.round(100 * value)}%`;
  return value >= 1_000 ? `${value / 1_000} s` : format(value).replace('.0 ', ' ');
}

/** Hours and minutes; with seconds where they are not 0. */
function hourOf(second: number): string {
  const text = clock(second * 1_000);
  return text.endsWith(':00') ? text.slice(0, 5) : text;
}

/** Round times between two, in seconds. */
function timeSplits(first: number, last: number, width: number): number[] {
  const step = timeStep(1_000 * (last - first), width) / 1_000;
  const from = Math.ceil(first / step);
  return Array.from({ length: Math.max(0, Math.floor(last / step) - from + 1) }, (_, i) => (from + i) * step);
}

/** 1, 2 and 5 times the powers of ten, and only the first where there would be too many. */
function logSplits(least: number, most: number): number[] {
  const steps = most / least > 200 ? [1] : most / least > 30 ? [1, 3] : [1, 2, 5];
  const splits: number[] = [];
  for (let power = 10 ** Math.floor(Math.log10(least)); power <= most; power *= 10) {
    for (const step of steps) if (step * power >= least && step * power <= most) splits.push(step * power);
  }
  return splits;
}

function niceMaximum(most: number | null): number {
  if (most === null || most <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return ([1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => step * power >= most * 1.02) ?? 10) * power;
}

/** What the lines are worth where the pointer is. */
function tooltip(latest: { readonly current: ChartProps }): uPlot.Plugin {
  const box = document.createElement('div');
  box.className = 'tip';
  return {
    hooks: {
      init: (plot) => {
        plot.over.append(box);
      },
      setCursor: (plot) => {
        const { idx, left = -1 } = plot.cursor;
        box.hidden = idx === null || idx === undefined || left < 0;
        if (box.hidden) return;
        const { series, format, ends } = latest.current;
        const lines = series.map(({ name }, place) => `${name}: ${format(shownValue(latest.current, place, idx!))}`);
        box.textContent = [clock(wallTime(ends[idx!]!)), ...lines].join('\n');
        const room = plot.over.clientWidth - box.offsetWidth;
        box.style.left = `${Math.max(0, left + 12 > room ? left - box.offsetWidth - 12 : left + 12)}px`;
      },
    },
  };
}
