import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { modelPath } from '../bench/random-model/src/model-path.js';
import { type EngineCommandHooks, failureText, runEngineCommand } from '../src/command.js';
import { type EngineOptions, parseEngineOptions } from '../src/options.js';

describe('the engine command', () => {
  /** Runs the command until it has said where it listens; answers what it wrote. */
  async function run(
    hooks: EngineCommandHooks,
    isTTY: boolean,
    options: EngineOptions = {},
  ): Promise<{ text: string; isServed: boolean }> {
    const stop = new AbortController();
    let text = '';
    let isServed = false;
    await runEngineCommand(
      { port: 0, threads: 1, contextTokens: 1024, ...options },
      {
        ...hooks,
        signal: stop.signal,
        output: {
          isTTY,
          write: (part) => {
            text += part;
            const url = /http:\/\/[\d.]+:\d+/.exec(text)?.[0] ?? '';
            void fetch(`${url}/health`).then((response) => {
              isServed = response.ok;
              stop.abort();
            });
          },
        },
      },
    );
    return { text, isServed };
  }

  it('speaks in lines on a terminal', async () => {
    const { text, isServed } = await run({}, true);
    expect(isServed).toBe(true);
    expect(text).toMatch(/^Warmpath engine on http:/);
    expect(text).toContain('/v1/chat/completions');
    expect(text).toMatch(/^ {2}cpu {6}\w+ \(.+\)$/m);
    expect(text).toMatch(/^ {2}model {4}warmpath-tiny \(llama, [\d,]+ parameters\)$/m);
    expect(text).toMatch(/^ {2}context {2}1,024 tokens a request$/m);
    expect(text).toMatch(/^ {2}reuse {4}every prefix that prompts share, to the token$/m);
    expect(text).toMatch(/^ {2}template the model's own$/m);
    expect(text).toMatch(/^ {2}tools {4}described to the model by \w/m);
    expect(text).toContain('tiny demonstration model');
  });

  it('gives an example that works for a model whose template cannot be parsed', async () => {
    const { text } = await run({}, true, { chatTemplate: '{% if %}' });
    expect(text).toMatch(/^ {2}template The model's chat template cannot be parsed: /m);
    expect(text).toMatch(/^ {2}try {6}curl \S+\/v1\/completions -d/m);
  });

  it('says how to have prompts computed faster, where that pays and can be done', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'warmpath-command-'));
    try {
      for (const tool of ['npm', 'tar', 'git', 'cmake', 'g++']) await writeFile(join(folder, tool), '');
      vi.stubEnv('PATH', folder);
      const processor = await readFile('/proc/cpuinfo', 'utf8').catch(() => '');
      const isSaid = /\bavx512f\b/.test(processor);
      const model = await modelPath('random:3m');
      const { text } = await run({}, true, { model, cacheDir: folder });
      expect(text.includes('  note     ')).toBe(isSaid);
      expect(text.includes('npx warmpath-engine --build-libraries --cache-dir')).toBe(isSaid);
      // It would not help this one.
      const demo = await run({}, true, { cacheDir: folder });
      expect(demo.text).not.toContain('--build-libraries');
    } finally {
      vi.unstubAllEnvs();
      await rm(folder, { recursive: true });
    }
  });

  it('speaks JSON elsewhere, and where it is asked to', async () => {
    for (const { text } of [await run({}, false), await run({ json: true }, true)]) {
      expect(text.endsWith('\n')).toBe(true);
      expect(JSON.parse(text)).toMatchObject({ type: 'listening', model: { name: 'warmpath-tiny' }, cells: 1024 });
    }
  });

  it('says what went wrong and what to do', () => {
    let error: unknown;
    try {
      parseEngineOptions({ port: -1 });
    } catch (thrown) {
      error = thrown;
    }
    expect(failureText(error, false)).toMatch(/^WARMPATH_CONFIG_INVALID: port: .*\nCorrect .*\n$/);
    expect(JSON.parse(failureText(error, true))).toMatchObject({
      type: 'failed',
      error: { code: 'WARMPATH_CONFIG_INVALID', path: 'port' },
    });
    expect(failureText(new Error('odd'), false)).toContain('WARMPATH_INTERNAL: odd\n');
  });
});
