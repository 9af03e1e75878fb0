import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
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
  /** Whether answers have the number of cached tokens. */
  readonly reportsCachedTokens?: boolean;
}

/** vLLM on this machine's CPUs. Weights are random; tokens, caching, KV events and aborts are real. */
export class VllmProcess {
  readonly url: string;
  readonly kvEvents: { readonly endpoint: string; readonly replayEndpoint: string };
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, port: number) {
    this.#child = child;
    this.url = `http://127.0.0.1:${port}`;
    this.kvEvents = { endpoint: `tcp://127.0.0.1:${port + 1}`, replayEndpoint: `tcp://127.0.0.1:${port + 2}` };
  }

  /** The first of three free ports: for HTTP, KV events and their replay. */
  static freePorts(): Promise<number> {
    return freePort(3);
  }

  /** Takes one or two minutes. */
  static async start({ port, reportsCachedTokens = true }: VllmOptions): Promise<VllmProcess> {
    const events = {
      enable_kv_cache_events: true,
      publisher: 'zmq',
      endpoint: `tcp://*:${port + 1}`,
      replay_endpoint: `tcp://*:${port + 2}`,
      buffer_steps: KEPT_BATCHES,
    };
    const flags = [
      ...['-m', 'vllm.entrypoints.openai.api_server', '--model', join(FOLDER, 'model'), '--served-model-name', 'tiny'],
      ...['--load-format', 'dummy', '--dtype', 'float32', '--enforce-eager', '--max-model-len', '4096'],
      ...['--max-num-seqs', '8', '--block-size', `${BLOCK_TOKENS}`, '--num-gpu-blocks-override', `${BLOCKS}`],
      ...['--host', '127.0.0.1', '--port', `${port}`, '--kv-events-config', JSON.stringify(events)],
      ...(reportsCachedTokens ? ['--enable-prompt-tokens-details'] : []),
    ];
    const child = spawn(join(FOLDER, 'venv', 'bin', 'python'), flags, {
      detached: true,
      stdio: ['ignore', 'ignore', 'pipe'],
      env: {
        ...process.env,
        VLLM_CPU_KVCACHE_SPACE: '1',
        VLLM_CPU_OMP_THREADS_BIND: 'nobind',
        OMP_NUM_THREADS: '1',
        VLLM_CPU_CI_ENV: '1',
        // `/reset_prefix_cache`.
        VLLM_SERVER_DEV_MODE: '1',
        HF_HUB_OFFLINE: '1',
        VLLM_NO_USAGE_STATS: '1',
        DO_NOT_TRACK: '1',
      },
    });
    const said: string[] = [];
    for await (const line of createInterface(child.stderr!)) {
      said.push(line);
      if (!line.includes('Application startup complete')) continue;
      child.stderr!.resume();
      return new VllmProcess(child, port);
    }
    throw new Error(`vLLM has not started:\n${said.slice(-20).join('\n')}`);
  }

  stop(): Promise<void> {
    return stopGroup(this.#child);
  }
}
