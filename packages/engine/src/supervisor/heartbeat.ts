import type { ChildProcess } from 'node:child_process';
import type { ChildMessage, ParentMessage } from '../child-messages.js';

const BEAT_MS = 1_000;

/** Questions that a worker may leave unanswered: large bodies and copies block its event loop for seconds. */
const MAX_SILENT_BEATS = 8;

/**
 * Asks a worker once a second whether it still answers. It hangs when it leaves too many questions unanswered, or when
 * one decode takes longer than the worker's own limit for it. Counts beats, not time: a machine that slept does not end
 * the worker.
 *
 * @param onHang Gets the reason, once.
 * @returns Ends the watch.
 */
export function watchHeartbeat(
  child: Pick<ChildProcess, 'on' | 'off' | 'send'>,
  onHang: (reason: string) => void,
): () => void {
  let silentBeats = 0;
  let step = -1;
  let beatsOfStep = 0;
  const stop = (): void => {
    clearInterval(timer);
    child.off('message', onMessage);
  };
  const hang = (reason: string): void => {
    stop();
    onHang(reason);
  };
  const onMessage = (message: ChildMessage): void => {
    if (message.type !== 'pong') return;
    silentBeats = 0;
    const { decoding } = message;
    beatsOfStep = decoding?.step === step ? beatsOfStep + 1 : 0;
    step = decoding?.step ?? -1;
    if (decoding !== undefined && beatsOfStep * BEAT_MS > decoding.limitMs) {
      hang(`One step has been computed for ${beatsOfStep} s, and ${Math.round(decoding.expectedMs)} ms were expected`);
    }
  };
  const timer = setInterval(() => {
    if (silentBeats >= MAX_SILENT_BEATS) {
      hang(`The engine process has not answered for ${silentBeats} s`);
      return;
    }
    silentBeats++;
    const ping: ParentMessage = { type: 'ping' };
    // A closed channel means that the process is about to exit.
    child.send(ping, () => undefined);
  }, BEAT_MS);
  timer.unref();
  child.on('message', onMessage);
  return stop;
}
