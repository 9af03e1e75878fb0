import { randomBytes } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { WarmpathError } from '@warmpath/core';

/** Names the gateways that a request came through, as `Via` does; a header of its own, for some servers mind `Via`. */
export const HOPS_HEADER = 'x-warmpath-via';

/** Gateways behind each other; more are a circle whose middle hides it. */
const MOST_HOPS = 8;

/** What a gateway calls itself in that header: drawn at its start, says nothing about it. */
export function newHopName(): string {
  return randomBytes(8).toString('hex');
}

/** The header for the next hop. */
export function withHop(incoming: IncomingHttpHeaders, own: string): string {
  const before = incoming[HOPS_HEADER];
  return before === undefined ? own : `${String(before)}, ${own}`;
}

/** Error: `WARMPATH_LOOP` for a request that this gateway sent itself, or that came through too many. */
export function checkHops(incoming: IncomingHttpHeaders, own: string): WarmpathError | undefined {
  const before = incoming[HOPS_HEADER];
  if (before === undefined) return undefined;
  const hops = String(before).split(',', MOST_HOPS + 1);
  if (hops.some((hop) => hop.trim() === own)) return new WarmpathError('WARMPATH_LOOP');
  if (hops.length <= MOST_HOPS) return undefined;
  return new WarmpathError('WARMPATH_LOOP', { detail: `This request came through more than ${MOST_HOPS} gateways.` });
}
