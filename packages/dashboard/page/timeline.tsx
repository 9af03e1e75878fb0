import { useState } from 'preact/hooks';
import { type Surface, useCanvas } from './canvas.ts';
import { PHASE_NAMES, PHASES, phasesOf } from './figures.ts';
import { clock, milliseconds, percent, timeStep } from './format.ts';
import { requests, selectedRequest, tick, wallTime } from './state.ts';
import { type Bar, placeBars } from './timeline-layout.ts';

/** Seconds that can be shown. */
const SPANS_S = [15, 60, 300, 900] as const;
const LANES = 12;
const LANE_HEIGHT = 14;
const AXIS_HEIGHT = 22;

/** The latest requests side by side in time, each with its stages. */
export function Timeline() {
  const [spanS, setSpan] = useState<number>(60);
  const [hovered, setHovered] = useState<{ readonly bar: Bar; readonly x: number; readonly y: number } | null>(null);
  const to = tick.value!.now;
  const from = to - spanS * 1_000;
  const { bars, omitted } = placeBars(requests.value, { from, to, lanes: LANES, gapMs: spanS });
  const selected = selectedRequest.value;
  const canvas = useCanvas((surface) => drawTimeline(surface, { bars, from, to, selected }));

  const barAt = (event: MouseEvent): Bar | undefined => {
    const { left, top, width } = canvas.current!.getBoundingClientRect();
    const time = from + ((event.clientX - left) / width) * (to - from);
    const lane = Math.floor((event.clientY - top) / LANE_HEIGHT);
    const slack = (2 / width) * (to - from);
    return bars.find((bar) => bar.lane === lane && bar.start - slack <= time && time <= bar.end + slack);
  };
  return (
    <figure class="card timeline">
      <figcaption>
        <h2>Stages over time</h2>
        <fieldset class="choice">
          <legend class="hidden">Time shown in the timeline</legend>
          {SPANS_S.map((seconds) => (
            <label key={seconds}>
              <input type="radio" name="timeline" checked={spanS === seconds} onChange={() => setSpan(seconds)} />
              <span>{seconds < 60 ? `${seconds} s` : `${seconds / 60} min`}</span>
            </label>
          ))}
        </fieldset>
      </figcaption>
      <ul class="legend">
        {PHASES.map((phase) => (
          <li key={phase}>
            <span class="key-box" style={{ background: `var(--phase-${phase})` }} />
            {PHASE_NAMES[phase]}
          </li>
        ))}
      </ul>
      <div class="over">
        <canvas
          ref={canvas}
          role="img"
          aria-label={`${bars.length} requests of the last ${spanS} seconds with their stages. The list below has the same figures.`}
          style={{ height: `${LANES * LANE_HEIGHT + AXIS_HEIGHT}px` }}
          onClick={(event) => {
            const bar = barAt(event);
            if (bar !== undefined) selectedRequest.value = bar.request.id;
          }}
          onPointerMove={(event) => {
            const bar = barAt(event);
            setHovered(bar === undefined ? null : { bar, x: event.offsetX, y: event.offsetY });
          }}
          onPointerLeave={() => setHovered(null)}
        />
        {hovered !== null && <Tip {...hovered} width={canvas.current!.clientWidth} />}
      </div>
      <p class="beside">
        {bars.length === 0 && 'Nothing ended in this time.'}
        {omitted > 0 && `${omitted} more ran beside these ${LANES} and are in the list only.`}
      </p>
    </figure>
  );
}

function Tip({
  bar,
  x,
  y,
  width,
}: {
  readonly bar: Bar;
  readonly x: number;
  readonly y: number;
  readonly width: number;
}) {
  const { request } = bar;
  const cached = request.cachedTokens === null ? null : request.cachedTokens / request.promptTokens!;
  const lines = [
    `${clock(wallTime(bar.start))}  ${milliseconds(request.durationMs)} in all, ${percent(cached)} cached`,
    ...phasesOf(request).map(({ phase, ms }) => `${PHASE_NAMES[phase]}: ${milliseconds(ms)}`),
  ];
  const place = x > width / 2 ? { right: `${width - x + 12}px` } : { left: `${x + 12}px` };
  return (
    <div class="tip" aria-hidden="true" style={{ ...place, top: `${y + 12}px` }}>
      {lines.join('\n')}
    </div>
  );
}

function drawTimeline(
  { context, width, colour, font }: Surface,
  { bars, from, to, selected }: { bars: readonly Bar[]; from: number; to: number; selected: string | null },
): void {
  const xOf = (time: number) => ((time - from) / (to - from)) * width;
  const bottom = LANES * LANE_HEIGHT;
  context.font = font;
  context.fillStyle = colour('--soft');
  context.strokeStyle = colour('--line');
  context.lineWidth = 1;
  context.beginPath();
  const step = timeStep(to - from, width);
  for (let wall = Math.ceil(wallTime(from) / step) * step; wall <= wallTime(to); wall += step) {
    const x = Math.round(xOf(wall - wallTime(0))) + 0.5;
    context.moveTo(x, 0);
    context.lineTo(x, bottom);
    context.textAlign = x < 30 ? 'left' : x > width - 30 ? 'right' : 'center';
    context.fillText(clock(wall), x, bottom + 16);
  }
  context.stroke();
  for (const { request, lane, start } of bars) {
    const y = lane * LANE_HEIGHT + 2;
    let time = start;
    for (const { phase, ms } of phasesOf(request)) {
      const x = Math.max(0, xOf(time));
      time += ms;
      context.fillStyle = colour(`--phase-${phase}`);
      context.fillRect(x, y, Math.max(1, xOf(time) - x), LANE_HEIGHT - 4);
    }
    const isError = request.status >= 400;
    if (!isError && request.id !== selected) continue;
    context.lineWidth = 2;
    context.strokeStyle = colour(isError ? '--bad' : '--ink');
    context.strokeRect(xOf(start), y, Math.max(2, xOf(time) - xOf(start)), LANE_HEIGHT - 4);
  }
}
