import fc from 'fast-check';
import { expect, it } from 'vitest';
import { engineFlags, readBytes, readFlag, writeBytes } from '../src/flags.js';

const flag = (name: string) => engineFlags().find((each) => each.flag === name)!;

it('a flag is an option of the schema, in kebab case, with its default', () => {
  expect(flag('--context-tokens')).toMatchObject({ name: 'contextTokens', kind: 'number', fallback: '16384' });
  expect(flag('--disk-tier-bytes')).toMatchObject({ kind: 'bytes', fallback: '8GiB' });
  expect(flag('--native-log')).toMatchObject({ kind: 'switch', fallback: undefined });
  expect(flag('--model')).toMatchObject({ kind: 'text', fallback: undefined });
  expect(flag('--shutdown-grace-ms')).toBeUndefined();
});

it.each([
  ['--port', 'abc', /--port: A number was expected/],
  ['--port', '', /--port: A number was expected/],
  ['--host-tier', '5x', /--host-tier: A size/],
  ['--host-tier', '-1MiB', /--host-tier/],
])('a value is refused that the option cannot have: %s %s', (name, value, message) => {
  expect(() => readFlag(flag(name), value)).toThrow(expect.objectContaining({ code: 'WARMPATH_CONFIG_INVALID' }));
  expect(() => readFlag(flag(name), value)).toThrow(message);
});

it('a size has a unit, or none', () => {
  expect(readFlag(flag('--host-tier'), '512MiB')).toBe(536_870_912);
  expect(readFlag(flag('--disk-tier-bytes'), '1.5 gib')).toBe(1_610_612_736);
  fc.assert(fc.property(fc.maxSafeNat(), (bytes) => readBytes(writeBytes(bytes)) === bytes));
});
