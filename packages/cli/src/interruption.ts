import { setTimeout } from 'node:timers/promises';

/** The reason of an abort that a signal of the operating system asked for. */
export class Interruption extends Error {
  override readonly name = 'Interruption';

  constructor(readonly signalName: 'SIGINT' | 'SIGTERM') {
    super(`stopped by ${signalName}`);
  }
}

/** Ctrl-C, and what service managers send. */
const SIGNALS = ['SIGINT', 'SIGTERM'] as const;

/**
 * Runs `body` with an abort signal that the first SIGINT or SIGTERM fires, with an `Interruption` as its reason. A
 * second one ends the process at once, for a stop that hangs.
 */
export async function withInterruption<Result>(body: (signal: AbortSignal) => Promise<Result>): Promise<Result> {
  const controller = new AbortController();
  const onSignal = (name: NodeJS.Signals) => {
    if (controller.signal.aborted) process.exit(name === 'SIGTERM' ? 143 : 130);
    controller.abort(new Interruption(name as 'SIGINT' | 'SIGTERM'));
  };
  for (const name of SIGNALS) process.on(name, onSignal);
  try {
    return await body(controller.signal);
  } catch (error) {
    // Whatever the abort broke first, the interruption is what happened.
    throw controller.signal.reason instanceof Interruption ? controller.signal.reason : error;
  } finally {
    for (const name of SIGNALS) process.off(name, onSignal);
  }
}

/** Resolves when the signal fires, or at once if it has fired. */
export function interrupted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
}

/** Waits so many milliseconds. Rejects with the signal's reason when it fires. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return setTimeout(ms, undefined, { signal });
}
