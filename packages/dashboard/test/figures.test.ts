import { describe, expect, it } from 'vitest';
import { anomaliesOf } from '../page/anomalies.ts';
import { binsOf, metricBy, metricSum, phasesOf, quantile, totalsOf } from '../page/figures.ts';
import { bytes, duration, milliseconds, percent, tokens } from '../page/format.ts';
import { placeBars } from '../page/timeline-layout.ts';
import { findPlace, layoutTree, omittedChildren, rectanglesOf } from '../page/tree-layout.ts';
import type {
  EngineStatus,
  FeedSettings,
  FeedTick,
  HistoryTree,
  RequestSummary,
  TrafficSlot,
  TreeRow,
} from '../src/feed.js';

const slot = (number: number, fields: Partial<TrafficSlot> = {}): TrafficSlot => ({
  slot: number,
  requests: 1,
  errors: 0,
  reported: 1,
  promptTokens: 100,
  cachedTokens: 60,
  predictedTokens: 70,
  cacheWriteTokens: 0,
  cost: 0,
  baselineCost: 0,
  measuredTokens: 100,
  gainTokens: 20,
  unchanged: 0,
  unchangedPromptTokens: 0,
  unchangedCachedTokens: 0,
  unchangedBaselineTokens: 0,
  heldOut: 0,
  heldOutPromptTokens: 0,
  heldOutCachedTokens: 0,
  ttftHeldOut: [],
  ttftOthers: [],
  noGain: [],
  ttftCached: [],
  ttftComputed: [],
  ...fields,
});

const request = (fields: Partial<RequestSummary> = {}): RequestSummary => ({
  sequence: 1,
  id: 'r',
  route: '/v1/chat/completions',
  status: 200,
  arrivedAt: 0,
  durationMs: 1_000,
  receivedMs: 5,
  overheadMs: 1,
  queuedMs: null,
  retrievalMs: null,
  aheadMs: 0,
  speculation: null,
  model: 'm',
  tenant: 't',
  engine: null,
  ttftMs: 200,
  documents: 3,
  promptTokens: 100,
  cachedTokens: 60,
  predictedTokens: 60,
  baselineTokens: null,
  gainTokens: null,
  references: 0,
  broke: null,
  error: null,
  failedOpen: false,
  ...fields,
});

describe('quantiles', () => {
  const bounds = [1, 2, 4, 8];

  it('are the middle of the class that holds them', () => {
    const histogram = new Map([
      [3, 1],
      [1, 98],
      [2, 1],
    ]);
    expect(quantile(histogram, 0.5, bounds)).toBeCloseTo(Math.SQRT2);
    expect(quantile(histogram, 0.99, bounds)).toBeCloseTo(Math.sqrt(8));
    expect(quantile(histogram, 1, bounds)).toBeCloseTo(Math.sqrt(32));
    expect(quantile(new Map([[0, 1]]), 0.5, bounds)).toBe(1);
    expect(quantile(new Map(), 0.5, bounds)).toBeNull();
  });

  it('of several slots are those of all requests in them', () => {
    const { ttftCached } = totalsOf([slot(1, { ttftCached: [1, 3] }), slot(2, { ttftCached: [1, 2, 3, 5] })]);
    expect([...ttftCached]).toEqual([
      [1, 5],
      [3, 5],
    ]);
  });
});

describe('bins', () => {
  it('cover the time that is shown, keep their slots as time passes, and are empty where nothing ended', () => {
    const slots = new Map([10, 11, 17].map((number) => [number, slot(number)]));
    const at = (now: number) => binsOf(slots, { now, spanMs: 60_000, binSlots: 3, slotMs: 5_000 });
    expect(at(89_000).map(({ requests }) => requests)).toEqual([0, 2, 0, 1]);
    expect(at(85_500).map(({ requests }) => requests)).toEqual([0, 2, 0, 1]);
    expect(at(89_000).map(({ end }) => end)).toEqual([45_000, 60_000, 75_000, 89_000]);
    expect(at(90_000).map(({ requests }) => requests)).toEqual([2, 0, 1, 0]);
  });
});

describe('metrics', () => {
  const metrics = { 'a{x="1",part="p"}': 2, 'a{x="2",part="q"}': 5, 'ab{part="p"}': 9, 'a{x="3",part="p"}': 4, b: 1 };

  it('are summed, and told apart, by name and label', () => {
    expect(metricSum(metrics, 'a')).toBe(11);
    expect(metricSum(metrics, 'b')).toBe(1);
    expect(metricBy(metrics, 'a', 'part')).toEqual([
      ['p', 6],
      ['q', 5],
    ]);
  });
});

describe('stages', () => {
  it('add up to the whole request', () => {
    const phases = phasesOf(request({ queuedMs: 94 }));
    expect(phases.map(({ phase, ms }) => `${phase} ${ms}`)).toEqual([
      'receive 5',
      'gateway 1',
      'queue 94',
      'prefill 200',
      'answer 700',
    ]);
    // Retrieval, of which the engine computed the prompt that was right for the last 60 ms.
    const found = phasesOf(request({ retrievalMs: 100, aheadMs: 60, queuedMs: 20, speculation: 'confirmed' }));
    expect(found.map(({ phase, ms }) => `${phase} ${ms}`)).toEqual([
      'receive 5',
      'retrieve 40',
      'speculate 60',
      'gateway 1',
      'prefill 160',
      'answer 734',
    ]);
    const plain = phasesOf(request({ retrievalMs: 100, queuedMs: 20, speculation: 'wrong' }));
    expect(plain.map(({ phase, ms }) => `${phase} ${ms}`)).toEqual([
      'receive 5',
      'retrieve 100',
      'gateway 1',
      'queue 20',
      'prefill 200',
      'answer 674',
    ]);
    expect(phasesOf(request({ ttftMs: null })).at(-1)).toEqual({ phase: 'engine', ms: 994 });
    // One that failed at once was never in the engine.
    expect(phasesOf(request({ durationMs: 5, overheadMs: null, ttftMs: null }))).toEqual([{ phase: 'receive', ms: 5 }]);
  });
});

describe('the timeline', () => {
  it('puts what overlaps side by side, and counts what finds no lane', () => {
    const all = [0, 100, 1_100, 200].map((arrivedAt, i) => request({ arrivedAt, id: `${i}` }));
    const { bars, omitted } = placeBars(all, { from: 0, to: 5_000, lanes: 2, gapMs: 50 });
    expect(bars.map(({ request: { id }, lane }) => [id, lane])).toEqual([
      ['0', 0],
      ['1', 1],
      ['2', 0],
    ]);
    expect(omitted).toBe(1);
    expect(placeBars(all, { from: 2_200, to: 5_000, lanes: 2, gapMs: 0 }).bars).toEqual([]);
  });
});

describe('the icicle', () => {
  const row = (parent: number, tokens: number, label: string, children = 0): TreeRow => [
    parent,
    tokens,
    1,
    1,
    0,
    children,
    label,
  ];
  const history = (rows: readonly TreeRow[], engine = 'one'): HistoryTree => ({
    engine,
    tenant: 't',
    model: 'm',
    state: 'history',
    nodes: rows.length,
    tokens: 0,
    rows,
  });
  const tree = (rows: readonly TreeRow[]) =>
    layoutTree({ histories: [history(rows)], omittedHistories: 0, omittedNodes: 0, nodes: rows.length, tokens: 0 });

  it('is as wide as the tokens below, the widest first', () => {
    const root = tree([row(-1, 10, 'preamble', 3), row(0, 20, 'a'), row(0, 30, 'b', 1), row(2, 40, 'a')]);
    expect(root.descendants().map(({ data, value }) => [data.label, value])).toEqual([
      ['Everything', 102],
      ['tenant t, m', 101],
      ['preamble', 100],
      ['b', 70],
      ['a', 20],
      ['a', 40],
    ]);
    const preamble = root.children![0]!.children![0]!;
    expect(omittedChildren(preamble.data)).toBe(1);
    expect(findPlace(root, preamble.children![0]!.data.id).data.label).toBe('b');
    // What is gone from the next snapshot is looked for above.
    expect(findPlace(root, `${preamble.data.id}\ngone\nfarther`).data).toBe(preamble.data);
  });

  it('has a step for each of several engines, which hold the same for the same tenant', () => {
    const histories = ['one', 'two'].map((engine) => history([row(-1, 10, 'preamble')], engine));
    const root = layoutTree({ histories, omittedHistories: 0, omittedNodes: 0, nodes: 2, tokens: 20 });
    expect(root.children!.map(({ data }) => data.label)).toEqual(['one', 'two']);
    const leaves = root.leaves().map(({ data }) => data.id);
    expect(new Set(leaves).size).toBe(2);
    for (const id of leaves) expect(findPlace(root, id).data.id).toBe(id);
  });

  it('keeps siblings of one name apart', () => {
    const root = tree([row(-1, 1, 'same'), row(-1, 1, 'same')]);
    expect(new Set(root.descendants().map(({ data }) => data.id)).size).toBe(4);
  });

  it('draws no more than there are pixels, however many nodes', () => {
    const rows = [row(-1, 1, 'top'), ...Array.from({ length: 9_999 }, (_, i) => row(0, 1 + (i % 7), `n${i}`))];
    const root = tree(rows);
    expect(rectanglesOf(root, 300).length).toBeLessThan(300);
    const widest = root.children![0]!.children![0]!.children![0]!;
    expect(rectanglesOf(widest, 300).map(({ left, right }) => [left, right])).toEqual([0, 1, 2, 3].map(() => [0, 300]));
  });
});

const engine = (fields: Partial<EngineStatus> = {}): EngineStatus => ({
  name: 'e',
  url: 'http://e',
  state: 'ready',
  reason: null,
  kind: 'generic',
  cacheKnown: 'served',
  inFlight: 0,
  limit: 8,
  queued: 0,
  pendingTokens: 0,
  served: 0,
  failed: 0,
  ejections: 0,
  ...fields,
});

describe('anomalies', () => {
  const settings = { queueCapacity: 10 } as FeedSettings;
  const tick = (fields: Partial<FeedTick> = {}): FeedTick => ({
    time: 0,
    now: 0,
    slots: [],
    daySlots: [],
    requests: [],
    omitted: 0,
    metrics: { warmpath_session_store_up: 1 },
    engines: [engine()],
    collections: null,
    capture: { object: 'capture', remaining: 0, captured: [], tooLarge: 0 },
    degradedHistories: 0,
    ...fields,
  });
  const totals = (fields: Partial<TrafficSlot>) => totalsOf([slot(1, { requests: 100, reported: 100, ...fields })]);

  it('are none where all is well', () => {
    expect(anomaliesOf(tick(), totals({}), settings)).toEqual([]);
  });

  it.each([
    ['an engine that fails', { engines: [engine({ state: 'failing', reason: 'x' })] }, {}],
    ['an engine that gets no requests', { engines: [engine(), engine({ state: 'ejected' })] }, {}],
    ['KV events that were lost', { engines: [engine({ cacheKnown: 'events-lost' })] }, {}],
    ['a full queue', { engines: [engine(), engine({ inFlight: 9, queued: 9 })] }, {}],
    ['many errors', {}, { errors: 6 }],
    ['predictions that are missed', {}, { cachedTokens: 49, predictedTokens: 70 }],
    ['an engine that reports nothing', {}, { reported: 0, promptTokens: 0, cachedTokens: 0, predictedTokens: 0 }],
    ['a degraded history', { degradedHistories: 1 }, {}],
    ['defects', { metrics: { 'warmpath_fail_open_total{fallback="x"}': 1 } }, {}],
    ['a store that is away', { metrics: { warmpath_session_store_up: 0 } }, {}],
  ] as const)('are told: %s', (_, of, sums) => {
    const found = anomaliesOf(tick(of), totals(sums), settings);
    expect(found).toHaveLength(1);
    expect(found[0]!.remedy).not.toBe('');
  });
});

it('numbers have units that fit their size', () => {
  expect([0, 9.94, 42.4, 999, 1_234, 99_000, 200_000].map(milliseconds)).toEqual([
    '0.0 ms',
    '9.9 ms',
    '42 ms',
    '999 ms',
    '1.23 s',
    '99.00 s',
    '3 min 20 s',
  ]);
  expect([12, 99_999, 123_456, 1_234_567, 2e9].map(tokens)).toEqual(['12', '99,999', '123 k', '1.23 M', '2.00 G']);
  expect([12, 2_048, 5_242_880, 3_221_225_472].map(bytes)).toEqual(['12 B', '2.0 KiB', '5.0 MiB', '3.00 GiB']);
  expect([0.1234, null, Number.NaN].map(percent)).toEqual(['12.3%', '–', '–']);
  expect([59, 3_600, 90_000].map(duration)).toEqual(['59 s', '1 h 0 min', '1 d 1 h']);
});
