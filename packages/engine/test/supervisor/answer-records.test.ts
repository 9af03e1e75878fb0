import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { answerRecord, type ContinuedBody, continuedBody, RelayedAnswer } from '../../src/supervisor/answer-records.js';

const token = fc.oneof(fc.nat({ max: 9 }), fc.nat({ max: 300_000 }));
const record = fc.record({
  events: fc.oneof(
    fc.string({ unit: 'binary', maxLength: 30, size: 'max' }),
    fc.constantFrom('data: {"a":1}\n\n', '12 34\ndata: x', 'data: [DONE]\n\n'),
  ),
  tokens: fc.array(token, { maxLength: 5 }),
});
/** Where the bytes are cut on their way, and at which byte the worker dies. */
const way = fc.record({
  cuts: fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 30 }),
  dies: fc.double({ min: 0, max: 1, noNaN: true }),
});

describe('a stream in records', () => {
  it('is passed on record by record, and its tokens are those of what was passed on', () => {
    fc.assert(
      fc.property(fc.array(record, { maxLength: 12 }), way, (records, { cuts, dies }) => {
        const encoded = records.map(({ events, tokens }) => Buffer.from(answerRecord(events, tokens)));
        const all = Buffer.concat([...encoded, Buffer.from(answerRecord('end\n', 'end'))]);
        const arriving = all.subarray(0, Math.round(dies * all.length));
        const answer = new RelayedAnswer('{}');
        const passed: Buffer[] = [];
        for (let from = 0, index = 0; from < arriving.length; index++) {
          const end = from + cuts[index % cuts.length]!;
          answer.read(arriving.subarray(from, end), (events) => passed.push(events));
          from = end;
        }
        let whole = 0;
        for (let bytes = 0; whole < encoded.length && bytes + encoded[whole]!.length <= arriving.length; whole++) {
          bytes += encoded[whole]!.length;
        }
        const isEnded = arriving.length === all.length;
        const texts = records.slice(0, whole).map(({ events }) => Buffer.from(events));
        expect(Buffer.concat(passed)).toEqual(Buffer.concat([...texts, ...(isEnded ? [Buffer.from('end\n')] : [])]));
        expect(answer.tokens).toEqual(records.slice(0, whole).flatMap(({ tokens }) => tokens));
        expect(answer.isEnded).toBe(isEnded);
        // The next worker begins with a record, whatever the last one left half.
        answer.beginAgain();
        answer.read(Buffer.from(answerRecord('more', [7])), (events) => passed.push(events));
        expect(passed.at(-1)!.toString()).toBe('more');
        expect(answer.tokens.at(-1)).toBe(7);
      }),
      { seed: 2, numRuns: 500 },
    );
  });

  it('goes on with the client’s own body and what was begun', () => {
    const origin = { id: 'cmpl-1', created: 5, seed: 2 ** 46 + 1 };
    const body = { prompt: 'é "quoted" }', stream: true, begun: 'the client’s own', body: [1] };
    for (const tokens of [[], [1], [1, 22, 333]]) {
      const bytes = continuedBody(Buffer.from(JSON.stringify(body)), JSON.stringify(origin), tokens);
      const expected: ContinuedBody = { begun: { ...origin, tokens }, body };
      expect(JSON.parse(bytes.toString())).toEqual(expected);
    }
  });
});
