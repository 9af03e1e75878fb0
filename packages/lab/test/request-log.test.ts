import { Readable } from 'node:stream';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LoggedRequests, readRequestLog } from '../src/index.js';

async function read(pieces: readonly string[], onInvalid?: (error: { message: string }, line: number) => void) {
  const input = Readable.from(pieces.map((piece) => Buffer.from(piece)));
  const requests = [];
  for await (const request of readRequestLog('test', { input, ...(onInvalid && { onInvalid }) }))
    requests.push(request);
  return requests;
}

describe('readRequestLog', () => {
  it('reads all fields, and counts lines from 1, blank ones too', async () => {
    const log = [
      '{"documents": ["a", {"id": "b", "tokens": 3}, {"id": "c", "tokens": null}], "timestamp": 1.5, "session": 7}\r\n\n',
      '{"documents": [], "timestamp": "2026-01-01T00:00:01Z", "session": "s", "query_tokens": 12, "other": {}}',
    ];
    expect(await read(log)).toEqual([
      {
        line: 1,
        documents: [
          { id: 'a', tokens: undefined },
          { id: 'b', tokens: 3 },
          { id: 'c', tokens: undefined },
        ],
        timestampMs: 1.5,
        session: '7',
        queryTokens: undefined,
      },
      { line: 3, documents: [], timestampMs: Date.UTC(2026, 0, 1, 0, 0, 1), session: 's', queryTokens: 12 },
    ]);
  });

  it('does not mind where the stream is cut', async () => {
    const ids = ['ä', '日本', '😀', 'x y'];
    const text = Buffer.from(`${JSON.stringify({ documents: ids })}\r\n${JSON.stringify({ documents: ['z'] })}\n`);
    await fc.assert(
      fc.asyncProperty(fc.uniqueArray(fc.nat(text.length)), async (cuts) => {
        const ends = [...cuts.sort((a, b) => a - b), text.length];
        const pieces = ends.map((end, i) => text.subarray(i === 0 ? 0 : ends[i - 1], end));
        const found = [];
        for await (const { documents } of readRequestLog('test', { input: Readable.from(pieces) })) {
          found.push(documents.map(({ id }) => id));
        }
        expect(found).toEqual([ids, ['z']]);
      }),
      { seed: 3, numRuns: 50 },
    );
  });

  it('leaves bad lines out when told to, and tells of each', async () => {
    const told: [string, number][] = [];
    const log = ['{"documents": ["a"]}\nnot JSON\n{"documents": 3}\n{"documents": [{}]}\n{"documents": ["b"]}'];
    const requests = await read(log, ({ message }, line) => told.push([message.split(':')[0]!, line]));
    expect(requests.map(({ line }) => line)).toEqual([1, 5]);
    expect(told).toEqual([
      ['line 2', 2],
      ['line 3', 3],
      ['line 4', 4],
    ]);
  });

  it.each([
    ['{"documents": [], "timestamp": "yesterday"}', 'line 1: timestamp'],
    ['{"documents": [], "timestamp": "2026-13-45"}', 'line 1: timestamp'],
    [JSON.stringify({ documents: Array.from({ length: 1_001 }, (_, i) => `d${i}`) }), 'line 1: documents'],
  ])('refuses %.60s', async (line, path) => {
    await expect(read([line])).rejects.toMatchObject({ path });
  });

  it('refuses a line without an end, and a file that is none', async () => {
    const endless = Array.from({ length: 300 }, () => 'x'.repeat(2 ** 16));
    await expect(read(endless)).rejects.toMatchObject({ code: 'WARMPATH_BODY_TOO_LARGE', path: 'line 1' });
    await expect(async () => {
      for await (const _ of readRequestLog('no/such/file')) expect.unreachable();
    }).rejects.toMatchObject({ code: 'WARMPATH_USAGE', message: expect.stringContaining('no/such/file') });
  });
});

describe('LoggedRequests', () => {
  const logged = (documents: (string | [string, number])[], timestampMs?: number) => ({
    line: 1,
    documents: documents.map((document) =>
      typeof document === 'string' ? { id: document, tokens: undefined } : { id: document[0], tokens: document[1] },
    ),
    timestampMs,
    session: undefined,
    queryTokens: undefined,
  });

  it('gives a document the tokens of its first mention, and counts what was open', () => {
    const requests = new LoggedRequests();
    const tokens = (documents: (string | [string, number])[]) =>
      requests.next(logged(documents)).documents.map((document) => document.tokens);
    expect(tokens([['a', 10], 'b', ['a', 11]])).toEqual([10, 200]);
    expect(tokens([['b', 50], 'a', ['c', 1]])).toEqual([200, 10, 1]);
    expect(requests.summary).toMatchObject({
      requests: 2,
      documents: 5,
      documentsSeenBefore: 2,
      seenBeforeTokens: 210,
      distinctDocuments: 3,
      documentsWithoutTokens: 1,
      duplicates: 1,
      requestsWithoutQueryTokens: 2,
      forgotten: 0,
    });
    expect(requests.isTimed).toBe(false);
  });

  it('never lets time go back', () => {
    const requests = new LoggedRequests();
    const arrivals = [1_000, 1_300, undefined, 1_200, 1_400].map((at) => requests.next(logged([], at)).arrivalMs);
    expect(arrivals).toEqual([0, 300, 300, 300, 400]);
    expect(requests.summary).toMatchObject({ requestsWithoutTimestamp: 1, requestsOutOfOrder: 1 });
    expect([requests.isTimed, requests.spanMs]).toEqual([true, 400]);
  });
});
