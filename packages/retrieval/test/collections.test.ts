import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, mkdtemp, rm, symlink, truncate, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { isFull } from '../../../test/suite.js';
// The built package, as the processes that are killed run it: one database is opened by one copy of a library.
import { type Collection, Collections, checkExport } from '../dist/index.js';
import { pdf } from './hand-written-pdf.js';
import { allStages, DOCUMENTS, runStagedRetrieverCases } from './staged-retriever.cases.ts';

let folder: string;
let collections: Collections;
const made: string[] = [];

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-collections-'));
  made.push(folder);
  collections = new Collections(join(folder, 'collections'));
});
afterEach(async () => {
  await collections.close();
  for (const one of made.splice(0)) await rm(one, { recursive: true, force: true });
});

const files = async (texts: Record<string, string | Uint8Array>) => {
  const root = join(folder, 'docs');
  for (const [name, text] of Object.entries(texts)) {
    await mkdir(join(root, name, '..'), { recursive: true });
    await writeFile(join(root, name), text);
    // Written long ago, so that its time is believed.
    await utimes(join(root, name), 1_600_000_000, 1_600_000_000 + text.length);
  }
  return root;
};
const find = async (collection: Collection, text: string, k = 10) =>
  (await allStages(collection.retriever, text, k)).at(-1)!.candidates;
const bytesOf = async function* (lines: readonly string[]) {
  for (const line of lines) yield Buffer.from(line);
};
/** All that is stored, in an order that does not depend on when it came in. */
const contents = (collection: Collection) => [...collection.export()].sort();

runStagedRetrieverCases('a collection', async (documents) => {
  const root = await mkdtemp(join(tmpdir(), 'warmpath-cases-'));
  const own = new Collections(root);
  const collection = await own.getOrMake('default', 'cases');
  await collection.put(documents);
  const byId = new Map(documents.map((document) => [document.id, document]));
  return {
    retriever: {
      async *search(query, options) {
        for await (const stage of collection.retriever.search(query, options)) {
          // Ids of passages are ids of documents and a hash; each of these documents is one passage.
          const candidates = stage.candidates.map(({ metadata, score }) => ({
            ...byId.get(metadata!['source'] as string)!,
            score,
          }));
          yield { ...stage, candidates };
        }
      },
    },
    close: async () => {
      await own.close();
      await rm(root, { recursive: true, force: true });
    },
  };
});

describe('a collection', () => {
  it('finds passages of what was ingested, under the headings they stand below', async () => {
    const root = await files({
      'guide/install.md': '# Install\n\nRun the installer.\n\n## Docker\n\nPull the whale image.\n',
      'page.html': '<title>Fees</title><nav>Home</nav><h1>Fees</h1><p>The fee is <b>nine</b> crowns.',
      'note.txt': 'The lighthouse keeper retired.',
    });
    const collection = await collections.getOrMake('default', 'handbook');
    const report = await collection.ingest([root]);
    expect(report).toMatchObject({ files: 3, added: 3, changed: 0, removed: 0, errorCount: 0 });
    const [whale] = await find(collection, 'whale');
    expect(whale).toMatchObject({ title: 'Install', metadata: { source: 'docs/guide/install.md' } });
    expect(whale!.content).toContain('## Docker');
    expect((await find(collection, 'fee'))[0]).toMatchObject({ title: 'Fees', content: 'The fee is nine crowns.' });
    expect(await find(collection, 'Home')).toEqual([]);
    expect((await find(collection, 'lighthouse'))[0]!.id).toMatch(/^docs\/note\.txt#[\w-]{10}$/);
  });

  it('follows its files: what changed is read, what is gone leaves, and the rest keeps its ids', async () => {
    const root = await files({ 'a.md': 'alpha one', 'b.md': 'beta two', 'c.md': 'gamma three' });
    const collection = await collections.getOrMake('default', 'handbook');
    await collection.ingest([root]);
    const before = await find(collection, 'beta');
    await rm(join(root, 'a.md'));
    await files({ 'c.md': 'gamma four', 'd.md': 'delta five' });
    const report = await collection.ingest([root]);
    expect(report).toMatchObject({ unchangedFiles: 1, added: 1, changed: 1, removed: 1 });
    expect(await find(collection, 'alpha three')).toEqual([]);
    expect((await find(collection, 'four')).length).toBe(1);
    const after = await find(collection, 'beta');
    expect(after.map(({ id }) => id)).toEqual(before.map(({ id }) => id));
    expect(collection.totals).toMatchObject({ documents: 3, passages: 3 });
    // A file on its own does not take the others with it.
    expect(await collection.ingest([join(root, 'd.md')])).toMatchObject({ removed: 0, unchangedFiles: 1 });
  });

  it('reads a file again that was written at the very time it was read', async () => {
    const root = await files({ 'a.md': 'alpha' });
    const now = 1_600_000_000_000;
    const collection = await collections.getOrMake('default', 'handbook');
    await utimes(join(root, 'a.md'), now / 1000, now / 1000);
    await collection.ingest([root], { now: () => now + 1 });
    await writeFile(join(root, 'a.md'), 'omega');
    await utimes(join(root, 'a.md'), now / 1000, now / 1000);
    await collection.ingest([root], { now: () => now + 10_000 });
    expect((await find(collection, 'omega')).length).toBe(1);
  });

  it('stores a passage once, however many documents have it, and until the last one leaves', async () => {
    const licence = 'Permission is granted to sail these waters.';
    const root = await files({ 'a.md': licence, 'b.md': licence, 'c.md': 'Something else.' });
    const collection = await collections.getOrMake('default', 'handbook');
    await collection.ingest([root]);
    expect(collection.totals).toMatchObject({ documents: 3, passages: 2, duplicates: 1 });
    await rm(join(root, 'a.md'));
    await collection.ingest([root]);
    expect(collection.totals).toMatchObject({ documents: 2, passages: 2, duplicates: 0 });
    expect((await find(collection, 'waters')).map(({ metadata }) => metadata!['source'])).toEqual(['docs/b.md']);
    await rm(join(root, 'b.md'));
    await collection.ingest([root]);
    expect(collection.totals).toMatchObject({ documents: 1, passages: 1, duplicates: 0 });
    expect(await find(collection, 'waters')).toEqual([]);
  });

  it('reads BEIR folders and JSON Lines, names the lines it cannot read, and takes the others in', async () => {
    const root = await files({
      'beir/corpus.jsonl': '{"_id":"d1","title":"One","text":"first words"}\n{"_id":"d2","text":"second words"}\n',
      'beir/queries.jsonl': '{"_id":"q1","text":"question words"}\n',
      'beir/qrels/test.tsv': 'q1\td1\t1\n',
      'more.jsonl':
        '{"id":"x","text":"good"}\nnot json\n[1]\n{"id":"y"}\n\n{"id":"x","content":"twin","metadata":{"n":1}}',
    });
    const collection = await collections.getOrMake('default', 'handbook');
    const report = await collection.ingest([root]);
    expect(report.errors.map(({ file, position }) => `${file} ${position}`)).toEqual([
      'docs/more.jsonl line 2',
      'docs/more.jsonl line 3',
      'docs/more.jsonl line 4',
    ]);
    expect([...collection.documents()].map(({ id }) => id)).toEqual(['d1', 'd2', 'x', 'x:6']);
    expect((await find(collection, 'twin'))[0]!.metadata).toEqual({ n: 1, source: 'x:6' });
  });

  it('says how far it is within a file of many documents, batch by batch', async () => {
    const documents = Array.from({ length: 1_000 }, (_, i) =>
      JSON.stringify({ id: `d${i}`, text: `Document ${i}. ä` }),
    );
    // One line with nothing, and none at the end of the file.
    const lines = ['', ...documents].join('\n');
    const root = await files({ 'corpus.jsonl': lines, 'note.md': 'A note.' });
    const collection = await collections.getOrMake('default', 'handbook');
    const told: { bytes: number; totalBytes: number; documents: number }[] = [];
    await collection.ingest([root], {
      onProgress: ({ bytes, totalBytes }) => told.push({ bytes, totalBytes, documents: collection.totals.documents }),
    });
    const whole = Buffer.byteLength(lines);
    const bytesOf = (count: number) => 1 + Buffer.byteLength(documents.slice(0, count).join('\n')) + 1;
    const totalBytes = whole + 'A note.'.length;
    expect(told).toEqual([
      ...[256, 512, 768].map((count) => ({ bytes: bytesOf(count), totalBytes, documents: count })),
      { bytes: totalBytes, totalBytes, documents: 1_001 },
    ]);
  });

  it('says which files it cannot read, and takes the others in', async () => {
    const root = await files({
      'good.md': 'readable text',
      'noise.md': Uint8Array.from({ length: 5000 }, (_, at) => (at * 7919) % 256),
      'noise.bin': Uint8Array.from({ length: 5000 }, (_, at) => (at * 7919) % 256),
      'broken.pdf': '%PDF-1.7\nthis is no PDF',
      'old.txt': Buffer.from('Gr\u00fc\u00dfe aus K\u00f6ln', 'latin1'),
      'quotes.md': `${'>'.repeat(5000)} deep`,
      'loop/inner.md': 'inside of the loop',
    });
    await symlink(root, join(root, 'loop', 'again'));
    await symlink(join(root, 'nowhere'), join(root, 'dangling.md'));
    await writeFile(join(root, 'huge.txt'), '');
    await truncate(join(root, 'huge.txt'), 2 ** 31);
    const collection = await collections.getOrMake('default', 'handbook');
    const report = await collection.ingest([root, join(root, 'missing.md')], { followLinks: true });
    const told = Object.fromEntries(report.errors.map(({ file, message }) => [file.replace(root, 'docs'), message]));
    expect(Object.keys(told).sort()).toEqual([
      'docs/broken.pdf',
      'docs/dangling.md',
      'docs/huge.txt',
      'docs/loop/again',
      'docs/missing.md',
      'docs/noise.md',
    ]);
    expect(told['docs/huge.txt']).toContain('2,048 MB');
    expect(told['docs/loop/again']).toContain('circle');
    expect(report.skippedCount).toBe(1);
    for (const word of ['readable', 'Köln', 'deep', 'inside']) expect((await find(collection, word)).length).toBe(1);
  });

  it('keeps what it had of a file that can no longer be read, and of a folder that cannot be opened', async () => {
    const root = await files({ 'a.md': 'alpha', 'sub/b.md': 'beta' });
    const collection = await collections.getOrMake('default', 'handbook');
    await collection.ingest([root]);
    await files({ 'a.md': Uint8Array.from([0, 1, 2, 3]) });
    expect(await collection.ingest([root])).toMatchObject({ errorCount: 1, removed: 0 });
    expect((await find(collection, 'alpha')).length).toBe(1);
    if (process.getuid?.() === 0) return;
    await chmod(join(root, 'sub'), 0);
    expect(await collection.ingest([root])).toMatchObject({ removed: 0 });
    await chmod(join(root, 'sub'), 0o700);
  });

  it('keeps the document of a line that can no longer be read, and names the line until it can', async () => {
    const lines = ['{"id":"a","text":"alpha"}', '{"id":"b","text":"beta"}', '{"id":"c","text":"gamma"}'];
    const root = await files({ 'notes.jsonl': lines.join('\n') });
    const collection = await collections.getOrMake('default', 'handbook');
    await collection.ingest([root]);
    await files({ 'notes.jsonl': [lines[0], '{"id":"b","text":"be', '{"id":"c","text":"delta"}'].join('\n') });
    for (let time = 0; time < 2; time++) {
      const report = await collection.ingest([root]);
      expect(report).toMatchObject({ removed: 0, unchangedFiles: 0, errors: [{ position: 'line 2' }] });
      for (const word of ['alpha', 'beta', 'delta']) expect((await find(collection, word)).length).toBe(1);
      expect((await find(collection, 'gamma')).length).toBe(0);
    }
    // As soon as every line can be read, the collection is what the file says.
    await files({ 'notes.jsonl': lines.slice(0, 1).join('\n') });
    expect(await collection.ingest([root])).toMatchObject({ removed: 2, errorCount: 0 });
    expect(await collection.ingest([root])).toMatchObject({ unchangedFiles: 1, errorCount: 0 });
  });

  it('takes in the pages of a PDF that can be read, and none in the place of a whole document', async () => {
    const whole = pdf([['first page'], ['second page'], ['third page']]);
    const broken = pdf([['new page'], ['another page'], ['lost']], { brokenPages: [3] });
    const root = await files({
      'whole.pdf': whole,
      'broken.pdf': broken,
      'locked.pdf': pdf([['x']], { isLocked: true }),
    });
    const collection = await collections.getOrMake('default', 'handbook');
    const report = await collection.ingest([root]);
    expect(report.errors).toEqual([
      { file: 'docs/broken.pdf', position: 'page 3', message: 'the page is broken' },
      { file: 'docs/locked.pdf', message: 'the PDF is encrypted' },
    ]);
    expect((await find(collection, 'another')).length).toBe(1);
    expect(await collection.ingest([root])).toMatchObject({ unchangedFiles: 1, errorCount: 2 });
    await files({ 'whole.pdf': broken });
    for (let time = 0; time < 2; time++) {
      expect(await collection.ingest([root])).toMatchObject({ changed: 0, removed: 0, errorCount: 3 });
      expect((await find(collection, 'third')).length).toBe(1);
    }
    await files({ 'broken.pdf': whole, 'whole.pdf': whole });
    expect(await collection.ingest([root])).toMatchObject({ changed: 1, removed: 0, errorCount: 1 });
  });

  it('leaves out of a folder what is no text, by name, and says of what was asked for why it was not read', async () => {
    const noise = Uint8Array.from({ length: 5000 }, (_, at) => (at * 7919) % 256);
    const root = await files({ 'report.dat': noise, 'photo.png': noise, 'good.md': 'readable', 'large.log': 'a' });
    await truncate(join(root, 'photo.png'), 2 ** 31);
    await writeFile(join(root, 'large.log'), 'A line of the log.\n'.repeat(4_000));
    await truncate(join(root, 'large.log'), 72 * 2 ** 20);
    const collection = await collections.getOrMake('default', 'handbook');
    const report = await collection.ingest([root]);
    const skipped = [
      { file: 'docs/photo.png', reason: 'it is a picture' },
      { file: 'docs/report.dat', reason: expect.stringContaining('not a text') as string },
    ];
    expect(report).toMatchObject({ skippedCount: 2, skipped, errorCount: 1 });
    expect(report.errors[0]!.message).toMatch(/^the file has 72 MB, and 64 are read at most/);
    const named = await collection.ingest([join(root, 'report.dat'), root]);
    expect(named).toMatchObject({ skippedCount: 1, errorCount: 2 });
    expect(named.errors[0]).toMatchObject({ file: 'report.dat', message: expect.stringContaining('not a text') });
  });

  it.runIf(isFull)('says of a file that takes too much memory which limit it met, and reads the others', async () => {
    const packed = pdf([[' '.repeat(2 ** 28)]], { isPacked: true });
    const root = await files({ 'a.md': 'Before.', 'bomb.pdf': packed, 'c.md': 'After.', 'd.html': '<p>Later.' });
    const own = new Collections(join(folder, 'small'), { memoryBytes: 2 ** 26 });
    try {
      const collection = await own.getOrMake('default', 'handbook');
      const report = await collection.ingest([root]);
      expect(report).toMatchObject({ files: 4, added: 3, errorCount: 1 });
      expect(report.errors[0]).toMatchObject({
        file: 'docs/bomb.pdf',
        message: expect.stringContaining('reading it takes more than 192 MiB of memory') as string,
      });
      expect(await collection.ingest([root])).toMatchObject({ unchangedFiles: 3, errorCount: 1 });
    } finally {
      await own.close();
    }
  });

  it('cuts documents as it was told at last, also those that are handed in', async () => {
    const text = Array.from({ length: 100 }, (_, at) => `Sentence ${at} is neither short nor long.`).join(' ');
    const root = await files({ 'a.md': text });
    const passagesOf = (collection: Collection, id: string) => collection.document(id)!.passages.length;
    const collection = await collections.getOrMake('default', 'handbook');
    expect(collection.chunks).toEqual({ tokens: 384, overlap: 48 });
    const chunks = { tokens: 128, overlap: 16 };
    await collection.ingest([root], { chunks });
    const count = passagesOf(collection, 'docs/a.md');
    expect(count).toBeGreaterThan(5);
    const again = new Collections(join(folder, 'collections'));
    try {
      const opened = await again.get('default', 'handbook');
      expect(opened.chunks).toEqual(chunks);
      expect(await opened.ingest([root])).toMatchObject({ unchangedFiles: 1, changed: 0 });
      await opened.put([{ id: 'handed', content: text }]);
      expect(passagesOf(opened, 'handed')).toBe(count);
      await opened.ingest([root], { chunks: { tokens: 512, overlap: 64 } });
      expect(passagesOf(opened, 'docs/a.md')).toBeLessThan(count);
    } finally {
      await again.close();
    }
    expect(collection.chunks).toEqual({ tokens: 512, overlap: 64 });
  });

  it('takes documents in by hand, replaces and removes them', async () => {
    const collection = await collections.getOrMake('default', 'notes');
    expect(await collection.put(DOCUMENTS)).toMatchObject({ added: DOCUMENTS.length });
    expect(await collection.put(DOCUMENTS)).toMatchObject({ unchanged: DOCUMENTS.length });
    expect(await collection.put([{ id: 'bread', content: 'Wheat bread rises fast.' }])).toMatchObject({ changed: 1 });
    expect((await find(collection, 'sourdough')).length).toBe(0);
    expect(await collection.remove(['bread', 'nothing'])).toMatchObject({ removed: 1 });
    expect(collection.document('bread')).toBeUndefined();
    expect(collection.totals.documents).toBe(DOCUMENTS.length - 1);
  });

  it('comes back from an export as it was, in another collection', async () => {
    const root = await files({ 'a.md': `# A\n\n${'Some words of one section. '.repeat(400)}`, 'b.md': 'beta' });
    const collection = await collections.getOrMake('default', 'one');
    await collection.ingest([root]);
    const copy = await collections.getOrMake('default', 'two');
    const lines = contents(collection);
    await copy.import(bytesOf(lines));
    expect(contents(copy)).toEqual(lines);
    expect(copy.totals).toEqual(collection.totals);
    expect(await find(copy, 'beta')).toEqual(await find(collection, 'beta'));
  });

  it('says of a bad line of an export how much was taken in before it, and of a file before anything is', async () => {
    const line = (id: number) => `{"id": "d${id}", "passages": [{"content": "Passage ${id}."}]}\n`;
    const good = Array.from({ length: 600 }, (_, id) => line(id));
    const collection = await collections.getOrMake('default', 'one');
    for (const [bad, words] of [
      ['{"id": 3}\n', 'it is no document of an export'],
      ['{"id": "x", "passages": [{}]}\n', 'a passage has no string `content`'],
      ['{"id": "x", "passa\n', 'it is not valid JSON'],
      ['null\n', 'it is no document of an export'],
    ] as const) {
      const refusal = { code: 'WARMPATH_INVALID_REQUEST', path: 'line 601' };
      const message = expect.stringContaining(words) as string;
      await expect(checkExport(bytesOf([...good, bad]))).rejects.toMatchObject({ ...refusal, message });
      const taken = expect.stringContaining('512 documents before it were taken in') as string;
      await expect(collection.import(bytesOf([...good, bad]))).rejects.toMatchObject({ ...refusal, message: taken });
    }
    expect(collection.totals.documents).toBe(512);
    expect(await checkExport(bytesOf(['\n', ...good, '\n']))).toBe(600);
  });

  it('reads an export as fast whatever its lines are cut into, and refuses one without line breaks', async () => {
    const collection = await collections.getOrMake('default', 'one');
    const content = 'ä word '.repeat(300_000);
    const line = Buffer.from(JSON.stringify({ id: 'large', passages: [{ content }] }));
    const pieces = (async function* () {
      for (let at = 0; at < line.length; at += 97) yield line.subarray(at, at + 97);
    })();
    expect(await collection.import(pieces)).toMatchObject({ added: 1 });
    expect((await find(collection, 'ä'))[0]!.content).toBe(content);
    const megabyte = Buffer.alloc(2 ** 20, 'x');
    const endless = (async function* () {
      for (let count = 0; count < 257; count++) yield megabyte;
    })();
    await expect(checkExport(endless)).rejects.toMatchObject({
      path: 'line 1',
      message: expect.stringContaining('the line is longer than 256 MB') as string,
    });
  });

  it('forgets documents by their id, their file or a folder that is gone, and takes in again what is there', async () => {
    const root = await files({ 'old/a.md': 'alpha', 'old/b.md': 'beta', 'c.md': 'gamma', 'd.md': 'delta' });
    const collection = await collections.getOrMake('default', 'handbook');
    await collection.ingest([root]);
    await collection.put([{ id: 'handed', content: 'epsilon' }]);
    await rm(join(root, 'old'), { recursive: true });
    expect(await collection.documentsAt(join(root, 'old'))).toBe(2);
    expect(await collection.documentsAt(join(root, 'ol'))).toBe(0);
    const names = [join(root, 'old'), 'docs/c.md', 'handed', 'nothing', ''];
    expect(await collection.forget(names)).toEqual({ removed: 4, unknown: ['nothing', ''] });
    expect([...collection.documents()].map(({ id }) => id)).toEqual(['docs/d.md']);
    expect(await collection.ingest([root])).toMatchObject({ added: 1, unchangedFiles: 1, removed: 0 });
    expect((await find(collection, 'gamma')).length).toBe(1);
    // A link to the folder names the same files.
    await symlink(root, join(folder, 'link'));
    expect(await collection.forget([join(folder, 'link', 'c.md')])).toEqual({ removed: 1, unknown: [] });
  });

  it('is apart from other tenants, whatever they are called', async () => {
    const tenants = ['default', '../default', 'Default', 'a/b', '', 'x'.repeat(500)];
    for (const tenant of tenants) {
      await (await collections.getOrMake(tenant, 'same')).put([{ id: 'd', content: `of ${tenant.length} ${tenant}` }]);
    }
    for (const tenant of tenants) {
      expect(await collections.names(tenant)).toEqual(['same']);
      expect((await find(await collections.get(tenant, 'same'), 'of')).length).toBe(1);
    }
    await collections.delete('default', 'same');
    expect(await collections.names('default')).toEqual([]);
    expect(await collections.names('Default')).toEqual(['same']);
    for (const name of ['', '..', 'a/b', 'A', '.x', 'x'.repeat(65)]) {
      await expect(collections.getOrMake('default', name)).rejects.toMatchObject({ code: 'WARMPATH_COLLECTION_NAME' });
    }
    await expect(collections.get('default', 'none')).rejects.toMatchObject({ code: 'WARMPATH_COLLECTION_NOT_FOUND' });
  });

  it('is found deleted by whoever has it open, and can be made again', async () => {
    const collection = await collections.getOrMake('default', 'gone');
    await collection.put(DOCUMENTS);
    await collections.delete('default', 'gone');
    await expect(find(collection, 'harbour')).rejects.toMatchObject({ code: 'WARMPATH_COLLECTION_NOT_FOUND' });
    const again = await collections.getOrMake('default', 'gone');
    expect(again.totals.documents).toBe(0);
    expect(await find(again, 'harbour')).toEqual([]);
  });

  it('lets one write at a time within a process, one after the other', async () => {
    const collection = await collections.getOrMake('default', 'queue');
    const texts = Array.from({ length: 20 }, (_, number) => [{ id: `d${number}`, content: `word${number}` }]);
    await Promise.all(texts.map((documents) => collection.put(documents)));
    expect(collection.totals.documents).toBe(20);
    expect((await find(collection, 'word7')).length).toBe(1);
  });
});

describe('an ingestion in another process', () => {
  const children: ChildProcess[] = [];
  afterEach(() => {
    for (const child of children.splice(0)) child.kill('SIGKILL');
  });

  /** Ingests in a process of its own, which writes a line for each transaction that is committed. */
  const start = (root: string) => {
    const script = fileURLToPath(new URL('./ingest-process.js', import.meta.url));
    const child = spawn(process.execPath, [script, join(folder, 'collections'), root], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    children.push(child);
    const closed = once(child, 'close');
    return { child, closed, lines: createInterface({ input: child.stdout! })[Symbol.asyncIterator]() };
  };

  const corpus = (count: number) =>
    Object.fromEntries(
      Array.from({ length: count }, (_, number) => [
        `f${number}.md`,
        `# File ${number}\n\n${Array.from({ length: 12 }, (_, line) => `Line ${line} of file ${number} w${(number * 31 + line) % 97}.`).join('\n\n')}`,
      ]),
    );

  it('is refused where its file is no database, and does not end the process', async () => {
    const place = join(folder, 'collections', 'default', 'handbook');
    await mkdir(place, { recursive: true });
    for (const bytes of ['x', 'no database '.repeat(10_000)]) {
      await writeFile(join(place, 'data.mdb'), bytes);
      await expect(collections.get('default', 'handbook')).rejects.toMatchObject({
        code: 'WARMPATH_COLLECTION_UNREADABLE',
        message: expect.stringContaining('data.mdb is no database') as string,
      });
    }
  });

  it.runIf(isFull)('ends with what the disk took, where it takes no more, and goes on later', async () => {
    const root = await files(corpus(600));
    const script = fileURLToPath(new URL('./ingest-process.js', import.meta.url));
    // Files of at most 512 KiB: the error comes from the database itself, as on a disk that is full.
    const limited = ['-c', 'ulimit -f 512; exec "$@"', 'bash', process.execPath, script];
    const child = spawn('bash', [...limited, join(folder, 'collections'), root], { stdio: ['pipe', 'pipe', 'ignore'] });
    children.push(child);
    child.stdin!.end('go on\n');
    let told = '';
    child.stdout!.on('data', (text: Buffer) => (told += text.toString()));
    const [status] = await once(child, 'close');
    expect(status).toBe(3);
    expect(told.trimEnd().split('\n').at(-1)).toBe('WARMPATH_COLLECTION_UNWRITABLE');
    const collection = await collections.get('default', 'handbook');
    const { documents } = collection.totals;
    expect(documents).toBeLessThan(600);
    expect((await collection.ingest([root])).added).toBe(600 - documents);
  });

  it('is told apart from a second one, and does not disturb who searches', async () => {
    const root = await files(corpus(600));
    const { child, closed, lines } = start(root);
    await lines.next();
    const collection = await collections.get('default', 'handbook');
    expect((await find(collection, 'File 0')).length).toBeGreaterThan(0);
    await expect(collection.put(DOCUMENTS)).rejects.toMatchObject({ code: 'WARMPATH_COLLECTION_BUSY' });
    child.stdin!.end('go on\n');
    await closed;
    expect(collection.totals.documents).toBe(600);
    expect((await find(collection, 'File 599')).length).toBeGreaterThan(0);
    await collection.put(DOCUMENTS);
  });

  it.runIf(isFull)(
    'loses nothing that was committed when it is killed, writes nothing by halves, and goes on where it was',
    async () => {
      const lines = Array.from({ length: 1500 }, (_, number) =>
        JSON.stringify({ id: `line-${number}`, text: `Line ${number} has w${number % 97}. `.repeat(30) }),
      );
      const root = await files({ ...corpus(150), 'lines.jsonl': `${lines.join('\n')}\n` });
      const whole = new Collections(join(folder, 'whole'));
      const reference = await whole.getOrMake('default', 'handbook');
      await reference.ingest([root]);
      const expected = contents(reference);
      const documents = new Set(expected);
      let kills = 0;
      let committed = 0;
      for (let finished = false; !finished; ) {
        const { child, closed, lines } = start(root);
        child.stdin!.end('go on\n');
        // Killed in the midst of the transactions behind the kill-th line.
        for (let line = 0; ; line++) {
          const { value, done } = await lines.next();
          if (done) {
            finished = true;
            break;
          }
          committed = Math.max(committed, Number(value));
          if (line === kills % 3) {
            const delay = (kills * 7919) % 23;
            for (let turn = 0; turn < delay; turn++) await new Promise(setImmediate);
            break;
          }
        }
        if (!finished) {
          kills++;
          child.kill('SIGKILL');
          await closed;
        }
        const after = new Collections(join(folder, 'collections'));
        const collection = await after.get('default', 'handbook');
        const stored = contents(collection);
        expect(stored.length).toBeGreaterThanOrEqual(committed);
        expect(stored.every((document) => documents.has(document))).toBe(true);
        expect(collection.totals.documents).toBe(stored.length);
        const passages = stored.reduce((sum, line) => sum + (JSON.parse(line) as { passages: [] }).passages.length, 0);
        expect(collection.totals.passages + collection.totals.duplicates).toBe(passages);
        await after.close();
      }
      expect(kills).toBeGreaterThan(2);
      const collection = await collections.get('default', 'handbook');
      expect(contents(collection)).toEqual(expected);
      for (const text of ['w7', 'File 12', 'Line 3 of file 149', 'Line 1499']) {
        const scores = (await find(collection, text)).map(({ score }) => score);
        expect(scores).toEqual((await find(reference, text)).map(({ score }) => score));
      }
      await whole.close();
    },
  );
});
