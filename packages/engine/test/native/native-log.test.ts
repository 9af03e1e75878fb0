import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { llamaBindings } from '../../src/native/bindings.js';
import { NativeModel } from '../../src/native/model.js';

const MODEL = fileURLToPath(new URL('../../models/warmpath-tiny.gguf', import.meta.url));

describe("llama.cpp's own reason", () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'warmpath-reason-'));
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  /** The demo model with one text of its header replaced by another of the same length. */
  async function changed(after: string, from: string, to: string): Promise<string> {
    const bytes = await readFile(MODEL);
    const place = bytes.indexOf(from, bytes.indexOf(after) + after.length);
    expect(place).toBeGreaterThan(0);
    bytes.write(to, place);
    const path = join(folder, `${to}.gguf`);
    await writeFile(path, bytes);
    return path;
  }

  it.each([
    ['an unknown architecture', 'general.architecture', 'llama', 'lhama', "unknown model architecture: 'lhama'"],
    ['an unknown pre-tokenizer', 'tokenizer.ggml.pre', 'gpt-2', 'gpt-x', "unknown pre-tokenizer type: 'gpt-x'"],
    [
      'a missing tensor',
      'general.architecture',
      'blk.0.attn_k',
      'blk.0.attn_x',
      "tensor 'blk.0.attn_k.weight' not found",
    ],
  ])('says %s', async (_what, after, from, to, reason) => {
    const path = await changed(after, from, to);
    await expect(NativeModel.load(llamaBindings(), path)).rejects.toMatchObject({
      code: 'WARMPATH_MODEL_UNSUPPORTED',
      path: 'model',
      message: expect.stringMatching(new RegExp(`^(model: )?${reason}`)),
    });
    // The log is silent again, and the next model loads.
    await (await NativeModel.load(llamaBindings(), MODEL)).free();
  });
});
