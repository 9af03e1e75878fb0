import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { helpText, parseCommandLine, readBytes, writeBytes } from '../src/flags.js';
import { engineOptionsSchema } from '../src/options.js';

/** Options that a command line does not have. */
const FOR_PROGRAMS = [
  ...['kvEventsTopic', 'kvEventsEncoding', 'kvEventsBuffer', 'kvEventsHighWaterMark'],
  ...['verifyCache', 'window', 'shutdownGraceMs'],
];

describe('the flags of the command', () => {
  it('are options of the schema, in kebab case', () => {
    expect(parseCommandLine(['--port', '0', '--context-tokens=2048', '--model', '7', '--native-log'])).toEqual({
      help: false,
      options: { port: 0, contextTokens: 2048, model: '7', nativeLog: true },
    });
    expect(parseCommandLine([])).toEqual({ help: false, options: {} });
  });

  it.each([
    [['--prot', '1'], /--prot.*--help/],
    [['model.gguf'], /model\.gguf.*--help/],
    [['--port', 'abc'], /--port: A number was expected/],
    [['--port='], /--port: A number was expected/],
    [['--native-log=yes'], /--native-log/],
    [['--host-tier', '5x'], /--host-tier: A size/],
    [['--host-tier', '-1MiB'], /--host-tier/],
  ])('are refused when they are wrong: %j', (args, message) => {
    expect(() => parseCommandLine(args)).toThrow(expect.objectContaining({ code: 'WARMPATH_CONFIG_INVALID' }));
    expect(() => parseCommandLine(args)).toThrow(message);
  });

  it('take sizes with a unit', () => {
    expect(parseCommandLine(['--host-tier', '512MiB', '--disk-tier-bytes=1.5 gib'])).toMatchObject({
      options: { hostTier: 536_870_912, diskTierBytes: 1_610_612_736 },
    });
    expect(helpText()).toMatch(/--disk-tier-bytes <bytes> .*\(default: 8GiB\)/);
    fc.assert(fc.property(fc.maxSafeNat(), (bytes) => readBytes(writeBytes(bytes)) === bytes));
  });

  it('are explained, every one, with the default', () => {
    expect(parseCommandLine(['--port', '1', '-h'])).toEqual({ help: true });
    const help = helpText();
    for (const [name, schema] of Object.entries(engineOptionsSchema.shape)) {
      const flag = `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)} `;
      expect([name, help.includes(flag)]).toEqual([name, !FOR_PROGRAMS.includes(name)]);
      if (!FOR_PROGRAMS.includes(name)) expect(help).toContain(schema.description);
    }
    expect(help).toContain('--port <number>');
    expect(help).toContain('(default: 8080)');
  });
});
