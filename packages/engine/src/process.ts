import { CHILD_ARGUMENT } from './child-messages.js';
import { type EngineExit, startChild, stopChild } from './child-process.js';
import { type EngineOptions, parseEngineOptions } from './options.js';
import type { EngineHooks, ServedModel } from './server.js';
import { STOP_MARGIN_MS } from './supervisor/worker.js';

/** An engine that runs in a process of its own and listens. */
export interface EngineProcess {
  /** Base URL, without a slash at its end. */
  readonly url: string;
  readonly model: ServedModel;
  /** KV cells in all. */
  readonly cells: number;
  /** The supervisor, which listens; what computes is a child of it. */
  readonly pid: number;
  /** Settles when the process has ended, for whatever reason. Never rejects. */
  readonly exited: Promise<EngineExit>;
  /**
   * Asks the engine to finish what runs and to end, and kills it when it takes longer than `killAfterMs` (default: its
   * own grace for running requests and 10 s more). Safe to call again.
   */
  stop(killAfterMs?: number): Promise<EngineExit>;
}

/**
 * Starts the engine, supervised, in a child process and waits until it listens. A crash in native code ends a process
 * below that child only, which starts another. Both end by themselves when this process goes away.
 *
 * @throws Everything that `startEngineServer` throws; WARMPATH_ENGINE_FAILED when the process ends before it listens;
 *   the signal's reason.
 */
export async function spawnEngine(options: EngineOptions = {}, hooks: EngineHooks = {}): Promise<EngineProcess> {
  const settings = parseEngineOptions(options);
  const child = await startChild(CHILD_ARGUMENT, { type: 'start', options }, hooks);
  return {
    url: child.url,
    model: child.model,
    cells: child.cells,
    pid: child.process.pid!,
    exited: child.exited,
    // The supervisor gives its worker the one margin, and gets another to end itself.
    stop: (killAfterMs = settings.shutdownGraceMs + 2 * STOP_MARGIN_MS) => stopChild(child, killAfterMs),
  };
}
