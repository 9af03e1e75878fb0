import { computed, signal } from '@preact/signals';
import type { FeedSettings, FeedTick, RequestSummary, TrafficSlot } from '../src/feed.ts';
import { type Connection, FeedConnection } from './feed-connection.ts';
import { binsOf, totalsOf } from './figures.ts';

/** Requests that the page keeps. */
const MAX_REQUESTS = 1_000;
const DAY_MS = 86_400_000;

/** What the page knows. Changed by the feed alone. */
export const connection = signal<Connection>({ kind: 'connecting' });
export const settings = signal<FeedSettings | null>(null);
export const tick = signal<FeedTick | null>(null);
const slots = signal<ReadonlyMap<number, TrafficSlot>>(new Map());
/** Slots of the day, by the wall clock. */
const daySlots = signal<ReadonlyMap<number, TrafficSlot>>(new Map());
/** The latest first. */
export const requests = signal<readonly RequestSummary[]>([]);
/** Requests that were not told, because too many ended at once. */
export const omitted = signal(0);

/** What the reader chose. */
export const VIEWS = ['overview', 'sessions', 'prompts', 'tree', 'requests', 'system'] as const;
export type View = (typeof VIEWS)[number];
export const view = signal<View>(viewOfHash());
export const SPANS = [5, 15, 1_440] as const;
export const spanMinutes = signal<(typeof SPANS)[number]>(15);
export const selectedRequest = signal<string | null>(null);
export const THEMES = ['auto', 'light', 'dark'] as const;
export const theme = signal<(typeof THEMES)[number]>(storedTheme());
/** Counts changes of what colours are. */
export const colours = signal(0);

export const spanMs = computed(() => spanMinutes.value * 60_000);
/** One point for each slot, or for each three. */
export const bins = computed(() => {
  const known = settings.value;
  if (known === null || tick.value === null) return [];
  const { time, now } = tick.value;
  if (spanMinutes.value === 1_440) {
    const day = { now: time, spanMs: spanMs.value, binSlots: 1, slotMs: known.daySlotMs };
    return binsOf(daySlots.value, day).map((bin) => {
      return { ...bin, start: bin.start - time + now, end: bin.end - time + now };
    });
  }
  const binSlots = spanMinutes.value === 5 ? 1 : 3;
  return binsOf(slots.value, { now: tick.value.now, spanMs: spanMs.value, binSlots, slotMs: known.slotMs });
});
export const totals = computed(() => totalsOf(slotsOfSpan()));

function* slotsOfSpan(): Generator<TrafficSlot> {
  if (settings.value === null || tick.value === null) return;
  if (spanMinutes.value === 1_440) {
    yield* daySlots.value.values();
    return;
  }
  const first = (tick.value.now - spanMs.value) / settings.value.slotMs;
  for (const slot of slots.value.values()) if (slot.slot > first) yield slot;
}

/** The wall clock's time of a time on the gateway's monotonic clock. */
export function wallTime(at: number): number {
  const { time, now } = tick.value!;
  return time - now + at;
}

export const feed = new FeedConnection({
  changed: (changed) => {
    connection.value = changed;
  },
  start: (start) => {
    settings.value = start.settings;
    slots.value = new Map(start.slots.map((slot) => [slot.slot, slot]));
    daySlots.value = new Map(start.daySlots.map((slot) => [slot.slot, slot]));
    requests.value = start.requests.toReversed();
    omitted.value = 0;
  },
  tick: (next) => {
    tick.value = next;
    if (next.slots.length > 0) {
      const oldest = (next.now - settings.value!.seriesMs) / settings.value!.slotMs;
      const kept = [...slots.value].filter(([slot]) => slot >= oldest);
      slots.value = new Map([...kept, ...next.slots.map((slot) => [slot.slot, slot] as const)]);
    }
    if (next.daySlots.length > 0) {
      const oldest = (next.time - DAY_MS) / settings.value!.daySlotMs;
      const kept = [...daySlots.value].filter(([slot]) => slot >= oldest);
      daySlots.value = new Map([...kept, ...next.daySlots.map((slot) => [slot.slot, slot] as const)]);
    }
    const latest = requests.value[0]?.sequence ?? 0;
    const fresh = next.requests.filter(({ sequence }) => sequence > latest).toReversed();
    if (fresh.length > 0) requests.value = [...fresh, ...requests.value].slice(0, MAX_REQUESTS);
    if (next.omitted > 0) omitted.value += next.omitted;
  },
});

/** Each view has an address, so that the browser's way back works. */
export function show(next: View): void {
  if (location.hash !== `#${next}`) history.pushState(null, '', `#${next}`);
  view.value = next;
}

export function chooseTheme(next: (typeof THEMES)[number]): void {
  theme.value = next;
  localStorage.setItem('warmpath-theme', next);
  applyTheme();
}

const systemIsDark = matchMedia('(prefers-color-scheme: dark)');

/** Writes the theme into the document; without a choice, the system's counts. */
export function applyTheme(): void {
  const isDark = theme.value === 'auto' ? systemIsDark.matches : theme.value === 'dark';
  document.documentElement.dataset['theme'] = isDark ? 'dark' : 'light';
  colours.value++;
}

function storedTheme(): (typeof THEMES)[number] {
  const stored = localStorage.getItem('warmpath-theme');
  return THEMES.find((name) => name === stored) ?? 'auto';
}

function viewOfHash(): View {
  return VIEWS.find((name) => location.hash === `#${name}`) ?? 'overview';
}

addEventListener('popstate', () => {
  view.value = viewOfHash();
});
systemIsDark.addEventListener('change', applyTheme);
