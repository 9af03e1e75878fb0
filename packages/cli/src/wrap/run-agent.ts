import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:os';
import { WarmpathError } from '@warmpath/core';
import type { AgentLaunch } from './coding-agents.js';

/** Signals that are passed on to the agent. */
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const satisfies readonly NodeJS.Signals[];
/** Those that a terminal sends to all processes in its foreground: the agent has them already. */
const FROM_TERMINAL: ReadonlySet<NodeJS.Signals> = new Set(['SIGINT', 'SIGQUIT']);
/** What a shell adds to the number of the signal that ended a program. */
const SIGNALLED = 128;

/**
 * Runs an agent on this process's own terminal and waits for its end.
 *
 * @returns its exit code, as a shell tells it: 128 and the signal's number for an agent that a signal ended.
 * @throws WarmpathError `WARMPATH_USAGE` if there is no such program.
 */
export async function runAgent(
  command: string,
  { args, environment }: AgentLaunch,
  { install, isTerminal }: { readonly install: string; readonly isTerminal: boolean },
): Promise<number> {
  const child = spawn(command, args, { stdio: 'inherit', env: environment });
  const passOn = (signal: NodeJS.Signals): void => {
    if (!isTerminal || !FROM_TERMINAL.has(signal)) child.kill(signal);
  };
  for (const signal of SIGNALS) process.on(signal, passOn);
  try {
    const [code, signal] = (await once(child, 'exit')) as [number | null, NodeJS.Signals | null];
    return code ?? SIGNALLED + constants.signals[signal!];
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    const detail =
      code === 'ENOENT'
        ? `the program ${command} is not on the path; install it with \`${install}\``
        : `the program ${command} cannot be started (${String(code)})`;
    throw new WarmpathError('WARMPATH_USAGE', { path: command, detail, cause });
  } finally {
    for (const signal of SIGNALS) process.off(signal, passOn);
  }
}
