import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { WarmpathError } from '@warmpath/core';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { writeGguf } from '../../bench/random-model/src/gguf-writer.js';
import { readGgufHeader } from '../../src/gguf/reader.js';

let folder: string;
/** A small, sound file: three keys, two tensors. */
let sound: Buffer;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-reader-'));
  const path = join(folder, 'sound.gguf');
  await writeGguf(
    path,
    new Map([
      ['general.architecture', { type: 'string', value: 'llama' } as const],
      ['tokens', { type: 'array', of: 'string', value: ['a', 'bc', ''] } as const],
      ['numbers', { type: 'array', of: 'float64', value: [1.5, -2] } as const],
    ]),
    [
      { name: 'first', type: 'q8_0', shape: [32, 2], weights: [new Float32Array(64).fill(0.5)] },
      { name: 'second', type: 'f32', shape: [4], weights: [Float32Array.of(1, 2, 3, 4)] },
    ],
  );
  sound = await readFile(path);
});
afterAll(() => rm(folder, { recursive: true, force: true }));

let count = 0;
async function read(bytes: Uint8Array | string) {
  const path = join(folder, `case-${count++}.gguf`);
  await writeFile(path, bytes);
  return readGgufHeader(path);
}

async function detail(bytes: Uint8Array | string): Promise<string> {
  const error: unknown = await read(bytes).catch((cause: unknown) => cause);
  if (!WarmpathError.isInstance(error)) throw new Error('no WarmpathError was raised', { cause: error });
  expect(error.code).toBe('WARMPATH_MODEL_FILE');
  expect(error.path).toMatch(/case-\d+\.gguf$/);
  return error.message;
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

function uint64(value: bigint): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(value);
  return bytes;
}

function text(value: string): Buffer {
  return Buffer.concat([uint64(BigInt(value.length)), Buffer.from(value)]);
}

function front(version: number, tensors: bigint, keys: bigint, ...rest: Buffer[]): Buffer {
  return Buffer.concat([Buffer.from('GGUF'), uint32(version), uint64(tensors), uint64(keys), ...rest]);
}

function tensorInfo(name: string, shape: bigint[], type: number, offset: bigint): Buffer {
  return Buffer.concat([text(name), uint32(shape.length), ...shape.map(uint64), uint32(type), uint64(offset)]);
}

describe('a sound file', () => {
  it('is read without its weights', async () => {
    const header = await read(sound);
    expect(header).toMatchObject({ expectedBytes: sound.length - 16 });
    expect(header.tensors).toMatchObject([
      { name: 'first', shape: [32, 2], offset: 0, bytes: 68, type: { name: 'q8_0' } },
      { name: 'second', shape: [4], offset: 96, bytes: 16, type: { name: 'f32' } },
    ]);
  });

  it('may be of version 2', async () => {
    const older = Buffer.from(sound);
    older.writeUInt32LE(2, 4);
    expect((await read(older)).tensors).toHaveLength(2);
  });

  it('may be the demo model of this package', async () => {
    const header = await readGgufHeader(fileURLToPath(new URL('../../models/warmpath-tiny.gguf', import.meta.url)));
    expect(header.metadata.get('general.architecture')).toStrictEqual({ type: 'string', value: 'llama' });
    expect(header.tensors.length).toBeGreaterThan(10);
  });

  it('may have values that are longer than what is read at first', async () => {
    const value = 'long '.repeat(200_000);
    const key = Buffer.concat([text('k'), uint32(8), text(value)]);
    const strings = Array.from({ length: 50_000 }, (_, index) => text(`token ${index}`));
    const array = Buffer.concat([text('tokens'), uint32(9), uint32(8), uint64(50_000n), ...strings]);
    const header = await read(front(3, 0n, 2n, key, array));
    expect(header.metadata.get('k')).toStrictEqual({ type: 'string', value });
    const tokens = header.metadata.get('tokens')!;
    expect(tokens.type === 'array' && tokens.value.every((token, index) => token === `token ${index}`)).toBe(true);
  });
});

describe('a file cut short', () => {
  it('is refused wherever it was cut, up to the last byte that a tensor needs', async () => {
    const { expectedBytes } = await read(sound);
    for (let length = 0; length < expectedBytes; length++) {
      expect(await detail(sound.subarray(0, length))).toMatch(/cut short|not a GGUF file/);
    }
    await read(sound.subarray(0, expectedBytes));
  });

  it('says how long it is and how long it should be', async () => {
    expect(await detail(sound.subarray(0, sound.length - 20))).toContain(
      `cut short: the file has ${sound.length - 20} bytes, its 2 tensors need ${sound.length - 16}`,
    );
  });
});

describe('a damaged file', () => {
  it('is read or refused with WARMPATH_MODEL_FILE, whatever its bytes', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(fc.nat({ max: 300 }), fc.integer({ min: 0, max: 255 })), { minLength: 1, maxLength: 4 }),
        async (changes) => {
          const damaged = Buffer.from(sound);
          for (const [at, byte] of changes) damaged[4 + (at % (damaged.length - 4))] = byte;
          const outcome: unknown = await read(damaged).catch((error: unknown) => error);
          if (outcome instanceof Error) expect(outcome).toMatchObject({ code: 'WARMPATH_MODEL_FILE' });
        },
      ),
      { seed: 3, numRuns: 400 },
    );
  });

  it.each<[string, Buffer, RegExp]>([
    ['2^63 tensors', front(3, 2n ** 63n, 0n), /9223372036854775808 tensors do not fit into the 8 bytes/],
    ['2^40 keys', front(3, 0n, 2n ** 40n), /1099511627776 metadata keys do not fit into the 0 bytes/],
    [
      'an endless key',
      front(3, 0n, 1n, uint64(2n ** 60n), uint64(0n)),
      /1152921504606846976 bytes of a text do not fit/,
    ],
    ['an endless string', front(3, 0n, 1n, text('k'), uint32(8), uint64(2n ** 30n)), /1073741824 bytes of a text/],
    [
      'an endless array',
      front(3, 0n, 1n, text('k'), uint32(9), uint32(4), uint64(2n ** 33n)),
      /8589934592 entries of "k" do not fit/,
    ],
    ['an unknown type', front(3, 0n, 1n, text('k'), uint32(13)), /"k" has the unknown type 13/],
    ['an array of arrays', front(3, 0n, 1n, text('k'), uint32(9), uint32(9), uint64(0n)), /array of arrays/],
    ['an odd alignment', front(3, 0n, 1n, text('general.alignment'), uint32(4), uint32(24)), /no power of two/],
    ['no alignment', front(3, 0n, 1n, text('general.alignment'), uint32(4), uint32(0)), /no power of two/],
    ['an unknown tensor type', front(3, 1n, 0n, tensorInfo('t', [32n], 4, 0n)), /the type 4, which/],
    ['a tensor behind the end', front(3, 1n, 0n, tensorInfo('t', [32n], 0, 64n)), /its 1 tensors need/],
    ['an absurd shape', front(3, 1n, 0n, tensorInfo('t', [2n ** 40n, 2n ** 40n], 0, 0n)), /its 1 tensors need/],
    ['an endless shape', front(3, 1n, 0n, text('t'), uint32(2 ** 31), uint64(1n)), /cut short/],
  ])('says what is absurd: %s', async (_what, bytes, expected) => {
    expect(await detail(bytes)).toMatch(expected);
  });
});

describe('a file that is something else', () => {
  it.each<[string, string | Buffer, RegExp]>([
    ['empty', '', /is empty/],
    ['a web page', '<!DOCTYPE html><html><head>', /web page/],
    ['a web page in capitals', '\n  <HTML lang="en">', /web page/],
    ['a git-lfs pointer', 'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n', /git lfs pull/],
    ['a ZIP or PyTorch file', Buffer.from('504b0304140000', 'hex'), /ZIP archive or a PyTorch/],
    ['the format before GGUF', 'tjgg\u0003\u0000\u0000\u0000', /before GGUF/],
    ['safetensors', Buffer.concat([uint64(64n), Buffer.from('{"weight":{"dtype":"F16"}}')]), /safetensors/],
    ['JSON', '{"error":"Repository not found"}', /JSON, perhaps an error/],
    ['zeros', Buffer.alloc(600), /starts with the bytes 00000000/],
    ['anything', 'hello, world', /starts with the bytes 68656c6c instead of "GGUF"/],
    ['shorter than its magic', 'GG', /starts with the bytes 4747/],
  ])('is named: %s', async (_what, bytes, expected) => {
    expect(await detail(bytes)).toMatch(expected);
  });

  it.each<[string, Buffer, RegExp]>([
    ['version 1', front(1, 0n, 0n), /GGUF version 1/],
    ['version 4', front(4, 0n, 0n), /GGUF version 4/],
    ['big-endian', Buffer.concat([Buffer.from('GGUF'), Buffer.of(0, 0, 0, 3), Buffer.alloc(16)]), /big-endian/],
  ])('is refused for its version: %s', async (_what, bytes, expected) => {
    expect(await detail(bytes)).toMatch(expected);
  });

  it('is missing, or a folder, and the error calls it by the name that the caller gives', async () => {
    await expect(readGgufHeader(join(folder, 'nowhere.gguf'))).rejects.toThrow('there is no such file');
    await expect(readGgufHeader(folder, 'my models')).rejects.toMatchObject({
      code: 'WARMPATH_MODEL_FILE',
      path: 'my models',
      message: 'my models: this is a folder, not a GGUF file',
    });
  });
});
