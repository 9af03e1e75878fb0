import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { printableJson, printableLine, printableText } from '../src/internal.js';

const ESCAPE = '\u001b';
/** Each one does something to a terminal, or hides in it. */
const HOSTILE = [
  ...Array.from({ length: 32 }, (_, code) => code),
  ...Array.from({ length: 33 }, (_, i) => 0x7f + i),
  0xad,
  0x61c,
  0x180e,
  0x200b,
  0x200e,
  0x200f,
  0x2028,
  0x2029,
  0x202a,
  0x202b,
  0x202c,
  0x202d,
  0x202e,
  0x2060,
  0x2066,
  0x2067,
  0x2068,
  0x2069,
  0x206a,
  0x3164,
  0xfeff,
  0xfff9,
  0xfffb,
  0xe0001,
  0xe0041,
  0xe007f,
  0xd800,
  0xdbff,
  0xdc00,
].map((code) => String.fromCodePoint(code));
/** Readable texts that hold joiners, combining marks and variation selectors. */
const READABLE = [
  'naïve',
  'cafe\u0301',
  '👩‍👩‍👧',
  '❤️',
  'می‌خواهم',
  'क्‍ष',
  '日本語',
  '👍🏽',
  'a b',
  '葛\u{e0100}',
  '\u0600',
];

/** Whether a terminal would take any character of the text for more than a sign. */
const isHostile = (text: string) => [...text].some((sign) => HOSTILE.includes(sign));

describe('text from elsewhere in a line', () => {
  it.each(HOSTILE.map((sign) => [sign.codePointAt(0)!.toString(16), sign]))('loses U+%s', (_, sign) => {
    expect(['ab', 'a b']).toContain(printableLine(`a${sign}b`));
  });

  it.each(READABLE)('keeps %s', (text) => {
    expect([printableLine(text), printableText(text), printableJson(text)]).toEqual([text, text, text]);
  });

  it('is one line, whatever ends lines in it', () => {
    expect(printableLine('a\r\nb\u2028\u0085c\td')).toBe('a b c d');
  });

  it('has no escape sequence left, nor makes a character of two halves', () => {
    expect(printableLine(`${ESCAPE}]0;title\u0007${ESCAPE}[2J\u009b31mred`)).toBe(']0;title[2J31mred');
    expect(printableLine('\ud83d\u202e\ude00')).toBe('');
  });
});

describe('text of several lines', () => {
  it('keeps line feeds and tabs alone', () => {
    expect(printableText(`a\tb\r\n${ESCAPE}[31mc\rd\u2028e`)).toBe('a\tb\n[31mcde');
  });
});

describe('JSON', () => {
  it('means the same, and holds nothing that a terminal acts on', () => {
    const text = fc.array(fc.oneof(fc.constantFrom(...HOSTILE, ...READABLE, '"', '\\'), fc.string({ unit: 'binary' })));
    fc.assert(
      fc.property(text, (parts) => {
        const value = { [parts.join('')]: parts };
        for (const indent of [undefined, 2]) {
          const json = printableJson(JSON.stringify(value, undefined, indent));
          expect(JSON.parse(json)).toEqual(value);
          expect(isHostile(json.replaceAll('\n', ''))).toBe(false);
        }
        expect(isHostile(printableLine(parts.join('')))).toBe(false);
        expect(isHostile(printableText(parts.join('')).replace(/[\n\t]/g, ''))).toBe(false);
      }),
      { seed: 34, numRuns: 300 },
    );
  });
});
