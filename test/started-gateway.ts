import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { root } from './docs-blocks.js';

/** `npm start` on free ports, as the docs tell a newcomer to start it. */
export interface StartedGateway {
  readonly url: string;
  stop(): Promise<void>;
}

/** Starts gateway and embedded engine, and waits until they are ready. */
export async function startGatewayAndEngine(): Promise<StartedGateway> {
  const data = await mkdtemp(join(tmpdir(), 'warmpath-data-'));
  const up = spawn('npm', ['start', '--silent', '--', '--port', '0', '--json'], {
    cwd: root,
    stdio: ['ignore', 'pipe', 'inherit'],
    // A process group, as a terminal makes one: Ctrl-C reaches npm and what it runs.
    detached: true,
    env: { ...process.env, WARMPATH_DATA_DIR: data },
  });
  const [line] = (await once(createInterface({ input: up.stdout }), 'line')) as [string];
  const { url } = JSON.parse(line) as { url: string };
  return {
    url,
    stop: async () => {
      const exited = once(up, 'exit');
      process.kill(-up.pid!, 'SIGINT');
      await exited;
      await rm(data, { recursive: true, force: true });
    },
  };
}
