import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import type { Readable } from 'node:stream';

/** The built program. */
export const MAIN = join(import.meta.dirname, '../dist/main.js');

/** How a command ended. */
export interface CliResult {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A command under way. */
export interface RunningCli {
  readonly process: ChildProcess;
  /** Standard output so far. */
  readonly stdout: () => string;
  /** Resolves with the first match in standard output; rejects if the command ends without one. */
  waitFor(pattern: RegExp): Promise<RegExpExecArray>;
  /** The same in standard error. */
  waitForNote(pattern: RegExp): Promise<RegExpExecArray>;
  readonly ended: Promise<CliResult>;
}

export interface RunOptions {
  readonly input?: string;
  readonly environment?: Readonly<Record<string, string>>;
}

/** Starts the built command as a process of its own, without a terminal. */
export function startCli(args: readonly string[], options: RunOptions = {}): RunningCli {
  const environment = { ...process.env, ...options.environment };
  const child = spawn(process.execPath, [MAIN, ...args], { env: environment, stdio: ['pipe', 'pipe', 'pipe'] });
  child.stdin.end(options.input ?? '');
  let stdout = '';
  let stderr = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  const ended = once(child, 'close').then(([code]) => ({ code: code as number | null, stdout, stderr }));
  const waiting = (stream: Readable, text: () => string) => (pattern: RegExp) =>
    new Promise<RegExpExecArray>((resolve, reject) => {
      const look = () => {
        const match = pattern.exec(text());
        if (match !== null) resolve(match);
      };
      stream.on('data', look);
      look();
      void ended.then(() => reject(new Error(`ended without ${pattern}: ${stdout}${stderr}`)));
    });
  const waitFor = waiting(child.stdout, () => stdout);
  const waitForNote = waiting(child.stderr, () => stderr);
  return { process: child, stdout: () => stdout, waitFor, waitForNote, ended };
}

/** Runs the built command to its end. */
export function runCli(args: readonly string[], options?: RunOptions): Promise<CliResult> {
  return startCli(args, options).ended;
}
