import { type ChildProcess, spawn } from 'node:child_process';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { afterEach, describe, expect, it, onTestFinished } from 'vitest';
import { isFull } from '../../../test/suite.js';
import { FileReader } from '../src/ingest/file-reader.ts';
import { cutDocument, type DocumentFile, readDocument } from '../src/ingest/read-file.ts';
import { readBounds } from '../src/ingest/reader-process.ts';
import { pdf } from './hand-written-pdf.js';

const SETTINGS = { tokens: 128, overlap: 16 };
const PDF: DocumentFile = { id: 'a', format: 'pdf' };
const PAGE = Buffer.from(pdf([['The weight of Velka is 42 kg.']]));
/** A quarter of a megabyte that has a quarter of a gigabyte in it. */
const packedPdf = () => Buffer.from(pdf([[' '.repeat(2 ** 28)]], { isPacked: true }));
const options = { tenant: 'one', signal: new AbortController().signal, longest: 10_000_000 };
const readers: FileReader[] = [];
afterEach(async () => {
  for (const reader of readers.splice(0)) await reader.close();
});
const newReader = (bounds: Partial<ReturnType<typeof readBounds>> = {}) => {
  const reader = new FileReader({ ...readBounds(2 ** 28), ...bounds });
  readers.push(reader);
  return reader;
};
const read = (reader: FileReader, bytes = PAGE, given: Partial<typeof options> = {}) =>
  reader.read(bytes, PDF, SETTINGS, { ...options, ...given });
const codeOf = (reading: Promise<unknown>) =>
  reading.then(
    () => undefined,
    (error: { code?: string; message: string }) => [error.code, error.message],
  );

/** Calls with each process that is started from now on, to the end of the test. */
function onProcess(call: (child: ChildProcess) => void): void {
  const listen = (message: unknown) => call((message as { process: ChildProcess }).process);
  subscribe('child_process', listen);
  onTestFinished(() => void unsubscribe('child_process', listen));
}

function isRunning(id: number): boolean {
  try {
    process.kill(id, 0);
    return true;
  } catch {
    return false;
  }
}

describe('a file that is handed in', () => {
  it.each<[DocumentFile['format'], Uint8Array | string]>([
    ['markdown', '# Velka\n\nIts weight is 42 kg.\n\n## Colour\n\nIt is teal.\n\n'.repeat(500)],
    ['text', 'The weight of Velka is 42 kg.\n\n'.repeat(20_000)],
    ['text', 'short'],
    ['html', `<title>Velka</title>${'<p>Its weight is 42 kg.'.repeat(5_000)}`],
    ['pdf', pdf(Array.from({ length: 40 }, (_, page) => [`Page ${page}.`, 'The weight of Velka is 42 kg.']))],
  ])('is read as the same bytes on a disk are: %s', async (format, bytes) => {
    const file = { id: 'a', title: 'A title', format };
    const content = Buffer.from(bytes);
    const expected = await readDocument(content, file, SETTINGS, options);
    expect(await newReader().read(content, file, SETTINGS, options)).toEqual(expected);
  });

  it.each(['markdown', 'text', 'html'] as const)('may be a text, which a process cuts: %s', async (format) => {
    let processes = 0;
    onProcess(() => processes++);
    const reader = newReader();
    const words = '<p>The *weight* \0 of Velka \ud800 is 42 kg.</p>\n\n';
    for (const count of [10, 3_000]) {
      const text = { id: 'a', title: 'A title', content: words.repeat(count), metadata: { year: 1 }, format };
      expect(await reader.cut(text, SETTINGS, options)).toEqual(await cutDocument(text, SETTINGS));
      // Nothing is parsed in a short plain text; one process reads all others.
      expect(processes).toBe(format === 'text' && count === 10 ? 0 : 1);
    }
  });

  it('is given up where it takes too long', async () => {
    const seconds = ['WARMPATH_UNREADABLE_FILE', 'reading it takes more than 0.001 seconds'];
    expect(await codeOf(read(newReader({ answerMs: 1 })))).toEqual(seconds);
  });

  it('is given up where it takes too much memory, unpacked as well, and the next one is read', async () => {
    const memory = ['WARMPATH_UNREADABLE_FILE', 'reading it takes more than 192 MiB of memory'];
    const reader = newReader({ memoryBytes: 192 * 2 ** 20 });
    const hostile = packedPdf();
    const before = process.memoryUsage.rss();
    const [first, second] = [codeOf(read(reader, hostile)), read(reader)];
    expect(await first).toEqual(memory);
    expect((await second).document.passages).toHaveLength(1);
    // It was unpacked elsewhere.
    expect(process.memoryUsage.rss() - before).toBeLessThan(2 ** 27);
  });

  it('is an error where its process dies, and the next one is read', async () => {
    const reader = newReader();
    let isFirst = true;
    onProcess((child) => {
      if (isFirst) child.once('spawn', () => child.kill('SIGSEGV'));
      isFirst = false;
    });
    const [dead, next] = [codeOf(read(reader)), read(reader)];
    expect(await dead).toEqual(['WARMPATH_UNREADABLE_FILE', 'the process that read it ended (SIGSEGV)']);
    expect((await next).document.passages).toHaveLength(1);
  });

  it('is read by a process that reads files of one tenant only', async () => {
    const ids: (number | undefined)[] = [];
    onProcess((child) => child.once('spawn', () => ids.push(child.pid)));
    const reader = newReader();
    for (const tenant of ['one', 'one', 'two', 'one']) await read(reader, PAGE, { tenant });
    expect(new Set(ids).size).toBe(3);
  });

  it.runIf(isFull)(
    'is read by a process that ends with the one that started it, in the middle of a file, too',
    async () => {
      const script = `
      import { FileReader } from ${JSON.stringify(new URL('../dist/ingest/file-reader.js', import.meta.url).href)};
      import { subscribe } from 'node:diagnostics_channel';
      subscribe('child_process', ({ process: child }) => child.once('spawn', () => console.log(child.pid)));
      const bytes = Buffer.from('> '.repeat(99).concat('a', String.fromCharCode(10)).repeat(200_000));
      const signal = new AbortController().signal;
      await new FileReader().read(bytes, { id: 'a', format: 'markdown' }, { tokens: 128, overlap: 16 }, { tenant: 'a', signal, longest: 1e9 });`;
      const parent = spawn(process.execPath, ['--input-type=module', '-e', script], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      const [line] = (await once(parent.stdout, 'data')) as [Buffer];
      const child = Number(line.toString());
      expect(isRunning(child)).toBe(true);
      parent.kill('SIGKILL');
      await once(parent, 'exit');
      // Without a limit: a test that hangs fails.
      while (isRunning(child)) await new Promise(setImmediate);
    },
  );

  it('takes no memory and no time beyond the bounds where an element does not end', async () => {
    const reader = newReader({ memoryBytes: 256 * 2 ** 20, answerMs: 5_000 });
    const outcome = await codeOf(
      reader.read(Buffer.from('<'.repeat(500_000)), { id: 'a', format: 'html' }, SETTINGS, options),
    );
    expect([undefined, 'WARMPATH_UNREADABLE_FILE']).toContain(outcome?.[0]);
    expect((await read(reader)).document.passages).toHaveLength(1);
  });

  it('waits within a bound, and leaves where nobody wants it any more', async () => {
    const reader = newReader();
    let processes = 0;
    const isRead = new Promise<void>((resolve) => {
      onProcess(() => {
        processes++;
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
    expect(processes).toBe(2);
  });

  it.runIf(isFull)('takes turns with those of other tenants, and gives up the places of whoever has most', async () => {
    const reader = newReader();
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
