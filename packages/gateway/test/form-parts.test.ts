import { describe, expect, it } from 'vitest';
import { formParts } from '../src/intake/form-parts.js';

const TYPE = 'multipart/form-data; boundary=XX';
const bodyOf = (...parts: readonly string[]) =>
  Buffer.from(`${parts.map((part) => `--XX\r\n${part}\r\n`).join('')}--XX--\r\n`);
const read = (body: Buffer, type = TYPE) =>
  formParts(body, type, 10).map(({ bytes, ...part }) => ({ ...part, text: bytes.toString() }));

describe('the parts of a form', () => {
  it.each([
    ['of a browser', 'Content-Disposition: form-data; name="file"; filename="ä %22b%22.md"', 'ä "b".md', ''],
    ['of curl', 'Content-Disposition: form-data; name="file"; filename="a \\"b\\" \\\\.md"', 'a "b" \\.md', ''],
    [
      'with an extended name',
      "content-disposition: form-data; name=f; filename=x; filename*=utf-8''%C3%A4.md",
      'ä.md',
      '',
    ],
    [
      'with an extended name that is none',
      "content-disposition: form-data; name=f; filename=x; filename*=utf-8''%C3",
      'x',
      '',
    ],
    ['without quotes', 'content-disposition: form-data; name=file; filename=a.md', 'a.md', ''],
    ['that are fields', 'content-disposition: form-data; name="file"', undefined, ''],
    ['with a name that looks like a parameter', 'content-disposition: form-data; name="a; filename=b"', undefined, ''],
    [
      'with a type, in another order of headers',
      'Content-Type: text/plain; charset=latin1\r\nContent-Length: 4\r\ncontent-disposition: form-data; name="f"; filename="a"',
      'a',
      'text/plain; charset=latin1',
    ],
  ])('%s', (_, headers, fileName, type) => {
    for (const text of ['text', '', '\r\n', '\r\n--XXX\r\n', 'a\r\n\r\n--XX is no boundary']) {
      expect(read(bodyOf(`${headers}\r\n\r\n${text}`))).toMatchObject([{ fileName, type, text }]);
    }
  });

  it('stand between lines of the boundary, whatever stands before and behind, with or without quotes', () => {
    const part = 'content-disposition: form-data; name="a"\r\n\r\n1';
    const body = Buffer.concat([Buffer.from('before\r\n'), bodyOf(part, part), Buffer.from('behind')]);
    expect(read(body)).toHaveLength(2);
    expect(read(body, 'multipart/form-data; charset=utf-8; boundary="XX"')).toHaveLength(2);
    expect(read(Buffer.from(`--XX  \r\n${part}\r\n--XX--`))).toHaveLength(1);
    expect(read(Buffer.from('--XX--\r\n'))).toEqual([]);
  });

  it.each([
    ['no boundary', bodyOf('a'), 'multipart/form-data', 'has no boundary'],
    ['no end', Buffer.from('--XX\r\ncontent-disposition: form-data; name="a"\r\n\r\n1\r\n'), TYPE, 'has no end'],
    ['nothing', Buffer.alloc(0), TYPE, 'does not end'],
    ['another boundary', bodyOf('a'), 'multipart/form-data; boundary=YY', 'does not end'],
    ['a part without headers', bodyOf('a'), TYPE, 'has no end'],
    ['a part without a name', bodyOf('content-type: text/plain\r\n\r\n1'), TYPE, 'has no name'],
    [
      'too many parts',
      bodyOf(...Array<string>(11).fill('content-disposition: form-data; name="a"\r\n\r\n1')),
      TYPE,
      '10',
    ],
    [
      'an encoded part',
      bodyOf('content-disposition: form-data; name="a"\r\ncontent-transfer-encoding: base64\r\n\r\nMQ=='),
      TYPE,
      'encoded as base64',
    ],
  ])('of a body with %s are refused', (_, body, type, reason) => {
    expect(() => formParts(body, type, 10)).toThrow(expect.objectContaining({ code: 'WARMPATH_INVALID_REQUEST' }));
    expect(() => formParts(body, type, 10)).toThrow(reason);
  });
});
