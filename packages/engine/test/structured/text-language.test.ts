import { describe, expect, it } from 'vitest';
import { languageOfFormat } from '../../src/structured/string-formats.js';
import { holds, LanguageMaker } from '../../src/structured/text-language.js';

const PATTERNS: readonly string[] = [
  '^[A-Z]{2}-\\d+$',
  '^(a|b)$',
  '^(?:red|gr(e|a)y)(,\\s?\\w+)*$',
  'abc',
  '^abc|xyz$',
  '(^a|b)c',
  '^a.*z$',
  '[^"\\\\]+',
  '^\\d{3}\\-\\d{4}$',
  "^it\\'s\\_ok$",
  '^(?!\\.)(?!.*\\.\\.)[a-z.]*@x$',
  '^P(?:(\\d+W)|(?!.*W)(?=\\d|T\\d)(\\d+Y)?(\\d+M)?(T(?=\\d)(\\d+H)?(\\d+M)?)?)$',
  '^$',
  '',
  '^[\\p{L} ]+$',
  '^(?<name>\\w)x$',
  '^.{0,5}$',
  '^a{2,}b?$',
  '^(?!^[-.]*$)-?\\d*\\.?\\d*$',
];

const TEXTS: readonly string[] = [
  ...[
    '',
    'a',
    'b',
    'ab',
    'aab',
    'AB-12',
    'AB-',
    'abc',
    'zabcz',
    'ac',
    'bc',
    'xbc',
    'axyz',
    'a\nz',
    'a z',
    'Aé ß',
    '"',
    '\\',
  ],
  ...[
    'red',
    'grey, x',
    'gray,x',
    '123-4567',
    "it's_ok",
    '.a@x',
    'a.b@x',
    'a..b@x',
    'P3W',
    'P1Y',
    'P1YT2H',
    'P1YT',
    'PT',
    'P1W1Y',
  ],
  ...['🌍🌍🌍🌍🌍', '🌍🌍🌍🌍🌍🌍', 'ax', 'aaab', '12345', '123456'],
];

describe('the texts of a regular expression', () => {
  it.each(PATTERNS)('are those that JavaScript finds it in: %j', (source) => {
    const language = new LanguageMaker().pattern(source);
    const escaped = source === "^it\\'s\\_ok$" ? "^it's_ok$" : source.replace('\\-', '-');
    for (const text of TEXTS) {
      expect([text, holds(language, text)]).toEqual([text, new RegExp(escaped, 'u').test(text)]);
    }
  });

  it.each(['(a*)\\1b', '(?<=a)b', 'a\\bb', '(a$|b)*', 'a'.repeat(3000), '(', '^(a|b)*a(a|b){30}$'])(
    'are not made of %j',
    (source) => {
      expect(() => new LanguageMaker().pattern(source)).toThrow();
    },
  );

  it('of several are what all of them hold', () => {
    const both = new LanguageMaker().intersection([
      new LanguageMaker().pattern('^[a-m]+$'),
      new LanguageMaker().pattern('^.{2,3}$'),
      new LanguageMaker().pattern('[^a]'),
    ]);
    expect(['ab', 'abc', 'mm'].every((text) => holds(both!, text))).toBe(true);
    expect(['a', 'aa', 'abcd', 'nz'].some((text) => holds(both!, text))).toBe(false);
    expect(
      new LanguageMaker().intersection([new LanguageMaker().pattern('^a$'), new LanguageMaker().pattern('^b$')]),
    ).toBeUndefined();
  });
});

describe('the texts of a format', () => {
  const FORMATS: Readonly<Record<string, readonly [right: readonly string[], wrong: readonly string[]]>> = {
    date: [
      ['2024-02-29', '1999-12-31'],
      ['2023-02-29', '2024-13-01', '24-1-1'],
    ],
    time: [
      ['23:59:59Z', '01:02:03.5+02:00'],
      ['24:00:00Z', '01:02'],
    ],
    'date-time': [['2024-02-29T23:59:59Z'], ['2024-02-29 23:59:59Z', '2024-02-29']],
    duration: [
      ['P3W', 'P1Y2M3DT4H5M6S', 'PT36H', 'P1D'],
      ['P', 'PT', 'P1Y3D2M', '3W'],
    ],
    email: [
      ['a.b+c@example.co.uk', "o'neil@x-y.org"],
      ['a@b', 'a..b@x.org', '@x.org', 'a@-x.org', '.a@x.org'],
    ],
    hostname: [
      ['localhost', 'a-b.example.com'],
      ['-a.com', 'a..b', `${'a'.repeat(64)}.com`],
    ],
    ipv4: [
      ['0.0.0.0', '255.250.199.99'],
      ['256.1.1.1', '1.2.3', '01.2.3.4'],
    ],
    ipv6: [
      ['::', '::1', '2001:db8::ff00:42:8329', 'fe80::', '1:2:3:4:5:6:7:8'],
      [':', '1::2::3', '1:2:3', '12345::', '1:2:3:4:5:6:7:8:9'],
    ],
    uri: [
      ['https://example.com/a?b=c#d', 'mailto:a@b.c', 'urn:isbn:123', 'http://a:80'],
      ['example.com', 'http://', '//a', 'http://a b'],
    ],
    uuid: [['123e4567-e89b-12d3-a456-426614174000'], ['123e4567', '123e4567-e89b-12d3-a456-42661417400g']],
    uuid4: [['123e4567-e89b-42d3-a456-426614174000'], ['123e4567-e89b-12d3-a456-426614174000']],
    'json-pointer': [
      ['', '/a/b~0c'],
      ['a', '/~2'],
    ],
    base64: [
      ['', 'YQ==', 'YWJj'],
      ['Y', 'YQ='],
    ],
  };

  it.each(Object.entries(FORMATS))('%s', (name, [right, wrong]) => {
    const language = languageOfFormat(name)!;
    expect(right.filter((text) => !holds(language, text))).toEqual([]);
    expect(wrong.filter((text) => holds(language, text))).toEqual([]);
  });

  it.each(Object.keys(FORMATS))('is a language of some hundred states at most: %s', (name) => {
    expect(languageOfFormat(name)!.countNodes()).toBeLessThan(700);
  });
});
