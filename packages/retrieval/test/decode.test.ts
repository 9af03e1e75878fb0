import { describe, expect, it } from 'vitest';
import { decode } from '../src/parse/decode.ts';
import { parseDocument } from '../src/parse/formats.ts';

const bytesOf = (...parts: (string | number[])[]) =>
  Buffer.concat(parts.map((part) => (typeof part === 'string' ? Buffer.from(part, 'latin1') : Buffer.from(part))));
/** 日本 in Shift JIS, and in EUC-JP. */
const [SJIS, EUC] = [
  [0x93, 0xfa, 0x96, 0x7b],
  [0xc6, 0xfc, 0xcb, 0xdc],
];
const RUSSIAN = 'Насос весит сорок два килограмма и стоит у причала в гавани. '.repeat(4).trim();
/** Windows' Cyrillic letters. */
const cp1251 = Buffer.from(
  [...RUSSIAN].map((sign) => (sign.charCodeAt(0) > 0x7f ? sign.charCodeAt(0) - 0x410 + 0xc0 : sign.charCodeAt(0))),
);

const ENGLISH = '\nls lists what is there; '.repeat(20);

describe('the encoding of a text', () => {
  it.each<[string, Buffer, Parameters<typeof decode>[1], string]>([
    ['its byte order mark', Buffer.from('\ufeffä', 'utf16le'), { charset: 'iso-8859-1' }, 'ä'],
    ['the sender', bytesOf(SJIS), { charset: 'Shift_JIS' }, '日本'],
    ["the sender, by Python's name", bytesOf(EUC), { charset: 'euc_jp' }, '日本'],
    ['a page', bytesOf('<meta charset="Shift_JIS">', SJIS), { isHtml: true }, '<meta charset="Shift_JIS">日本'],
    [
      'a page, with its type',
      bytesOf("<meta http-equiv=x content='text/html; charset=euc-jp'>", EUC),
      { isHtml: true },
      "<meta http-equiv=x content='text/html; charset=euc-jp'>日本",
    ],
    [
      'the sender, and not the page',
      bytesOf('<meta charset=big5>', EUC),
      { isHtml: true, charset: 'euc-jp' },
      '<meta charset=big5>日本',
    ],
    [
      'XML',
      bytesOf('<?xml version="1.0" encoding="ISO-8859-1"?>\xe9'),
      {},
      '<?xml version="1.0" encoding="ISO-8859-1"?>é',
    ],
    ['a style sheet', bytesOf('@charset "koi8-r";\xc1'), {}, '@charset "koi8-r";а'],
    ['a program', bytesOf('#!/bin/x\n# -*- coding: latin-1 -*-\n\xe9'), {}, '#!/bin/x\n# -*- coding: latin-1 -*-\né'],
    ['an editor', bytesOf('# vim: set fileencoding=koi8-u :\n\xa4'), {}, '# vim: set fileencoding=koi8-u :\nє'],
    ['the sender, in letters of Windows', bytesOf([0x84, 0xfc, 0x93, 0x80]), { charset: 'cp1252' }, '„ü“€'],
    ['the bytes, in UTF-8', Buffer.from('日本'), {}, '日本'],
    [
      'a page that cannot be in UTF-16',
      Buffer.from('<meta charset=utf-16>é'),
      { isHtml: true },
      '<meta charset=utf-16>é',
    ],
  ])('is read from %s', async (_, bytes, options, text) => {
    expect(await decode(bytes, options)).toEqual({ text, doubts: [] });
  });

  it.each<[string, Buffer, Parameters<typeof decode>[1], string, RegExp]>([
    [
      'one bad byte in UTF-8',
      Buffer.concat([Buffer.from('Müller grüßt\n'), Buffer.from([0xff])]),
      {},
      'Müller grüßt\n\ufffd',
      /1 char/,
    ],
    ['Cyrillic letters', cp1251, {}, RUSSIAN, /read as windows-1251/],
    [
      'a few Chinese letters',
      bytesOf([0xd3, 0xc3, 0xbb, 0xa7], ENGLISH, [0xc3, 0xfc]),
      {},
      `用户${ENGLISH}命`,
      /gb18030/,
    ],
    ['escapes of Japanese', bytesOf('\x1b$BF|K\\\x1b(B'), {}, '日本', /read as iso-2022-jp/],
    [
      'UTF-16 without a mark',
      Buffer.from('A pump for the harbour, and its valve.', 'utf16le'),
      {},
      'A pump for the harbour, and its valve.',
      /utf-16le/,
    ],
    ['UTF-8 that says it is Latin', Buffer.from('Müller'), { charset: 'iso-8859-1' }, 'Müller', /read as UTF-8/],
    ['an unknown name', cp1251, { charset: 'x-none' }, RUSSIAN, /read as windows-1251/],
    ['damage in what is declared', bytesOf(SJIS, [0x81]), { charset: 'sjis' }, '日本\ufffd', /1 char/],
  ])('is read and named with doubt: %s', async (_, bytes, options, text, message) => {
    const decoded = await decode(bytes, options);
    expect(decoded.text).toBe(text);
    expect(decoded.doubts.map((doubt) => doubt.message).join('\n')).toMatch(message);
    expect(decoded.doubts.every(({ isRead }) => isRead)).toBe(true);
  });

  it('is taken from the header for a document', async () => {
    const { signal } = new AbortController();
    const parsed = await parseDocument(bytesOf('<title>', SJIS, '</title><p>', SJIS), {
      format: 'html',
      charset: 'shift_jis',
      signal,
    });
    expect(parsed).toMatchObject({ title: '日本', blocks: [{ text: '日本' }], unread: [] });
  });
});
