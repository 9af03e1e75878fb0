import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Worker } from 'node:worker_threads';
import { describe, expect, it, onTestFinished } from 'vitest';
import { FileReader } from '../src/ingest/file-reader.ts';
import { cutDocument, type DocumentFile, readDocument } from '../src/ingest/read-file.ts';
import { pdf } from './hand-written-pdf.js';

const SETTINGS = { tokens: 128, overlap: 16 };
const PDF: DocumentFile = { id: 'a', format: 'pdf' };
const PAGE = Buffer.from(pdf([['The weight of Velka is 42 kg.']]));
/** A quarter of a megabyte that has a quarter of a gigabyte in it. */
const packedPdf = () => Buffer.from(pdf([[' '.repeat(2 ** 28)]], { isPacked: true }));
const options = { tenant: 'one', signal: new AbortController().signal, longest: 10_000_000 };
const read = (reader: FileReader, bytes = PAGE, given: Partial<typeof options> = {}) =>
  reader.read(bytes, PDF, SETTINGS, { ...options, ...given });
const codeOf = (reading: Promise<unknown>) =>
  reading.then(
    () => undefined,
    (error: { code?: string; message: string }) => [error.code, error.message],
  );

/** Calls with each thread that is started from now on, to the end of the test. */
function onThread(call: (worker: Worker) => void): void {
  const listen = (message: unknown) => call((message as { worker: Worker }).worker);
  subscribe('worker_threads', listen);
  onTestFinished(() => void unsubscribe('worker_threads', listen));
}

describe('a file that is handed in', () => {
  it.each<[DocumentFile['format'], Uint8Array | string]>([
    ['markdown', '# Velka\n\nIts weight is 42 kg.\n\n## Colour\n\nIt is teal.\n\n'.repeat(3_000)],
    ['text', 'The weight of Velka is 42 kg.\n\n'.repeat(20_000)],
    ['text', 'short'],
    ['html', `<title>Velka</title>${'<p>Its weight is 42 kg.'.repeat(5_000)}`],
    ['pdf', pdf(Array.from({ length: 40 }, (_, page) => [`Page ${page}.`, 'The weight of Velka is 42 kg.']))],
  ])('is read as the same bytes on a disk are: %s', async (format, bytes) => {
    const file = { id: 'a', title: 'A title', format };
    const content = Buffer.from(bytes);
    const expected = await readDocument(content, file, SETTINGS, options);
    expect(await new FileReader().read(content, file, SETTINGS, options)).toEqual(expected);
  });

  it.each(['markdown', 'text', 'html'] as const)('may be a long text, which a thread cuts: %s', async (format) => {
    let threads = 0;
    onThread(() => threads++);
    const reader = new FileReader();
    const words = '<p>The *weight* of Velka \ud800 is 42 kg.</p>\n\n';
    for (const [content, expected] of [
      [words.repeat(10), 0],
      [words.repeat(3_000), 1],
    ] as const) {
      threads = 0;
      const text = { id: 'a', title: 'A title', content, metadata: { year: 1 }, format };
      expect(await reader.cut(text, SETTINGS, options)).toEqual(cutDocument(text, SETTINGS));
      expect(threads).toBe(expected);
    }
  });

  it('is given up where it takes too long', async () => {
    const seconds = ['WARMPATH_UNREADABLE_FILE', 'reading it takes more than 0.001 seconds'];
    expect(await codeOf(read(new FileReader({ mostMs: 1 })))).toEqual(seconds);
  });

  it('is given up where it takes too much memory, unpacked as well', async () => {
    const memory = ['WARMPATH_UNREADABLE_FILE', 'reading it takes more than 128 MiB of memory'];
    expect(await codeOf(read(new FileReader({ mostMemoryBytes: 2 ** 27 }), packedPdf()))).toEqual(memory);
  });

  it('is an error where its thread dies, and the next one is read', async () => {
    const reader = new FileReader();
    let isFirst = true;
    onThread((worker) => {
      if (isFirst) void worker.terminate();
      isFirst = false;
    });
    const [dead, next] = [codeOf(read(reader)), read(reader)];
    expect(await dead).toMatchObject([
      'WARMPATH_INTERNAL',
      expect.stringContaining('the thread that reads a file ended'),
    ]);
    expect((await next).document.passages).toHaveLength(1);
  });

  it('waits within a bound, and leaves where nobody wants it any more', async () => {
    const reader = new FileReader();
    let threads = 0;
    const isRead = new Promise<void>((resolve) => {
      onThread(() => {
        threads++;
        resolve();
      });
    });
    const leaving = Array.from({ length: 17 }, () => new AbortController());
    const gone = new AbortController();
    gone.abort(new Error('gone before'));
    expect(await codeOf(read(reader, PAGE, { signal: gone.signal }))).toEqual([undefined, 'gone before']);
    const waiting = leaving.map(({ signal }) => codeOf(read(reader, PAGE, { signal })));
    expect(await codeOf(read(reader))).toMatchObject(['WARMPATH_OVERLOADED', expect.any(String)]);
    await isRead;
    for (const one of leaving) one.abort(new Error('gone'));
    const last = read(reader);
    expect(new Set((await Promise.all(waiting)).map(String))).toEqual(new Set([',gone']));
    expect((await last).document.passages).toHaveLength(1);
    expect(threads).toBe(2);
  });

  it('takes turns with those of other tenants, and gives up the places of whoever has most', async () => {
    const reader = new FileReader();
    const order: string[] = [];
    const hand = async (tenant: string, name: string) => {
      const code = await codeOf(read(reader, PAGE, { tenant }).then(() => order.push(name)));
      if (code !== undefined) order.push(`${name} ${code[0]}`);
    };
    const many = Array.from({ length: 17 }, (_, i) => hand('many', `many ${i}`));
    const others = ['a', 'b', 'a'].map((tenant, i) => hand(tenant, `${tenant} ${i}`));
    const more = hand('many', 'more');
    await Promise.all([...many, ...others, more]);
    // One is read; then each tenant in turn. The last three gave up their places, and one more found none.
    expect(order.filter((name) => name.endsWith('OVERLOADED')).sort()).toEqual(
      ['many 14', 'many 15', 'many 16', 'more'].map((name) => `${name} WARMPATH_OVERLOADED`),
    );
    const done = order.filter((name) => !name.endsWith('OVERLOADED'));
    expect(done.slice(0, 7)).toEqual(['many 0', 'many 1', 'a 0', 'b 1', 'many 2', 'a 2', 'many 3']);
    expect(done).toHaveLength(17);
  });
});
