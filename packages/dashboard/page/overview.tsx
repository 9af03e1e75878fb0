import type { ComponentChildren } from 'preact';
import type { EngineStatus } from '../src/feed.ts';
import { anomaliesOf, isBad } from './anomalies.ts';
import { Chart } from './chart.tsx';
import { type Bin, countOf, quantile, share } from './figures.ts';
import { count, milliseconds, money, percent, rate, tokens } from './format.ts';
import { Prose } from './prose.tsx';
import { bins, settings, show, spanMinutes, spanMs, tick, totals } from './state.ts';

/** What is saved, how fast, and whether the engine does as predicted. */
export function Overview() {
  const found = anomaliesOf(tick.value!, totals.value, settings.value!);
  return (
    <>
      {found.map(({ severity, title, remedy }) => (
        <div key={title} class={`notice ${severity}`}>
          <strong>{title}.</strong> <Prose text={remedy} />
        </div>
      ))}
      {totals.value.requests === 0 ? (
        <>
          <Tiles />
          <Empty />
        </>
      ) : (
        <>
          <div class="answers">
            <Gain />
            <NoGain />
          </div>
          <Tiles />
          <Charts />
        </>
      )}
    </>
  );
}

function Empty() {
  return (
    <section class="card empty">
      <h2>No prompts {PERIOD[spanMinutes.value]}</h2>
      <p>Send one through the gateway, and its figures appear here within a second:</p>
      <pre tabIndex={0}>{`curl ${location.origin}/v1/chat/completions \\
  -H 'content-type: application/json' \\
  -d '{"messages": [{"role": "user", "content": "What is the weight of Velka?"}],
       "documents": [{"id": "velka", "content": "The weight of Velka is 42 kg."}]}'`}</pre>
    </section>
  );
}

/** Prompts from which on the error of the baseline is worth telling. */
const ENOUGH = 20;

/** What the gateway added, of the prompts whose baseline is known. */
function Gain() {
  const { measuredTokens, cachedTokens, promptTokens, gainTokens, ...sums } = totals.value;
  const gain = share(gainTokens, measuredTokens);
  const cached = share(cachedTokens, promptTokens);
  const without = gain === null || cached === null ? null : Math.max(0, cached - gain);
  const error = share(sums.unchangedBaselineTokens - sums.unchangedCachedTokens, sums.unchangedPromptTokens);
  return (
    <section class="card gain" aria-label="What did Warmpath add?">
      <h2>What did Warmpath add?</h2>
      <p class={`value ${gainTokens > 0 ? 'ready' : ''}`}>
        {signed(gain)}
        <span class="unit">
          {' '}
          of prompt tokens: {tokens(gainTokens)} tokens {PERIOD[spanMinutes.value]}
        </span>
      </p>
      {gain !== null && <Bar without={without ?? 0} gain={Math.max(0, gain)} />}
      <dl class="parts">
        <dt class="without">Cached without Warmpath</dt>
        <dd>{percent(without)}</dd>
        <dt class="added">Added by Warmpath</dt>
        <dd>{signed(gain)}</dd>
        <dt class="computed">Computed by the engine</dt>
        <dd>{percent(cached === null ? null : 1 - cached)}</dd>
        {sums.cacheWriteTokens > 0 && (
          <>
            <dt class="plain">Of these, written into the cache</dt>
            <dd>{tokens(sums.cacheWriteTokens)}</dd>
          </>
        )}
        {sums.baselineCost > 0 && (
          <>
            <dt class="plain">Prompt cost without Warmpath</dt>
            <dd>{money(sums.baselineCost)}</dd>
            <dt class="plain">Prompt cost with Warmpath</dt>
            <dd>{money(sums.cost)}</dd>
          </>
        )}
      </dl>
      <p class="beside">
        {measuredTokens === 0
          ? 'No prompt has counts of the engine yet.'
          : 'Cached without Warmpath is a model: the same prompts as their clients wrote them, in a cache of the same kind and size.'}
        {sums.unchanged >= ENOUGH &&
          error !== null &&
          ` It is off by ${signed(error)} of the tokens of ${count(sums.unchanged)} prompts that were not changed.`}
      </p>
      <HeldOut />
    </section>
  );
}

const PERIOD: Readonly<Record<(typeof spanMinutes)['value'], string>> = {
  5: 'in 5 minutes',
  15: 'in 15 minutes',
  1440: 'in 24 hours',
};

function signed(value: number | null): string {
  return value === null || value <= 0 ? percent(value) : `+${percent(value)}`;
}

function Bar({ without, gain }: { readonly without: number; readonly gain: number }) {
  return (
    <div class="bar" aria-hidden="true">
      <i class="without" style={{ width: `${100 * without}%` }} />
      <i class="added" style={{ width: `${100 * gain}%` }} />
    </div>
  );
}

/** The group that is left as it is, beside all others. */
function HeldOut() {
  const { ttftBounds } = settings.value!;
  const { heldOut, heldOutPromptTokens, heldOutCachedTokens, ttftHeldOut, ttftOthers, ...sums } = totals.value;
  if (heldOut === 0) return null;
  const rows = [
    {
      name: 'Left as they are',
      prompts: heldOut,
      cached: share(heldOutCachedTokens, heldOutPromptTokens),
      ttft: ttftHeldOut,
    },
    {
      name: 'All others',
      prompts: sums.reported - heldOut,
      cached: share(sums.cachedTokens - heldOutCachedTokens, sums.promptTokens - heldOutPromptTokens),
      ttft: ttftOthers,
    },
  ];
  return (
    <table class="groups">
      <thead>
        <tr>
          <th scope="col">Group</th>
          <th scope="col">Prompts</th>
          <th scope="col">Cached</th>
          <th scope="col">Median TTFT</th>
        </tr>
      </thead>
      <tbody>
        {rows.map(({ name, prompts, cached, ttft }) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td>{count(prompts)}</td>
            <td>{percent(cached)}</td>
            <td>
              {milliseconds(quantile(ttft, 0.5, ttftBounds))} ({count(countOf(ttft))})
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Reasons why prompts gained nothing, the most frequent first. */
function NoGain() {
  const { noGain, requests } = totals.value;
  const { noGainReasons } = settings.value!;
  const rows = [...noGain].toSorted((one, other) => other[1] - one[1]);
  const without = rows.reduce((sum, [, prompts]) => sum + prompts, 0);
  return (
    <section class="card no-gain" aria-label="Why not more?">
      <h2>Why not more?</h2>
      <p class="beside">
        {without === 0
          ? 'No prompt went without a gain.'
          : `${count(without)} of ${count(requests)} prompts gained nothing:`}
      </p>
      <ul>
        {rows.map(([reason, prompts]) => (
          <li key={reason}>
            <b>{count(prompts)}</b> <Prose text={noGainReasons[reason]?.message ?? ''} />{' '}
            {noGainReasons[reason]?.name === 'kind-not-allowed' && (
              <button type="button" class="link" onClick={() => show('prompts')}>
                Look at the prompts
              </button>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}

function Tiles() {
  const { engines } = tick.value!;
  const { ttftBounds } = settings.value!;
  const { promptTokens, cachedTokens, predictedTokens, ttftCached, ttftComputed, requests, errors } = totals.value;
  const fast = quantile(ttftCached, 0.5, ttftBounds);
  const slow = quantile(ttftComputed, 0.5, ttftBounds);
  const ready = engines.filter(({ state }) => state === 'ready').length;
  return (
    <div class="tiles">
      <Tile name="Prompt tokens cached" value={percent(share(cachedTokens, promptTokens))}>
        predicted {percent(share(predictedTokens, promptTokens))}
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
] as const;
const HISTOGRAMS = ['ttftCached', 'ttftComputed', 'ttftHeldOut', 'ttftOthers'] as const;

function Charts() {
  const { ttftBounds } = settings.value!;
  const points = bins.value;
  const ends = points.map(({ end }) => end);
  const sums = totals.value;
  const seconds = spanMs.value / 1_000;
  const ttftOf = (histogram: (typeof HISTOGRAMS)[number], name: string, colour: string, q = 0.5) => ({
    name,
    values: points.map((bin) => quantile(bin[histogram], q, ttftBounds)),
    whole: quantile(sums[histogram], q, ttftBounds),
    colour,
  });
  const ttft = (histogram: 'ttftCached' | 'ttftComputed', group: string, colour: string) =>
    QUANTILES.map(([name, q], i) => ttftOf(histogram, `${group} ${name}`, `--${colour}-${i + 1}`, q));
  const all = HISTOGRAMS.flatMap((name) =>
    points.flatMap((bin) => QUANTILES.map(([, q]) => quantile(bin[name], q, ttftBounds))),
  ).filter((value) => value !== null);
  const range: [number, number] = all.length === 0 ? [10, 1_000] : [Math.min(...all) / 1.4, Math.max(...all) * 1.4];
  const reported = points.map((bin) => share(bin.cachedTokens, bin.promptTokens));
  const predicted = points.map((bin) => share(bin.predictedTokens, bin.promptTokens));
  return (
    <div class="charts">
      <Chart
        title="TTFT"
        note={`${count(countOf(sums.ttftCached))} streams with half of the prompt or more from the cache, ${count(countOf(sums.ttftComputed))} with less`}
        whenEmpty="No stream with counts of the engine in this time"
        ends={ends}
        series={[...ttft('ttftCached', 'Cached', 'cached'), ...ttft('ttftComputed', 'Computed', 'computed')]}
        format={milliseconds}
        scale={{ kind: 'log', range }}
      />
      {sums.heldOut > 0 && (
        <Chart
          title="TTFT by group"
          note="Medians of prompts that are left as they are, and of all others"
          ends={ends}
          series={[
            ttftOf('ttftOthers', 'All others', '--cached-1'),
            ttftOf('ttftHeldOut', 'Left as they are', '--computed-1'),
          ]}
          format={milliseconds}
          scale={{ kind: 'log', range }}
        />
      )}
      <Chart
        title="Share of prompt tokens from the cache"
        note="Where the lines part, the engine does not cache as predicted"
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
        note="Tokens that the engine had cached, and tokens that it computed"
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
        Prompts {PERIOD[spanMinutes.value]}. Counts since the start stand in <code>/metrics</code>.{' '}
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
