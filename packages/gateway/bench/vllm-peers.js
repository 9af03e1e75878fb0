// What users could take in Warmpath's place before vLLM. Each is skipped, with a line that says how to set it up, where
// it is not installed.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync } from 'node:fs';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import { setTimeout as wait } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { startForeign, temporaryFolder } from './processes.js';
import { BLOCK_TOKENS, BLOCKS, MODEL } from './vllm-engine.js';
import { SYSTEM } from './vllm-requests.js';

const SCRIPT = fileURLToPath(new URL('vllm-contextpilot.py', import.meta.url));
const READY_MS = 120_000;

/**
 * The prompts that ContextPilot makes of the requests: `unmoved`, `online` (`optimize`, one by one) and `offline`
 * (`optimize_batch`). Undefined, with a line for a person, if CONTEXTPILOT names no interpreter that has it.
 */
export async function contextPilotPrompts(requests) {
  const { CONTEXTPILOT: interpreter } = process.env;
  if (interpreter === undefined) {
    skipped(
      'ContextPilot',
      'CONTEXTPILOT',
      'contextpilot==0.5.0 --no-deps, numpy, scipy, fastapi, uvicorn, aiohttp, transformers',
    );
    return;
  }
  const child = spawn(interpreter, [SCRIPT], { stdio: ['pipe', 'pipe', 'inherit'] });
  const ended = once(child, 'exit');
  child.stdin.end(JSON.stringify({ system: SYSTEM, requests }));
  const prompts = await json(child.stdout);
  const [code] = await ended;
  if (code !== 0) throw new Error(`ContextPilot ended with ${code}`);
  return prompts;
}

/** vLLM's router before the engines, in its cache-aware mode. Undefined as above: VLLM_ROUTER names the program. */
export async function startVllmRouter(engines) {
  const { VLLM_ROUTER: program } = process.env;
  if (program === undefined || spawnSync(program, ['--version']).error !== undefined) {
    skipped(
      'vllm-router',
      'VLLM_ROUTER',
      'vllm-router==0.1.17 --no-deps, setproctitle, aiohttp, orjson, uvicorn, fastapi, requests',
    );
    return;
  }
  const workers = engines.map(({ url }) => url);
  const options = ['--policy', 'cache_aware', '--host', '127.0.0.1', '--worker-urls', ...workers];
  return startForeign(program, (port) => ['--port', `${port}`, ...options], READY_MS);
}

/** Whether DYNAMO names an interpreter that has Dynamo; if not, a line says so. */
export function isDynamoThere() {
  const isThere = process.env.DYNAMO !== undefined && existsSync(MODEL);
  const packages = 'ai-dynamo==1.6.1 ai-dynamo-runtime==1.6.1 --no-deps, uvloop, pydantic, transformers';
  if (!isThere) skipped('Dynamo', 'DYNAMO', packages);
  return isThere;
}

/** Two of Dynamo's mock engines, which have vLLM's cache and no model, behind its router that follows KV events. */
export async function startDynamo(model) {
  const interpreter = process.env.DYNAMO;
  process.env.DYN_FILE_KV = mkdtempSync(join(temporaryFolder(), 'dynamo-'));
  const planes = ['--discovery-backend', 'file', '--event-plane', 'zmq', '--request-plane', 'tcp'];
  const size = ['--block-size', `${BLOCK_TOKENS}`, '--num-gpu-blocks-override', `${BLOCKS}`];
  const engines = ['--model-path', MODEL, '--model-name', model, '--num-workers', '2', ...size, ...planes];
  const options = ['-m', 'dynamo.mocker', '--speedup-ratio', '100', ...engines];
  const mockers = spawn(interpreter, options, { stdio: 'ignore' });
  process.once('exit', () => mockers.kill());
  const router = [
    '-m',
    'dynamo.frontend',
    '--router-mode',
    'kv',
    '--kv-cache-block-size',
    `${BLOCK_TOKENS}`,
    ...planes,
  ];
  // It logs each request.
  const quiet = ['-c', 'exec "$0" "$@" 2> /dev/null', interpreter, ...router, '--http-host', '127.0.0.1'];
  const { url, child } = await startForeign('sh', (port) => [...quiet, '--http-port', `${port}`], READY_MS);
  const models = async () => (await (await fetch(`${url}/v1/models`)).json()).data;
  while ((await models()).length === 0) await wait(200);
  const close = () => [child, mockers].map((one) => one.kill());
  return { url, close };
}

function skipped(name, variable, packages) {
  process.stderr.write(`${name} is skipped: pip install ${packages}; ${variable}=PATH names what to start\n`);
}
