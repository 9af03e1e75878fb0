import type { ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { EventEmitter, once } from 'node:events';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Collections } from '@warmpath/retrieval';
import OpenAI from 'openai';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { isFull } from '../../../test/suite.js';
import { startFakeEmbeddings } from '../../retrieval/test/fake-embeddings.js';
import { pdf } from '../../retrieval/test/hand-written-pdf.js';
import { startJsonServer } from '../../retrieval/test/json-server.js';
import type { GatewayParts } from '../src/assemble-gateway.js';
import { type Asker, OpenCollections } from '../src/collections/open-collections.js';
import { resolveConfig } from '../src/config/load.js';
import type { Log } from '../src/observe/log.js';
import type { Answer } from './fake-engine.js';
import {
  closing,
  errorOf,
  openRequest,
  type Reply,
  type StandConfig,
  send,
  stand,
  told,
  untilMetric,
} from './harness.js';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-gateway-collections-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const DOCUMENTS = [
  { id: 'velka', title: 'Velka', content: 'The weight of Velka is 42 kg. The colour of Velka is teal.' },
  { id: 'orsin', title: 'Orsin', content: 'The weight of Orsin is 17 kg. The founder of Orsin is Mirela.' },
  { id: 'tamir', title: 'Tamir', content: 'The colour of Tamir is red.', metadata: { page: 3 } },
];
const question = (content: unknown, fields: object = {}) => ({
  model: 'm',
  messages: [{ role: 'user', content }],
  ...fields,
});
const retrieval = { collection: 'handbook', k: 2 };
const json = ({ text }: Reply) => JSON.parse(text) as Record<string, never>;

const here = async (
  { collections, ...config }: Omit<StandConfig, 'collections'> & { collections?: object } = {},
  answer?: Answer,
  parts?: GatewayParts,
) => {
  const one = await stand(answer, { ...config, collections: { folder, ...collections } }, parts);
  const at = (path: string) => `${one.gateway.url}/v1/${path}`;
  return { ...one, at };
};
type Here = Awaited<ReturnType<typeof here>>;
const fill = ({ at }: Here, headers: Record<string, string> = {}, name = 'handbook') =>
  send(at(`collections/${name}/documents`), { documents: DOCUMENTS }, { headers });
/** The ids and order of documents in the prompt that the engine got. */
const promptOf = ({ engine }: Here) =>
  (JSON.parse(engine.last.body) as { messages: { content: string }[] }).messages.at(-1)!.content;

describe('collections over HTTP', () => {
  it('takes documents in, lists, finds and removes them', async () => {
    const one = await here();
    expect(json(await fill(one))).toEqual({
      object: 'ingestion',
      collection: 'handbook',
      added: 3,
      changed: 0,
      unchanged: 0,
    });
    expect(json(await fill(one))).toMatchObject({ added: 0, unchanged: 3 });
    expect(json(await send(one.at('collections')))).toMatchObject({
      object: 'list',
      data: [{ object: 'collection', id: 'handbook', documents: 3, passages: 3, duplicates: 0 }],
    });
    const found = json(await send(one.at('collections/handbook/search'), { query: 'colour of Tamir', k: 2 }));
    expect(found).toMatchObject({
      object: 'search',
      collection: 'handbook',
      results: [{ title: 'Tamir', content: 'The colour of Tamir is red.', metadata: { page: 3, source: 'tamir' } }, {}],
    });
    expect(json(await send(one.at('collections/handbook/documents?after=velka')))).toMatchObject({
      data: [
        { id: 'orsin', passages: 1 },
        { id: 'tamir', metadata: { page: 3 } },
      ],
      has_more: false,
    });
    const removed = await send(one.at('collections/handbook/documents?id=velka&id=none'), undefined, {
      method: 'DELETE',
    });
    expect(json(removed)).toEqual({ object: 'ingestion', collection: 'handbook', removed: 1 });
    expect(json(await send(one.at('collections/handbook'), undefined, { method: 'DELETE' }))).toMatchObject({
      deleted: true,
    });
    expect(errorOf(await send(one.at('collections/handbook/documents'))).code).toBe('WARMPATH_COLLECTION_NOT_FOUND');
    expect(one.engine.received).toEqual([]);
  });

  it('takes documents in the form of other libraries, and leaves empty ones out with a warning', async () => {
    const one = await here();
    const documents = [
      { id: 1, pageContent: 'The weight of Velka is 42 kg.', metadata: { page: 3 }, type: 'Document' },
      { id_: 'two', text: 'The weight of Orsin is 17 kg.', embedding: null },
      { id: 3, data: { snippet: 'The weight of Tamir is 5 kg.' } },
      { id: 'empty', content: ' ' },
    ];
    const reply = json(await send(one.at('collections/handbook/documents'), { documents }));
    expect(reply).toMatchObject({
      added: 3,
      warnings: [{ code: 'WARMPATH_EMPTY_DOCUMENT', path: 'documents[3].content' }],
    });
    expect(json(await send(one.at('collections/handbook/documents')))).toMatchObject({
      data: [{ id: '1', metadata: { page: 3 } }, { id: 'two' }, { id: '3' }],
    });
  });

  describe('documents as JSON lines', () => {
    const headers = { 'content-type': 'application/x-ndjson; charset=utf-8' };
    const lines = DOCUMENTS.map((document) => JSON.stringify(document));
    const put = (one: Here, body: string) => send(one.at('collections/handbook/documents'), body, { headers });

    it.each([
      ['as they are', lines.join('\n')],
      ['with an end and empty ones', `\n${lines.join('\n\n')}\n`],
      ['of Windows', `${lines.join('\r\n')}\r\n\r\n`],
    ])('are taken in like an array of them, %s', async (_, body) => {
      const one = await here();
      expect(json(await put(one, body))).toMatchObject({ object: 'ingestion', added: 3 });
      expect(json(await fill(one))).toMatchObject({ added: 0, unchanged: 3 });
    });

    it.each([
      ['{bad', 'WARMPATH_INVALID_JSON', 'line 3'],
      ['["an array"]', 'WARMPATH_INVALID_JSON', 'line 3'],
      ['{"id": "a", "content": "b"} {}', 'WARMPATH_INVALID_JSON', 'line 3'],
      ['{"id": "a"}', 'WARMPATH_INVALID_DOCUMENT', 'line 3.content'],
      ['{"content": "a"}', 'WARMPATH_INVALID_DOCUMENT', 'line 3.id'],
      ['{"id": "a", "data": {"text": 7}}', 'WARMPATH_INVALID_DOCUMENT', 'line 3.data.text'],
      [`{"id": "a", "content": "b", "metadata": ${'['.repeat(300)}`, 'WARMPATH_BODY_TOO_COMPLEX', 'line 3'],
      [`{"id": "a", "metadata": {"x": [${'1,'.repeat(50_000)}1]}}`, 'WARMPATH_BODY_TOO_COMPLEX', 'line 3'],
    ])('are refused with the line of what is wrong, all of them: %s', async (line, code, param) => {
      const one = await here();
      const reply = await put(one, `${lines[0]}\n\n${line}\n${lines[1]}\n`);
      expect(errorOf(reply)).toMatchObject({ code, param });
      expect(json(await send(one.at('collections')))).toMatchObject({ data: [] });
    });

    it('are bounded as an array of them is', async () => {
      const one = await here();
      const refused = async (body: string) => errorOf(await put(one, body)).code;
      expect(await refused(`${lines[0]}\n`.repeat(1_001))).toBe('WARMPATH_TOO_MANY_DOCUMENTS');
      expect(await refused('\n'.repeat(60_000))).toBe('WARMPATH_BODY_TOO_COMPLEX');
      expect(await refused('{}\n'.repeat(60_000))).toBe('WARMPATH_BODY_TOO_COMPLEX');
      expect(await refused(JSON.stringify({ id: 'a', content: 'x'.repeat(8_400_000) }))).toBe(
        'WARMPATH_BODY_TOO_LARGE',
      );
      expect(await refused('\n')).toBe('WARMPATH_INVALID_REQUEST');
    });
  });

  describe('a whole file', () => {
    const put = (one: Here, type: string, body: string | Uint8Array, query = 'id=a') =>
      send(one.at(`collections/handbook/documents?${query}`), Buffer.from(body), { headers: { 'content-type': type } });
    const found = async (one: Here, query: string) => {
      const reply = await send(one.at('collections/handbook/search'), { query, k: 1 });
      return (json(reply) as unknown as { results: { title?: string; content: string }[] }).results[0];
    };
    const ids = async (one: Here) => {
      const { data } = json(await send(one.at('collections/handbook/documents'))) as unknown as {
        data: { id: string }[];
      };
      return data.map(({ id }) => id);
    };
    const warningsOf = (reply: Reply) =>
      (json(reply) as unknown as { warnings: Record<string, string>[] }).warnings.map(({ path, message }) => [
        path,
        message,
      ]);
    const PDF = 'application/pdf';
    /** Its page takes long to read, in one go. */
    const slowPdf = (word: string) => pdf([[`${word}) Tj${' '.repeat(16_000_000)}(slow`]]);
    const [lines, other] = [['The weight of Velka', 'is 42 kg.'], ['The colour of Velka is teal.']];

    /** The processes that are started from now on, to the end of the test. */
    const processes = () => {
      const started: ChildProcess[] = [];
      const begun = new EventEmitter<{ process: [ChildProcess] }>();
      const listen = (message: unknown) => {
        const { process: child } = message as { process: ChildProcess };
        started.push(child);
        child.once('spawn', () => begun.emit('process', child));
      };
      subscribe('child_process', listen);
      onTestFinished(() => void unsubscribe('child_process', listen));
      const next = async () => (await once(begun, 'process'))[0] as ChildProcess;
      return { started, next };
    };

    it.each<[string, string | Uint8Array, string | undefined]>([
      ['application/pdf', pdf([lines, other]), undefined],
      ['text/markdown', '# Velka\n\nThe weight of Velka\nis 42 kg.', 'Velka'],
      ['Text/HTML; charset=utf-8', '<title>Velka</title><p>The weight of Velka is 42 kg.<script>no</script>', 'Velka'],
      ['text/plain;charset=utf-8', 'The weight of Velka is 42 kg.', undefined],
      ['text/plain', Buffer.from('\ufeffThe weight of Velka is 42 kg.', 'utf16le'), undefined],
      [
        'text/markdown',
        `# Velka\n\nThe weight of Velka is 42 kg.\n\n${'## Long\n\nWords and words.\n\n'.repeat(2_000)}`,
        'Velka',
      ],
    ])('of type %s is taken in as one document', async (type, body, title) => {
      const one = await here();
      const reply = await put(one, type, body, 'id=hand%20book');
      expect(json(reply)).toEqual({ object: 'ingestion', collection: 'handbook', added: 1, changed: 0, unchanged: 0 });
      expect((await found(one, 'weight'))?.content).toMatch(/The weight of Velka\sis 42 kg\./);
      expect((await found(one, 'weight'))?.title).toBe(title);
      expect(json(await put(one, type, body, 'id=hand%20book'))).toMatchObject({ unchanged: 1 });
      expect(json(await put(one, type, body, 'id=hand%20book&title=The+book'))).toMatchObject({ changed: 1 });
      expect((await found(one, 'weight'))?.title).toMatch(/^The book/);
      expect(await ids(one)).toEqual(['hand book']);
    });

    describe('in a form', () => {
      const form = (one: Here, files: readonly File[], fields: Readonly<Record<string, string>> = {}, query = '') => {
        const data = new FormData();
        for (const [name, value] of Object.entries(fields)) data.set(name, value);
        for (const file of files) data.append('file', file);
        return fetch(one.at(`collections/handbook/documents${query}`), { method: 'POST', body: data });
      };
      const file = (name: string, text: string | Uint8Array, type = '') =>
        new File([text as Uint8Array<ArrayBuffer>], name, { type });
      const refusalOf = async (reply: Response) => {
        const { error } = (await reply.json()) as { error: { code: string; param: string; message: string } };
        return [reply.status, error.code, error.param];
      };

      it('is a document with the id of its name, by its type or the ending of its name', async () => {
        const one = await here();
        const files = [
          file('a.md', '# Velka\n\nThe weight of Velka is 42 kg.', 'application/octet-stream'),
          file('b', '<p>The colour of Velka is teal.', 'text/html; charset=utf-8'),
          file('c.pdf', pdf([['The founder of Orsin', 'is Mirela.']])),
          file('ü d.html', '<p>The colour of Tamir is red.', 'text/plain'),
          file('empty.txt', ''),
        ];
        const reply = (await (await form(one, files)).json()) as object;
        expect(reply).toMatchObject({
          added: 4,
          warnings: [{ code: 'WARMPATH_EMPTY_DOCUMENT', path: 'file empty.txt' }],
        });
        expect(await ids(one)).toEqual(['a.md', 'b', 'c.pdf', 'ü d.html']);
        expect((await found(one, 'weight'))?.title).toBe('Velka');
        expect((await found(one, 'Tamir'))?.content).toBe('The colour of Tamir is red.');
        expect(await (await form(one, files)).json()).toMatchObject({ unchanged: 4 });
      });

      it('that is the only one may have an id and a title', async () => {
        const one = await here();
        const given = { id: 'book', title: 'The book' };
        expect(await (await form(one, [file('a.txt', 'Velka')], given)).json()).toMatchObject({ added: 1 });
        expect(await (await form(one, [file('a.txt', 'Orsin')], {}, '?id=other')).json()).toMatchObject({ added: 1 });
        expect(await ids(one)).toEqual(['book', 'other']);
        expect((await found(one, 'Velka'))?.title).toBe('The book');
      });

      it('is refused with the others where one cannot be read, and nothing changes', async () => {
        const one = await here();
        const good = file('a.txt', 'Velka');
        const cases: [readonly File[], Readonly<Record<string, string>>, unknown[]][] = [
          [[good, file('b.exe', 'MZ')], {}, [415, 'WARMPATH_MEDIA_TYPE', 'file b.exe']],
          [[good, file('b.pdf', 'no PDF')], {}, [422, 'WARMPATH_UNREADABLE_FILE', 'file b.pdf']],
          [[good, good], {}, [400, 'WARMPATH_INVALID_REQUEST', 'file a.txt']],
          [[good, file('b.txt', 'b')], { id: 'x' }, [400, 'WARMPATH_INVALID_REQUEST', 'id']],
          [[good], { purpose: 'assistants' }, [400, 'WARMPATH_INVALID_REQUEST', 'purpose']],
          [[], { id: 'x' }, [400, 'WARMPATH_INVALID_REQUEST', 'body']],
          [[file('a.txt', ''), file('b.txt', ' ')], {}, [400, 'WARMPATH_EMPTY_DOCUMENT', 'file a.txt']],
        ];
        for (const [files, fields, expected] of cases) {
          expect(await refusalOf(await form(one, files, fields))).toEqual(expected);
        }
        expect(errorOf(await send(one.at('collections/handbook/documents'))).code).toBe(
          'WARMPATH_COLLECTION_NOT_FOUND',
        );
      });
    });

    it.each(['image/png', 'application/octet-stream', 'text/css'])(
      'of type %s is refused with the types that are read',
      async (type) => {
        const { message } = errorOf(await put(await here(), type, 'x')) as unknown as { message: string };
        for (const known of [
          'application/json',
          'application/x-ndjson',
          'multipart/form-data',
          'application/pdf',
          'text/html',
        ]) {
          expect(message).toContain(known);
        }
      },
    );

    it('gets vectors, and is cut as its collection is', async () => {
      const fake = closing(await startFakeEmbeddings());
      const one = await here({ collections: { embeddings: { url: fake.url, model: 'fake' } } });
      const cut = new Collections(folder);
      const collection = await cut.getOrMake('default', 'handbook');
      await collection.ingest([], { chunks: { tokens: 128, overlap: 0 } });
      await cut.close();
      const reply = await put(one, PDF, pdf([Array.from({ length: 40 }, (_, row) => `Row ${row} of many words.`)]));
      // As one passage without a setting of its own.
      expect(json(reply)).toMatchObject({ added: 1, embedded: 2 });
      expect(fake.requests).not.toEqual([]);
    });

    const noise = Uint8Array.from({ length: 5_000 }, (_, at) => (at * 7919) % 256);
    const unreadable: readonly [type: string, body: string | Uint8Array, code: string, detail: RegExp][] = [
      [PDF, pdf([['x']], { isLocked: true }), 'WARMPATH_UNREADABLE_FILE', /encrypted/],
      [PDF, '%PDF-1.7\nthis is no PDF', 'WARMPATH_UNREADABLE_FILE', /broken/],
      [PDF, '', 'WARMPATH_UNREADABLE_FILE', /broken/],
      [PDF, pdf([[]]), 'WARMPATH_UNREADABLE_FILE', /no text/],
      [PDF, pdf([['x'], ['y']], { brokenPages: [1, 2] }), 'WARMPATH_UNREADABLE_FILE', /page 1: the page is broken/],
      ['text/plain', noise, 'WARMPATH_UNREADABLE_FILE', /not a text: line 1/],
      ['text/markdown', Buffer.concat(Array(40).fill(noise)), 'WARMPATH_UNREADABLE_FILE', /not a text: line 1/],
      ['text/plain', '', 'WARMPATH_EMPTY_DOCUMENT', /no text/],
      ['text/markdown', ' \n\n', 'WARMPATH_EMPTY_DOCUMENT', /no text/],
      ['text/html', '<script>only()</script>', 'WARMPATH_EMPTY_DOCUMENT', /no text/],
    ];
    const ofEachTypeAndCode = unreadable.filter(
      ([type, , code], i) => i === unreadable.findIndex((other) => other[0] === type && other[2] === code),
    );
    it.each(isFull ? unreadable : ofEachTypeAndCode)(
      'of type %s that cannot be read is refused, and changes nothing',
      async (type, body, code, detail) => {
        const one = await here();
        const refused = await put(one, type, body);
        expect(errorOf(refused)).toMatchObject({ code, message: expect.stringMatching(detail) as string });
        expect(refused.status).toBe(code === 'WARMPATH_UNREADABLE_FILE' ? 422 : 400);
        expect(json(await send(one.at('collections')))).toMatchObject({ data: [] });
        await put(one, 'text/plain', 'The weight of Velka is 42 kg.');
        expect(errorOf(await put(one, type, body)).code).toBe(code);
        expect((await found(one, 'weight'))?.content).toBe('The weight of Velka is 42 kg.');
      },
    );

    it.each([
      ['', 'id'],
      ['id=', 'id'],
      ['id=a&id=b', 'id'],
      [`id=${'a'.repeat(513)}`, 'id'],
      ['id=a&title=b&title=c', 'title'],
    ])('needs one id: %s', async (query, param) => {
      const one = await here();
      const reply = await put(one, 'text/plain', 'A text.', query);
      expect(errorOf(reply)).toMatchObject({ code: 'WARMPATH_INVALID_REQUEST', param });
      expect(json(await put(one, 'text/plain', 'A text.', `id=${'a'.repeat(512)}`))).toMatchObject({ added: 1 });
    });

    it.runIf(isFull)('is bounded by its text, and not by its size', async () => {
      const one = await here({}, undefined, { maxCollectionBytes: 1_000_050 });
      const text = 'x'.repeat(1_000_001);
      for (const [type, body] of [
        ['text/plain', text],
        ['text/markdown', text],
        ['text/html', `<p>${text}`],
        [PDF, pdf(Array(500).fill(Array(48).fill('x'.repeat(45))))],
      ] as const) {
        expect(errorOf(await put(one, type, body)).code).toBe('WARMPATH_DOCUMENT_TOO_LARGE');
      }
      const small = pdf([['x'.repeat(30)], ['x'.repeat(30)]]);
      expect(json(await put(one, PDF, small))).toMatchObject({ added: 1 });
      const { data } = json(await send(one.at('collections/handbook/documents'))) as unknown as { data: object[] };
      // A paragraph that goes on across pages is joined with a space.
      expect(data).toMatchObject([{ id: 'a', bytes: 61 }]);
      expect(errorOf(await put(one, 'text/plain', text.slice(1), 'id=b')).code).toBe('WARMPATH_BODY_TOO_LARGE');
      expect(await ids(one)).toEqual(['a']);
    });

    it('of which pages cannot be read is a part, which replaces nothing that was read whole', async () => {
      const one = await here();
      const part = pdf([['new page'], ['lost']], { brokenPages: [2] });
      const page = ['page 2', 'the page is broken'];
      const first = await put(one, PDF, part);
      expect(json(first)).toMatchObject({ added: 1, warnings: [{ code: 'WARMPATH_UNREADABLE_FILE' }] });
      expect(warningsOf(first)).toEqual([page]);
      expect(json(await put(one, PDF, part))).toMatchObject({ unchanged: 1 });
      // A part may replace a part, and the whole does.
      expect(json(await put(one, PDF, pdf([['newer page'], []], { brokenPages: [2] })))).toMatchObject({ changed: 1 });
      expect(json(await put(one, PDF, pdf([['whole']])))).toMatchObject({ changed: 1 });
      const kept = await put(one, PDF, part);
      expect(json(kept)).toMatchObject({ added: 0, changed: 0, unchanged: 0 });
      expect(warningsOf(kept)).toEqual([page, ['id', expect.stringContaining('stays as it was')]]);
      expect((await found(one, 'whole'))?.content).toBe('whole');
      await send(one.at('collections/handbook/documents?id=a'), undefined, { method: 'DELETE' });
      expect(json(await put(one, PDF, part))).toMatchObject({ added: 1 });
    });

    it('does not keep others from their answers while it is read', async () => {
      const one = await here();
      const order: string[] = [];
      const { next } = processes();
      const isRead = next();
      const answered = put(one, PDF, slowPdf('velka')).then((reply) => {
        order.push('file');
        return reply;
      });
      await Promise.race([isRead, answered]);
      for (let time = 0; time < 3; time++) {
        await send(`${one.gateway.url}/healthz`);
        order.push('health');
      }
      expect(json(await answered)).toMatchObject({ added: 1 });
      expect(order).toEqual(['health', 'health', 'health', 'file']);
    });

    it('and a long document in JSON does not keep them either', async () => {
      const one = await here();
      const { started, next } = processes();
      const isRead = next();
      const content = `# Velka\n\nThe weight of Velka is 42 kg.\n\n${'## Long\n\nWords *and* words.\n\n'.repeat(2_000)}`;
      const documents = [...DOCUMENTS, { id: 'long', content, format: 'markdown', metadata: { page: 7 } }];
      const order: string[] = [];
      const answered = send(one.at('collections/handbook/documents'), { documents }).then((reply) => {
        order.push('documents');
        return reply;
      });
      await Promise.race([isRead, answered]);
      await send(`${one.gateway.url}/healthz`);
      order.push('health');
      expect(json(await answered)).toMatchObject({ added: 4 });
      expect(order).toEqual(['health', 'documents']);
      expect(started).toHaveLength(1);
      expect(json(await send(one.at('collections/handbook/documents'))).data).toContainEqual(
        expect.objectContaining({ id: 'long', metadata: { page: 7 }, bytes: Buffer.byteLength(content) }),
      );
    });

    it('is given up when its client leaves, while it is read and while it waits', async () => {
      const one = await here();
      const { next, started } = processes();
      const open = (id: string, body: Uint8Array) =>
        openRequest(one.at(`collections/handbook/documents?id=${id}`), Buffer.from(body), {
          headers: { 'content-type': PDF },
        }).on('error', () => {});
      const isRead = next();
      const leaving = open('read', slowPdf('read'));
      const reader = await isRead;
      const waiting = open('waits', pdf([['waits']]));
      await untilMetric(one.gateway, 'warmpath_requests_in_flight', 3);
      waiting.destroy();
      // The request that asks is one of them.
      await untilMetric(one.gateway, 'warmpath_requests_in_flight', 2);
      const isOver = once(reader, 'exit');
      leaving.destroy();
      await isOver;
      expect(json(await put(one, PDF, pdf([['x']])))).toMatchObject({ added: 1 });
      expect(await ids(one)).toEqual(['a']);
      expect(started).toHaveLength(2);
    });

    it('waits for the one before, and many are all taken in', async () => {
      const one = await here();
      const { started } = processes();
      const names = ['b', 'c', 'd', 'e', 'f'];
      const replies = await Promise.all(names.map((id) => put(one, PDF, pdf([[`page of ${id}`]]), `id=${id}`)));
      expect(replies.map((reply) => json(reply))).toMatchObject(names.map(() => ({ added: 1 })));
      expect((await ids(one)).toSorted()).toEqual(names);
      expect(started).toHaveLength(1);
    });

    it('whose process dies is an error, and the next one is read', async () => {
      const one = await here();
      const { next } = processes();
      const isRead = next();
      const answered = put(one, PDF, slowPdf('velka'));
      (await isRead).kill('SIGSEGV');
      const reply = await answered;
      expect(errorOf(reply)).toMatchObject({ code: 'WARMPATH_UNREADABLE_FILE' });
      expect(errorOf(reply).message).toContain('the process that read it ended (SIGSEGV)');
      expect(json(await send(one.at('collections')))).toMatchObject({ data: [] });
      expect(json(await put(one, PDF, pdf([['x']])))).toMatchObject({ added: 1 });
    });
  });

  it('streams the stages of a search to whoever accepts events', async () => {
    const one = await here();
    await fill(one);
    const reply = await send(
      one.at('collections/handbook/search'),
      { query: 'Velka' },
      { headers: { accept: 'text/event-stream' } },
    );
    expect(reply.headers['content-type']).toContain('text/event-stream');
    const events = reply.text
      .trim()
      .split('\n\n')
      .map((event) => event.slice('data: '.length));
    expect(events.at(-1)).toBe('[DONE]');
    expect(JSON.parse(events[0]!)).toMatchObject({
      index: 0,
      final: true,
      results: [{ metadata: { source: 'velka' } }],
    });
  });

  it('searches words, then words and vectors, and goes without vectors where their endpoint is down', async () => {
    const fake = closing(await startFakeEmbeddings());
    // An address with a password, which is the operator's own.
    const url = fake.url.replace('http://', 'http://operator:password@');
    const one = await here({ collections: { embeddings: { url, model: 'fake' } } });
    expect(json(await fill(one))).toMatchObject({ added: 3, embedded: 3 });
    const stages = async () => {
      const reply = await send(
        one.at('collections/handbook/search'),
        { query: 'Velka', k: 3 },
        { headers: { accept: 'text/event-stream' } },
      );
      const events = reply.text.trim().split('\n\n');
      expect(events.pop()).toBe('data: [DONE]');
      return events.map((event) => JSON.parse(event.slice('data: '.length)) as Record<string, unknown>);
    };
    expect(await stages()).toMatchObject([
      { index: 0, final: false, results: [{ metadata: { source: 'velka' } }] },
      { index: 1, final: true, results: [{ metadata: { source: 'velka' } }, {}, {}] },
    ]);
    fake.answer = () => ({ status: 503 });
    const warnings = [{ code: 'WARMPATH_RETRIEVAL_ERROR', path: 'dense' }];
    const [, last] = await stages();
    expect(last).toMatchObject({ final: true, results: [{ metadata: { source: 'velka' } }], warnings });
    const plain = await send(one.at('collections/handbook/search'), { query: 'Velka' });
    expect(json(plain)).toMatchObject({ results: [{ metadata: { source: 'velka' } }], warnings });
    expect(plain.text).not.toMatch(/password|127\.0\.0\.1/);
    fake.answer = () => ({ status: 401 });
    const put = await send(one.at('collections/handbook/documents'), { documents: [{ id: 'new', content: 'New.' }] });
    expect(json(put)).toMatchObject({ added: 1, embedded: 0, warnings: [{ path: 'embeddings' }] });
    expect(put.text).not.toMatch(/password|127\.0\.0\.1/);
    // An answer is made from what words find.
    const reply = await send(one.at('chat/completions'), question('Velka', { warmpath: { retrieval } }));
    expect(json(reply)).toMatchObject({ warmpath: { sources: [{ source: 'velka' }] } });
  });

  it.each<[string, string, object | undefined, string, string | null]>([
    ['POST', 'collections/UPPER/documents', { documents: DOCUMENTS }, 'WARMPATH_COLLECTION_NAME', 'collection'],
    ['POST', 'collections/..%2f..%2fetc/documents', { documents: DOCUMENTS }, 'WARMPATH_COLLECTION_NAME', 'collection'],
    ['POST', 'collections/handbook/documents', { documents: [] }, 'WARMPATH_INVALID_REQUEST', 'documents'],
    [
      'POST',
      'collections/handbook/documents',
      { documents: [{ id: 'a' }] },
      'WARMPATH_INVALID_DOCUMENT',
      'documents[0].content',
    ],
    [
      'POST',
      'collections/handbook/documents',
      { documents: [{ content: 'a' }] },
      'WARMPATH_INVALID_DOCUMENT',
      'documents[0].id',
    ],
    [
      'POST',
      'collections/handbook/documents',
      { documents: [{ id: 'a', content: ' ' }] },
      'WARMPATH_EMPTY_DOCUMENT',
      'documents[0].content',
    ],
    [
      'POST',
      'collections/handbook/documents',
      { documents: [{ id: 'a', content: 'b', format: 'pdf' }] },
      'WARMPATH_INVALID_DOCUMENT',
      'documents[0].format',
    ],
    ['POST', 'collections/handbook/search', { query: 'a', k: 0 }, 'WARMPATH_INVALID_REQUEST', 'k'],
    ['POST', 'collections/handbook/search', { query: 'a', k: 10_000 }, 'WARMPATH_INVALID_REQUEST', 'k'],
    ['POST', 'collections/handbook/search', { query: 'a', stages: 0 }, 'WARMPATH_INVALID_REQUEST', 'stages'],
    ['POST', 'collections/handbook/search', { query: 'a', stages: '1' }, 'WARMPATH_INVALID_REQUEST', 'stages'],
    ['POST', 'collections/handbook/search', { k: 1 }, 'WARMPATH_INVALID_REQUEST', 'query'],
    ['POST', 'collections/unknown/search', { query: 'a' }, 'WARMPATH_COLLECTION_NOT_FOUND', null],
    ['DELETE', 'collections/handbook/documents', undefined, 'WARMPATH_INVALID_REQUEST', 'id'],
    [
      'POST',
      'chat/completions',
      question('a', { warmpath: { retrieval: { collection: 'unknown' } } }),
      'WARMPATH_COLLECTION_NOT_FOUND',
      null,
    ],
    [
      'POST',
      'chat/completions',
      question('a', { warmpath: { retrieval: {} } }),
      'WARMPATH_INVALID_REQUEST',
      'warmpath.retrieval.collection',
    ],
    [
      'POST',
      'chat/completions',
      question('a', { warmpath: { retrieval: 'handbook' } }),
      'WARMPATH_INVALID_REQUEST',
      'warmpath.retrieval',
    ],
    [
      'POST',
      'chat/completions',
      question('a', { warmpath: { retrieval: { ...retrieval, k: 101 } } }),
      'WARMPATH_INVALID_REQUEST',
      'warmpath.retrieval.k',
    ],
    ...[0, -1, 1.5, 33, '2', null, [1]].map((stages): [string, string, object, string, string] => [
      'POST',
      'chat/completions',
      question('a', { warmpath: { retrieval: { ...retrieval, stages } } }),
      'WARMPATH_INVALID_REQUEST',
      'warmpath.retrieval.stages',
    ]),
    [
      'POST',
      'chat/completions',
      question('a', { warmpath: { retrieval: { collection: 'c'.repeat(65) } } }),
      'WARMPATH_COLLECTION_NAME',
      'warmpath.retrieval.collection',
    ],
    [
      'POST',
      'chat/completions',
      question('a', { warmpath: { retrieval: { ...retrieval, x: 1 } } }),
      'WARMPATH_INVALID_REQUEST',
      'warmpath.retrieval.x',
    ],
    ['POST', 'chat/completions', question('', { warmpath: { retrieval } }), 'WARMPATH_INVALID_REQUEST', 'messages'],
    [
      'POST',
      'chat/completions',
      question('a', { documents: DOCUMENTS, warmpath: { retrieval } }),
      'WARMPATH_INVALID_REQUEST',
      'documents',
    ],
  ])('refuses %s %s %j', async (method, path, body, code, param) => {
    const one = await here();
    await fill(one);
    const reply = await send(one.at(path), body, { method });
    expect(errorOf(reply)).toMatchObject({ code, param });
    expect(one.engine.received).toEqual([]);
  });

  it('searches and answers from a collection in a database, lists it, and writes nothing to it', async () => {
    const points = [{ id: 1, version: 3, score: 0.5, payload: { content: 'The weight of Velka is 42 kg.' } }];
    const qdrant = closing(await startJsonServer(() => ({ body: { result: { points }, status: 'ok' } })));
    const fake = closing(await startFakeEmbeddings());
    const stores = { handbook: { kind: 'qdrant' as const, url: qdrant.url, collection: 'kb' } };
    const one = await here({ collections: { embeddings: { url: fake.url, model: 'fake' }, stores } });
    expect(json(await send(one.at('collections')))).toMatchObject({
      data: [{ object: 'collection', id: 'handbook', store: 'qdrant' }],
    });
    const found = json(await send(one.at('collections/handbook/search'), { query: 'Velka' }));
    expect(found).toMatchObject({ results: [{ id: '1', content: 'The weight of Velka is 42 kg.' }] });
    const reply = await send(one.at('chat/completions'), question('Velka', { warmpath: { retrieval } }));
    expect(json(reply)).toMatchObject({ warmpath: { sources: [{ id: '1' }] } });
    expect(promptOf(one)).toContain('The weight of Velka is 42 kg.');
    for (const [method, path] of [
      ['POST', 'collections/handbook/documents'],
      ['GET', 'collections/handbook/documents'],
      ['DELETE', 'collections/handbook'],
    ] as const) {
      const body = method === 'POST' ? { documents: DOCUMENTS } : undefined;
      expect(errorOf(await send(one.at(path), body, { method })).code).toBe('WARMPATH_COLLECTION_STORED');
    }
  });

  it.each([
    ['qdrant', { collection: 'kb' }, { status: 500, body: { status: { error: 'row 7 of SECRET' } } }],
    ['qdrant', { collection: 'kb' }, { body: { result: 'none' } }],
    ['opensearch', { index: 'kb' }, { status: 404, body: { error: { reason: 'no index SECRET' } } }],
    ['elasticsearch', { index: 'kb' }, { body: { took: 1 } }],
  ])(
    'keeps to the operator what %s says and where it is, where a search fails (%#)',
    async (kind, settings, answer) => {
      const server = closing(await startJsonServer(() => answer));
      const fake = closing(await startFakeEmbeddings());
      const url = server.url.replace('http://', 'http://operator:password@');
      const stores = { handbook: { kind, url, ...settings } as never };
      const one = await here({ collections: { embeddings: { url: fake.url, model: 'fake' }, stores } });
      const path = one.at('collections/handbook/search');
      const found = await send(path, { query: 'Velka' });
      const streamed = await send(path, { query: 'Velka' }, { headers: { accept: 'text/event-stream' } });
      const asked = await send(one.at('chat/completions'), question('Velka', { warmpath: { retrieval } }));
      for (const reply of [found, streamed, asked]) {
        expect(reply.text).not.toMatch(/password|operator:|127\.0\.0\.1|SECRET/);
        expect([reply.status, errorOf(reply)]).toMatchObject([
          502,
          { code: 'WARMPATH_RETRIEVAL_ERROR', param: null, message: expect.stringMatching(/^A server that/) as string },
        ]);
      }
      // So with the endpoint that embeds the question.
      if (kind !== 'qdrant') return;
      fake.answer = () => ({ body: { data: 'SECRET' } });
      const failed = await send(path, { query: 'Velka' });
      expect(errorOf(failed).code).toBe('WARMPATH_EMBEDDING_INVALID');
      expect(failed.text).not.toMatch(/127\.0\.0\.1|SECRET/);
    },
  );

  it('lists what can be read beside what cannot', async () => {
    const one = await here();
    await fill(one);
    await mkdir(join(folder, 'default', 'broken'));
    await writeFile(join(folder, 'default', 'broken', 'data.mdb'), 'no database');
    const reply = await send(one.at('collections'));
    expect(json(reply)).toMatchObject({
      data: [{ id: 'handbook', documents: 3 }],
      warnings: [{ code: 'WARMPATH_COLLECTION_UNREADABLE', path: 'broken' }],
    });
    expect(reply.text).not.toContain(folder);
  });

  it('answers from others where the file of a collection is cut off, and says which one that is', async () => {
    const one = await here();
    await fill(one);
    const bytes = await readFile(join(folder, 'default', 'handbook', 'data.mdb'));
    for (const [at, length] of [0, 1, 4_096, 8_192, 12_288, Math.floor(bytes.length / 2)].entries()) {
      await mkdir(join(folder, 'default', `cut${at}`));
      await writeFile(join(folder, 'default', `cut${at}`, 'data.mdb'), bytes.subarray(0, length));
      const reply = await send(one.at(`collections/cut${at}/search`), { query: 'Orsin' });
      expect(errorOf(reply)).toMatchObject({ code: 'WARMPATH_COLLECTION_UNREADABLE' });
      expect(reply.text).toContain(`collection cut${at}`);
      expect(reply.text).not.toContain(folder);
    }
    expect((await send(one.at('collections/handbook/search'), { query: 'founder of Orsin', k: 1 })).status).toBe(200);
  });

  it('takes lines as BEIR has them', async () => {
    const one = await here();
    const lines = DOCUMENTS.map(({ id, title = '', content }) => JSON.stringify({ _id: id, title, text: content }));
    const headers = { 'content-type': 'application/x-ndjson' };
    const reply = await send(one.at('collections/handbook/documents'), lines.join('\n'), { headers });
    expect(json(reply)).toMatchObject({ added: 3 });
    const found = json(await send(one.at('collections/handbook/search'), { query: 'founder of Orsin', k: 1 }));
    expect(found).toMatchObject({ results: [{ title: 'Orsin', metadata: { source: 'orsin' } }] });
  });

  it.each([
    [{ dimensions: 4_097 }, 'dimensions'],
    [{ passagePrefix: 'p'.repeat(501) }, 'passagePrefix'],
    [{ queryPrefix: '' }, 'queryPrefix'],
  ])('refuses %j to embed with', async (fields, key) => {
    const embeddings = { url: 'http://127.0.0.1:1', model: 'm', ...fields };
    const path = `collections.embeddings.${key}`;
    await expect(here({ collections: { embeddings } })).rejects.toMatchObject({
      code: 'WARMPATH_CONFIG_INVALID',
      path,
    });
  });

  it.each([
    ['qdrant', { url: 'http://127.0.0.1:1', collection: 'kb' }],
    ['pgvector', { url: 'postgres://127.0.0.1:1/kb', table: 'kb' }],
    ['opensearch', { url: 'http://127.0.0.1:1', index: 'kb', vectorField: 'embedding' }],
  ])('refuses a configuration of %s without anything to embed questions with', async (kind, settings) => {
    const stores = { handbook: { kind, ...settings } };
    await expect(here({ collections: { stores } })).rejects.toMatchObject({
      code: 'WARMPATH_CONFIG_INVALID',
      path: 'collections.stores.handbook',
    });
  });

  it('ranks what a search finds anew, where an endpoint does that, and goes without where it fails', async () => {
    let isDown = false;
    // Velka is the answer whatever is asked; Cohere's and Jina's shape.
    const server = closing(
      await startJsonServer(({ body }) => {
        if (isDown) return { status: 503, body: { message: 'no key-of-the-endpoint' } };
        const results = (body.documents as string[])
          .map((text, index) => ({ index, relevance_score: text.startsWith('Velka\n') ? 0.9 : 0.1 / (index + 1) }))
          .sort((a, b) => b.relevance_score - a.relevance_score)
          .slice(0, body.top_n as number);
        return { body: { id: 'r', results, meta: {} } };
      }),
    );
    const points = [
      { id: 1, version: 3, score: 0.9, payload: { content: 'Of Orsin.' } },
      { id: 2, version: 3, score: 0.1, payload: { content: 'Of Velka.', title: 'Velka' } },
    ];
    const qdrant = closing(await startJsonServer(() => ({ body: { result: { points }, status: 'ok' } })));
    const fake = closing(await startFakeEmbeddings());
    const one = await here({
      collections: {
        rerank: { url: `${server.url}/v2/`, model: 'reranker', apiKey: 'key-of-the-endpoint' },
        embeddings: { url: fake.url, model: 'fake' },
        stores: { stored: { kind: 'qdrant', url: qdrant.url, collection: 'kb' } },
      },
    });
    await fill(one);
    const query = 'weight and founder of Orsin';
    const find = async (name = 'handbook') =>
      json(await send(one.at(`collections/${name}/search`), { query, k: 1 })) as unknown as {
        results: { title?: string; score: number }[];
        warnings?: object[];
      };
    expect(await find()).toMatchObject({ results: [{ title: 'Velka', score: 0.9 }] });
    expect(server.requests).toMatchObject([
      {
        path: '/v2/rerank',
        headers: { authorization: 'Bearer key-of-the-endpoint' },
        body: { model: 'reranker', query, documents: { length: 3 }, top_n: 1 },
      },
    ]);
    expect(await find('stored')).toMatchObject({ results: [{ title: 'Velka', score: 0.9 }] });
    const ask = () => send(one.at('chat/completions'), question(query, { warmpath: { retrieval } }));
    expect(json(await ask())).toMatchObject({ warmpath: { sources: [{ source: 'velka' }, { source: 'orsin' }] } });
    const events = await send(
      one.at('collections/handbook/search'),
      { query, k: 1 },
      { headers: { accept: 'text/event-stream' } },
    );
    expect(events.text.match(/"index":\d,"final":\w+,"results":\[\{"id":"\w+/g)).toEqual([
      '"index":0,"final":false,"results":[{"id":"orsin',
      '"index":1,"final":false,"results":[{"id":"orsin',
      '"index":2,"final":true,"results":[{"id":"velka',
    ]);
    isDown = true;
    const without = await find();
    expect(without).toMatchObject({ results: [{ title: 'Orsin' }], warnings: [{ path: 'rerank' }] });
    const reply = await ask();
    expect([reply.status, told(reply)['warnings']]).toEqual([200, 'WARMPATH_RETRIEVAL_ERROR rerank']);
    expect(json(reply)).toMatchObject({ warmpath: { sources: [{ source: 'orsin' }, {}], warnings: [{}] } });
    expect(reply.text + JSON.stringify(without)).not.toMatch(/key-of-the-endpoint|127\.0\.0\.1/);
  });

  it('ends a search with the stage that is asked for, and begins nothing that only later ones need', async () => {
    const results = [1, 0].map((index) => ({ index, relevance_score: index }));
    const server = closing(await startJsonServer(() => ({ body: { results } })));
    const fake = closing(await startFakeEmbeddings());
    const embeddings = { url: fake.url, model: 'fake' };
    const one = await here({ collections: { embeddings, rerank: { url: server.url, model: 'm' } } });
    await fill(one);
    const before = fake.requests.length;
    const asked = () => [fake.requests.length - before, server.requests.length];
    const find = async (stages: number) => {
      const fields = { query: 'weight and founder of Orsin', k: 2, stages };
      const whole = json(await send(one.at('collections/handbook/search'), fields)) as unknown as {
        results: { id: string }[];
      };
      const headers = { accept: 'text/event-stream' };
      const { text } = await send(one.at('collections/handbook/search'), fields, { headers });
      const ends = [...text.matchAll(/"final":(\w+)/g)].map(([, final]) => final);
      return [ends, whole.results.map(({ id }) => id.split('#')[0])];
    };
    expect(await find(1)).toEqual([['true'], ['orsin', 'velka']]);
    const retrieve = async (stages: number) => {
      const fields = { warmpath: { retrieval: { ...retrieval, stages } } };
      const reply = await send(one.at('chat/completions'), question('weight and founder of Orsin', fields));
      const { warmpath } = json(reply) as unknown as { warmpath: { sources: { source: string }[] } };
      return warmpath.sources.map(({ source }) => source);
    };
    expect((await retrieve(1))[0]).toBe('orsin');
    expect(asked()).toEqual([0, 0]);
    expect((await find(2))[0]).toEqual(['false', 'true']);
    expect(asked()).toEqual([2, 0]);
    expect(await find(3)).toEqual([
      ['false', 'false', 'true'],
      ['velka', 'orsin'],
    ]);
    expect(asked()).toEqual([4, 2]);
    // More than there are is all.
    expect((await find(32))[0]).toHaveLength(3);
    expect((await retrieve(4))[0]).toBe('velka');
  });

  it.each([
    [{ url: 'cohere.com', model: 'm' }, 'collections.rerank.url'],
    [{ url: 'http://127.0.0.1:1' }, 'collections.rerank.model'],
  ])('refuses %j to rank with', async (rerank, path) => {
    await expect(here({ collections: { rerank } })).rejects.toMatchObject({ code: 'WARMPATH_CONFIG_INVALID', path });
  });

  it('bounds what a collection holds', async () => {
    const one = await here({}, undefined, { maxCollectionBytes: 100 });
    expect(errorOf(await fill(one)).code).toBe('WARMPATH_BODY_TOO_LARGE');
  });

  it('shows each tenant its own collections', async () => {
    const key = (name: string) => ({ name, sha256: createHash('sha256').update(`key-of-${name}`).digest('hex') });
    const one = await here({ server: { keys: [key('one'), key('two')] } });
    const as = (name: string) => ({ authorization: `Bearer key-of-${name}` });
    expect((await fill(one, as('one'))).status).toBe(200);
    expect((await send(one.at('collections'))).status).toBe(401);
    expect(json(await send(one.at('collections'), undefined, { headers: as('two') }))).toMatchObject({ data: [] });
    for (const [path, body] of [
      ['collections/handbook/search', { query: 'Velka' }],
      ['chat/completions', question('Velka', { warmpath: { retrieval } })],
    ] as const) {
      expect(errorOf(await send(one.at(path), body, { headers: as('two') })).code).toBe(
        'WARMPATH_COLLECTION_NOT_FOUND',
      );
      expect((await send(one.at(path), body, { headers: as('one') })).status).toBe(200);
    }
  });

  it('keeps collections from whoever could be anybody, where others can ask', async () => {
    const one = await here({ server: { host: '0.0.0.0' } });
    const url = one.gateway.url.replace('0.0.0.0', '127.0.0.1');
    for (const key of ['', 'Bearer anything']) {
      expect(
        errorOf(await send(`${url}/v1/collections`, undefined, { headers: key ? { authorization: key } : {} })).code,
      ).toBe('WARMPATH_FORBIDDEN');
    }
  });
});

describe('what the log says of searches', () => {
  it('is once what they go without, by collection, and again after it was there', async () => {
    const fake = closing(await startFakeEmbeddings());
    const qdrant = closing(await startJsonServer(() => ({ status: 500, body: { status: { error: 'broken' } } })));
    const { collections: settings } = resolveConfig({
      upstream: { url: 'http://127.0.0.1:1' },
      collections: {
        folder,
        embeddings: { url: fake.url, model: 'fake' },
        stores: { stored: { kind: 'qdrant', url: qdrant.url, collection: 'kb' } },
      },
    });
    const lines: unknown[][] = [];
    const warn = (fields: Record<string, unknown>, text: string) =>
      lines.push([fields['collection'], fields['path'], text]);
    const log = { warn } as unknown as Log;
    const one = closing(
      await OpenCollections.open(
        settings!,
        { memoryBytes: 2 ** 28, wastedShare: undefined },
        { now: () => 0, log, searched: () => {} },
      ),
    );
    for (const name of ['plain', 'handbook']) {
      // Nothing of the first one has a vector: its searches are by words alone, and go without nothing.
      fake.answer = () => (name === 'plain' ? { status: 400 } : undefined);
      await (await one.getOrMake('default', name)).put(DOCUMENTS.map(({ id, content }) => ({ id, content })));
    }
    const asker = { report: { requestId: 'r' } } as unknown as Asker;
    const { signal } = new AbortController();
    const search = async (name: string, stages?: number) => {
      for await (const _ of one.search(asker, {
        tenant: 'default',
        name,
        query: { text: 'Velka' },
        k: 3,
        stages,
        signal,
      })) {
      }
    };
    const mixed = async () => {
      await search('handbook');
      await search('plain');
      await search('handbook', 1);
    };
    const dense = ['handbook', 'dense', 'went without'];
    fake.answer = () => ({ status: 400 });
    await mixed();
    fake.answer = () => ({ body: { data: [] } });
    await mixed();
    await mixed();
    // Once for each of the two reasons.
    expect(lines.splice(0)).toEqual([dense, dense]);
    fake.answer = undefined;
    await mixed();
    fake.answer = () => ({ status: 400 });
    await mixed();
    expect(lines.splice(0)).toEqual([dense]);
    fake.answer = undefined;
    for (let time = 0; time < 3; time++) {
      await expect(search('stored')).rejects.toMatchObject({ code: 'WARMPATH_RETRIEVAL_ERROR', path: undefined });
    }
    expect(lines).toEqual([['stored', '', 'search failed']]);
  });
});

describe('an answer from a collection', () => {
  it('has the passages as documents of the prompt, and as sources of the answer', async () => {
    const one = await here();
    await fill(one);
    const reply = await send(
      one.at('chat/completions'),
      question('What is the weight of Velka?', { warmpath: { retrieval } }),
    );
    expect(reply.status).toBe(200);
    expect(promptOf(one)).toMatch(/<document id="[^"]+" title="Velka">\nThe weight of Velka is 42 kg/);
    expect(one.engine.last.body).not.toMatch(/warmpath|"documents"/);
    expect(told(reply)).toMatchObject({ documents: '2', retrieval: expect.stringMatching(/^[\d.]+$/) as string });
    const { warmpath, choices } = json(reply) as unknown as {
      warmpath: { sources: Record<string, unknown>[] };
      choices: unknown;
    };
    expect(choices).toBeDefined();
    expect(warmpath.sources).toMatchObject([{ source: 'velka', title: 'Velka' }, { source: 'orsin' }]);
    for (const { label, score, id } of warmpath.sources) {
      expect(promptOf(one)).toContain(`<document id="${String(label)}"`);
      expect(score).toBeGreaterThan(0);
      expect(id).toMatch(/#/);
    }
  });

  it('looks for the last message of the user, in parts too, or for the query that is given', async () => {
    const one = await here();
    await fill(one);
    const messages = [
      { role: 'user', content: 'weight of Orsin' },
      { role: 'assistant', content: 'Orsin' },
      { role: 'user', content: [{ type: 'text', text: 'And the colour of Tamir?' }] },
      { role: 'assistant', content: '' },
    ];
    const first = async (fields: object) => {
      const reply = await send(one.at('chat/completions'), {
        model: 'm',
        messages,
        warmpath: { retrieval: { ...retrieval, ...fields } },
      });
      return (json(reply) as unknown as { warmpath: { sources: { source: string }[] } }).warmpath.sources[0]?.source;
    };
    expect(await first({})).toBe('tamir');
    expect(await first({ query: 'founder' })).toBe('orsin');
    expect(await first({ query: 'nothing of all this' })).toBe('velka');
    expect(await first({ query: 'xyzzy' })).toBeUndefined();
  });

  it('looks for what a question refers to, too, and for both ends of a long one', async () => {
    const one = await here();
    await fill(one);
    const found = async (contents: readonly string[], fields: object = {}) => {
      const messages = contents.map((content, i) => ({ role: i % 2 === 0 ? 'user' : 'assistant', content }));
      const body = { model: 'm', messages, warmpath: { retrieval: { ...retrieval, k: 1, ...fields } } };
      const { warmpath } = json(await send(one.at('chat/completions'), body)) as unknown as {
        warmpath?: { sources: { source: string }[] };
      };
      return warmpath?.sources.map(({ source }) => source);
    };
    expect(await found(['Tell me of Orsin', 'It is light.', 'And who was its founder?'])).toEqual(['orsin']);
    expect(await found(['Tell me of Velka', 'Yes.', 'And its colour?'])).toEqual(['velka']);
    expect(await found(['Tell me of Tamir', 'Yes.', 'And its colour?'])).toEqual(['tamir']);
    expect(await found(['Tell me of Tamir', 'Yes.', 'What else?', 'No.', 'And its colour?'])).toEqual(['tamir']);
    expect(await found(['Tell me of Velka', 'Yes.', 'Now the colour of Tamir'])).toEqual(['tamir']);
    // What is given is searched as it is.
    expect(await found(['Tell me of Tamir', 'Yes.', 'And its colour?'], { query: 'Velka' })).toEqual(['velka']);
    const filler = 'neither here nor there '.repeat(4_000);
    expect(await found([`${filler}\n\nWhat is Tamir?`])).toEqual(['tamir']);
    expect(await found([`What is Tamir? ${filler}`])).toEqual(['tamir']);
  });

  it('searches nothing for titles, tags and questions that chat interfaces ask for themselves', async () => {
    const models = { handbook: { model: 'engine-model', collection: 'handbook' } };
    const one = await here({ collections: { models } });
    await fill(one);
    const history = 'USER: What is the weight of Velka?\nASSISTANT: 42 kg';
    for (const asked of [
      `### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history.\n### Chat History:\n<chat_history>\n${history}\n</chat_history>`,
      `### Task:\nSuggest 3-5 relevant follow-up questions or prompts.\n<chat_history>\n${history}\n</chat_history>`,
      `### Task:\nGenerate 1-3 broad tags categorizing the main themes.\n<chat_history>\n${history}\n</chat_history>`,
      `Provide a concise, 5-word-or-less title for the conversation, using its same language.\n\n${history}`,
      `Detect user language and write in the same language an extremely concise title for this conversation.\n${history}`,
      `Analyze this conversation and provide:\n1. The detected language of the conversation\n2. A concise title in the detected language\n\n${history}`,
      'Please generate a four to five word title summarizing our conversation without any lead-in or punctuation.',
      `Based on the chat history, give this conversation a name.\n${history}`,
    ]) {
      const reply = await send(one.at('chat/completions'), question(asked, { model: 'handbook' }));
      expect(reply.text).not.toContain('warmpath');
      expect(JSON.parse(one.engine.last.body)).toMatchObject({ model: 'engine-model', messages: [{ content: asked }] });
    }
    for (const asked of [
      'Which title has the page about the weight of Velka?',
      'Give me the name of the function that starts a chat session with Velka',
      'What is the weight of Velka in this conversation?',
    ]) {
      const reply = await send(one.at('chat/completions'), question(asked, { model: 'handbook' }));
      expect(json(reply)).toMatchObject({
        warmpath: { sources: expect.arrayContaining([expect.anything()]) as unknown },
      });
    }
  });

  it('narrows a search, with an answer and without', async () => {
    const one = await here();
    await fill(one);
    const ids = async (fields: object) => {
      const { results } = json(await send(one.at('collections/handbook/search'), fields)) as unknown as {
        results: { metadata: { source: string } }[];
      };
      return results.map(({ metadata }) => metadata.source);
    };
    const query = 'weight colour';
    expect((await ids({ query })).sort()).toEqual(['orsin', 'tamir', 'velka']);
    expect(await ids({ query, where: { page: { gte: 3 } } })).toEqual(['tamir']);
    expect(await ids({ query, where: { source: { in: ['orsin', 'tamir'] }, page: 3 } })).toEqual(['tamir']);
    expect(await ids({ query, where: { source: { prefix: 'vel' } }, expand: 1 })).toEqual(['velka']);
    expect(await ids({ query, minScore: 1_000 })).toEqual([]);
    const asked = { retrieval: { ...retrieval, where: { source: 'orsin' } } };
    const reply = await send(one.at('chat/completions'), question(query, { warmpath: asked }));
    expect(json(reply)).toMatchObject({ warmpath: { sources: [{ source: 'orsin' }] } });
    for (const [fields, param] of [
      [{ where: { page: { over: 3 } } }, 'where.page'],
      [{ where: { page: { in: [] } } }, 'where.page'],
      [{ where: { page: [3] } }, 'where.page'],
      [{ where: { page: null } }, 'where.page'],
      [{ where: 'page' }, 'where'],
      [{ where: Object.fromEntries(Array.from({ length: 17 }, (_, i) => [`f${i}`, 1])) }, 'where'],
      [{ minScore: '1' }, 'minScore'],
      [{ expand: 11 }, 'expand'],
    ] as const) {
      const refused = await send(one.at('collections/handbook/search'), { query, ...fields });
      expect(errorOf(refused)).toMatchObject({
        code: 'WARMPATH_INVALID_REQUEST',
        param: expect.stringContaining(param) as string,
      });
    }
    const many = { retrieval: { ...retrieval, k: 100, expand: 10 } };
    const refused = await send(one.at('chat/completions'), question(query, { warmpath: many }));
    expect(errorOf(refused)).toMatchObject({ param: 'warmpath.retrieval.expand' });
  });

  it.each([1, 3, 7, 1000])('says the sources at the end of a stream that comes in pieces of %d bytes', async (size) => {
    const chunk = (delta: object) =>
      `data: ${JSON.stringify({ id: 'x', object: 'chat.completion.chunk', created: 1, model: 'm', choices: [{ index: 0, delta, finish_reason: null }] })}\n\n`;
    const text = `: data: [DONE] is no end here\n\n${chunk({ role: 'assistant', content: '42 ' })}${chunk({ content: 'data: [DONE] kg – dä' })}data: [DONE]\n\n`;
    const one = await here({}, (response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      const bytes = Buffer.from(text);
      for (let at = 0; at < bytes.length; at += size) response.write(bytes.subarray(at, at + size));
      response.end();
    });
    await fill(one);
    const body = question('weight of Velka', { stream: true, warmpath: { retrieval } });
    const reply = await send(one.at('chat/completions'), body);
    const [before, behind] = reply.text.split(/data: \{"id":"sources"[^\n]*\n\n/);
    expect(`${before}${behind}`).toBe(text);
    expect(behind).toBe('data: [DONE]\n\n');
    // The official client passes over what it does not know.
    const client = new OpenAI({ baseURL: `${one.gateway.url}/v1`, apiKey: 'none' });
    const stream = await client.chat.completions.create(body as never);
    let said = '';
    let sources: unknown;
    for await (const part of stream as unknown as AsyncIterable<OpenAI.ChatCompletionChunk & { warmpath?: unknown }>) {
      said += part.choices[0]?.delta.content ?? '';
      sources ??= part.warmpath;
    }
    expect(said).toBe('42 data: [DONE] kg – dä');
    expect(sources).toMatchObject({ sources: [{ source: 'velka' }, {}] });
  });

  it('leaves an error of the engine as it is', async () => {
    const one = await here({}, (response) => {
      response.writeHead(503, { 'content-type': 'application/json' });
      response.end('{"error":{"message":"loading"}}');
    });
    await fill(one);
    const reply = await send(one.at('chat/completions'), question('Velka', { warmpath: { retrieval } }));
    expect([reply.status, reply.text]).toEqual([503, '{"error":{"message":"loading"}}']);
  });

  it('comes under the name of a model, which is listed', async () => {
    const models = { 'my-handbook': { model: 'engine-model', collection: 'handbook', k: 1 } };
    const one = await here({ collections: { models } }, (response, { path }) => {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(
        path === '/v1/models' ? '{"object":"list","data":[{"id":"engine-model","object":"model"}]}' : '{"choices":[]}',
      );
    });
    await fill(one);
    const list = json(await send(one.at('models'))) as unknown as { data: { id: string }[] };
    expect(list.data.map(({ id }) => id)).toEqual(['engine-model', 'my-handbook']);
    const reply = await send(one.at('chat/completions'), question('Velka', { model: 'my-handbook' }));
    expect(json(reply)).toMatchObject({ warmpath: { sources: [{ source: 'velka' }] } });
    expect(JSON.parse(one.engine.last.body)).toMatchObject({ model: 'engine-model' });
    // Other models, and documents that are brought along, go their usual way.
    const plain = await send(one.at('chat/completions'), question('Velka'));
    expect(plain.text).toBe('{"choices":[]}');
    await send(
      one.at('chat/completions'),
      question('Velka', { model: 'my-handbook', documents: [{ id: 'd', content: 'own' }] }),
    );
    expect(promptOf(one)).toContain('own');
    expect(promptOf(one)).not.toContain('42 kg');
    await send(one.at('chat/completions'), question('Velka', { model: 'constructor' }));
    expect(JSON.parse(one.engine.last.body)).toMatchObject({ model: 'constructor' });
  });

  it('may be lent by the operator, one collection of a tenant and no other', async () => {
    const digest = (text: string) => createHash('sha256').update(text).digest('hex');
    const keys = ['one', 'two'].map((name) => ({ name, sha256: digest(`key-of-${name}`) }));
    const models = { lent: { model: 'm', collection: 'handbook', tenant: 'one' } };
    const one = await here({ server: { keys }, collections: { models } });
    const as = (name: string) => ({ authorization: `Bearer key-of-${name}` });
    await fill(one, as('one'));
    await fill(one, as('one'), 'secret');
    const ask = (fields: object) =>
      send(one.at('chat/completions'), question('Velka', { model: 'lent', ...fields }), { headers: as('two') });
    expect(json(await ask({}))).toMatchObject({ warmpath: { sources: [{ source: 'velka' }] } });
    const other = await ask({ warmpath: { retrieval: { collection: 'secret' } } });
    expect(errorOf(other).code).toBe('WARMPATH_COLLECTION_NOT_FOUND');
  });

  it('remembers a conversation as any other with documents', async () => {
    const one = await here();
    await fill(one);
    const warmpath = { retrieval, session: 's' };
    const first = question('weight of Velka', { warmpath });
    const answer = json(await send(one.at('chat/completions'), first)) as unknown as { choices: { message: object }[] };
    const messages = [...first.messages, answer.choices[0]!.message, { role: 'user', content: 'colour of Velka' }];
    const second = await send(one.at('chat/completions'), { model: 'm', messages, warmpath });
    expect(told(second)).toMatchObject({
      conversation: 'known',
      replayed: '1',
      references: expect.anything() as string,
    });
  });

  it('are what a gateway without any says that it misses', async () => {
    const { gateway } = await stand();
    const reply = await send(`${gateway.url}/v1/chat/completions`, question('Velka', { warmpath: { retrieval } }));
    expect(errorOf(reply)).toMatchObject({ code: 'WARMPATH_INVALID_REQUEST', param: 'warmpath.retrieval' });
    expect(errorOf(reply).message).toContain('the configuration of this gateway has no `collections`');
  });
});
