import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { freePort } from '../free-port.js';
import { stopGroup } from '../own-process.js';

/** Where `setup.sh` installs vLLM. */
const { WARMPATH_VLLM, XDG_CACHE_HOME = join(homedir(), '.cache') } = process.env;
const FOLDER = WARMPATH_VLLM ?? join(XDG_CACHE_HOME, 'warmpath', 'vllm');

export const isVllmSetUp = existsSync(join(FOLDER, 'model', 'config.json'));

/** Tokens of a block. vLLM's CPU attention takes multiples of 32. */
export const BLOCK_TOKENS = 32;
/** Blocks of its cache. One is vLLM's own. */
export const BLOCKS = 256;
/** Batches of KV events that it keeps for replays. */
export const KEPT_BATCHES = 40;

export interface VllmOptions {
  readonly port: number;
  /** Whether it neither reports cached tokens nor publishes KV events, as without options. */
  readonly isSilent?: boolean;
}

/** vLLM on this machine's CPUs. Weights are random; tokens, caching, KV events and aborts are real. */
export class VllmProcess {
  readonly url: string;
  readonly eventsEndpoint: string;
  readonly #child: ChildProcess;
  /** Its temporary files: it leaves its sockets there. */
  readonly #temporary: string;

  private constructor(child: ChildProcess, temporary: string, port: number) {
    this.#child = child;
    this.#temporary = temporary;
    this.url = `http://127.0.0.1:${port}`;
    this.eventsEndpoint = `tcp://127.0.0.1:${port + 1}`;
  }

  /** The first of three free ports: for HTTP, KV events and their replay. */
  static freePorts(): Promise<number> {
    return freePort(3);
  }

  /** Takes one or two minutes. */
  static async start({ port, isSilent = false }: VllmOptions): Promise<VllmProcess> {
    const events = {
      enable_kv_cache_events: true,
      publisher: 'zmq',
      endpoint: `tcp://*:${port + 1}`,
      replay_endpoint: `tcp://*:${port + 2}`,
      buffer_steps: KEPT_BATCHES,
    };
    const flags = [
      ...[`${port}`, '--block-size', `${BLOCK_TOKENS}`, '--num-gpu-blocks-override', `${BLOCKS}`],
      ...(isSilent ? [] : ['--enable-prompt-tokens-details', '--kv-events-config', JSON.stringify(events)]),
    ];
    const temporary = await mkdtemp(join(tmpdir(), 'vllm-'));
    const child = spawn(fileURLToPath(new URL('start.sh', import.meta.url)), flags, {
      detached: true,
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { ...process.env, TMPDIR: temporary, WARMPATH_VLLM: FOLDER },
    });
    const said: string[] = [];
    for await (const line of createInterface(child.stderr!)) {
      said.push(line);
      if (!line.includes('Application startup complete')) continue;
      child.stderr!.resume();
      return new VllmProcess(child, temporary, port);
    }
    throw new Error(`vLLM has not started:\n${said.slice(-20).join('\n')}`);
  }

  async stop(): Promise<void> {
    await stopGroup(this.#child);
    await rm(this.#temporary, { recursive: true, force: true });
  }
}
