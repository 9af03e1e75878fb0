import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { modelPath } from '../../bench/random-model/src/model-path.js';
import { llamaBindings } from '../../src/native/bindings.js';
import { chooseCpuVariant, hasNarrowHeads } from '../../src/native/cpu-variant.js';
import { findLibraryDirectory, loadLibraries } from '../../src/native/library.js';

/** As each variant scores itself on a processor that has everything up to AMX. */
const ON_AMX = [
  { name: 'x64', score: 1 },
  { name: 'haswell', score: 64 },
  { name: 'sapphirerapids', score: 4032 },
  { name: 'icelake', score: 1472 },
  { name: 'zen4', score: 1984 },
  { name: 'alderlake', score: 0 },
];

/** A text that stands in each library with AMX kernels, and in no other. */
const AMX_TEXT = 'AMX is not ready to be used!';

const DEMO = fileURLToPath(new URL('../../models/warmpath-tiny.gguf', import.meta.url));

const LATENT_ATTENTION = 'random:1m-mla';

describe('the variant of the CPU code', () => {
  it('is the best by score that has no AMX kernels, and says why', () => {
    const { name, reason } = chooseCpuVariant(ON_AMX)!;
    expect(name).toBe('zen4');
    expect(reason).toMatch(/sapphirerapids is excluded: .*latent attention/);
    const others = ON_AMX.filter((variant) => variant.name !== 'sapphirerapids');
    expect(chooseCpuVariant(others)).toEqual({ name: 'zen4', reason: 'the best for this processor' });
  });

  it('is the best without AVX-512 for models of narrow heads, where there is one', async () => {
    const narrow = chooseCpuVariant(ON_AMX, true)!;
    expect(narrow.name).toBe('haswell');
    expect(narrow.reason).toMatch(/without AVX-512.*sapphirerapids is excluded/);
    expect(chooseCpuVariant([{ name: 'icelake', score: 5 }], true)!.name).toBe('icelake');
    const libraries = loadLibraries(findLibraryDirectory());
    expect(hasNarrowHeads(libraries, DEMO)).toBe(true);
    expect(hasNarrowHeads(libraries, await modelPath('random:24m'))).toBe(false);
  });

  it('is none where only an excluded one runs', () => {
    expect(chooseCpuVariant([{ name: 'sapphirerapids', score: 5 }])).toBeUndefined();
  });

  it('is never one whose file holds AMX kernels', () => {
    const directory = findLibraryDirectory();
    const variants = readdirSync(directory).filter((file) => file.includes('ggml-cpu-'));
    const withAmx = variants.filter((file) => readFileSync(join(directory, file)).includes(AMX_TEXT));
    const chosen = withAmx.map((file) => {
      const name = /ggml-cpu-(.*)\.\w+$/.exec(file)![1]!;
      return chooseCpuVariant([{ name, score: 1 }]);
    });
    expect(chosen).toEqual(withAmx.map(() => undefined));
  });

  it('is what the process computes with', () => {
    const bindings = llamaBindings({ model: DEMO });
    expect(bindings.cpuVariant.name).not.toBe('');
    expect(bindings.systemInfo()).toContain('CPU :');
    expect(bindings.systemInfo()).not.toMatch(/AVX512 = 1|AMX_INT8 = 1/);
  });

  // In processes of their own: the excluded variant aborts.
  it('computes models with latent attention', async () => {
    expect(await runLatentAttention()).toMatchObject({ code: 0, signal: null });
  });

  it.skipIf(!/\bamx_int8\b/.test(readProcessor()))(
    'is still not to be one with AMX kernels (runs with AMX only)',
    async ({ skip }) => {
      const { code, signal, errors } = await runLatentAttention('sapphirerapids');
      // The processor has AMX, and the system does not let a process use it.
      skip(errors.includes(AMX_TEXT));
      expect(
        { code, signal },
        'This release of llama.cpp computes latent attention with AMX: delete EXCLUDED in src/native/cpu-variant.ts and its tests',
      ).toEqual({ code: null, signal: 'SIGABRT' });
    },
  );
});

/** What the processor can, where the system says it. */
function readProcessor(): string {
  return existsSync('/proc/cpuinfo') ? readFileSync('/proc/cpuinfo', 'utf8') : '';
}

/** How a process ends that computes a prompt of a model with latent attention. */
async function runLatentAttention(...variant: string[]) {
  const script = fileURLToPath(new URL('../support/latent-attention.js', import.meta.url));
  const child = spawn(process.execPath, [script, await modelPath(LATENT_ATTENTION), ...variant]);
  const [ended, errors] = await Promise.all([once(child, 'exit'), text(child.stderr)]);
  return { code: ended[0] as number | null, signal: ended[1] as string | null, errors };
}
