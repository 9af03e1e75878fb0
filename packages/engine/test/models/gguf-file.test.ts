import { copyFile, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { checkGgufFile, isGgufFile } from '../../src/models/gguf-file.js';
import { startEngineServer } from '../../src/server.js';

const DEMO = fileURLToPath(new URL('../../models/warmpath-tiny.gguf', import.meta.url));

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-gguf-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

describe('a file that is no GGUF', () => {
  it.each<[string, string | Buffer, RegExp]>([
    ['empty', '', /is empty/],
    ['a web page', '<!DOCTYPE html><html><head>', /web page/],
    ['a web page in capitals', '\n  <HTML lang="en">', /web page/],
    ['a git-lfs pointer', 'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n', /git lfs pull/],
    ['a ZIP or PyTorch file', Buffer.from('504b0304140000', 'hex'), /ZIP archive or a PyTorch/],
    ['the format before GGUF', 'tjgg\u0003\u0000\u0000\u0000', /before GGUF/],
    ['safetensors', '@\0\0\0\0\0\0\0{"weight":{"dtype":"F16"}}', /safetensors/],
    ['JSON', '{"error":"Repository not found"}', /JSON, perhaps an error/],
    ['zeros', Buffer.alloc(600), /starts with the bytes 00000000/],
    ['anything', 'hello, world', /starts with the bytes 68656c6c instead of "GGUF"/],
    ['shorter than its magic', 'GG', /starts with the bytes 4747/],
  ])('is named: %s', async (what, bytes, expected) => {
    const path = join(folder, `${what}.gguf`);
    await writeFile(path, bytes);
    await expect(checkGgufFile(path)).rejects.toMatchObject({
      code: 'WARMPATH_MODEL_FILE',
      path,
      message: expect.stringMatching(expected),
    });
    expect(await isGgufFile(path)).toBe(false);
  });

  it('is missing, or a folder, and the error calls it by the name that the caller gives', async () => {
    await expect(checkGgufFile(join(folder, 'nowhere.gguf'))).rejects.toThrow('there is no such file');
    await expect(checkGgufFile(folder, 'my models')).rejects.toMatchObject({
      code: 'WARMPATH_MODEL_FILE',
      path: 'my models',
      message: 'my models: this is a folder, not a GGUF file',
    });
  });
});

it('is the demo model where it says so, whatever its name', async () => {
  const path = join(folder, 'copy.gguf');
  await copyFile(DEMO, path);
  const { model, close } = await startEngineServer({ model: path, port: 0 });
  await close();
  expect(model).toMatchObject({ name: 'copy', kind: 'demo', notice: expect.stringContaining('tiny demonstration') });
});

describe('a damaged GGUF file', () => {
  it.each<[string, (bytes: Buffer) => Uint8Array, string, RegExp]>([
    ['cut short in its weights', (bytes) => bytes.subarray(0, -100_000), 'FILE', /corrupted or incomplete/],
    ['cut short in its header', (bytes) => bytes.subarray(0, 2000), 'FILE', /failed to read key-value pairs/],
    ['an endless text', (bytes) => withNumber(bytes, 24, 2n ** 60n), 'UNSUPPORTED', /string length/],
    ['an endless list of keys', (bytes) => withNumber(bytes, 16, 2n ** 40n), 'UNSUPPORTED', /string length/],
  ])('is refused with the reason of llama.cpp: %s', async (_what, damage, code, expected) => {
    const path = join(folder, 'damaged.gguf');
    await writeFile(path, damage(await readFile(DEMO)));
    await expect(startEngineServer({ model: path, port: 0 })).rejects.toMatchObject({
      code: `WARMPATH_MODEL_${code}`,
      message: expect.stringMatching(expected),
    });
  });
});

function withNumber(bytes: Buffer, at: number, value: bigint): Buffer {
  bytes.writeBigUInt64LE(value, at);
  return bytes;
}
