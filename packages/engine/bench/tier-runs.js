// How `tiers.js` runs its configurations on a trace: on real engines, or by counting alone.
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { replacementPolicy } from '../../core/dist/internal.js';
import { PrefixCache } from '../dist/cache/prefix-cache.js';
import { spawnEngine } from '../dist/index.js';
import { modelPath } from './random-model/dist/model-path.js';
import { tokensOf } from './tier-trace.js';

/** Requests that each engine gets before it is the next one's turn. */
const TURN = 10;

async function post(engine, body) {
  const response = await fetch(`${engine.url}/v1/completions`, { method: 'POST', body: JSON.stringify(body) });
  if (!response.ok) {
    throw new Error(await response.text());
  }
  return response.json();
}

/** The process that computes, below the one that listens. */
function workerOf({ pid }) {
  return Number(readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ')[0]);
}

/** Milliseconds that all threads of a process have computed. */
function cpuMs(pid) {
  return readdirSync(`/proc/${pid}/task`)
    .map((thread) => Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')[0]) / 1e6)
    .reduce((sum, each) => sum + each, 0);
}

/**
 * Every configuration on a trace, each on an engine of its own. All engines stand side by side and take turns of a few
 * requests, so that a slow moment of the machine meets all of them and the same requests. One that `restarts` has a
 * disk tier, and is stopped and started again before its first counted request.
 *
 * @returns By configuration, what each counted request took.
 */
export async function measureRuns(model, { trace, contextTokens }, { configurations, warmUp }) {
  const engines = [];
  const path = await modelPath(model);
  for (const { name, policy, hostTier, salted, restarts } of configurations) {
    const folder = restarts ? mkdtempSync(join(tmpdir(), 'warmpath-tiers-')) : undefined;
    const disk = folder === undefined ? {} : { diskTier: folder };
    const start = () => spawnEngine({ port: 0, threads: 1, model: path, contextTokens, policy, hostTier, ...disk });
    const engine = await start();
    // Without a cache there is nothing to warm.
    const next = salted ? warmUp : 0;
    engines.push({ name, salted, folder, start, engine, worker: workerOf(engine), next, requests: [] });
  }
  for (let end = TURN; end < trace.length + TURN; end += TURN) {
    for (const each of engines) {
      for (; each.next < Math.min(end, trace.length); each.next++) {
        if (each.next === warmUp && each.folder !== undefined) {
          await each.engine.stop();
          each.engine = await each.start();
          each.worker = workerOf(each.engine);
        }
        const request = await measure(each, trace[each.next]);
        if (each.next >= warmUp) {
          each.requests.push(request);
        }
      }
    }
  }
  await Promise.all(engines.map(({ engine }) => engine.stop()));
  for (const { folder } of engines) {
    if (folder !== undefined) {
      rmSync(folder, { recursive: true });
    }
  }
  return Object.fromEntries(engines.map(({ name, requests }) => [name, requests]));
}

async function measure({ engine, worker, salted, next }, request) {
  const own = salted ? { cache_salt: String(next) } : {};
  const before = cpuMs(worker);
  const { usage, timings } = await post(engine, { ...request, ...own, max_tokens: 1, temperature: 0 });
  return {
    prompt: usage.prompt_tokens,
    device: timings.cached_device,
    host: timings.cached_host + timings.cached_disk,
    ttftMs: timings.prompt_ms,
    cpuMs: cpuMs(worker) - before,
  };
}

/** Bytes of one token's cells, as an engine says it. */
export async function bytesPerToken(model) {
  const engine = await spawnEngine({
    port: 0,
    threads: 1,
    model: await modelPath(model),
    contextTokens: 512,
    hostTier: 2 ** 30,
  });
  for (const key of ['a', 'b']) {
    await post(engine, { prompt: tokensOf({ key, tokens: 400 }), max_tokens: 1 });
  }
  const text = await (await fetch(`${engine.url}/metrics`)).text();
  const read = (name) => Number(new RegExp(`^${name}\\{.*\\} (\\S+)$`, 'm').exec(text)[1]);
  await engine.stop();
  return read('warmpath_engine_host_used_bytes') / read('warmpath_engine_host_tokens');
}

/** Holds nothing: a saved token is a byte. */
const NO_MEMORY = {
  copy: () => undefined,
  remove: () => undefined,
  save: (_sequence, from, to) => new Uint8Array(to - from),
  restore: () => true,
  slice: (_state, from, to) => new Uint8Array(to - from),
};
/** A token costs twice as much behind 4,096 others. */
const COST = { prefillMs: (cached, count) => count * (1 + (cached + count / 2) / 4096) };

/**
 * What {@link measureRuns} counts, by the cache alone, over a memory that holds nothing; a host tier's bytes are
 * tokens. As in an engine, cells hold what runs where there is a host tier. Nothing restarts.
 */
export function countRuns({ trace, contextTokens }, { configurations, warmUp }) {
  return Object.fromEntries(
    configurations.map(({ name, policy, hostTier, salted }) => {
      const cache = new PrefixCache({
        memory: NO_MEMORY,
        cells: contextTokens,
        sequences: Array.from({ length: 255 }, (_, index) => index),
        policy: replacementPolicy(policy),
        cost: COST,
        ...(hostTier > 0 && { host: { memory: NO_MEMORY, capacityBytes: hostTier, clock: () => 0 } }),
      });
      const requests = trace.map(({ prompt, segments }, index) => {
        const lease = cache.acquire(prompt, prompt.length - 1, segments, salted ? String(index) : undefined);
        const device = lease.length;
        const { host } = cache.extend(lease, prompt, prompt.length - 1);
        cache.grow(lease, prompt.length - device - host);
        cache.commit(lease, prompt.slice(device + host));
        cache.release(lease);
        cache.clearIdle();
        return { prompt: prompt.length, device, host };
      });
      return [name, requests.slice(warmUp)];
    }),
  );
}
