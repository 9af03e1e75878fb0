import { execFile } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { checkConfig } from '@warmpath/gateway';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runCli } from '../packages/cli/test/run-cli.js';
import { TestEngine } from '../packages/engine/test/support/engine.js';
import { type Block, blocksOf, commandsOf, isApart, isShown, PAGES, root } from './docs-blocks.js';
import { Snippets } from './snippets.js';
import { type StartedGateway, startGatewayAndEngine } from './started-gateway.js';

const run = promisify(execFile);
const blocks = blocksOf(PAGES);
const named = (language: string) =>
  blocks.filter((block) => block.language === language).map((block) => [`${block.page}:${block.line}`, block] as const);

interface Manifest {
  readonly bin?: Readonly<Record<string, string>>;
}

let gateway: StartedGateway;
/** An engine by itself: the gateway's own answers the gateway alone. */
let engine: TestEngine;

beforeAll(async () => {
  gateway = await startGatewayAndEngine();
  engine = await TestEngine.start({ hostTier: 2 ** 26 });
});

afterAll(async () => {
  await engine.close();
  await gateway.stop();
});

/** Every key that a page takes from the environment is there. */
const ANY_VARIABLE = new Proxy<Record<string, string | undefined>>(
  {},
  { get: (_, name) => (String(name).endsWith('KEY') ? 'a key of eight or more letters' : undefined) },
);

describe('shell commands in the docs', () => {
  const commands = blocks
    .filter((block) => block.language === 'sh')
    .flatMap((block) => {
      const all = commandsOf(block);
      return all.map((command, place) => {
        const output = place === all.length - 1 ? block.output : undefined;
        return [`${block.page}:${block.line} ${command}`, command, output] as const;
      });
    });

  it.each(commands)('%s', async (_, command, output) => {
    const printed = await runCommand(command);
    if (output === undefined) return;
    expect(printed, 'a command whose output is shown must be run').toBeTypeOf('string');
    if (!isShown(output, printed!)) expect(printed).toBe(output);
  });

  /**
   * Every command must be one that this function knows how to prove; an unknown one fails. What it printed, where the
   * command itself was run.
   */
  async function runCommand(command: string): Promise<string | undefined> {
    if (command === 'npm ci && npm test' || command === 'npm ci && npm start') {
      // `.ci/run` runs the first from a clean checkout; `beforeAll` runs the second's last half.
      expect(scripts()).toHaveProperty(command.split(' ').at(-1)!);
    } else if (command.startsWith('npm run papers -- ')) {
      const args = command.split(' ').slice(4);
      const { stdout } = await run(process.execPath, ['packages/papers/dist/main.js', ...args], { cwd: root });
      expect(stdout).toMatch(/^\| .* \| +ours \| +diff \|/m);
    } else if (command.startsWith('npm run ')) {
      // Benchmarks and the whole demo take minutes: that they exist is checked here, what they do elsewhere.
      const [, script, workspace] = /^npm run (\S+)(?: -w (packages\/\w+))?(?: -- .+)?$/.exec(command)!;
      expect(scripts(workspace)).toHaveProperty([script!]);
    } else if (command.startsWith('curl ')) {
      return runCurl(command);
    } else if (command.includes('| warmpath ')) {
      const [write, args] = command.split('| warmpath ') as [string, string];
      const { stdout: input } = await run('bash', ['-c', write], { cwd: root });
      return (await runCli(args.trim().split(/\s+/), { input })).stdout;
    } else if (command.endsWith('| sha256sum')) {
      // The prefix of a key in the configuration; `packages/gateway/test` holds it against the same hash.
      return (await run('bash', ['-c', command], { cwd: root, env: { ...process.env, CLIENT_KEY: 'key' } })).stdout;
    } else if (/^npm install (@warmpath\/\w+|warmpath)$/.test(command)) {
      // `test/packed` installs them from their tarballs.
      const [, name] = /(?:@warmpath\/)?(\w+)$/.exec(command)!;
      expect(existsSync(join(root, 'packages', name === 'warmpath' ? 'cli' : name!, 'package.json'))).toBe(true);
    } else if (command.startsWith('npm install @opentelemetry/')) {
      // The gateway's tests of spans run with these.
      const { devDependencies } = JSON.parse(readFileSync(join(root, 'packages/gateway/package.json'), 'utf8'));
      for (const name of command.split(' ').slice(2)) expect(devDependencies).toHaveProperty([name]);
    } else if (/^npm install @node-llama-cpp\//.test(command)) {
      // Only with a GPU. It must be of the version whose structs the engine knows.
      const { optionalDependencies } = JSON.parse(readFileSync(join(root, 'packages/engine/package.json'), 'utf8'));
      expect(command.split('@').at(-1)).toBe(optionalDependencies['@node-llama-cpp/linux-x64']);
    } else if (/^(NODE_OPTIONS='--import \.\/tracing\.mjs' )?(npx )?warmpath /.test(command)) {
      // Servers, other engines and downloads: the command and its flags must exist. `packages/cli/test` runs them.
      const own = command.replace(/^(NODE_OPTIONS='[^']*' )?(npx )?/, '');
      const [, name, action] = own.split(' ');
      await expectFlags(own, [
        'warmpath',
        name!,
        ...(action !== undefined && ['lab', 'sessions', 'collections', 'prompts'].includes(name!) ? [action] : []),
      ]);
    } else {
      expect.unreachable(`nothing proves this command: ${command}`);
    }
    return undefined;
  }

  function scripts(workspace = ''): object {
    return (JSON.parse(readFileSync(join(root, workspace, 'package.json'), 'utf8')) as { scripts: object }).scripts;
  }

  /** The help of each command that the pages name, which several do. */
  const helps = new Map<string, Promise<string>>();

  /** The way `npx` goes: the command that npm has linked. */
  async function expectFlags(command: string, words: readonly string[]): Promise<void> {
    const key = words.join(' ');
    const help = helps.get(key) ?? helpOf(words);
    helps.set(key, help);
    for (const flag of command.match(/--[a-z-]+/g) ?? []) expect(await help).toContain(`${flag} `);
    expect(await help).toContain(`Usage: ${key}`);
  }

  async function helpOf([name, ...rest]: readonly string[]): Promise<string> {
    if (name === 'warmpath') return (await runCli([...rest, '--help'])).stdout;
    return (await run(join(root, 'node_modules/.bin', name!), [...rest, '--help'], { cwd: root })).stdout;
  }

  /** Against the running gateway, or the engine; anything but an answer without an error fails. */
  async function runCurl(command: string): Promise<string> {
    const url = command.includes(':8080/kv') ? engine.server.url : gateway.url;
    const here = command.replace(/https?:\/\/(localhost|127\.0\.0\.1):8080/g, url);
    expect(here).toContain(url);
    const { stdout } = await run('bash', ['-c', here], { cwd: root });
    expect(stdout).not.toBe('');
    if (stdout.startsWith('{')) expect(JSON.parse(stdout)).not.toHaveProperty('error');
    return stdout;
  }
});

describe('READMEs of packages are short', () => {
  it.each(PAGES.filter((page) => page.startsWith('packages/')))('%s', (page) => {
    expect(readFileSync(join(root, page), 'utf8').split('\n').length).toBeLessThanOrEqual(120);
  });

  it("the gateway's is read in three minutes", () => {
    const words = readFileSync(join(root, 'packages/gateway/README.md'), 'utf8').split(/\s+/);
    expect(words.length).toBeLessThan(900);
  });
});

describe('the site', () => {
  it('has at most 40 links in its sidebar', async () => {
    const { default: site } = await import(join(root, 'docs/.vitepress/config.js'));
    const links = site.themeConfig.sidebar.flatMap(({ items }: { readonly items: readonly object[] }) => items);
    expect(links.length).toBeGreaterThan(30);
    expect(links.length).toBeLessThanOrEqual(40);
  });
});

describe('commands of the packages', () => {
  const manifests = readdirSync(join(root, 'packages')).map(
    (name) =>
      [name, JSON.parse(readFileSync(join(root, 'packages', name, 'package.json'), 'utf8')) as Manifest] as const,
  );

  it.each(manifests.flatMap(([name, { bin = {} }]) => Object.values(bin).map((path) => [name, path] as const)))(
    '%s: %s is there before anything is built, or npm has nothing to link',
    (name, path) => {
      expect(path).not.toMatch(/^(\.\/)?dist\//);
      expect(statSync(join(root, 'packages', name, path)).mode & 0o111).not.toBe(0);
    },
  );
});

describe('code in the docs', () => {
  const snippets = new Snippets('test');
  const code = (language: string) => named(language).filter(([, block]) => !isApart(block));

  afterAll(() => snippets.remove());

  it.each([...code('ts'), ...code('js')])('%s runs', async (_, block: Block) => {
    await expect(snippets.run(block, gateway.url)).resolves.toBeUndefined();
  });

  it('has types that a strict compiler accepts', async () => {
    expect(await snippets.typeErrors(code('ts').map(([, block]) => block))).toBe('');
  });

  it.each(named('yaml'))('%s is a valid configuration', (_, block) => {
    expect(checkConfig(block.text, ANY_VARIABLE).problems).toEqual([]);
  });

  it.each(named('json'))('%s is JSON', (_, block) => {
    expect(() => JSON.parse(block.text)).not.toThrow();
  });
});
