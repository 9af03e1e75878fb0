import type { ChildMessage, ParentMessage } from '../child-messages.js';
import type { ListeningChild } from '../child-process.js';

/** One question and one answer in so many milliseconds. */
const BEAT_MS = 1_000;

/**
 * Questions that a worker may leave unanswered. Its event loop stands still while it parses a body of the largest size
 * or copies a node of many gigabytes, which takes a second or two; `llama_decode` runs beside it.
 */
const SILENT_BEATS = 8;

/** What the watch needs of a worker's process. */
export type WatchedChild = Pick<ListeningChild, 'exited'> & {
  readonly process: Pick<ListeningChild['process'], 'on' | 'off' | 'send'>;
};

/**
 * Asks a worker again and again for a sign of life. It hangs when its event loop answers none of the last questions, or
 * when one decode goes on for much longer than the worker expects (`DecodeStep.decoding`). Time is counted in beats of
 * this process, so that a machine that slept, or processes that were stopped together, do not end the worker.
 *
 * @param onHang Hears once what is wrong; nothing is asked any more then.
 * @returns Ends the watch.
 */
export function watchHeartbeat({ process: child, exited }: WatchedChild, onHang: (reason: string) => void): () => void {
  let unanswered = 0;
  let step = -1;
  let beatsOfStep = 0;
  const stop = (): void => {
    clearInterval(timer);
    child.off('message', onMessage);
  };
  const onMessage = (message: ChildMessage): void => {
    if (message.type !== 'pong' || message.id !== undefined) {
      return;
    }
    unanswered = 0;
    const { decoding } = message;
    beatsOfStep = decoding !== undefined && decoding.step === step ? beatsOfStep + 1 : 0;
    step = decoding?.step ?? -1;
    if (decoding !== undefined && beatsOfStep * BEAT_MS > decoding.limitMs) {
      stop();
      onHang(
        `One step has been computed for ${beatsOfStep} s, and ${Math.round(decoding.expectedMs)} ms were expected`,
      );
    }
  };
  const timer = setInterval(() => {
    if (unanswered === SILENT_BEATS) {
      stop();
      onHang(`It has given no sign of life for ${(SILENT_BEATS * BEAT_MS) / 1_000} s`);
      return;
    }
    unanswered++;
    const ping: ParentMessage = { type: 'ping' };
    // A closed channel means that the process is about to be gone.
    child.send(ping, () => undefined);
  }, BEAT_MS);
  timer.unref();
  child.on('message', onMessage);
  void exited.then(stop);
  return stop;
}
