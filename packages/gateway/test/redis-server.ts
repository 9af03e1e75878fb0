import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { freePort } from '../../../test/free-port.js';

const BINARY = process.env['REDIS_SERVER'] ?? 'redis-server';
const MISSING = `These tests need a real server: ${BINARY} was not found. Install Debian's package redis-server, or name a binary of Redis or Valkey in REDIS_SERVER.`;
const TRIES = 5;

/** A real server on a free port, which keeps nothing on disk. */
export class RedisServer {
  readonly port: number;
  readonly #options: readonly string[];
  #process: ChildProcess;

  private constructor(port: number, options: readonly string[], process: ChildProcess) {
    this.port = port;
    this.#options = options;
    this.#process = process;
  }

  /** `{port}` in an option stands for the port. */
  static async start(...options: readonly string[]): Promise<RedisServer> {
    for (let tries = 1; ; tries++) {
      const port = await freePort();
      try {
        return new RedisServer(port, options, await launch(port, options));
      } catch (error) {
        // Somebody else took the port meanwhile.
        if (tries === TRIES || (error as Error).message === MISSING) throw error;
      }
    }
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}`;
  }

  /** As a crash does it. */
  async kill(): Promise<void> {
    const exit = once(this.#process, 'exit');
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    this.#process.kill('SIGKILL');
    await exit;
  }

  /** The same server anew, empty. */
  async restart(): Promise<void> {
    await this.kill();
    this.#process = await launch(this.port, this.#options);
  }

  /** Stops answering, with every connection open; `go` ends it. */
  stall(): void {
    this.#process.kill('SIGSTOP');
  }

  go(): void {
    this.#process.kill('SIGCONT');
  }

  close(): Promise<void> {
    return this.kill();
  }
}

async function launch(port: number, options: readonly string[]): Promise<ChildProcess> {
  const given = options.map((option) => option.replace('{port}', `${port}`));
  const settings = ['--bind', '127.0.0.1', '--port', `${port}`, '--save', '', '--appendonly', 'no', ...given];
  const server = spawn(BINARY, settings, { stdio: ['ignore', 'pipe', 'inherit'] });
  const said: string[] = [];
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error) =>
      reject((error as NodeJS.ErrnoException).code === 'ENOENT' ? new Error(MISSING) : error),
    );
    server.once('exit', () => reject(new Error(`redis-server ended: ${said.join('\n')}`)));
    createInterface(server.stdout!).on('line', (line) => {
      said.push(line);
      if (/Ready to accept connections/.test(line)) resolve();
    });
  });
  return server;
}
