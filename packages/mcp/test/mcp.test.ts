import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { request as httpRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { LocalWarmpath, Warmpath } from '@warmpath/client';
import { startGateway } from '@warmpath/gateway';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { Corpus, readCorpus, startMcpHttp } from '../src/index.js';

const MAIN = join(import.meta.dirname, '../dist/main.js');
const run = promisify(execFile);

const passage = (id: string) => ({ id, content: `${id} was found in a year of many rains. `.repeat(8) });
const documents = (ids: string) => [...ids].map(passage);

interface Answer {
  readonly content: { readonly type: string; readonly text: string }[];
  readonly structuredContent: {
    readonly documents: { readonly id: string; readonly rank: number }[];
    readonly hint: string | null;
    readonly predictedCachedTokens: number;
    readonly warnings: string[];
  };
  readonly isError?: boolean;
}

const open: (() => Promise<unknown>)[] = [];
const closeAll = async () => {
  for (const close of open.splice(0).reverse()) await close();
};

/** The SDK's own client, connected. */
async function connected(transport: StdioClientTransport | StreamableHTTPClientTransport) {
  const client = new Client({ name: 'test', version: '1.0.0' });
  await client.connect(transport as Parameters<typeof client.connect>[0]);
  open.push(() => client.close());
  const call = async (name: string, fields: object) =>
    (await client.callTool({ name, arguments: fields as Record<string, unknown> })) as unknown as Answer;
  const names = async () => (await client.listTools()).tools.map(({ name }) => name).sort();
  return { call, names };
}

async function overHttp(options: Partial<Parameters<typeof startMcpHttp>[0]> = {}) {
  const running = await startMcpHttp({ arranger: new LocalWarmpath(), port: 0, ...options });
  open.push(() => running.close());
  return { url: running.url, ...(await connected(new StreamableHTTPClientTransport(new URL(running.url)))) };
}

let folder: string;
let corpusFile: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-mcp-'));
  corpusFile = join(folder, 'corpus.jsonl');
  const lines = [
    { id: 'velka', title: 'Velka', content: 'The weight of Velka is 42 kg.' },
    { id: 'orsin', text: 'The weight of Orsin is 17 kg, and its colour is teal.' },
    { content: 'Nothing of interest.' },
  ];
  await writeFile(corpusFile, `${lines.map((line) => JSON.stringify(line)).join('\n')}\n\n`);
});

afterAll(() => rm(folder, { recursive: true }));

const stdio = (...args: string[]) =>
  connected(new StdioClientTransport({ command: process.execPath, args: [MAIN, ...args] }));

describe.each([
  ['over stdio', () => stdio('--documents', corpusFile)],
  ['over streamable HTTP', async () => overHttp({ corpus: await readCorpus(corpusFile) })],
] as const)('%s', (_, connect) => {
  let connection: Awaited<ReturnType<typeof connect>>;
  beforeAll(async () => {
    connection = await connect();
  });
  afterAll(closeAll);

  it('arranges documents behind what was arranged before', async () => {
    const { call, names } = connection;
    expect(await names()).toEqual(['arrange', 'explain', 'search']);
    const first = await call('arrange', { documents: documents('ab') });
    const second = await call('arrange', { documents: documents('bca') });
    expect(second.structuredContent.documents.map(({ id, rank }) => `${id}${rank}`)).toEqual(['a2', 'b0', 'c1']);
    expect(second.content[0]!.text.startsWith(first.content[0]!.text)).toBe(true);
    expect(second.content[0]!.text.endsWith(second.structuredContent.hint!)).toBe(true);
    expect(second.structuredContent.predictedCachedTokens).toBeGreaterThan(100);
    const kept = await call('arrange', { documents: documents('cba'), maxShift: 0, hints: false });
    expect(kept.structuredContent.documents.map(({ id }) => id).join('')).toBe('cba');
    const dear = await call('arrange', { documents: documents('bca'), shiftPrice: 1_000, hints: false });
    expect(dear.structuredContent.documents.map(({ id }) => id).join('')).toBe('bca');
  });

  it('takes documents as texts and in the form of other libraries', async () => {
    const { call } = connection;
    const given = ['Ada made the clock.', { id: 7, pageContent: 'The tower is 40 m high.' }, { text: ' ' }];
    const { structuredContent } = await call('arrange', { documents: given });
    expect(structuredContent).toMatchObject({
      documents: [{ rank: 0 }, { id: '7', rank: 1 }],
      warnings: ['WARMPATH_EMPTY_DOCUMENT documents[2].text'],
    });
  });

  it('searches, and arranges what it found', async () => {
    const { call } = connection;
    const first = await call('search', { query: 'the weight of Velka' });
    expect(first.structuredContent.documents.map(({ id }) => id)).toContain('velka');
    const second = await call('search', { query: 'weight teal', k: 2 });
    expect(second.structuredContent.documents.map(({ id, rank }) => `${id}${rank}`)).toEqual(['velka1', 'orsin0']);
    expect((await call('search', { query: 'weight teal', k: 1 })).structuredContent.documents).toHaveLength(1);
    expect((await call('search', { query: 'zebra' })).content[0]!.text).toBe('No document has these words.');
  });

  it('explains a prompt', async () => {
    const { call } = connection;
    const content = `<documents>\n${['a', 'b'].map((id) => `<document id="${id}">${id} it is.</document>`).join('\n')}\n</documents>\nWhich?`;
    const answer = await call('explain', {
      messages: [
        { role: 'system', content: 'Be brief.' },
        { role: 'user', content },
      ],
    });
    expect(answer.structuredContent).toMatchObject({
      blocks: [{ message: 1, format: 'tags', fixed: null, documents: [{ id: 'a' }, { id: 'b' }] }],
    });
    expect(answer.content[0]!.text).toMatch(
      /^messages\[1\]: 2 documents \(tags\), \d+ tokens, may change places: a, b$/,
    );
    const prose = await call('explain', { messages: [{ role: 'user', content: 'As [1] says, x[0].' }] });
    expect(prose.content[0]!.text).toBe('No documents recognised.');
  });

  it('says why a prompt does not continue an earlier one', async () => {
    const { call } = connection;
    const at = (time: string) => [
      { role: 'system', content: `You are brief. It is ${time}.` },
      { role: 'user', content: 'What was found?' },
    ];
    const explained = { messages: at('2026-11-21T10:15:00Z'), before: at('2026-11-21T10:14:00Z') };
    const answer = await call('explain', explained);
    expect(answer.structuredContent).toMatchObject({ break: { cause: 'timestamp', piece: 'messages[0].content' } });
    expect(answer.content[0]!.text).toMatch(/messages\[0\]\.content, character \d+: timestamp\. A date/);
    const same = await call('explain', {
      messages: [...at('noon'), { role: 'assistant', content: 'Much.' }],
      before: at('noon'),
    });
    expect(same.structuredContent).toMatchObject({ break: null });
    expect(same.content[0]!.text).toContain('Continues the earlier prompt to its end.');
  });

  it('answers bad input with an error that says where', async () => {
    const { call } = connection;
    const long = await call('arrange', { documents: [{ content: 'x'.repeat(1_000_001) }] });
    expect(long.isError).toBe(true);
    expect(long.content[0]!.text).toContain('documents[0].content');
    const unknown = await call('arrange', { documents: documents('a'), policy: 'best' });
    expect(unknown.isError).toBe(true);
  });
});

describe('the server', () => {
  afterEach(closeAll);

  it('has no search without documents', async () => {
    const { names } = await overHttp();
    expect(await names()).toEqual(['arrange', 'explain']);
  });

  it('lets a gateway decide', async () => {
    const upstream = { url: 'http://127.0.0.1:1' };
    const gateway = await startGateway({ server: { port: 0 }, upstream, log: { level: 'silent' } });
    open.push(() => gateway.close());
    await new Warmpath({ baseURL: gateway.url }).arrange({ documents: documents('ab') });
    const { call } = await stdio('--gateway', gateway.url);
    const { structuredContent } = await call('arrange', { documents: documents('ba') });
    expect(structuredContent.documents.map(({ id }) => id)).toEqual(['a', 'b']);
  });

  it('serves HTTP as a process of its own, and says where', async () => {
    const child = execFile(process.execPath, [MAIN, '--http', '--port', '0']);
    const url = await new Promise<string>((resolve) =>
      child.stdout!.once('data', (text: string) => resolve(text.trim())),
    );
    const { names } = await connected(new StreamableHTTPClientTransport(new URL(url)));
    expect(await names()).toContain('arrange');
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGTERM');
    expect(await ended).toBe(0);
  });

  it.each([
    ['another name', '/mcp', { host: 'evil.example:80' }, 403],
    ['a page of another origin', '/mcp', { origin: 'http://evil.example' }, 403],
    ['another path', '/', {}, 404],
  ] as const)('refuses %s', async (_, path, headers, status) => {
    const { url } = await overHttp();
    const answered = await new Promise((resolve) => {
      const request = httpRequest(new URL(path, url), { method: 'POST', headers }, (response) =>
        resolve(response.statusCode),
      );
      request.end('{}');
    });
    expect(answered).toBe(status);
  });

  it('names what is wrong with its options and its file', async () => {
    const fails = (...args: string[]) => run(process.execPath, [MAIN, ...args]).catch((error: unknown) => error);
    const [option, port, file, help] = await Promise.all([
      fails('--prot', '1'),
      fails('--http', '--port', 'x'),
      fails('--documents', join(folder, 'none')),
      run(process.execPath, [MAIN, '--help']),
    ]);
    expect(option).toMatchObject({ code: 2, stderr: expect.stringContaining('--prot') });
    expect(port).toMatchObject({ code: 2, stderr: expect.stringContaining('--port') });
    expect(file).toMatchObject({ code: 1 });
    expect(help.stdout).toContain('--gateway');
    await writeFile(join(folder, 'bad.jsonl'), '{"content": "fine"}\n{"content": ""}\n');
    await expect(readCorpus(join(folder, 'bad.jsonl'))).rejects.toMatchObject({ code: 'WARMPATH_EMPTY_DOCUMENT' });
    await writeFile(join(folder, 'bad.jsonl'), 'no json\n');
    const error = readCorpus(join(folder, 'bad.jsonl'));
    await expect(error).rejects.toMatchObject({
      code: 'WARMPATH_INVALID_JSON',
      path: expect.stringMatching(/bad\.jsonl:1$/),
    });
    const twice = () => new Corpus([1, 2].map(() => ({ id: 'a', title: undefined, content: 'x' })));
    expect(twice).toThrow(expect.objectContaining({ code: 'WARMPATH_INVALID_DOCUMENT' }));
  });
});
