import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findFiles } from '../src/ingest/find-files.ts';
import { readDocuments } from '../src/ingest/read-file.ts';

const { signal } = new AbortController();
let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-rows-'));
});
afterAll(() => rm(folder, { recursive: true }));

async function read(name: string, text: string) {
  const path = join(folder, name);
  await writeFile(path, text);
  const { files } = await findFiles([path], { signal });
  const read: unknown[] = [];
  for await (const one of (await readDocuments(files[0]!, { tokens: 384, overlap: 48 }, signal)).documents()) {
    read.push(
      'message' in one ? one : [one.id, one.title, one.passages.map(({ content }) => content).join('\n'), one.metadata],
    );
  }
  return read;
}

describe('a file of documents', () => {
  it('that is a table with a column of texts has a document a row, with the other columns as metadata', async () => {
    const csv =
      'id;title;text;year;code\n7;Velka;"The weight; 42 kg.";2003;007\n;;Orsin has 17 kg.;;\n7;;12;1;\n8;Tamir;;;\n';
    expect(await read('cranes.csv', csv)).toEqual([
      ['7', 'Velka', 'The weight; 42 kg.', { year: 2003, code: '007' }],
      ['cranes.csv:2', undefined, 'Orsin has 17 kg.', undefined],
      ['7:3', undefined, '12', { year: 1 }],
      { position: 'record 4', message: expect.stringContaining('it has no string under `content`') as string },
    ]);
  });

  it('that is a list of objects with texts has a document each', async () => {
    const json = JSON.stringify([{ _id: 'a', content: 'One.', tags: ['x'], year: 1988 }, { title: 'no text' }]);
    expect(await read('list.json', json)).toEqual([
      ['a', undefined, 'One.', { year: 1988 }],
      { position: 'record 2', message: expect.stringContaining('it has no string') as string },
    ]);
  });

  it('that has a document a line has its other fields as metadata, below those that are named so', async () => {
    const line = { id: 'a', text: 'One.', year: 1988, open: true, nested: { a: 1 }, metadata: { year: 2003 } };
    expect(await read('lines.jsonl', JSON.stringify(line))).toEqual([
      ['a', undefined, 'One.', { year: 2003, open: true }],
    ]);
  });
});

describe('a file that is one document', () => {
  it('is a table without a column of texts, and other JSON', async () => {
    const [[id, , content]] = (await read('plain.csv', 'Crane,Lifts\nOrsin,40\nVelka,12\n')) as [string[]];
    expect([id, content]).toEqual(['plain.csv', 'Crane | Lifts\nOrsin | 40\nVelka | 12']);
    expect(await read('settings.json', '{"text": "One.", "a": [1]}')).toEqual([
      ['settings.json', undefined, '{"text": "One.", "a": [1]}', undefined],
    ]);
    expect(await read('broken.json', '[{"text": ')).toHaveLength(1);
  });

  it('has the header of its table in each passage', async () => {
    const rows = Array.from({ length: 300 }, (_, at) => `Crane ${at},${at} t,in use since ${1900 + at}`);
    const path = join(folder, 'long.csv');
    await writeFile(path, `Crane,Lifts,State\n${rows.join('\n')}`);
    const { files } = await findFiles([path], { signal });
    for await (const one of (await readDocuments(files[0]!, { tokens: 384, overlap: 48 }, signal)).documents()) {
      if ('message' in one) throw new Error(one.message);
      expect(one.passages.length).toBeGreaterThan(3);
      for (const { content } of one.passages) expect(content).toMatch(/^Crane \| Lifts \| State\n/);
    }
  });
});
