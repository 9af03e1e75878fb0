import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SseReader } from '../src/internal.js';

/** Reads chunks; one entry for everything that is delivered. */
function deliveries(chunks: readonly Buffer[], limitBytes = 1_000): string[] {
  const all: string[] = [];
  const handler = {
    onData: (data: Uint8Array) => all.push(`data ${new TextDecoder('utf-8', { ignoreBOM: true }).decode(data)}`),
    onComment: () => all.push('comment'),
    onTooLong: () => all.push('too long'),
  };
  const reader = new SseReader(handler, limitBytes);
  for (const chunk of chunks) {
    const owned = Buffer.from(chunk);
    reader.read(owned);
    // The owner of the memory may use it again.
    owned.fill('#');
  }
  reader.end();
  return all;
}

/** The same by the words of the standard, for a stream in one piece. */
function expected(stream: string): string[] {
  const all: string[] = [];
  let data: string[] = [];
  for (const line of [...stream.split(/\r?\n/), '']) {
    if (line === '') {
      if (data.join('\n') !== '') all.push(`data ${data.join('\n')}`);
      data = [];
    } else if (line.startsWith(':')) all.push('comment');
    else {
      const [, name, value = ''] = /^([^:]*)(?:: ?(.*))?$/s.exec(line)!;
      if (name === 'data') data.push(value);
    }
  }
  return all;
}

const line = fc.oneof(
  { weight: 4, arbitrary: fc.string({ unit: 'grapheme', maxLength: 12 }).map((text) => `data: ${text}`) },
  fc.constantFrom('', '', '', 'data:x', 'data', 'data:', 'data:  two', 'dat: a', 'database: b', ':', ': hello'),
  fc.constantFrom('event: e', 'id: 1', 'retry: 5', 'x', 'data: 🦀é'),
);
/** Line breaks within a line would make two of it. */
const stream = fc
  .array(fc.tuple(line, fc.constantFrom('\n', '\n', '\r\n')), { maxLength: 30 })
  .map((lines) => lines.map(([text, end]) => text.replaceAll(/[\r\n]/g, '') + end).join(''));

describe('events are the same, however the stream is cut', () => {
  it('where a line that is no data is longer than the limit', () => {
    for (const long of [`event: ${'x'.repeat(60)}`, `: ${'x'.repeat(60)}`, 'x'.repeat(60)]) {
      const bytes = Buffer.from(`${long}\ndata: a\n\n`);
      const pieces = [...bytes].map((_, at) => bytes.subarray(at, at + 1));
      expect(deliveries(pieces, 16)).toEqual(deliveries([bytes], 16));
      expect(deliveries(pieces, 16).at(-1)).toBe('data a');
    }
  });

  it('at any places', () => {
    fc.assert(
      fc.property(stream, fc.array(fc.nat(500), { maxLength: 12 }), (text, places) => {
        const bytes = Buffer.from(text);
        const cuts = places.map((place) => place % (bytes.length + 1)).sort((a, b) => a - b);
        const ends = [0, ...cuts, bytes.length];
        const chunks = ends.slice(1).map((end, i) => bytes.subarray(ends[i], end));
        expect(deliveries(chunks)).toEqual(expected(text));
      }),
      { seed: 41, numRuns: 1_000 },
    );
  });

  it('between all bytes', () => {
    fc.assert(
      fc.property(stream, (text) => {
        const bytes = Buffer.from(text);
        const chunks = [...bytes].map((byte) => Buffer.from([byte]));
        expect(deliveries(chunks)).toEqual(expected(text));
      }),
      { seed: 42, numRuns: 200 },
    );
  });
});

describe('an event longer than the limit', () => {
  const long = 'x'.repeat(30);

  it.each([
    ['a line', `data: ${long}\n\n`],
    ['many lines', 'data: xxxx\n'.repeat(6).concat('\n')],
    ['many empty lines', 'data\n'.repeat(30).concat('\n')],
    ['a line behind data', `data: a\ndata: ${long}\ndata: b\n\n`],
  ])('is skipped, and what follows is read: %s', (_, event) => {
    const text = `data: one\n\n${event}data: two\n\n`;
    const whole = deliveries([Buffer.from(text)], 20).filter((delivery) => delivery !== 'too long');
    const bytes = [...Buffer.from(text)].map((byte) => Buffer.from([byte]));
    expect(whole).toEqual(['data one', 'data two']);
    expect(deliveries(bytes, 20)).toEqual(['data one', 'too long', 'data two']);
  });

  it('is one of a byte more', () => {
    const exact = `data: ${'x'.repeat(20)}\r\n\r\n`;
    for (const chunks of [[Buffer.from(exact)], [...Buffer.from(exact)].map((byte) => Buffer.from([byte]))]) {
      expect(deliveries(chunks, 20)).toEqual([`data ${'x'.repeat(20)}`]);
      expect(deliveries(chunks, 19)).toEqual(['too long']);
    }
  });
});

it('goes on behind an event at which the handler threw', () => {
  const seen: string[] = [];
  const handler = {
    onData: (data: Uint8Array) => {
      seen.push(new TextDecoder().decode(data));
      if (seen.length === 1) throw new Error('no');
    },
    onTooLong: () => {},
  };
  const reader = new SseReader(handler, 100);
  expect(() => reader.read(Buffer.from('data: one\n\n'))).toThrow('no');
  reader.read(Buffer.from('data: two\n\n'));
  expect(seen).toEqual(['one', 'two']);
});
