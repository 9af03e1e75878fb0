import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startGateway } from '@warmpath/gateway';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type FakeEngine, startFakeEngine } from './fake-engine.js';
import { runCli } from './run-cli.js';

let folder: string;
let engine: FakeEngine;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-sessions-'));
  engine = await startFakeEngine();
});

afterAll(async () => {
  await engine.close();
  await rm(folder, { recursive: true, force: true });
});

async function gatewayAt(socket: string) {
  return startGateway({
    server: { port: 0 },
    upstream: { url: engine.url },
    admin: { socket },
    log: { level: 'silent' },
  });
}

async function converse(url: string, key: string, session: string, user?: string): Promise<void> {
  const documents = [{ id: 'velka', content: 'The weight of Velka is 42 kg.' }];
  const messages = [{ role: 'user', content: 'What is the weight of Velka?' }];
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${key}` },
    body: JSON.stringify({ model: 'm', messages, documents, user, warmpath: { session } }),
  });
  expect(response.status).toBe(200);
  await response.arrayBuffer();
}

it('warmpath sessions exports, imports and forgets', async () => {
  const [one, two] = [join(folder, 'one.sock'), join(folder, 'two.sock')];
  const first = await gatewayAt(one);
  const file = join(folder, 'sessions.ndjson');
  try {
    for (const key of ['alice', 'bob']) for (const name of ['s', 't']) await converse(first.url, key, name);
    const written = await runCli(['sessions', 'export', file, '--socket', one]);
    expect(written).toEqual({ code: 0, stdout: `${file} written\n`, stderr: '' });
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    const lines = (await readFile(file, 'utf8')).trimEnd().split('\n');
    expect(lines).toHaveLength(6);
    const environment = { ALICE_KEY: 'alice' };
    const alices = await runCli(['sessions', 'export', '--socket', one, '--key-from', 'ALICE_KEY'], { environment });
    expect(alices.stdout.trimEnd().split('\n')).toHaveLength(4);
    const second = await gatewayAt(two);
    try {
      const config = join(folder, 'warmpath.yaml');
      await writeFile(config, `upstream:\n  url: ${engine.url}\nadmin:\n  socket: ${two}\n`);
      const input = lines.with(2, lines[2]!.replace('"version":3', '"version":7')).slice(0, -1).join('\n');
      const taken = await runCli(['sessions', 'import', '--config', config], { input });
      expect(taken.stdout).toBe('3 taken in, 0 too old, 1 refused\n');
      expect(taken.stderr).toBe(
        'line 3: version: This is no exported session entry.\nthe export was cut off: its end is missing\n',
      );
      expect(taken.code).toBe(1);
      const again = await runCli(['sessions', 'import', file, '--socket', two, '--json']);
      expect([again.code, JSON.parse(again.stdout)]).toMatchObject([0, { imported: 4, complete: true }]);
      const which = ['--key-from', 'ALICE_KEY', '--session', 's'];
      const forgotten = await runCli(['sessions', 'forget', '--socket', two, ...which], { environment });
      expect(forgotten).toMatchObject({ code: 0, stdout: '1 turns forgotten\n' });
      await converse(second.url, 'alice', 's', 'ann');
      const anns = await runCli(['sessions', 'forget', '--socket', two, '--key-from', 'ALICE_KEY', '--user', 'ann'], {
        environment,
      });
      expect(anns).toMatchObject({ code: 0, stdout: '1 turns forgotten\n' });
      const nobody = await runCli(['sessions', 'forget', '--socket', two]);
      expect([nobody.code, nobody.stderr]).toEqual([1, expect.stringContaining('name a tenant, or set `all=true`')]);
      const rest = await runCli(['sessions', 'forget', '--socket', two, '--all', '--json']);
      expect(JSON.parse(rest.stdout)).toEqual({ object: 'sessions', forgotten: 3 });
    } finally {
      await second.close();
    }
  } finally {
    await first.close();
  }
  const gone = await runCli(['sessions', 'export', '--socket', one, '--json']);
  expect([gone.code, JSON.parse(gone.stdout)]).toMatchObject([1, { error: { code: 'WARMPATH_GATEWAY_UNREACHABLE' } }]);
  const unread = await runCli(['sessions', 'export', '--json']);
  expect([unread.code, JSON.parse(unread.stdout)]).toMatchObject([2, { error: { param: '--socket' } }]);
});
