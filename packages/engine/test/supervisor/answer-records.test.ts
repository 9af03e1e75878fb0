import { PassThrough } from 'node:stream';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  answerRecord,
  type ContinuedBody,
  continuedBody,
  type RecordMarks,
  RecordReader,
  RecordWriter,
} from '../../src/supervisor/answer-records.js';

const token = fc.oneof(fc.nat({ max: 9 }), fc.nat({ max: 300_000 }));
const record = fc.record({
  stream: fc.nat({ max: 3 }),
  content: fc.oneof(
    fc.string({ unit: 'binary', maxLength: 30, size: 'max' }),
    fc.constantFrom('data: {"a":1}\n\n', '0 12 34\ndata: x', 'data: [DONE]\n\n'),
  ),
  marks: fc.oneof(fc.constantFrom<RecordMarks>('begin', 'end'), fc.array(token, { maxLength: 5 })),
});
/** Where the bytes are cut on their way, and at which byte the worker dies. */
const way = fc.record({
  cuts: fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 30 }),
  dies: fc.double({ min: 0, max: 1, noNaN: true }),
});

/** Listens to so many streams, and notes what it hears of each. */
function listen(reader: RecordReader, streams: number) {
  return Array.from({ length: streams }, () => {
    const heard: { content: string; marks: RecordMarks }[] = [];
    const lost: true[] = [];
    const stream = reader.join({
      onRecord: (content, marks) => heard.push({ content: content.toString(), marks }),
      onRecordsLost: () => lost.push(true),
    });
    return { stream, heard, lost };
  });
}

describe('streams in records', () => {
  it('are told apart, record by record, of which only whole ones count', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(record, { maxLength: 12 }), way, async (records, { cuts, dies }) => {
        const encoded = records.map(({ stream, content, marks }) => Buffer.from(answerRecord(stream, content, marks)));
        const all = Buffer.concat(encoded);
        const arriving = all.subarray(0, Math.round(dies * all.length));
        const pipe = new PassThrough();
        const reader = new RecordReader(pipe);
        // Nobody listens to the last of the four.
        const listeners = listen(reader, 3);
        for (let from = 0, index = 0; from < arriving.length; index++) {
          const end = from + cuts[index % cuts.length]!;
          pipe.write(arriving.subarray(from, end));
          from = end;
        }
        pipe.end();
        await reader.closed;
        let whole = 0;
        for (let bytes = 0; whole < encoded.length && bytes + encoded[whole]!.length <= arriving.length; whole++) {
          bytes += encoded[whole]!.length;
        }
        for (const { stream, heard, lost } of listeners) {
          const own = records.slice(0, whole).filter((each) => each.stream === stream);
          const texts = own.map(({ content, marks }) => ({ content: Buffer.from(content).toString(), marks }));
          expect(heard).toEqual(texts);
          expect(lost).toEqual([true]);
        }
      }),
      { seed: 2, numRuns: 500 },
    );
  });

  it('are written together, and read until their listener leaves', async () => {
    const pipe = new PassThrough();
    const writes: string[] = [];
    const write = pipe.write.bind(pipe);
    pipe.write = ((text: string) => writes.push(text) > 0 && write(text)) as typeof pipe.write;
    const reader = new RecordReader(pipe);
    const writer = new RecordWriter(pipe);
    const [first, second] = listen(reader, 2);
    const step = async (tell: () => void): Promise<void> => {
      tell();
      await new Promise((resolve) => pipe.once('data', resolve));
    };
    await step(() => {
      writer.write(first!.stream, 'a', 'begin');
      writer.write(second!.stream, 'é', [1, 22]);
    });
    reader.leave(first!.stream);
    await step(() => {
      writer.write(first!.stream, 'b', [3]);
      writer.write(second!.stream, 'c', 'end');
    });
    expect(writes).toHaveLength(2);
    expect(first!.heard).toEqual([{ content: 'a', marks: 'begin' }]);
    expect(second!.heard).toEqual([
      { content: 'é', marks: [1, 22] },
      { content: 'c', marks: 'end' },
    ]);
    pipe.destroy();
    await reader.closed;
    const [late] = listen(reader, 1);
    await Promise.resolve();
    expect([first, second, late].map((each) => each!.lost.length)).toEqual([0, 1, 1]);
  });

  it('wait for a front that does not read, up to a limit', () => {
    const pipe = new PassThrough();
    const writer = new RecordWriter(pipe);
    pipe.write('x'.repeat(2 ** 25 - 1));
    expect(writer.isRead).toBe(true);
    pipe.write('x'.repeat(2 ** 16));
    expect(writer.isRead).toBe(false);
    pipe.destroy();
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
