import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { Readable, Writable } from 'node:stream';
import type { Command } from 'commander';
import { createContext } from '../src/command-context.js';
import { reportFailure } from '../src/failure.js';
import { createProgram } from '../src/program.js';
import { Terminal } from '../src/terminal.js';

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

/** Runs a command in this process, to its end, as `main.ts` does. */
export async function runCli(args: readonly string[], options: RunOptions = {}): Promise<CliResult> {
  const stdout = new CollectedText();
  const stderr = new CollectedText();
  const environment = { ...process.env, ...options.environment };
  const streams = { stdout, stderr } as unknown as ConstructorParameters<typeof Terminal>[0];
  const terminal = new Terminal(streams, { json: args.includes('--json'), environment });
  const stdin = Readable.from([Buffer.from(options.input ?? '')]) as unknown as NodeJS.ReadStream;
  const context = { ...createContext(terminal), environment, stdin, argv: args };
  let code: number;
  try {
    const program = await createProgram(context);
    writeHelpTo(program, stdout, stderr);
    await program.parseAsync(args, { from: 'user' });
    code = context.exitCode;
  } catch (error) {
    code = reportFailure(error, terminal);
  }
  return { code, stdout: stdout.text, stderr: stderr.text };
}

/** What was written. */
class CollectedText extends Writable {
  text = '';

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.text += chunk.toString();
    done();
  }
}

function writeHelpTo(command: Command, stdout: CollectedText, stderr: CollectedText): void {
  command.configureOutput({ writeOut: (text) => stdout.write(text), writeErr: (text) => stderr.write(text) });
  for (const child of command.commands) writeHelpTo(child, stdout, stderr);
}
