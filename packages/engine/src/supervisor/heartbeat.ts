import type { ChildMessage, ParentMessage } from '../child-messages.js';
import type { ListeningChild } from '../child-process.js';

/** One question and one answer in so many milliseconds. */
const BEAT_MS = 1_000;

/**
 * Questions that a worker may leave unanswered. Its event loop stands still while it parses a body of the largest size
 * or copies a node of many gigabytes, which takes a second or two; `llama_decode` runs beside it.
 */
const SILENT_BEATS = 8;
/** The same while it starts: modules and the model's vocabulary are read, beside workers that do the same. */
const SILENT_BEATS_AT_START = 60;

/** How long any model may load; the slowest disk for one that was not loaded before; how much slower than before. */
const MIN_LOAD_MS = 60_000;
const MIN_BYTES_PER_MS = 2_000;
const SLOWER_LOAD = 20;

/**
 * When loading a model counts as hanging.
 *
 * @param bytes Of its file.
 * @param loadedMs The longest that loading it has taken so far, if it ever was.
 */
export function loadLimitMs(bytes: number, loadedMs: number | undefined): number {
  return MIN_LOAD_MS + (loadedMs === undefined ? bytes / MIN_BYTES_PER_MS : SLOWER_LOAD * loadedMs);
}

/** What the watch needs of a worker's process. */
export type WatchedChild = Pick<ListeningChild, 'exited'> & {
  readonly process: Pick<ListeningChild['process'], 'on' | 'off' | 'send' | 'kill'>;
};

/**
 * Asks a worker again and again for a sign of life. It hangs when its event loop answers none of the last questions, or
 * when loading the model, or one decode, goes on for much longer than the worker expects (`DecodeStep.decoding`). Time
 * is counted in beats of this process, so that a machine that slept, or processes that were stopped together, do not
 * end the worker.
 *
 * @param onHang Hears once what is wrong; nothing is asked any more then.
 * @returns Ends the watch.
 */
export function watchHeartbeat({ process: child, exited }: WatchedChild, onHang: (reason: string) => void): () => void {
  let unanswered = 0;
  let step = -1;
  let beatsOfStep = 0;
  let beatsOfLoad = 0;
  let mostSilent = SILENT_BEATS_AT_START;
  const stop = (): void => {
    clearInterval(timer);
    child.off('message', onMessage);
  };
  const onMessage = (message: ChildMessage): void => {
    // It may hang with its very first request, before it has answered a question.
    if (message.type === 'listening') {
      mostSilent = SILENT_BEATS;
    }
    if (message.type !== 'pong' || message.id !== undefined) {
      return;
    }
    unanswered = 0;
    const { decoding, loading } = message;
    mostSilent = loading === undefined ? SILENT_BEATS : SILENT_BEATS_AT_START;
    if (loading?.limitMs !== undefined && ++beatsOfLoad * BEAT_MS > loading.limitMs) {
      stop();
      onHang(`The model has been loading for ${beatsOfLoad} s`);
      return;
    }
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
    if (unanswered >= mostSilent) {
      stop();
      onHang(`It has given no sign of life for ${(unanswered * BEAT_MS) / 1_000} s`);
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
