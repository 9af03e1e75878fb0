import { Presets, SingleBar } from 'cli-progress';
import type { Terminal } from './terminal.js';

/** Shows how far a long task is. */
export interface Progress {
  advance(): void;
  /** Removes the bar. */
  stop(): void;
}

/**
 * A progress bar on standard error if a person is watching it, and nothing otherwise.
 *
 * @param before steps that were done before
 */
export function startProgress(terminal: Terminal, task: string, total: number, before = 0): Progress {
  if (!terminal.showsProgress) return { advance: () => {}, stop: () => {} };
  const bar = new SingleBar(
    { format: `  ${task} {bar} {value}/{total}`, clearOnComplete: true, hideCursor: true, stream: process.stderr },
    Presets.shades_classic,
  );
  bar.start(total, before);
  return { advance: () => bar.increment(), stop: () => bar.stop() };
}
