// The systems of the benchmark, each in a process of its own before one engine: ours, plain proxies, and those that a
// user would pick instead. Portkey is installed into `peers/` by its own lock file when it is first needed; nginx is
// measured where it is installed.
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { start, startForeign, temporaryFolder } from './processes.js';

const FOLDER = fileURLToPath(new URL('peers/', import.meta.url));
const PORTKEY = `${FOLDER}node_modules/@portkey-ai/gateway/`;
const require = createRequire(import.meta.url);

/** How each is started before an engine, and called in tables. `start` may throw: it is not there, and why. */
export const SYSTEMS = {
  direct: { title: 'direct', start: async (engine) => ({ url: engine.url, child: engine.child, version: '' }) },
  nginx: { title: 'nginx', start: startNginx },
  http: { title: '`node:http` + undici', start: ({ url }) => startPlainProxy(url, 'http') },
  fastify: { title: 'fastify + undici', start: ({ url }) => startPlainProxy(url, 'fastify') },
  portkey: { title: 'Portkey', start: startPortkey },
  warmpath: { title: 'Warmpath', start: startWarmpath },
};

async function startWarmpath({ url }) {
  const { version } = require('../package.json');
  return { ...(await start('gateway-process.js', url)), version };
}

async function startPlainProxy(url, kind) {
  const { version } = require('undici/package.json');
  const undici = `undici ${version}`;
  const versions = { http: undici, fastify: `${require('fastify/package.json').version}, ${undici}` };
  return { ...(await start('plain-proxy-process.js', url, kind)), version: versions[kind] };
}

/** One worker, as the others have one process; connections to the engine are kept, bytes go on as they come. */
async function startNginx({ url }) {
  const { error, stderr } = spawnSync('nginx', ['-v'], { encoding: 'utf8' });
  if (error !== undefined) throw new Error('it is not installed (Debian: `apt-get install nginx-light`)');
  const folder = temporaryFolder();
  const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
    (name) => `${name}_temp_path ${folder}/${name};`,
  );
  const started = await startForeign('nginx', (port) => {
    const file = `${folder}/nginx.conf`;
    writeFileSync(
      file,
      `daemon off; worker_processes 1; pid ${folder}/pid; error_log stderr crit;
      events { worker_connections 4096; }
      http {
        access_log off; keepalive_requests 1000000000; client_max_body_size 32m; client_body_buffer_size 128k;
        ${paths.join(' ')}
        upstream engine { server ${new URL(url).host}; keepalive 1024; keepalive_requests 1000000000; }
        server {
          listen 127.0.0.1:${port} backlog=4096;
          location / {
            proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
          }
        }
      }\n`,
    );
    return ['-c', file, '-e', 'stderr'];
  });
  return { ...started, version: /nginx\/(\S+)/.exec(stderr)?.[1] };
}

/** Without the page that shows its log, which would cost it more. */
async function startPortkey({ url }) {
  const version = require('./peers/package.json').dependencies['@portkey-ai/gateway'];
  if (installedPortkey() !== version) installPortkey();
  const started = await startForeign(process.execPath, (port) => [
    `${PORTKEY}build/start-server.js`,
    `--port=${port}`,
    '--headless',
  ]);
  const headers = { 'x-portkey-provider': 'openai', 'x-portkey-custom-host': `${url}/v1` };
  return { ...started, headers, version };
}

function installedPortkey() {
  const file = `${PORTKEY}package.json`;
  return existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')).version : undefined;
}

function installPortkey() {
  console.error(`installing Portkey into ${FOLDER}`);
  try {
    execFileSync('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], { cwd: FOLDER, stdio: 'inherit' });
  } catch (cause) {
    throw new Error('it could not be installed', { cause });
  }
}
