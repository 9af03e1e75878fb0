import { readServerSentEvents } from '@warmpath/client';
import { WarmpathError } from '@warmpath/core';
import type { FeedStart, FeedTick } from '@warmpath/dashboard';
import { type Dispatcher, Pool } from 'undici';
import { errorOfServer } from '../server-error.js';

/** Milliseconds to connect, and without an event, after which the gateway counts as gone; it sends one each second. */
const CONNECT_MS = 5_000;
const SILENCE_MS = 6_000;

/** What the gateway tells its viewers: how things are at first, then what changed, once a second. */
export type FeedEvent =
  | { readonly kind: 'start'; readonly start: FeedStart }
  | { readonly kind: 'tick'; readonly tick: FeedTick };

export interface FeedAddress {
  readonly url: string;
  readonly operatorKey: string | undefined;
}

/**
 * Reads the dashboard's feed until it ends.
 *
 * @throws WarmpathError `WARMPATH_GATEWAY_UNREACHABLE`, or what the gateway answers to somebody it does not let watch.
 */
export async function* readFeed({ url, operatorKey }: FeedAddress, signal: AbortSignal): AsyncGenerator<FeedEvent> {
  const { origin, pathname } = new URL(url);
  const timeouts = { headersTimeout: SILENCE_MS, bodyTimeout: SILENCE_MS, connect: { timeout: CONNECT_MS } };
  const pool = new Pool(origin, { ...timeouts, connections: 1 });
  const path = `${pathname.replace(/\/+$/, '')}/ui/events`;
  const headers = operatorKey === undefined ? {} : { authorization: `Bearer ${operatorKey}` };
  try {
    const { statusCode, body } = await pool.request({ method: 'GET', path, headers, signal });
    if (statusCode !== 200) throw await refusalOf(statusCode, body);
    for await (const data of readServerSentEvents(body)) yield eventOf(data);
  } catch (cause) {
    signal.throwIfAborted();
    if (WarmpathError.isInstance(cause)) throw cause;
    const { code, message } = cause as NodeJS.ErrnoException;
    throw new WarmpathError('WARMPATH_GATEWAY_UNREACHABLE', {
      detail: `no gateway answers at ${url} (${code ?? message}).`,
      cause,
    });
  } finally {
    await pool.destroy();
  }
}

/** The two events differ in what they hold: only the first has settings. */
function eventOf(data: string): FeedEvent {
  const value = JSON.parse(data) as FeedStart | FeedTick;
  return 'settings' in value ? { kind: 'start', start: value } : { kind: 'tick', tick: value };
}

async function refusalOf(status: number, body: Dispatcher.ResponseData['body']): Promise<WarmpathError> {
  const text = await body.text();
  try {
    const own = errorOfServer(JSON.parse(text));
    if (own !== undefined) return own;
  } catch {
    // No gateway of ours answers like that.
  }
  return new WarmpathError('WARMPATH_GATEWAY_UNREACHABLE', { detail: `no gateway: it answers with status ${status}` });
}
