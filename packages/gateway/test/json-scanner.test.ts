import { WarmpathError } from '@warmpath/core';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
import { applyEdits, BodyView, type ByteEdit } from '../src/json/json-body.js';
import { JsonScanner } from '../src/json/json-scanner.js';

const SEED = { seed: 20261122, numRuns: runs(500) };

const anyName = fc.oneof(
  fc.constantFrom('messages', 'x"y', 'm\\', 'é', ''),
  fc.string({ unit: 'binary', maxLength: 6 }),
);
/** An object as text: its members in any order, some more than once, with white space or without. */
const anyObject = fc
  .tuple(fc.array(fc.tuple(anyName, fc.jsonValue({ maxDepth: 3 })), { maxLength: 6 }), fc.constantFrom(0, 1, '\t'))
  .map(([members, indent]) => {
    const text = members.map(([key, value]) => `${JSON.stringify(key)}: ${JSON.stringify(value, null, indent)}`);
    return { members, text: ` {${text.join(' ,\n')}} ` };
  });

function codeOf(run: () => unknown): string | undefined {
  try {
    run();
  } catch (error) {
    if (WarmpathError.isInstance(error)) return error.code;
    throw error;
  }
  return undefined;
}

describe('a scan of JSON', () => {
  it('finds the members and elements that JSON.parse finds, as the client wrote them', () => {
    fc.assert(
      fc.property(anyObject, ({ members, text }) => {
        const scan = new JsonScanner(Buffer.from(text));
        const found = scan.members(scan.space(0));
        expect(found.map(({ key }) => key)).toEqual(members.map(([key]) => JSON.parse(JSON.stringify(key)) as string));
        for (const [place, { valueStart, end }] of found.entries()) {
          const span = { start: valueStart, end };
          const value = JSON.parse(JSON.stringify(members[place]![1])) as unknown;
          expect(scan.parse(span)).toEqual(value);
          if (!Array.isArray(value)) continue;
          expect(scan.elements(valueStart).map((element) => scan.parse(element))).toEqual(value);
        }
      }),
      SEED,
    );
  });

  it('passes a long string once, however often its containers are looked into', () => {
    const parts = fc.array(fc.constantFrom('"', '\\', 'word ', '\n', 'é'), { minLength: 400, maxLength: 1_200 });
    fc.assert(
      fc.property(parts, parts, (first, second) => {
        const value = { messages: [first.join(''), { text: second.join('') }, 7] };
        const scan = new JsonScanner(Buffer.from(JSON.stringify(value)));
        for (let look = 0; look < 3; look++) {
          const [member] = scan.members(0);
          const spans = scan.elements(member!.valueStart);
          expect(spans.map((span) => scan.parse(span))).toEqual(value.messages);
        }
      }),
      { ...SEED, numRuns: runs(50) },
    );
    // A search for each word and its quote, of 600,000 in all.
    const scan = new JsonScanner(Buffer.from(JSON.stringify(['a word in front of a quote"'.repeat(250_000)])));
    for (let look = 0; look < 5; look++) expect(scan.elements(0)).toHaveLength(1);
  });

  it('refuses what JSON.parse refuses, but for the inside of strings', () => {
    const bodies = [
      '',
      '{',
      '{"a"}',
      '{"a":}',
      '{"a":1,}',
      '[1,]',
      '[1 2]',
      '{"a":1 "b":2}',
      'nul',
      '01',
      '1.',
      '+1',
      '"a',
      '[}',
    ];
    for (const body of [...bodies, '{"a":[1,2}', '{,}', '[,]', '{"a":tru}', '1 2', '[1]]', "{'a':1}"]) {
      expect(() => JSON.parse(body), body).toThrow();
      expect(
        codeOf(() => new JsonScanner(Buffer.from(body)).root()),
        body,
      ).toBe('WARMPATH_INVALID_JSON');
    }
    fc.assert(
      fc.property(fc.json(), fc.nat(), fc.constantFrom('{', '}', '[', ']', ',', ':', '1', ' '), (text, at, put) => {
        const cut = at % (text.length + 1);
        const changed = text.slice(0, cut) + put + text.slice(cut);
        let isJson = true;
        try {
          JSON.parse(changed);
        } catch {
          isJson = false;
        }
        const code = codeOf(() => new JsonScanner(Buffer.from(changed)).root());
        expect(code === undefined || !isJson, changed).toBe(true);
        if (!text.includes('\\')) expect(code === undefined, changed).toBe(isJson);
      }),
      SEED,
    );
  });

  it('ends in an error of the table for any bytes', () => {
    fc.assert(
      fc.property(
        anyObject,
        fc.array(fc.tuple(fc.nat(), fc.nat({ max: 255 })), { maxLength: 4 }),
        ({ text }, changes) => {
          const bytes = Buffer.from(text);
          for (const [at, byte] of changes) bytes[at % bytes.length] = byte;
          codeOf(() => new BodyView(bytes));
        },
      ),
      SEED,
    );
  });

  it('looks into objects of thousands of members, not of more', () => {
    const body = (members: number) =>
      Buffer.from(`{"a":{${Array.from({ length: members }, (_, i) => `"k${i}":0`).join(',')}}}`);
    const inner = (members: number) => codeOf(() => new JsonScanner(body(members)).members(5));
    expect(inner(4_096)).toBeUndefined();
    expect(inner(4_097)).toBe('WARMPATH_BODY_TOO_COMPLEX');
    // What is not looked into is passed over.
    expect(codeOf(() => new BodyView(body(100_000)))).toBeUndefined();
  });

  it('is bounded in nesting and in steps, however the body is built', () => {
    const code = (body: string) => codeOf(() => new JsonScanner(Buffer.from(body)).root());
    expect(code(`${'['.repeat(250)}1${']'.repeat(250)}`)).toBeUndefined();
    expect(code('['.repeat(5_000))).toBe('WARMPATH_BODY_TOO_COMPLEX');
    expect(code('{"a":'.repeat(5_000))).toBe('WARMPATH_BODY_TOO_COMPLEX');
    expect(code(`[${'1,'.repeat(3_000_000)}1]`)).toBe('WARMPATH_BODY_TOO_COMPLEX');
    expect(code(`["${`${'x'.repeat(26)}\\"`.repeat(1_100_000)}"]`)).toBe('WARMPATH_BODY_TOO_COMPLEX');
    expect(code(`["${'\\"'.repeat(3_000_000)}"]`)).toBeUndefined();
    expect(code(JSON.stringify({ a: '\\'.repeat(400_000), b: 'x'.repeat(30_000_000) }))).toBeUndefined();
  });
});

describe('edits of a body', () => {
  it('leave out and replace members as an object would, and keep the bytes of all else', () => {
    const choices = fc.infiniteStream(fc.integer({ min: 0, max: 2 }));
    fc.assert(
      fc.property(anyObject, choices, ({ text }, choice) => {
        const value = JSON.parse(text) as Record<string, unknown>;
        const body = new BodyView(Buffer.from(text));
        const expected = new Map(Object.entries(value));
        const removed = new Set<string>();
        const edits: ByteEdit[] = [];
        for (const key of expected.keys()) {
          const chosen = choice.next().value as number;
          if (chosen === 0) removed.add(key);
          if (chosen === 1) edits.push(body.with(key, '"new"'));
          if (chosen === 0) expected.delete(key);
          else if (chosen === 1) expected.set(key, 'new');
        }
        edits.push(...body.without(removed));
        if (expected.size > 0 || removed.size === 0) {
          edits.push(body.with('added by the gateway', '1', expected.size === 0));
          expected.set('added by the gateway', 1);
        }
        const written = JSON.parse(applyEdits(body.bytes, edits).toString()) as object;
        expect(new Map(Object.entries(written))).toEqual(expected);
      }),
      SEED,
    );
  });

  it('are made in any order, also where bytes are added at either end of others that are taken away', () => {
    const piece = fc.record({
      text: fc.string({ minLength: 1, maxLength: 4 }),
      before: fc.constantFrom('', '<', 'é'),
      isReplaced: fc.boolean(),
      rank: fc.nat(),
    });
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 6 }), (pieces) => {
        const edits: (ByteEdit & { readonly rank: number })[] = [];
        let start = 0;
        for (const { text, before, isReplaced, rank } of pieces) {
          const end = start + Buffer.byteLength(text);
          if (isReplaced) edits.push({ start, end, pieces: [Buffer.from('-')], rank });
          if (before !== '') edits.push({ start, end: start, pieces: [Buffer.from(before)], rank: rank % 7 });
          start = end;
        }
        const body = Buffer.from(pieces.map(({ text }) => text).join(''));
        const inOrder = edits.toSorted((one, other) => one.rank - other.rank);
        expect(applyEdits(body, inOrder).toString()).toBe(
          pieces.map(({ text, before, isReplaced }) => before + (isReplaced ? '-' : text)).join(''),
        );
      }),
      SEED,
    );
  });

  it('keep numbers, order and repeated keys as the client wrote them', () => {
    const text =
      '{"seed":12345678901234567890,"logit_bias":{"50256":-100,"11":1.0},"documents":[],"n":1e2,"n":2,"documents":[1]}';
    const body = new BodyView(Buffer.from(text));
    expect(applyEdits(body.bytes, body.without(new Set(['documents']))).toString()).toBe(
      '{"seed":12345678901234567890,"logit_bias":{"50256":-100,"11":1.0},"n":1e2,"n":2}',
    );
    expect(applyEdits(body.bytes, [body.with('n', '3')]).toString()).toContain('"n":1e2,"n":3');
    expect(applyEdits(body.bytes, [])).toBe(body.bytes);
  });
});
