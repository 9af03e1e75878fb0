import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runCli } from './run-cli.js';

let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-config-'));
});

afterAll(() => rm(folder, { recursive: true, force: true }));

async function check(text: string, environment: Record<string, string> = {}) {
  const file = join(folder, 'warmpath.yaml');
  await writeFile(file, text);
  const asJson = await runCli(['check-config', file, '--json'], { environment });
  const asText = await runCli(['check-config', file], { environment });
  expect(asText.code).toBe(asJson.code);
  return { file, code: asJson.code, answer: JSON.parse(asJson.stdout) as unknown, text: asText.stdout };
}

describe('warmpath check-config', () => {
  it('accepts a good file', async () => {
    const config = `upstream:\n  url: \${ENGINE}\nserver:\n  port: 8123\n`;
    const { file, code, answer, text } = await check(config, { ENGINE: 'http://127.0.0.1:8000' });
    expect({ code, answer }).toEqual({ code: 0, answer: { file, ok: true, problems: [] } });
    expect(text).toBe(`${file} is valid\n`);
  });

  it('says all that is wrong, with lines, paths and codes', async () => {
    const { file, code, answer, text } = await check(
      'upstream:\n  url: http://h\n  maxConcurent: 3\nserver:\n  port: x\n',
    );
    expect(code).toBe(78);
    expect(answer).toMatchObject({
      ok: false,
      problems: [
        { code: 'WARMPATH_CONFIG_UNKNOWN_KEY', path: 'upstream.maxConcurent', line: 3 },
        { code: 'WARMPATH_CONFIG_INVALID', path: 'server.port', line: 5 },
      ],
    });
    expect(text).toContain(`${file}:3  upstream.maxConcurent: unknown key; did you mean upstream.maxConcurrent?`);
    expect(text).toContain('it is: TCP port to listen on');
    expect(text.trimEnd().split('\n')).toHaveLength(4);
    expect(text).toMatch(/^ {2}remedy {2}Remove it, or correct its name\. \(WARMPATH_CONFIG_UNKNOWN_KEY\)$/m);
  });

  it('names the line of each key, in lists and under keys with values below them', async () => {
    const { answer } = await check(`upstream:
  url: http://h
server:
  keys:
    - name: a
      key: a-key-of-a-client
    - name: b
      kee: b
      requestsPerMinute: -4
  trustedHeader:
    tenant: x
zzz:
  a: 1
limits: {documents: many}
`);
    const { problems } = answer as { problems: readonly { path: string; line: number; message: string }[] };
    expect(problems.map(({ path, line }) => [line, path])).toEqual([
      [7, 'server.keys.1'],
      [8, 'server.keys.1.kee'],
      [9, 'server.keys.1.requestsPerMinute'],
      [10, 'server.trustedHeader'],
      [12, 'zzz'],
      [14, 'limits.documents'],
    ]);
    expect(problems[1]!.message).toContain('did you mean server.keys.1.key?');
    expect(problems[4]!.message).toContain('there are server, upstream');
  });

  it('says why a file cannot be read', async () => {
    const { code, stderr } = await runCli(['check-config', folder]);
    expect([code, stderr]).toEqual([78, expect.stringContaining('it is a folder')]);
  });

  it('asks the store of conversations where it is told to', async () => {
    const file = join(folder, 'store.yaml');
    const upstream = 'upstream:\n  url: http://127.0.0.1:8000\n';
    const away = 'redis://user:secret@127.0.0.1:1';
    await writeFile(file, `${upstream}session:\n  store:\n    url: ${away}\n`);
    expect((await runCli(['check-config', file])).code).toBe(0);
    const asText = await runCli(['check-config', file, '--connect']);
    expect([asText.code, asText.stdout + asText.stderr]).toEqual([
      1,
      `${file} is valid\nThe store of conversations (redis) is down: ECONNREFUSED\n`,
    ]);
    await writeFile(file, upstream);
    const asJson = await runCli(['check-config', file, '--connect', '--json']);
    expect([asJson.code, JSON.parse(asJson.stdout)]).toMatchObject([
      0,
      { ok: true, sessionStore: { kind: 'memory', isUp: true } },
    ]);
  });

  it('answers a file that is not there with exit code 78', async () => {
    const { code, stdout } = await runCli(['check-config', join(folder, 'none.yaml'), '--json']);
    expect(code).toBe(78);
    expect(JSON.parse(stdout)).toMatchObject({ error: { code: 'WARMPATH_CONFIG_NOT_FOUND' } });
  });
});
