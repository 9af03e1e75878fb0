import { describe, expect, it } from 'vitest';
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
