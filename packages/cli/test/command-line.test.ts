import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { engineFlags } from '@warmpath/engine';
import { describe, expect, it } from 'vitest';
import { runCli, startCli } from './run-cli.js';

const COMMANDS = ['up', 'serve', 'engine', 'demo', 'doctor', 'arrange', 'plan', 'check-config', 'hash-key'];
const ESCAPE = '\u001b';

describe('warmpath', () => {
  it('prints the version of the package', async () => {
    const manifest = JSON.parse(await readFile(join(import.meta.dirname, '../package.json'), 'utf8')) as {
      version: string;
    };
    expect(await runCli(['--version'])).toEqual({ code: 0, stdout: `${manifest.version}\n`, stderr: '' });
  });

  it.each([[], ...COMMANDS.map((command) => [command])])(
    '%s --help explains itself, exit codes too, without colours',
    async (...command) => {
      const { code, stdout } = await runCli([...command, '--help']);
      expect(code).toBe(0);
      expect(stdout).toContain('Exit codes:');
      expect(stdout).not.toContain(ESCAPE);
      if (command.length === 0) for (const name of COMMANDS) expect(stdout).toContain(`  ${name} `);
      else expect(stdout).toMatch(/--json[\s\S]*Examples:\n {2}\S/);
    },
  );

  it.each([
    ['no command', []],
    ['an unknown command', ['demmo']],
    ['an unknown option', ['demo', '--fast']],
    ['a value out of range', ['demo', '--questions', '0']],
    ['an unknown choice', ['demo', '--workload', 'x']],
    ['a URL that is none', ['doctor', '--engine', 'localhost']],
    ['the URL of a gateway that is none', ['ask', 'Why?', '--gateway', 'localhost']],
    ['the URL of an engine to serve that is none', ['serve', '--engine', 'localhost']],
    ['a choice that the engine does not have', ['engine', '--kv-type', 'q2']],
    ['a number that the engine refuses', ['up', '--context-tokens', '3']],
    ['a question without words', ['ask', ' ']],
    ['no engine to serve', ['serve']],
    ['a size that is none', ['engine', '--host-tier', '5x']],
    ['a port that is none', ['serve', '--engine', 'http://127.0.0.1', '--port', '70000']],
  ])('answers %s with exit code 2 and WARMPATH_USAGE', async (_, args) => {
    const { code, stdout, stderr } = await runCli(args);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toContain('WARMPATH_USAGE');
    expect(stderr).toContain('remedy');
    expect(stderr).not.toContain(ESCAPE);
  });

  it.each(['up', 'engine', 'demo', 'doctor'])('%s takes every option of the embedded engine', async (command) => {
    const { stdout } = await runCli([command, '--help']);
    const own = engineFlags().filter(({ name }) => name !== 'host' && name !== 'port');
    expect(own.map(({ flag }) => flag).filter((flag) => !stdout.includes(`  ${flag}`))).toEqual([]);
  });

  it.each(['up', 'serve', 'engine', 'ask', 'top'])('%s has the one default port', async (command) => {
    const { stdout } = await runCli([command, '--help']);
    expect(stdout.replace(/\s+/g, ' ')).toMatch(/\(default: (?:"http:\/\/127\.0\.0\.1:)?8080\b/);
  });

  it('puts errors on standard output with --json, in the shape that the servers use', async () => {
    const { code, stdout } = await runCli(['demo', '--questions', 'many', '--json']);
    expect(code).toBe(2);
    expect(JSON.parse(stdout)).toEqual({
      error: {
        message: expect.stringContaining('A whole number from 1 to 60 was expected.'),
        type: 'invalid_request_error',
        param: null,
        code: 'WARMPATH_USAGE',
        remedy: expect.any(String),
      },
    });
  });

  it('says that an engine cannot be reached', async () => {
    // Port 9 (discard) is closed on any machine that runs tests.
    const { code, stdout } = await runCli(['doctor', '--engine', 'http://127.0.0.1:9', '--json']);
    expect(code).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject({ error: { code: 'WARMPATH_UPSTREAM_UNREACHABLE', param: null } });
  });

  it('ends quietly when nobody reads its output any more', async () => {
    const cli = startCli(['lab', 'run', '--help']);
    cli.process.stdout!.destroy();
    expect(await cli.ended).toMatchObject({ code: 141, stderr: '' });
  });

  it('wants the variable that --key-env names to be set', async () => {
    const { code, stdout } = await runCli([
      'doctor',
      '--engine',
      'http://127.0.0.1:9',
      '--key-env',
      'NO_SUCH_KEY',
      '--json',
    ]);
    expect(code).toBe(78);
    expect(JSON.parse(stdout)).toMatchObject({ error: { code: 'WARMPATH_CONFIG_VARIABLE', param: '--key-env' } });
  });

  it.each([
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ] as const)('answers %s with exit code %i while it waits for an engine', async (signal, expected) => {
    const silent = createServer(() => {}).listen(0, '127.0.0.1');
    await once(silent, 'listening');
    try {
      const asked = once(silent, 'request');
      const cli = startCli(['doctor', '--engine', `http://127.0.0.1:${(silent.address() as AddressInfo).port}`]);
      await asked;
      cli.process.kill(signal);
      expect(await cli.ended).toEqual({ code: expected, stdout: '', stderr: `stopped by ${signal}\n` });
    } finally {
      silent.closeAllConnections();
      silent.close();
    }
  });
});
