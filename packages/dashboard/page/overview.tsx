import type { ComponentChildren } from 'preact';
import type { EngineStatus } from '../src/feed.ts';
import { anomaliesOf, isBad } from './anomalies.ts';
import { Chart } from './chart.tsx';
import { type Bin, countOf, quantile, share } from './figures.ts';
import { count, milliseconds, percent, rate, tokens } from './format.ts';
import { bins, settings, show, slots, spanMinutes, spanMs, tick, totals } from './state.ts';

/** What is saved, how fast, and whether the engine does as predicted. */
export function Overview() {
  const found = anomaliesOf(tick.value!, totals.value, settings.value!);
  return (
    <>
      {found.map(({ severity, title, remedy }) => (
        <div key={title} class={`notice ${severity}`}>
          <strong>{title}.</strong> {remedy}
        </div>
      ))}
      <Tiles />
      {slots.value.size === 0 ? <Empty /> : <Charts />}
    </>
  );
}

/** Engines tell the cached tokens of a stream to those clients only that ask for them. */
const NO_STREAMS = 'No stream with usage in this time. Clients ask for it with stream_options: {"include_usage": true}';

function Empty() {
  return (
    <section class="card empty">
      <h2>No prompts in the last quarter of an hour</h2>
      <p>Send one through the gateway, and its figures appear here within a second:</p>
      <pre tabIndex={0}>{`curl ${location.origin}/v1/chat/completions \\
  -H 'content-type: application/json' \\
  -d '{"messages": [{"role": "user", "content": "What is the weight of Velka?"}],
       "documents": [{"id": "velka", "content": "The weight of Velka is 42 kg."}]}'`}</pre>
    </section>
  );
}

function Tiles() {
  const { metrics, engines } = tick.value!;
  const { ttftBounds } = settings.value!;
  const { promptTokens, cachedTokens, predictedTokens, ttftCached, ttftComputed, requests, errors } = totals.value;
  const saved = metrics['warmpath_cached_tokens_total'] ?? 0;
  const fast = quantile(ttftCached, 0.5, ttftBounds);
  const slow = quantile(ttftComputed, 0.5, ttftBounds);
  const ready = engines.filter(({ state }) => state === 'ready').length;
  return (
    <div class="tiles">
      <Tile name="Prompt tokens cached" value={percent(share(cachedTokens, promptTokens))}>
        predicted {percent(share(predictedTokens, promptTokens))}
      </Tile>
      <Tile name="Prefill tokens saved" value={tokens(cachedTokens)}>
        {tokens(saved)} since the start
      </Tile>
      <Tile name="Median TTFT, cached" value={milliseconds(fast)}>
        computed: {milliseconds(slow)}
      </Tile>
      <Tile name="Prompts" value={count(requests)}>
        {rate(requests / (spanMs.value / 1_000))}/s, {percent(share(errors, requests))} failed
      </Tile>
      <Tile
        name={engines.length === 1 ? 'Engine' : 'Engines'}
        value={engines.length === 1 ? STATES[engines[0]!.state] : `${ready} of ${engines.length} ready`}
        look={ready === engines.length ? 'ready' : engines.some(({ state }) => isBad(state)) ? 'failing' : ''}
      >
        {count(sumOf(engines, 'inFlight'))} in flight, {count(sumOf(engines, 'queued'))} queued
      </Tile>
    </div>
  );
}

const STATES = {
  unknown: 'Asking …',
  ready: 'Ready',
  failing: 'Failing',
  ejected: 'Ejected',
  draining: 'Draining',
} as const;

function sumOf(engines: readonly EngineStatus[], count: 'inFlight' | 'queued'): number {
  return engines.reduce((sum, engine) => sum + engine[count], 0);
}

function Tile(props: {
  readonly name: string;
  readonly value: string;
  readonly look?: string;
  readonly children: ComponentChildren;
}) {
  return (
    <section class="card tile" aria-label={props.name}>
      <h2>{props.name}</h2>
      <p class={`value ${props.look ?? ''}`}>{props.value}</p>
      <p class="beside">{props.children}</p>
    </section>
  );
}

const QUANTILES = [
  ['p50', 0.5],
  ['p95', 0.95],
  ['p99', 0.99],
] as const;

function Charts() {
  const { ttftBounds } = settings.value!;
  const points = bins.value;
  const ends = points.map(({ end }) => end);
  const sums = totals.value;
  const seconds = spanMs.value / 1_000;
  const ttft = (histogram: 'ttftCached' | 'ttftComputed', colour: string) =>
    QUANTILES.map(([name, q], i) => ({
      name,
      values: points.map((bin) => quantile(bin[histogram], q, ttftBounds)),
      whole: quantile(sums[histogram], q, ttftBounds),
      colour: `--${colour}-${i + 1}`,
    }));
  const [cached, computed] = [ttft('ttftCached', 'cached'), ttft('ttftComputed', 'computed')];
  // Both charts have one scale, or they could not be compared.
  const all = [...cached, ...computed].flatMap(({ values }) => values).filter((value) => value !== null);
  const range: [number, number] = all.length === 0 ? [10, 1_000] : [Math.min(...all) / 1.4, Math.max(...all) * 1.4];
  const reported = points.map((bin) => share(bin.cachedTokens, bin.promptTokens));
  const predicted = points.map((bin) => share(bin.predictedTokens, bin.promptTokens));
  return (
    <div class="charts">
      <Chart
        title="TTFT, mostly cached prompts"
        note={`${count(countOf(sums.ttftCached))} streams with half of the prompt or more from the cache`}
        whenEmpty={NO_STREAMS}
        ends={ends}
        series={cached}
        format={milliseconds}
        scale={{ kind: 'log', range }}
      />
      <Chart
        title="TTFT, mostly computed prompts"
        note={`${count(countOf(sums.ttftComputed))} streams with less than half from the cache`}
        whenEmpty={NO_STREAMS}
        ends={ends}
        series={computed}
        format={milliseconds}
        scale={{ kind: 'log', range }}
      />
      <Chart
        title="Share of prompt tokens from the cache"
        note="Lines apart: the engine does not cache as it is believed to"
        ends={ends}
        series={[
          {
            name: 'Reported by the engine',
            values: reported,
            whole: share(sums.cachedTokens, sums.promptTokens),
            colour: '--cached-1',
          },
          {
            name: 'Predicted',
            values: predicted,
            whole: share(sums.predictedTokens, sums.promptTokens),
            colour: '--predicted',
            dashed: true,
          },
        ]}
        format={percent}
        scale={{ kind: 'share' }}
      />
      <Chart
        title="Prompt tokens per second"
        note="What the engine had, and what it had to compute"
        ends={ends}
        series={[
          {
            name: 'From the cache',
            values: perSecond(points, (bin) => bin.promptTokens),
            whole: sums.cachedTokens / seconds,
            colour: '--cached-1',
            filled: true,
          },
          {
            name: 'Computed',
            values: perSecond(points, (bin) => bin.promptTokens - bin.cachedTokens),
            whole: (sums.promptTokens - sums.cachedTokens) / seconds,
            colour: '--computed-1',
            filled: true,
          },
        ]}
        stacked
        format={tokens}
        scale={{ kind: 'count' }}
      />
      <p class="under">
        The last {spanMinutes.value} minutes. What happened before stands in <code>/metrics</code>.{' '}
        <button type="button" class="link" onClick={() => show('requests')}>
          Look at single requests
        </button>
      </p>
    </div>
  );
}

/** The last point grows while it is shown: it has no value before it is as long as a slot. */
function perSecond(points: readonly Bin[], value: (bin: Bin) => number): (number | null)[] {
  const { slotMs } = settings.value!;
  return points.map((bin) => {
    const ms = bin.end - bin.start;
    return ms < slotMs ? null : (1_000 * value(bin)) / ms;
  });
}
