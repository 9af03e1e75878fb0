import type { ResolvedEngineOptions } from '../options.js';
import type { ZmqKvEventPublisher } from './zmq-publisher.js';

/**
 * Opens the sockets that the options name, and loads what they need.
 *
 * @returns `undefined` when nobody wants to hear of the cache.
 * @throws WARMPATH_CONFIG_INVALID.
 */
export async function openKvEvents(settings: ResolvedEngineOptions): Promise<ZmqKvEventPublisher | undefined> {
  if (settings.kvEvents === undefined) {
    return undefined;
  }
  const { ZmqKvEventPublisher } = await import('./zmq-publisher.js');
  return ZmqKvEventPublisher.open({
    endpoint: settings.kvEvents,
    ...(settings.kvEventsReplay !== undefined && { replayEndpoint: settings.kvEventsReplay }),
    topic: settings.kvEventsTopic,
    encoding: settings.kvEventsEncoding,
    bufferSteps: settings.kvEventsBuffer,
    highWaterMark: settings.kvEventsHighWaterMark,
  });
}
