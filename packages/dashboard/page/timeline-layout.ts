import type { RequestSummary } from '../src/feed.ts';

/** A request where it is drawn. */
export interface Bar {
  readonly request: RequestSummary;
  readonly lane: number;
  /** On the gateway's monotonic clock. */
  readonly start: number;
  readonly end: number;
}

/**
 * Gives every request that touches the time from `from` to `to` the first lane that is free, the oldest first. Requests
 * that find none are counted. `gapMs` stays free behind each. O(requests × lanes).
 */
export function placeBars(
  all: readonly RequestSummary[],
  { from, to, lanes, gapMs }: { from: number; to: number; lanes: number; gapMs: number },
): { readonly bars: readonly Bar[]; readonly omitted: number } {
  const ends: number[] = new Array(lanes).fill(Number.NEGATIVE_INFINITY);
  const inside = all
    .filter(({ arrivedAt, durationMs }) => arrivedAt <= to && arrivedAt + durationMs >= from)
    .toSorted((a, b) => a.arrivedAt - b.arrivedAt);
  const bars: Bar[] = [];
  for (const request of inside) {
    const { arrivedAt: start, durationMs } = request;
    const lane = ends.findIndex((end) => end <= start);
    if (lane < 0) continue;
    ends[lane] = start + durationMs + gapMs;
    bars.push({ request, lane, start, end: start + durationMs });
  }
  return { bars, omitted: inside.length - bars.length };
}
