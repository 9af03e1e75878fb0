import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { type SupervisedEngine, startSupervisedEngine } from '../../src/supervisor/supervised-engine.js';

let marks: string;
let engine: SupervisedEngine | undefined;
beforeEach(async () => {
  marks = await mkdtemp(join(tmpdir(), 'warmpath-stuck-'));
});
afterEach(async () => {
  vi.unstubAllEnvs();
  await engine?.close();
  await rm(marks, { recursive: true });
});

it('a worker that does not end loading its model is ended, and the next one serves what waits', async () => {
  vi.stubEnv('NODE_OPTIONS', `--import=${new URL('../support/stuck-load.js', import.meta.url).href}`);
  vi.stubEnv('STUCK_MARKS', marks);
  const crashes: string[] = [];
  engine = await startSupervisedEngine(
    { port: 0, contextTokens: 512, threads: 1 },
    { onCrash: (error) => crashes.push(`${error.message} ${String(error.cause)}`) },
  );
  process.kill(engine.workerPid!, 'SIGKILL');
  await vi.waitFor(() => expect(crashes).toHaveLength(1), 300_000);
  const answer = await fetch(`${engine.url}/v1/completions`, {
    method: 'POST',
    body: JSON.stringify({ prompt: 'Hello', max_tokens: 1 }),
  });
  expect(answer.status).toBe(200);
  expect(crashes).toHaveLength(2);
  expect(crashes[1]).toContain('The model has been loading for 2 s');
});
