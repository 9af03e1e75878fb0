import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readServerSentEvents } from '../src/server-sent-events.js';

async function read(bytes: Uint8Array, cuts: readonly number[]): Promise<string[]> {
  async function* chunks() {
    let start = 0;
    for (const cut of [...cuts].sort((a, b) => a - b)) {
      yield bytes.slice(start, cut);
      start = cut;
    }
    yield bytes.slice(start);
  }
  const events: string[] = [];
  for await (const event of readServerSentEvents(chunks())) events.push(event);
  return events;
}

describe('readServerSentEvents', () => {
  it('gives the same events wherever the bytes are cut, inside characters too', async () => {
    const line = fc.string({ unit: 'grapheme' }).map((text) => text.replace(/[\r\n\u0085\u2028\u2029]/g, ''));
    await fc.assert(
      fc.asyncProperty(
        fc.array(line, { maxLength: 8 }),
        fc.array(fc.nat(400), { maxLength: 12 }),
        async (events, cuts) => {
          const bytes = new TextEncoder().encode(events.map((data) => `data: ${data}\n\n`).join(''));
          const inside = cuts.map((cut) => Math.min(cut, bytes.length));
          expect(await read(bytes, inside)).toEqual(events.filter((data) => data !== ''));
        },
      ),
      { seed: 11, numRuns: 200 },
    );
  });

  it('joins data over several lines and skips comments and other fields', async () => {
    const text = ': ping\n\nevent: x\ndata: one\ndata:two\r\n\r\ndata: last';
    expect(await read(new TextEncoder().encode(text), [])).toEqual(['one\ntwo', 'last']);
  });
});
