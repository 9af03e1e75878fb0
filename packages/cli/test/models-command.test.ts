import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { resolveModel } from '@warmpath/engine';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { runCli } from './run-cli.js';

let folder: string;
let server: Server;
let url: string;
let size: number;
beforeEach(async () => {
  vi.stubEnv('no_proxy', '127.0.0.1');
  folder = await mkdtemp(join(tmpdir(), 'warmpath-cli-models-'));
  const model = await readFile((await resolveModel('demo')).path);
  size = model.length;
  server = createServer((request, response) => {
    if (request.url?.split('?')[0] === '/tiny.gguf') response.end(model);
    else response.writeHead(404).end();
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterEach(async () => {
  vi.unstubAllEnvs();
  server.closeAllConnections();
  await new Promise((closed) => server.close(closed));
  await rm(folder, { recursive: true, force: true });
});

const run = (...argv: string[]) => runCli(['models', ...argv, '--cache-dir', folder]);
const json = async (...argv: string[]) => JSON.parse((await run(...argv, '--json')).stdout);

it('warmpath models downloads, lists and removes a model', async () => {
  const model = `${url}/tiny.gguf`;
  const megabytes = `${(size / 1_048_576).toFixed(1)} MiB`;
  expect((await run('list')).stdout).toContain('No model was downloaded');
  const pulled = await run('pull', `${model}?signature=secret`);
  expect(pulled.code).toBe(0);
  expect(pulled.stderr.split(`Downloading ${model}`)).toHaveLength(2);
  expect(pulled.stderr).toContain(`${model}: download 0.0 MiB of ${megabytes}`);
  expect(pulled.stdout + pulled.stderr).not.toContain('secret');
  const path = /is here: (.*), /.exec(pulled.stdout)![1]!;
  expect(pulled.stdout).toBe(`${model} is here: ${path}, ${megabytes}.\n`);
  expect(await resolveModel(path)).toMatchObject({ kind: 'file' });
  expect(await json('pull', model)).toEqual({ model, path, bytes: size });

  expect((await run('list')).stdout).toBe(`${model}   ${megabytes}\n  ${path}\n`);
  expect(await json('list')).toEqual([{ model, path, bytes: size, complete: true }]);

  expect(await run('remove', model)).toMatchObject({ code: 0, stdout: `${model} removed: ${megabytes} freed.\n` });
  expect(await json('list')).toEqual([]);
  const again = await run('remove', model);
  expect(again.code).toBe(2);
  expect(again.stderr).toContain(
    `model: "${model}" was not downloaded by Warmpath; \`warmpath models list\` shows what was`,
  );
});

it('warmpath models says what a model is not', async () => {
  expect(await run('pull', `${url}/missing.gguf`)).toMatchObject({
    code: 78,
    stderr: expect.stringContaining('the server answers 404: there is no such file'),
  });
  expect(await run('pull', 'llama3')).toMatchObject({ code: 78, stderr: expect.stringContaining('names no model') });
  expect((await json('remove', 'hf:org/repo')).error).toMatchObject({ code: 'WARMPATH_USAGE', param: 'model' });
  expect((await run('pull')).code).toBe(2);
});
