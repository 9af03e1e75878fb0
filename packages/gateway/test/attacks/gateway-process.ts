import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';

/** A built gateway in a process of its own, whose heap is bounded. */
export class GatewayProcess {
  readonly url: string;
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, url: string) {
    this.#child = child;
    this.url = url;
  }

  /** `config` is a gateway's, without the engine's URL. */
  static async start(program: URL, engine: string, config: object): Promise<GatewayProcess> {
    const child = fork(program, [engine, JSON.stringify(config)], {
      execArgv: ['--max-old-space-size=1024'],
      // Where it runs out of memory, it writes pages of stack.
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    });
    const [{ url }] = (await once(child, 'message')) as [{ url: string }];
    return new GatewayProcess(child, url);
  }

  get pid(): number {
    return this.#child.pid!;
  }

  /** Whether it ended by itself. */
  get hasEnded(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  /** The most resident memory that it ever had, in bytes. */
  get peakBytes(): number {
    const [, kilobytes] = /VmHWM:\s*(\d+) kB/.exec(readFileSync(`/proc/${this.pid}/status`, 'utf8'))!;
    return Number(kilobytes) * 1_024;
  }

  async close(): Promise<void> {
    if (this.hasEnded) return;
    const exit = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await exit;
  }
}
