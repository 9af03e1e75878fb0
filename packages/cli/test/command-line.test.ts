import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { open, readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { engineFlags } from '@warmpath/engine';
import { describe, expect, it, onTestFinished } from 'vitest';
import { freePort } from '../../../test/free-port.js';
import { startFakeEngine } from './fake-engine.js';
import { MAIN, runCli, startCli } from './run-cli.js';

const COMMANDS = ['up', 'serve', 'engine', 'demo', 'doctor', 'arrange', 'plan', 'check-config'];
/** Those of commands that start an engine beside other work. */
const MAIN_FLAGS = ['--model', '--context-tokens', '--threads', '--gpu-layers'];
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

  it.each([[[]], [['lab']], [['sessions']]])(
    '%j without a command prints the help once, with exit code 2',
    async (args) => {
      const { code, stdout, stderr } = await runCli(args);
      expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
      expect(stderr.match(/^Usage: /gm)).toHaveLength(1);
      expect(stderr).not.toContain('error');
      expect(JSON.parse((await runCli([...args, '--json'])).stdout)).toMatchObject({
        error: { code: 'WARMPATH_USAGE' },
      });
    },
  );

  it.each<readonly [string, readonly string[]]>([
    ['engine', engineFlags().map(({ flag }) => flag)],
    ...['up', 'demo', 'doctor', 'lab profile'].map((command) => [command, MAIN_FLAGS] as const),
  ])('%s takes these options of the embedded engine', async (command, expected) => {
    const { stdout } = await runCli([...command.split(' '), '--help']);
    // The address of `engine` stands above its other options.
    const own = command === 'engine' ? stdout : stdout.split('The embedded engine:')[1]!;
    const taken = engineFlags().filter(({ flag }) => own.includes(`  ${flag} `));
    expect(taken.map(({ flag }) => flag)).toEqual(expected);
    if (command !== 'engine') expect(stdout).toContain('`warmpath engine --help`');
  });

  it('has few options where a person starts', async () => {
    for (const [command, most] of [
      ['up', 10],
      ['serve', 8],
      ['lab profile', 13],
    ] as const) {
      const { stdout } = await runCli([...command.split(' '), '--help']);
      const options = stdout.match(/^ {2}(?:-\w, )?--[\w-]+/gm)!;
      expect([command, options.length <= most, options.length]).toEqual([command, true, options.length]);
    }
  });

  it.each(['up', 'serve', 'engine', 'ask'])('%s has the one default port', async (command) => {
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

  it('ends quietly when the reader of its output is gone', async () => {
    const cli = startCli(['lab', 'run', '--help']);
    cli.process.stdout!.destroy();
    expect(await cli.ended).toMatchObject({ code: 141, stderr: '' });
  });

  describe.skipIf(process.platform !== 'linux')('where the disk of its output is full', () => {
    /** Starts the command with both outputs on a full disk. */
    async function startOnFullDisk(args: readonly string[]): Promise<ChildProcess> {
      const full = await open('/dev/full', 'w');
      const child = spawn(process.execPath, [MAIN, ...args], { stdio: ['ignore', full.fd, full.fd] });
      onTestFinished(async () => {
        child.kill('SIGKILL');
        await full.close();
      });
      return child;
    }

    it('ends with a failure', async () => {
      const [code] = (await once(await startOnFullDisk(['lab', 'run', '--help']), 'exit')) as [number];
      expect(code).toBe(1);
    });

    it('says so where it can', async () => {
      const full = await open('/dev/full', 'w');
      const child = spawn(process.execPath, [MAIN, '--help'], { stdio: ['ignore', full.fd, 'pipe'] });
      const [said, [code]] = await Promise.all([text(child.stderr!), once(child, 'exit')]);
      await full.close();
      expect([code, said]).toEqual([1, expect.stringContaining('standard output cannot be written: ENOSPC')]);
    });

    it.each([[[]], [['--json']]])('serves on and ends as asked: %j', async (options) => {
      const engine = await startFakeEngine();
      onTestFinished(() => engine.close());
      const port = await freePort();
      const url = `http://127.0.0.1:${port}`;
      const child = await startOnFullDisk(['serve', '--engine', engine.url, '--port', String(port), ...options]);
      const ended = once(child, 'exit');
      const isReady = () =>
        fetch(`${url}/readyz`).then(
          ({ ok }) => ok,
          () => false,
        );
      while (!(await isReady())) expect(child.exitCode).toBe(null);
      for (let i = 0; i < 50; i++) {
        const body = JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'Hello' }] });
        const headers = { 'content-type': 'application/json' };
        const reply = await fetch(`${url}/v1/chat/completions`, { method: 'POST', headers, body });
        await reply.text();
        expect(reply.status).toBe(200);
      }
      child.kill('SIGTERM');
      expect(await ended).toEqual([0, null]);
    });
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
