import { timeLeft } from '@warmpath/lab';
import type { Terminal } from './terminal.js';

/** Shows how far a long task is. */
export interface Progress {
  /** One step more is done. What else is known by then stands behind the bar. */
  advance(figures?: string): void;
  /** Removes the bar. */
  stop(): void;
}

const BAR_WIDTH = 24;

/**
 * A bar with an estimate of the time left, on standard error if a person is watching it, and nothing otherwise.
 *
 * @param before steps that were done before
 */
export function startProgress(terminal: Terminal, task: string, total: number, before = 0): Progress {
  if (!terminal.showsProgress) return { advance: () => {}, stop: () => {} };
  const startedAt = performance.now();
  let done = before;
  let shown = '';
  const show = () => {
    const filled = Math.round((BAR_WIDTH * done) / total);
    const bar = `${'█'.repeat(filled)}${'░'.repeat(BAR_WIDTH - filled)}`;
    const left = timeLeft(performance.now() - startedAt, done - before, total - before);
    terminal.status(`  ${task} ${bar} ${done} of ${total}  ${left}${shown}`);
  };
  show();
  return {
    advance: (figures) => {
      done = Math.min(done + 1, total);
      if (figures !== undefined) shown = `  ${figures}`;
      show();
    },
    stop: () => terminal.status(''),
  };
}

/** What is waited for, with the seconds that have gone by, on a line of the terminal that is rewritten. */
export interface Waiting {
  /** Something else is waited for from now on. */
  say(text: string): void;
  stop(): void;
}

/** Says on standard error what is waited for: on a line each time without a terminal, and every second on one. */
export function startWaiting(terminal: Terminal, text: string): Waiting {
  if (!terminal.showsProgress) {
    terminal.note(text);
    return { say: (next) => terminal.note(next), stop: () => {} };
  }
  const startedAt = performance.now();
  let shown = text;
  const show = () => {
    const seconds = Math.floor((performance.now() - startedAt) / 1_000);
    terminal.status(seconds === 0 ? shown : `${shown} ${seconds} s`);
  };
  show();
  const timer = setInterval(show, 1_000);
  return {
    say: (next) => {
      shown = next;
      show();
    },
    stop: () => {
      clearInterval(timer);
      terminal.status('');
    },
  };
}
