import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type RunningGateway, startGateway } from '@warmpath/gateway';
import { Collections } from '@warmpath/retrieval';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { startFakeEmbeddings } from '../../retrieval/test/fake-embeddings.js';
import { showProgress } from '../src/collections/tell-progress.js';
import { startFakeEngine } from './fake-engine.js';
import { runCli } from './run-cli.js';

let folder: string;
let environment: Record<string, string>;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-cli-collections-'));
  environment = { WARMPATH_DATA_DIR: join(folder, 'data') };
  await mkdir(join(folder, 'docs'));
  await writeFile(join(folder, 'docs', 'velka.md'), '# Velka\n\nThe weight of Velka is 42 kg.\n\u001b[31mred\n');
  await writeFile(join(folder, 'docs', 'orsin.txt'), 'The weight of Orsin is 17 kg.');
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const run = (args: readonly string[], input?: string) =>
  runCli(args, { environment, ...(input !== undefined && { input }) });
/** Collections with the files above. */
const fill = async (...names: readonly string[]) => {
  const collections = new Collections(join(folder, 'data', 'collections'));
  for (const name of names) await (await collections.getOrMake('default', name)).ingest([docs()]);
  await collections.close();
};
const docs = () => join(folder, 'docs');

/** A gateway with the collections that the commands fill. */
function gatewayBefore(engine: string): Promise<RunningGateway> {
  return startGateway({
    upstream: { url: engine },
    server: { port: 0 },
    collections: { folder: join(folder, 'data', 'collections') },
    log: { level: 'silent' },
  });
}

describe('warmpath ingest and collections', () => {
  it('takes files in, again only what changed, and says what is there', async () => {
    const first = await run(['ingest', docs(), '--collection', 'handbook']);
    expect(first).toMatchObject({ code: 0, stdout: expect.stringContaining('2 documents added') as string });
    await writeFile(join(docs(), 'more.md'), 'More.');
    const second = await run(['ingest', docs(), '--collection', 'handbook', '--json']);
    expect(JSON.parse(second.stdout)).toMatchObject({ added: 1, changed: 0, totals: { documents: 3, passages: 3 } });
  });

  it('says what it cannot read, with exit code 1, and takes the rest in', async () => {
    await writeFile(join(docs(), 'bad.jsonl'), '{"text": "good"}\n{bad\n');
    const { code, stderr, stdout } = await run(['ingest', docs(), join(folder, 'missing')]);
    expect(code).toBe(1);
    expect(stderr).toMatch(/docs\/bad\.jsonl, line 2: it is not valid JSON/);
    expect(stderr).toMatch(/missing: cannot read: there is no such file/);
    expect(stdout).toContain('3 documents added');
  });

  it('names what it left out of a folder, and says why it did not read what it was asked for', async () => {
    for (const name of ['e', 'f', 'g', 'h', 'i', 'j'])
      await writeFile(join(docs(), `${name}.PNG`), Buffer.from([0, 1]));
    await writeFile(join(docs(), 'report.zip'), Buffer.from([0x50, 0x4b, 3, 4]));
    const folder = await run(['ingest', docs()]);
    expect(folder).toMatchObject({ code: 0, stdout: expect.stringContaining('7 left out') as string });
    expect(folder.stderr).toMatch(
      /^Left out, it is a picture: docs\/e\.PNG, .*docs\/i\.PNG and 1 more \(\.png\)\nLeft out, .*: docs\/report\.zip\n$/,
    );
    const named = await run(['ingest', join(docs(), 'report.zip')]);
    expect(named).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('report.zip: it is an archive') as string,
    });
  });

  it('reads what its patterns leave, each given once or more, in any order with the paths', async () => {
    await writeFile(join(docs(), 'draft.md'), 'A draft.');
    await writeFile(join(docs(), '.gitignore'), '*.log\n');
    await writeFile(join(docs(), 'a.log'), 'A log.');
    const first = await run(['ingest', '--include', '*.md', '--include', '*.txt', '--exclude', 'draft*', docs()]);
    expect(first).toMatchObject({ code: 0, stdout: expect.stringContaining('2 documents added') as string });
    expect(first.stderr).toBe(
      'Left out, hidden: docs/.gitignore\nLeft out, ignored by .gitignore: docs/a.log\nLeft out, excluded: docs/draft.md\n',
    );
    const second = await run(['ingest', docs(), '--include', 'draft.md', '--json']);
    expect(JSON.parse(second.stdout)).toMatchObject({ added: 1, removed: 2 });
    await writeFile(join(docs(), 'empty.md'), '');
    const named = await run(['ingest', join(docs(), 'empty.md')]);
    expect(named).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('empty.md: A document has no text') as string,
    });
  });

  it('follows no link out of a folder unless it is told to, and names it either way', async () => {
    await mkdir(join(folder, '.ssh'));
    await writeFile(join(folder, '.ssh', 'id.txt'), 'A private key.');
    await symlink(join(folder, '.ssh'), join(docs(), 'keys'));
    const ingested = await run(['ingest', docs()]);
    expect(ingested).toMatchObject({ code: 0, stdout: expect.stringContaining('2 documents added') as string });
    expect(ingested.stderr).toMatch(/^Left out 1 link \(--follow-links follows them\): docs\/keys → \S+\/\.ssh\n$/);
    const link = { link: 'docs/keys', target: expect.stringContaining('.ssh') as string };
    const told = await run(['ingest', docs(), '--json']);
    expect(JSON.parse(told.stdout)).toMatchObject({ added: 0, skippedLinks: [link], followedLinks: [] });
    const followed = await run(['ingest', docs(), '--follow-links']);
    expect(followed.stdout).toContain('1 document added');
    expect(followed.stderr).toMatch(/^Followed 1 link: docs\/keys → \S+\/\.ssh\n$/);
  });

  it('cuts as it was told before, and says when that changes', async () => {
    await fill('documents');
    const ingest = ['ingest', docs()];
    const changed = await run([...ingest, '--chunk-tokens', '128']);
    expect(changed.stderr).toBe('Passages have at most 128 tokens from now on, and not 384: files are cut anew.\n');
    const again = await run(ingest);
    expect(again).toMatchObject({ stderr: '', stdout: expect.stringContaining('2 files as before') as string });
  });

  it('takes out what is gone, and names the command where that is asked for', async () => {
    await fill('handbook');
    await rm(docs(), { recursive: true });
    const gone = await run(['ingest', docs(), '--collection', 'handbook']);
    const command = `warmpath collections remove handbook ${docs()}`;
    expect(gone).toMatchObject({ code: 2, stdout: '' });
    expect(gone.stderr).toContain(`The collection keeps 2 documents of ${docs()}; \`${command}\` takes them out.`);
    const other = join(folder, 'other.md');
    await writeFile(other, 'Other.');
    expect((await run(['ingest', docs(), other, '--collection', 'handbook'])).stderr).toContain(command);
    const removed = await run(['collections', 'remove', 'handbook', docs(), 'nothing']);
    expect(removed).toMatchObject({ code: 1, stderr: 'nothing: no document, file or folder of this collection\n' });
    expect(removed.stdout).toBe('2 documents removed.\nCollection handbook: 1 document, 1 passage.\n');
  });

  it('makes no collection of what is not there, and says where it looked', async () => {
    const missing = join(folder, 'missing');
    const ingested = await run(['ingest', missing, '--collection', 'none']);
    expect(ingested).toMatchObject({ code: 2, stdout: '' });
    expect(ingested.stderr).toContain(`cannot read ${missing}: there is no such file or folder`);
    expect((await run(['collections', 'import', 'none', missing])).code).toBe(2);
    expect((await run(['collections', 'list'])).stdout).toContain(
      `There are no collections in ${join(folder, 'data', 'collections')}.`,
    );
  });

  it('takes folder and embeddings from the configuration of the gateway, and goes on where they failed', async () => {
    const fake = await startFakeEmbeddings();
    const config = join(folder, 'gateway.yaml');
    const embeddings = `{ url: "${fake.url}", model: fake, apiKey: "\${EMBEDDING_KEY}" }`;
    await writeFile(config, `collections:\n  folder: ${join(folder, 'served')}\n  embeddings: ${embeddings}\n`);
    environment['EMBEDDING_KEY'] = 'secret-key';
    try {
      fake.answer = () => ({ status: 401, body: { error: { message: 'no such key' } } });
      const first = await run(['ingest', docs(), '--config', config]);
      expect(first).toMatchObject({ code: 1, stdout: expect.stringContaining('2 documents added') as string });
      expect(first.stderr).toMatch(/Not all passages have vectors: .*no such key/);
      fake.answer = undefined;
      const second = await run(['ingest', docs(), '--config', config]);
      expect(second).toMatchObject({ code: 0, stdout: expect.stringContaining('2 passages embedded') as string });
      expect(fake.requests.at(-1)!.headers.authorization).toBe('Bearer secret-key');
      const list = await run(['collections', 'list', '--config', config, '--json']);
      expect(JSON.parse(list.stdout)).toMatchObject([{ name: 'documents', documents: 2 }]);
      await writeFile(config, 'upstream:\n  url: http://127.0.0.1:8000\n');
      const none = await run(['collections', 'list', '--config', config]);
      expect(none).toMatchObject({ code: 2, stderr: expect.stringContaining('configures no collections') as string });
    } finally {
      await fake.close();
    }
  });

  it('writes to no collection that lives in a database, and lists it', async () => {
    const config = join(folder, 'gateway.yaml');
    const store = (fields: string) => `{ kind: opensearch, url: "http://127.0.0.1:9", index: kb${fields} }`;
    await writeFile(
      config,
      `collections:
  folder: ${join(folder, 'served')}
  stores: { handbook: ${store('')}, theirs: ${store(', tenant: other')} }\n`,
    );
    const ingested = await run(['ingest', docs(), '--config', config, '--collection', 'handbook']);
    expect(ingested).toMatchObject({ code: expect.any(Number) as number, stdout: '' });
    expect(ingested.code).not.toBe(0);
    expect(ingested.stderr).toContain('WARMPATH_COLLECTION_STORED');
    expect(existsSync(join(folder, 'served', 'default', 'handbook'))).toBe(false);
    const list = () => run(['collections', 'list', '--config', config]);
    expect(await list()).toMatchObject({ code: 0, stdout: 'collection     lives in\nhandbook     opensearch\n' });
    await run(['ingest', docs(), '--config', config]);
    expect((await list()).stdout).toMatch(/^documents +2 [\s\S]*\nhandbook +opensearch\n$/m);
    const listed = await run(['collections', 'list', '--config', config, '--json']);
    expect(JSON.parse(listed.stdout)).toMatchObject([
      { name: 'documents', documents: 2 },
      { name: 'handbook', store: 'opensearch' },
    ]);
  });

  it('says how much is done and how long the rest takes, of reading and then of embedding', () => {
    let clock = 5_000;
    const lines: string[] = [];
    const progress = showProgress({ status: (line) => lines.push(line) }, () => clock);
    const after = (ms: number) => {
      clock += ms;
    };
    after(500);
    progress.update({ files: 0, totalFiles: 2, bytes: 100, totalBytes: 1_000 });
    after(1_500);
    progress.update({ files: 1, totalFiles: 2, bytes: 250, totalBytes: 1_000 });
    after(6_000);
    progress.update({ files: 2, totalFiles: 2, bytes: 1_000, totalBytes: 1_000 });
    after(4_000);
    progress.embedded(2_000, 8_000);
    after(12_000);
    progress.embedded(8_000, 8_000);
    progress.update({ files: 0, totalFiles: 0, bytes: 0, totalBytes: 0 });
    progress.taken(256, undefined);
    progress.taken(256, 1_024);
    progress.clear();
    expect(lines.map((line) => line.trim())).toEqual([
      '10 %  0 of 2 files',
      '25 %  1 of 2 files  about 6 s left',
      '100 %  2 of 2 files',
      '25 %  2,000 of 8,000 passages embedded  about 12 s left',
      '100 %  8,000 of 8,000 passages embedded',
      '100 %  0 of 0 files',
      '256 documents',
      '25 %  256 of 1,024 documents  about 72 s left',
      '',
    ]);
  });

  it('exports and imports', async () => {
    await fill('handbook');
    const file = join(folder, 'export.jsonl');
    expect(await run(['collections', 'export', 'handbook', file])).toMatchObject({ code: 0 });
    const exported = await readFile(file, 'utf8');
    expect(await run(['collections', 'import', 'copy'], exported)).toMatchObject({ code: 0 });
    expect((await run(['collections', 'export', 'copy'])).stdout).toBe(exported);
  });

  it('takes nothing in of a file with a bad line, and says how much of a stream it took in', async () => {
    const line = (id: number) => `{"id": "d${id}", "passages": [{"content": "Passage ${id}."}]}\n`;
    const text = `${Array.from({ length: 300 }, (_, id) => line(id)).join('')}{"id": "bad"\n`;
    const file = join(folder, 'bad.jsonl');
    await writeFile(file, text);
    const whole = await run(['collections', 'import', 'copy', file]);
    expect(whole).toMatchObject({ code: 1, stderr: expect.stringContaining('0 documents before it were') as string });
    expect(whole.stderr).toContain('line 301: it is not valid JSON');
    expect(existsSync(join(folder, 'data', 'collections', 'default', 'copy'))).toBe(false);
    const stream = await run(['collections', 'import', 'copy'], text);
    expect(stream).toMatchObject({ code: 1, stderr: expect.stringContaining('256 documents before it') as string });
  });

  it('says of an import which passages have no vectors', async () => {
    const exported = ['a', 'b'].map((id) => `{"id": "${id}", "passages": [{"content": "Passage ${id}."}]}\n`).join('');
    const fake = await startFakeEmbeddings();
    const config = join(folder, 'gateway.yaml');
    const embeddings = `{ url: "${fake.url}", model: fake }`;
    await writeFile(config, `collections:\n  folder: ${join(folder, 'copies')}\n  embeddings: ${embeddings}\n`);
    const args = ['collections', 'import', 'copy', '--config', config];
    try {
      fake.answer = () => ({ status: 401, body: {} });
      const failed = await run(args, exported);
      expect(failed).toMatchObject({ code: 1, stderr: expect.stringContaining('Not all passages have') as string });
      fake.answer = undefined;
      expect(await run(args, exported)).toMatchObject({ code: 0 });
      expect(fake.embedded).toHaveLength(2);
    } finally {
      await fake.close();
    }
  });

  it('lists what can be read beside what cannot', async () => {
    await fill('handbook');
    const broken = join(folder, 'data', 'collections', 'default', 'broken');
    await mkdir(broken);
    await writeFile(join(broken, 'data.mdb'), 'no database');
    const { code, stdout, stderr } = await run(['collections', 'list']);
    expect([code, stdout]).toEqual([1, expect.stringMatching(/^handbook +2 /m)]);
    expect(stderr).toContain('the collection in default/broken cannot be read: data.mdb is no database');
  });

  it('lists and deletes', async () => {
    await fill('one', 'two');
    expect(await run(['collections', 'delete', 'one'])).toMatchObject({ code: 0 });
    expect(JSON.parse((await run(['collections', 'list', '--json'])).stdout)).toMatchObject([{ name: 'two' }]);
  });

  it('says which file is not there', async () => {
    const missing = await run(['collections', 'import', 'copy', join(folder, 'none')]);
    expect(missing).toMatchObject({ code: 2, stderr: expect.stringContaining('no such file') as string });
  });
});

describe('warmpath ask', () => {
  it('finds the page that answers a question about this repository in its own docs', async () => {
    // What a clone has, and nothing that was built since.
    const root = join(import.meta.dirname, '../../..');
    const { stdout: pages } = await promisify(execFile)('git', ['ls-files', 'docs'], { cwd: root });
    const cloned = join(folder, 'clone', 'docs');
    for (const page of pages.trim().split('\n')) {
      const from = join(root, page);
      if (existsSync(from)) await cp(from, join(folder, 'clone', page));
    }
    expect(await run(['ingest', cloned])).toMatchObject({ code: 0 });
    const engine = await startFakeEngine();
    const gateway = await gatewayBefore(engine.url);
    try {
      const asked = await run(['ask', 'How do I put it before vLLM?', '--gateway', gateway.url, '--json']);
      const { sources } = JSON.parse(asked.stdout) as { sources: { source: string; content: string }[] };
      expect(sources.slice(0, 3).map(({ source }) => source)).toContain('docs/engines/vllm.md');
      expect(sources.some(({ content }) => content.includes('npx warmpath serve --engine'))).toBe(true);
    } finally {
      await gateway.close();
      await engine.close();
    }
  });

  it('prints the answer and the passages behind it, without what could command a terminal', async () => {
    await fill('documents');
    const engine = await startFakeEngine();
    const gateway = await gatewayBefore(engine.url);
    try {
      const ask = ['ask', 'What is the weight of Velka?', '--gateway', gateway.url];
      const { code, stdout } = await run([...ask, '-k', '1']);
      expect(code).toBe(0);
      expect(stdout).toMatch(
        /Passages\n {2}1 {2}Velka {2}docs\/velka\.md {2}lines \d+(?:-\d+)? {2}[\d.]+\n {5}The weight of Velka is 42 kg\.\n/,
      );
      expect(stdout).not.toContain('\u001b');
      const told = JSON.parse((await run([...ask, '--json'])).stdout) as { answer: string; sources: object[] };
      expect(told.answer).not.toBe('');
      expect(told.sources).toMatchObject([{ source: 'docs/velka.md' }, { source: 'docs/orsin.txt' }]);
    } finally {
      await gateway.close();
      await engine.close();
    }
  });

  it('shows the passages before the answer, once, and keeps them where no answer comes', async () => {
    await fill('documents');
    const engine = await startFakeEngine({ answers: ({ model }) => (model === 'broken' ? 500 : 'An answer.') });
    const gateway = await gatewayBefore(engine.url);
    try {
      const ask = ['ask', 'What is the weight of Velka?', '--gateway', gateway.url];
      const { stdout } = await run(ask);
      expect(stdout).toMatch(/^\nPassages\n.+42 kg.+\n\nAn answer\.\n$/s);
      expect(stdout.split('Passages')).toHaveLength(2);
      const failed = await run([...ask, '--model', 'broken']);
      expect(failed).toMatchObject({ code: 1, stdout: expect.stringContaining('The weight of Velka is 42 kg.') });
    } finally {
      await gateway.close();
      await engine.close();
    }
  });

  it.each([
    ['warmpath-tiny', false, 'yes'],
    ['any-name', true, null],
  ])('prints no text of the demo model, which the engine names: %s, %j', async (model, isDemo, answer) => {
    await fill('documents');
    const engine = await startFakeEngine({ model, isDemo });
    const gateway = await gatewayBefore(engine.url);
    try {
      const ask = ['ask', 'What is the weight of Velka?', '--gateway', gateway.url];
      const { code, stdout, stderr } = await run(ask);
      expect([code, stdout.includes('yes'), stderr.includes('A real model would answer')]).toEqual([
        0,
        !isDemo,
        isDemo,
      ]);
      expect(stdout).toContain('Velka  docs/velka.md');
      expect(engine.received.at(-1)?.messages.at(-1)?.content).toContain('42 kg');
      expect(JSON.parse((await run([...ask, '--json'])).stdout)).toMatchObject({ model, answer });
    } finally {
      await gateway.close();
      await engine.close();
    }
  });

  it('prints no text of the demo model under the name of a model that answers from a collection', async () => {
    await fill('documents');
    const engine = await startFakeEngine({ model: 'tiny', isDemo: true });
    const gateway = await startGateway({
      upstream: { url: engine.url },
      server: { port: 0 },
      collections: {
        folder: join(folder, 'data', 'collections'),
        models: { handbook: { model: 'tiny', collection: 'documents' } },
      },
      log: { level: 'silent' },
    });
    try {
      const ask = ['ask', 'What is the weight of Velka?', '--gateway', gateway.url, '--model', 'handbook'];
      const { stdout, stderr } = await run(ask);
      expect([stdout.includes('yes'), stderr.includes('A real model would answer')]).toEqual([false, true]);
    } finally {
      await gateway.close();
      await engine.close();
    }
  });

  it('says what the search went without, and what the gateway refuses once and in its own words', async () => {
    const fake = await startFakeEmbeddings();
    const embeddings = { url: fake.url, model: 'fake' };
    const collections = new Collections(join(folder, 'data', 'collections'), { embeddings });
    await (await collections.getOrMake('default', 'documents')).ingest([docs()]);
    await collections.close();
    fake.answer = () => ({ status: 500, body: {} });
    const engine = await startFakeEngine();
    const gateway = await startGateway({
      upstream: { url: engine.url },
      server: { port: 0 },
      collections: { folder: join(folder, 'data', 'collections'), embeddings },
      log: { level: 'silent' },
    });
    try {
      const ask = ['ask', 'What is the weight of Velka?', '--gateway', gateway.url];
      const { code, stdout, stderr } = await run(ask);
      expect([code, stdout]).toEqual([
        0,
        expect.stringMatching(/Velka {2}docs\/velka\.md {2}lines [\d-]+ {2}0\.\d*[1-9]/),
      ]);
      expect(stderr).toMatch(/The search went without a part: .*\(WARMPATH_RETRIEVAL_\w+\)/);
      const refused = await run([...ask, '--collection', 'none']);
      expect(refused).toMatchObject({ code: 1, stdout: '' });
      expect(refused.stderr).toMatch(
        /^error: there is no collection "none"\.\n {2}code {4}WARMPATH_COLLECTION_NOT_FOUND\n {2}remedy {2}See .*\n$/,
      );
    } finally {
      await gateway.close();
      await engine.close();
      await fake.close();
    }
  });

  it('tells a gateway whose engine is gone from one that is gone itself', async () => {
    const gateway = await startGateway({
      upstream: { url: 'http://127.0.0.1:9' },
      server: { port: 0 },
      collections: { folder: join(folder, 'data', 'collections') },
      log: { level: 'silent' },
    });
    await fill('documents');
    try {
      const { code, stderr } = await run(['ask', 'x', '--model', 'm', '--gateway', gateway.url]);
      expect([code, stderr]).toEqual([1, expect.stringContaining('The engine cannot be reached')]);
    } finally {
      await gateway.close();
    }
  });

  it('says that nobody answers', async () => {
    const { code, stderr } = await run(['ask', 'x', '--gateway', 'http://127.0.0.1:9']);
    expect([code, stderr]).toEqual([1, expect.stringContaining('no gateway answers at')]);
  });
});
