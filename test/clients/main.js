// What clients see of engines that speak in different ways, through the gateway: the Python packages openai and
// anthropic, and the coding agents Claude Code, Codex and OpenCode by `warmpath wrap`. Prints a table. A failure ends
// it with exit code 1.
//
//   npm run clients -- [--only python|agents]
//
// The packages of requirements.txt are installed into `.venv`, the agents into `.agents`, once.
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { parseArgs } from 'node:util';
import { startGateway } from '@warmpath/gateway';
import { FORMS, scriptedEngine } from './scripted-engine.js';

const FOLDER = import.meta.dirname;
const MAIN = join(FOLDER, '../../packages/cli/bin/warmpath.js');
const AGENTS = ['@anthropic-ai/claude-code@2.1.197', '@openai/codex@0.171.0', 'opencode-ai@1.18.33'];
const TASK = 'Read notes.txt and tell me the answer.';
const COMMANDS = {
  claude: ['-p', TASK, '--dangerously-skip-permissions'],
  codex: ['exec', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox', TASK],
  opencode: ['run', TASK],
};
/** Milliseconds after which a session of an agent has failed. */
const SESSION_MS = 120_000;

const { values: options } = parseArgs({ options: { only: { type: 'string' } } });

function python() {
  const folder = join(FOLDER, '.venv');
  const interpreter = join(folder, 'bin/python');
  if (!existsSync(interpreter)) {
    const stdio = ['ignore', 'ignore', 'inherit'];
    execFileSync('python3.11', ['-m', 'venv', folder], { stdio });
    const requirements = join(FOLDER, 'requirements.txt');
    execFileSync(interpreter, ['-m', 'pip', 'install', '--quiet', '-r', requirements], { stdio });
  }
  return interpreter;
}

/** The folder of the agents' commands. */
function agents() {
  const folder = join(FOLDER, '.agents');
  if (!existsSync(folder)) {
    const stdio = ['ignore', 'ignore', 'inherit'];
    execFileSync('npm', ['install', '--prefix', folder, '--no-audit', '--no-fund', ...AGENTS], { stdio });
  }
  return join(folder, 'node_modules/.bin');
}

/** Rows of [client, call, problem]. */
async function pythonRows(engine) {
  const gateway = await startGateway({ server: { port: 0 }, upstream: { url: engine.url }, log: { level: 'silent' } });
  const child = spawn(python(), [join(FOLDER, 'clients.py'), gateway.url], { stdio: ['ignore', 'pipe', 'inherit'] });
  const printed = await text(child.stdout);
  await gateway.close();
  return printed
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
    .map(([name, problem]) => ['Python', name, problem]);
}

async function agentRow(engine, agent) {
  const home = await mkdtemp(join(tmpdir(), 'warmpath-agents-'));
  const work = join(home, 'work');
  await mkdir(work);
  await writeFile(join(work, 'notes.txt'), 'The answer is 42.\n');
  const env = {
    PATH: `${agents()}${delimiter}${process.env.PATH}`,
    HOME: home,
    // Claude Code asks for nothing where it runs in a container.
    IS_SANDBOX: '1',
    OPENCODE_CONFIG_CONTENT: JSON.stringify({ permission: 'allow' }),
  };
  const args = [MAIN, 'wrap', '--engine', engine.url, agent, ...COMMANDS[agent]];
  const child = spawn(process.execPath, args, {
    cwd: work,
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: SESSION_MS,
  });
  const [said, noted, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]);
  const account = /^Warmpath: (\d+) prompts/m.exec(noted);
  await rm(home, { recursive: true, force: true });
  const isRight = code === 0 && said.includes('The answer is 42.') && Number(account?.[1]) >= 5;
  return [agent, `session: ${account?.[1] ?? 0} prompts`, isRight ? null : `exit ${code}: ${noted.slice(-300)}`];
}

let failures = 0;
for (const form of FORMS) {
  const engine = await scriptedEngine(form);
  const rows = options.only === 'agents' ? [] : await pythonRows(engine);
  for (const agent of options.only === 'python' ? [] : Object.keys(COMMANDS)) {
    // OpenCode speaks chat completions itself, and gets the engine's own bytes.
    if (agent !== 'opencode' || form !== 'loose') rows.push(await agentRow(engine, agent));
  }
  engine.close();
  for (const [client, call, problem] of rows) {
    process.stdout.write(`${form.padEnd(8)}${client.padEnd(10)}${call.padEnd(24)}${problem ?? 'right'}\n`);
    if (problem !== null) failures++;
  }
}
process.exitCode = failures === 0 ? 0 : 1;
