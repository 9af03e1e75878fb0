import { spawn as spawnProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { type EngineProcess, spawnEngine } from '../src/supervisor/spawn-engine.js';

describe('the engine in a process of its own', () => {
  const engines: EngineProcess[] = [];
  const spawn = async (options: Parameters<typeof spawnEngine>[0] = {}): Promise<EngineProcess> => {
    const engine = await spawnEngine({ port: 0, threads: 1, contextTokens: 1024, ...options });
    engines.push(engine);
    return engine;
  };
  afterEach(async () => {
    await Promise.all(engines.splice(0).map((engine) => engine.stop(0)));
  });

  const complete = (engine: EngineProcess, fields: object = {}): Promise<Response> =>
    fetch(`${engine.url}/v1/completions`, {
      method: 'POST',
      body: JSON.stringify({ prompt: 'The weight of Marlo', max_tokens: 4, ...fields }),
    });

  it('says where it listens, serves, and ends when asked to', async () => {
    const engine = await spawn();
    expect(engine).toMatchObject({ cells: 1024, model: { name: 'warmpath-tiny' } });
    expect(engine.pid).not.toBe(process.pid);
    expect((await complete(engine)).status).toBe(200);
    await engine.stop();
    await engine.stop();
    expect(engine.pid).toBeUndefined();
    await expect(complete(engine)).rejects.toThrow();
  });

  it('finishes a running answer before it ends', async () => {
    const engine = await spawn();
    const response = await complete(engine, { stream: true, max_tokens: 200, ignore_eos: true });
    const stopped = engine.stop();
    expect((await response.text()).endsWith('data: [DONE]\n\n')).toBe(true);
    await stopped;
  });

  it.each([
    ['a file that is no model', { model: fileURLToPath(import.meta.url) }, 'WARMPATH_MODEL_FILE'],
    ['a model that is not there', { model: '/nonexistent/model.gguf' }, 'WARMPATH_MODEL_FILE'],
    ['a name that is none', { model: 'gopher:model' }, 'WARMPATH_MODEL_SPEC'],
    ['no thread', { threads: 0 }, 'WARMPATH_CONFIG_INVALID'],
    ['an address that is not ours', { host: '192.0.2.1' }, 'WARMPATH_CONFIG_INVALID'],
    ['a context that cannot hold its batch', { batchTokens: 32, maxRunning: 64 }, 'WARMPATH_CONFIG_INVALID'],
  ])('fails with the code of what is wrong: %s', async (_name, options, code) => {
    await expect(spawn(options)).rejects.toMatchObject({ code });
  });

  describe('whose worker fails and cannot be started again', () => {
    const preload = new URL('./support/broken-cache.js', import.meta.url).href;
    let marks: string;
    beforeEach(async () => {
      marks = await mkdtemp(join(tmpdir(), 'warmpath-broken-'));
      vi.stubEnv('NODE_OPTIONS', `--import=${preload}`);
      vi.stubEnv('BROKEN_MARKS', marks);
    });
    afterEach(async () => {
      vi.unstubAllEnvs();
      await rm(marks, { recursive: true });
    });

    it('answers what waits, says why, and is given up', async () => {
      const engine = await spawn();
      const response = await complete(engine, { stream: true });
      expect(response.status).toBe(500);
      expect(await response.json()).toMatchObject({ error: { code: 'WARMPATH_ENGINE_FAILED' } });
      const error = await engine.failed;
      expect(error).toMatchObject({ code: 'WARMPATH_ENGINE_FAILED' });
      expect(error.message).toContain('broken for a test');
    });
  });

  it('ends when its parent does, also in the middle of a stream', async () => {
    // A parent that is killed leaves the folder of its sockets behind.
    const folder = await mkdtemp(join(tmpdir(), 'warmpath-killed-'));
    onTestFinished(() => rm(folder, { recursive: true }));
    const entry = new URL('../dist/index.js', import.meta.url).href;
    const script = `import { spawnEngine } from '${entry}';
      const engine = await spawnEngine({ port: 0, threads: 1, contextTokens: 1024, shutdownGraceMs: 0 });
      console.log(JSON.stringify({ url: engine.url }));`;
    const env = { ...process.env, TMPDIR: folder };
    const parent = spawnProcess(process.execPath, ['--input-type=module', '--eval', script], { env });
    // The worker has inherited it, so it closes when both are gone.
    const bothGone = once(parent.stderr.resume(), 'close');
    const [line] = (await once(parent.stdout, 'data')) as [Buffer];
    const { url } = JSON.parse(line.toString()) as { url: string };
    const response = await fetch(`${url}/v1/completions`, {
      method: 'POST',
      body: JSON.stringify({ prompt: 'text', stream: true, max_tokens: 1000, ignore_eos: true }),
    });
    parent.kill('SIGKILL');
    await expect(response.text()).rejects.toThrow();
    await bothGone;
  });

  it('can be given up while it starts', async () => {
    const controller = new AbortController();
    const starting = spawnEngine({ port: 0 }, { signal: controller.signal });
    controller.abort(new Error('changed my mind'));
    await expect(starting).rejects.toThrow('changed my mind');
  });
});
