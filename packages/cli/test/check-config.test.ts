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
    expect(text.trimEnd().split('\n')).toHaveLength(2);
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
