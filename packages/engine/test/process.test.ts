import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, it } from 'vitest';
import { type EngineProcess, spawnEngine } from '../src/process.js';

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
    expect(await engine.stop()).toEqual({ code: 0, signal: null });
    expect(await engine.stop()).toEqual({ code: 0, signal: null });
    await expect(complete(engine)).rejects.toThrow();
  });

  it('finishes a running answer before it ends', async () => {
    const engine = await spawn();
    const response = await complete(engine, { stream: true, max_tokens: 200, ignore_eos: true });
    const stopped = engine.stop();
    expect((await response.text()).endsWith('data: [DONE]\n\n')).toBe(true);
    expect((await stopped).code).toBe(0);
  });

  it('reports when it was killed', async () => {
    const engine = await spawn();
    process.kill(engine.pid, 'SIGKILL');
    expect(await engine.exited).toEqual({ code: null, signal: 'SIGKILL' });
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

  it('can be given up while it starts', async () => {
    const controller = new AbortController();
    const starting = spawnEngine({ port: 0 }, { signal: controller.signal });
    controller.abort(new Error('changed my mind'));
    await expect(starting).rejects.toThrow('changed my mind');
  });
});
