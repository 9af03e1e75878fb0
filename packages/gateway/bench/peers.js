// Portkey's gateway, which this one is compared with: installed into `peers/` by its own lock file when it is first
// needed, and started.
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { startForeign } from './processes.js';

const FOLDER = fileURLToPath(new URL('peers/', import.meta.url));
const PACKAGE = `${FOLDER}node_modules/@portkey-ai/gateway/`;

/**
 * Starts Portkey before an engine; `headers` go with every request. Error: it cannot be installed, with what to do
 * about it.
 */
export async function startPortkey(engineUrl) {
  const wanted = JSON.parse(readFileSync(`${FOLDER}package.json`, 'utf8')).dependencies['@portkey-ai/gateway'];
  if (installedVersion() !== wanted) install();
  // Without the page that shows its log, which would cost it more.
  const process = await startForeign(`${PACKAGE}build/start-server.js`, {
    arguments_: (port) => [`--port=${port}`, '--headless'],
    ready: 'Ready for connections',
  });
  const headers = { 'x-portkey-provider': 'openai', 'x-portkey-custom-host': `${engineUrl}/v1` };
  return { ...process, headers, version: wanted };
}

function installedVersion() {
  const file = `${PACKAGE}package.json`;
  return existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')).version : undefined;
}

function install() {
  console.error(`installing Portkey into ${FOLDER}`);
  try {
    execFileSync('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], { cwd: FOLDER, stdio: 'inherit' });
  } catch (cause) {
    throw new Error('Portkey could not be installed. `--without-portkey` measures the rest.', { cause });
  }
}
