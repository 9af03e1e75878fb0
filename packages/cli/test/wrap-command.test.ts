import { chmod, copyFile, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { PassThrough } from 'node:stream';
import { type ListedSession, startGateway } from '@warmpath/gateway';
import { describe, expect, it, onTestFinished } from 'vitest';
import { freePort } from '../../../test/free-port.js';
import { asksForJson } from '../src/command-context.js';
import { Terminal } from '../src/terminal.js';
import { AGENT_NAMES, launchOf } from '../src/wrap/coding-agents.js';
import { accountSince, printAccount } from '../src/wrap/session-account.js';
import { type FakeEngineOptions, startFakeEngine } from './fake-engine.js';
import { runCli, startCli } from './run-cli.js';

const URL = 'http://127.0.0.1:8080';

/** An engine, and stand-ins for the agents on the path. */
async function workplace(options: FakeEngineOptions = {}) {
  const engine = await startFakeEngine({ model: 'local-model', ...options });
  const folder = await mkdtemp(join(tmpdir(), 'warmpath-wrap-'));
  for (const agent of AGENT_NAMES) {
    await copyFile(join(import.meta.dirname, 'stand-in-agent-process.js'), join(folder, agent));
    await chmod(join(folder, agent), 0o755);
  }
  await writeFile(join(folder, 'package.json'), '{"type":"module"}');
  onTestFinished(async () => {
    await engine.close();
    await rm(folder, { recursive: true });
  });
  const report = join(folder, 'report.json');
  const path = `${folder}${delimiter}${process.env['PATH']}`;
  const own = { PATH: path, XDG_DATA_HOME: folder, HOME: folder, ANTHROPIC_MODEL: '' };
  /** Runs the command to its end, with what the stand-in says. */
  const wrap = async (args: readonly string[], more: Readonly<Record<string, string>> = {}) => {
    const environment = { ...own, STAND_IN_REPORT: report, ...more };
    const result = await runCli(['wrap', ...args], { environment });
    return { ...result, started: JSON.parse(await readFile(report, 'utf8')) };
  };
  const start = (args: readonly string[]) => startCli(['wrap', ...args], { environment: own });
  return { engine, folder, wrap, start };
}

describe('warmpath wrap', () => {
  it('runs each agent before the engine, with its only model, and prints the account', async () => {
    const { engine, folder, wrap } = await workplace();
    const files = [...(await readdir(folder)), 'report.json', 'warmpath'].sort();
    const key = { ANTHROPIC_API_KEY: 'a-secret-of-anthropic' };
    for (const agent of AGENT_NAMES) {
      const result = await wrap(['--engine', engine.url, agent, '-p', '--model', 'x', '3'], key);
      expect(result).toMatchObject({ code: 3, stdout: '', started: { agent, statuses: [200, 200], key: 'none' } });
      expect(result.started.args.slice(-4)).toEqual(['-p', '--model', 'x', '3']);
      if (agent === 'claude') expect(result.started.anthropicKey).toBeNull();
      // 4 and 8 words; the second prompt begins with the first.
      const cached = agent === 'claude' ? 4 : 10;
      expect(result.stderr).toMatch(`Warmpath: 2 prompts, 12 prompt tokens: ${cached} cached`);
    }
    expect(new Set(engine.received.map(({ model }) => model))).toEqual(new Set(['local-model']));
    expect((await readdir(folder)).sort()).toEqual(files);
  });

  it('uses a gateway that runs, and starts one at the address where none does', async () => {
    const { engine, wrap } = await workplace();
    const config = { server: { port: 0 }, upstream: { url: engine.url }, log: { level: 'silent' } } as const;
    const gateway = await startGateway(config);
    onTestFinished(() => gateway.close());
    const used = await wrap(['--gateway', `${gateway.url}/v1`, '--model', 'other', 'claude']);
    expect(used).toMatchObject({ code: 0, started: { base: `${gateway.url}/v1`, model: 'other' } });
    const free = `http://127.0.0.1:${await freePort()}`;
    const own = await wrap(['--gateway', free, '--engine', engine.url, 'opencode']);
    expect(own.started.base).toBe(`${free}/v1`);
  });

  it('leaves both outputs to the agent, passes signals on, and tells which signal ended it', async () => {
    const { engine, wrap, start } = await workplace();
    const waiting = start(['--json', '--engine', engine.url, 'claude', '--json', 'wait']);
    await waiting.waitFor(/\n/);
    waiting.process.kill('SIGTERM');
    const { code, stdout, stderr } = await waiting.ended;
    const [started, account] = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect([code, stderr, started.args]).toEqual([7, '', ['--json', 'wait']]);
    expect(account).toMatchObject({ prompts: 2, promptTokens: 12, cachedTokens: 4, cacheWriteTokens: 0, breaks: 0 });
    expect((await wrap(['--engine', engine.url, 'claude', 'kill'])).code).toBe(137);
  });

  it('leaves credentials and models to the agent where the engine wants a key', async () => {
    const { engine, wrap } = await workplace({ apiKey: 'a-key' });
    const own = await wrap(['--engine', engine.url, 'claude'], { ANTHROPIC_AUTH_TOKEN: 'a-key' });
    expect(own).toMatchObject({ code: 0, started: { key: 'a-key', statuses: [200, 200] } });
    expect(own.started.models).toEqual({ ANTHROPIC_MODEL: '' });
    const paid = await wrap(['--engine', engine.url, '--key-env', 'PAID', 'claude'], { PAID: 'a-key' });
    expect(paid).toMatchObject({ started: { key: 'none', model: 'local-model', statuses: [200, 200] } });
  });

  it.each([
    ['no gateway and no engine', ['--gateway', 'http://127.0.0.1:9', 'claude'], 1, 'WARMPATH_GATEWAY_UNREACHABLE'],
    [
      'an engine that does not answer',
      ['--engine', 'http://127.0.0.1:9', 'claude'],
      1,
      'WARMPATH_UPSTREAM_UNREACHABLE',
    ],
    ['an option behind the name of the agent', ['claude', '--engine', URL], 2, "before the agent's name, claude"],
    ['an agent that is unknown', ['--engine', URL, 'cursor'], 2, 'WARMPATH_USAGE'],
    ['no agent', ['--engine', URL], 2, 'WARMPATH_USAGE'],
  ])('refuses %s', async (_, args, code, name) => {
    const refused = await runCli(['wrap', ...args]);
    expect([refused.code, refused.stdout]).toEqual([code, '']);
    expect(refused.stderr).toContain(name);
  });

  it('says how an agent is installed that is not', async () => {
    const engine = await startFakeEngine();
    onTestFinished(() => engine.close());
    const environment = { PATH: join(tmpdir(), 'nowhere') };
    const { code, stderr } = await runCli(['wrap', '--engine', engine.url, 'codex'], { environment });
    expect([code, stderr]).toEqual([2, expect.stringContaining('npm install -g @openai/codex')]);
  });
});

describe('the account of an agent', () => {
  const sums = {
    ...{ prompts: 2, promptTokens: 1_000, cachedTokens: 600, cacheWriteTokens: 100, computedTokens: 300, cost: 0.5 },
    ...{ breaks: 1, lostTokens: 50, lostCost: 0.25 },
  };
  const session = (id: string, more: Partial<typeof sums> = {}, causes: readonly string[] = ['evicted']) =>
    ({ id, sums: { ...sums, ...more }, breaks: causes.map((cause) => ({ cause })) }) as unknown as ListedSession;

  it('is what all its sessions used since it began', () => {
    const before = [session('a'), session('b')];
    const twice = Object.fromEntries(Object.entries(sums).map(([name, value]) => [name, 2 * value]));
    const after = [session('c'), session('a', twice, ['expired', 'evicted']), session('b')];
    expect(accountSince(before, after)).toEqual({ ...twice, causes: { evicted: 1, expired: 1 } });
    expect(accountSince(before, before)).toBeUndefined();
  });

  it('names costs and breaks where there are any', () => {
    const streams = { stdout: new PassThrough(), stderr: new PassThrough() };
    const terminal = new Terminal(streams as never, { json: false, environment: {} });
    printAccount(terminal, accountSince([], [session('a')])!);
    const none = { cost: null, breaks: 0, lostTokens: 0, lostCost: null, cacheWriteTokens: 0, prompts: 1 };
    printAccount(terminal, accountSince([], [session('a', none as never, [])])!);
    expect(String(streams.stderr.read()).split('\n')).toEqual([
      'Warmpath: 2 prompts, 1,000 prompt tokens: 600 cached (60.0 %), 100 written, 300 computed.',
      '  cost    0.5000',
      '  breaks  1 (evicted 1): 50 cached tokens lost, cost 0.2500',
      'Warmpath: 1 prompt, 1,000 prompt tokens: 600 cached (60.0 %), 300 computed.',
      '',
    ]);
    expect(streams.stdout.read()).toBeNull();
  });
});

describe('the launch of an agent', () => {
  const target = { url: URL, key: 'none', model: 'qwen "3"' };

  it('names the model for every task of Claude Code', () => {
    const { args, environment } = launchOf('claude', target, ['-p'], { ANTHROPIC_API_KEY: 'x', OTHER: 'y' });
    expect(args).toEqual(['-p']);
    const models = Object.entries(environment).filter(([, value]) => value === 'qwen "3"');
    expect(models.map(([name]) => name).sort()).toEqual([
      'ANTHROPIC_DEFAULT_FABLE_MODEL',
      'ANTHROPIC_DEFAULT_HAIKU_MODEL',
      'ANTHROPIC_DEFAULT_OPUS_MODEL',
      'ANTHROPIC_DEFAULT_SONNET_MODEL',
      'ANTHROPIC_MODEL',
      'ANTHROPIC_SMALL_FAST_MODEL',
      'CLAUDE_CODE_SUBAGENT_MODEL',
    ]);
    expect(environment).toMatchObject({ OTHER: 'y', ANTHROPIC_BASE_URL: URL, ANTHROPIC_AUTH_TOKEN: 'none' });
    expect(environment['ANTHROPIC_API_KEY']).toBeUndefined();
  });

  it('writes a provider of Codex in TOML, before the arguments', () => {
    const { args, environment } = launchOf('codex', target, ['exec', 'x'], {});
    expect(args).toEqual([
      '-c',
      `model_providers.warmpath={name="Warmpath",base_url="${URL}/v1",wire_api="responses",env_key="WARMPATH_AGENT_KEY"}`,
      '-c',
      'model_provider="warmpath"',
      '-c',
      String.raw`model="qwen \"3\""`,
      'exec',
      'x',
    ]);
    expect(environment).toEqual({ WARMPATH_AGENT_KEY: 'none' });
    const own = launchOf('codex', { ...target, key: undefined, model: undefined }, [], {});
    expect(own.args).toHaveLength(4);
    expect(own.args[1]).toContain('requires_openai_auth=true');
    expect(own.environment).toEqual({});
  });

  it('keeps what OpenCode was configured with, and refuses what it cannot read', () => {
    const own = JSON.stringify({ permission: 'allow', model: 'a/b', provider: { a: { name: 'A' } } });
    const { environment } = launchOf('opencode', target, [], { OPENCODE_CONFIG_CONTENT: own });
    expect(JSON.parse(environment['OPENCODE_CONFIG_CONTENT']!)).toEqual({
      permission: 'allow',
      model: 'warmpath/qwen "3"',
      small_model: 'warmpath/qwen "3"',
      provider: {
        a: { name: 'A' },
        warmpath: {
          npm: '@ai-sdk/openai-compatible',
          name: 'Warmpath',
          options: { baseURL: `${URL}/v1`, apiKey: 'none' },
          models: { 'qwen "3"': { name: 'qwen "3"' } },
        },
      },
    });
    const broken = { OPENCODE_CONFIG_CONTENT: '{' };
    expect(() => launchOf('opencode', target, [], broken)).toThrow('OPENCODE_CONFIG_CONTENT');
    expect(() => launchOf('opencode', { ...target, model: undefined }, [], {})).toThrow('--model');
    expect(() => launchOf('opencode', { ...target, key: undefined }, [], {})).toThrow('--key-env');
  });

  it('takes --json behind the name of an agent for the agent', () => {
    expect(asksForJson(['wrap', '--json', 'codex'])).toBe(true);
    expect(asksForJson(['wrap', 'codex', 'exec', '--json'])).toBe(false);
    expect(asksForJson(['wrap', '--json'])).toBe(true);
    expect(asksForJson(['plan', 'codex', '--json'])).toBe(true);
  });
});
