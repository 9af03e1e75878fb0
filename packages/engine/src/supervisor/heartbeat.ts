import type { ChildMessage, ParentMessage } from '../child-messages.js';
import type { ListeningChild } from '../child-process.js';

/**
 * Beats within the time that a worker may be silent. Beats are counted, so that a machine that slept does not end its
 * worker.
 */
const BEATS = 4;

/** What the watch needs of a worker's process. */
export type WatchedChild = Pick<ListeningChild, 'exited'> & {
  readonly process: Pick<ListeningChild['process'], 'on' | 'off' | 'send'>;
};

/**
 * Asks a worker again and again for a sign of life. It hangs when its event loop answers none of the last questions, or
 * when one decode has taken as long: llama.cpp computes on a thread of its own, and the event loop goes on beside one
 * that never returns. One message each way in a quarter of the time.
 *
 * @param limitMs How long a worker may be silent, or compute one step.
 * @param onHang Hears once what is wrong; nothing is asked any more then.
 * @returns Ends the watch.
 */
export function watchHeartbeat(
  { process: child, exited }: WatchedChild,
  limitMs: number,
  onHang: (reason: string) => void,
): () => void {
  let missed = 0;
  const stop = (): void => {
    clearInterval(timer);
    child.off('message', onMessage);
  };
  const onMessage = (message: ChildMessage): void => {
    if (message.type !== 'pong') {
      return;
    }
    missed = 0;
    if (message.decodingMs > limitMs) {
      stop();
      onHang(`One step has been computed for ${Math.round(message.decodingMs)} ms`);
    }
  };
  const timer = setInterval(() => {
    if (missed === BEATS) {
      stop();
      onHang(`It has given no sign of life for ${limitMs} ms`);
      return;
    }
    missed++;
    const ping: ParentMessage = { type: 'ping' };
    // A closed channel means that the process is about to be gone.
    child.send(ping, () => undefined);
  }, limitMs / BEATS);
  timer.unref();
  child.on('message', onMessage);
  void exited.then(stop);
  return stop;
}
