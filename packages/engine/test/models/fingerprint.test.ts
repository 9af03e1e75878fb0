import { createHash } from 'node:crypto';
import { mkdtemp, readdir, rename, rm, symlink, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { modelFingerprint } from '../../src/models/fingerprint.js';

describe('the fingerprint of a model', () => {
  let folder: string;
  const model = (): string => join(folder, 'model.gguf');
  const cache = (): string => join(folder, 'cache');
  const hash = (text: string): string => createHash('sha256').update(text).digest('hex');

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'warmpath-fingerprint-'));
  });
  afterEach(() => rm(folder, { recursive: true }));

  it('is the SHA-256 of the whole file, by whatever name', async () => {
    await writeFile(model(), 'weights');
    await symlink(model(), join(folder, 'link'));
    expect(await modelFingerprint(model(), cache())).toBe(hash('weights'));
    expect(await modelFingerprint(join(folder, 'link'), cache())).toBe(hash('weights'));
    expect(await readdir(join(cache(), 'fingerprints'))).toHaveLength(1);
  });

  it('does not read again what has not changed, and does what has', async () => {
    await writeFile(model(), 'weights');
    const whole = new Date(1_700_000_000_000);
    await utimes(model(), whole, whole);
    await modelFingerprint(model(), cache());
    // The same size, time and inode: nobody would change a model like this, and it shows that the file is not read.
    await writeFile(model(), 'WEIGHTS');
    await utimes(model(), whole, whole);
    expect(await modelFingerprint(model(), cache())).toBe(hash('weights'));
    await writeFile(model(), 'other weights');
    expect(await modelFingerprint(model(), cache())).toBe(hash('other weights'));
  });

  it('does without a note that is damaged and without a folder to keep one in', async () => {
    await writeFile(model(), 'weights');
    await modelFingerprint(model(), cache());
    const [note] = await readdir(join(cache(), 'fingerprints'));
    await writeFile(join(cache(), 'fingerprints', note!), '{"by');
    expect(await modelFingerprint(model(), cache())).toBe(hash('weights'));
    expect(await modelFingerprint(model(), join(model(), 'none'))).toBe(hash('weights'));
  });

  it('covers every part of a split model, whichever part is named, and only the parts that are there', async () => {
    const part = (number: number): string => join(folder, `model-0000${number}-of-00003.gguf`);
    for (const number of [1, 2, 3]) {
      await writeFile(part(number), `weights ${number}`);
    }
    const whole = await modelFingerprint(part(1), cache());
    expect(await modelFingerprint(part(2), cache())).toBe(whole);
    await writeFile(part(2), 'other weights 2');
    const replaced = await modelFingerprint(part(1), cache());
    expect(replaced).not.toBe(whole);
    await rename(part(3), part(4));
    expect(await modelFingerprint(part(1), cache())).not.toBe(replaced);
  });
});
