import { describe, expect, it } from 'vitest';
import { type EngineCommandHooks, failureText, runEngineCommand } from '../src/command.js';
import { parseEngineOptions } from '../src/options.js';

describe('the engine command', () => {
  /** Runs the command until it has said where it listens; answers what it wrote. */
  async function run(hooks: EngineCommandHooks, isTTY: boolean): Promise<{ text: string; isServed: boolean }> {
    const stop = new AbortController();
    let text = '';
    let isServed = false;
    await runEngineCommand(
      { port: 0, threads: 1, contextTokens: 1024 },
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
    expect(text).toContain('tiny demonstration model');
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
