import { describe, expect, it } from 'vitest';
import { allowPrompts } from '../../../test/real-gateway.js';
import { readReuse } from '../src/dialects/cache-facts.js';
import { dialectOf, reusable, withBlocks, withCheckpoints, withReuse } from '../src/dialects/dialects.js';
import type { EngineReport } from '../src/index.js';
import type { Report } from '../src/shapes/shapes.js';
import { FakeEngine } from './fake-engine.js';
import { closing, gatewayAt, send } from './harness.js';
import { learnedKinds, passagesOf, questionLast } from './learned-kinds.js';

const CHAT = '/v1/chat/completions';
/** More prompts than were learned. */
const NEXT = 1_000;

interface Told {
  readonly owner: 'vllm' | 'sglang' | 'warmpath';
  readonly caching: 'True' | 'False';
}

/** An engine that says of itself whether it caches prefixes, and counts 500 tokens of which none were cached. */
function standIn(told: () => Told): Promise<FakeEngine> {
  return FakeEngine.start((response, { method, path }) => {
    const { owner, caching } = told();
    const answers: Readonly<Record<string, string>> = {
      '/v1/models': JSON.stringify({ object: 'list', data: [{ id: 'm', owned_by: owner }] }),
      '/metrics': `vllm:cache_config_info{block_size="16",enable_prefix_caching="${caching}",num_gpu_blocks="512"} 1.0\n`,
      '/server_info': JSON.stringify({ disable_radix_cache: caching === 'False' }),
      '/kv?paths=0': JSON.stringify({ reuse: caching === 'True' ? 'prefix' : 'none' }),
    };
    const usage = { prompt_tokens: 500, completion_tokens: 1, prompt_tokens_details: { cached_tokens: 0 } };
    const answer = method === 'POST' ? JSON.stringify({ choices: [], usage }) : answers[path];
    response.writeHead(answer === undefined ? 404 : 200, { 'content-type': 'application/json' }).end(answer);
  });
}

async function standing(told: () => Told) {
  const engine = await standIn(told);
  const reports: Report[] = [];
  const found: EngineReport[] = [];
  const gateway = closing(
    await gatewayAt(
      engine.url,
      {},
      {
        promptKinds: learnedKinds(['anonymous', questionLast]),
        onRequest: (report) => void (report.tenant !== undefined && reports.push(report)),
        onEngine: (report) => void found.push(report),
      },
    ),
  );
  while (found.length === 0) await new Promise((resolve) => setImmediate(resolve));
  const ask = async (body: object): Promise<Report> => {
    const before = reports.length;
    const reply = await send(gateway.url + CHAT, { model: 'm', ...body });
    expect(reply.status, reply.text).toBe(200);
    while (reports.length === before) await new Promise((resolve) => setImmediate(resolve));
    return reports.at(-1)!;
  };
  return { engine, gateway, ask };
}

function documents(...ranks: readonly number[]) {
  return ranks.map((rank) => ({ id: `d${rank}`, content: `Document ${rank} says much. `.repeat(20) }));
}

const fieldOf = (ranks: readonly number[], policy?: string) => ({
  messages: [{ role: 'user', content: 'What is said?' }],
  documents: documents(...ranks),
  ...(policy !== undefined && { warmpath: { policy } }),
});

describe.each([
  ['vLLM without prefix caching', { owner: 'vllm', caching: 'False' }],
  ['SGLang without its radix cache', { owner: 'sglang', caching: 'False' }],
  ['the embedded engine with a model that allows no reuse', { owner: 'warmpath', caching: 'False' }],
] as const)('%s', (_, told) => {
  it('gets the documents of the field in retrieval order, whatever the policy, and without a hint', async () => {
    const { engine, ask } = await standing(() => told);
    const first = await ask(fieldOf([3, 1, 2]));
    for (const policy of [undefined, 'sorted', 'exact']) {
      const report = await ask(fieldOf([2, 3, 1], policy));
      expect(report).toMatchObject({ documentsMoved: 0, noGain: 'nothing-reused', baselineTokens: 0 });
      expect(report.predictedCachedTokens).toBe(0);
      const sent = engine.received.at(-1)!.body.toString();
      const places = [2, 3, 1].map((rank) => sent.indexOf(`Document ${rank} says`));
      expect(places).toEqual([...places].sort((a, b) => a - b));
      expect(sent).not.toMatch(/relevan/i);
    }
    expect(first.noGain).toBe('nothing-reused');
  });

  it('gets the documents of a prompt of an allowed kind where they stand', async () => {
    const { gateway, ask } = await standing(() => told);
    await allowPrompts(gateway.url, 1);
    const write = (passages: readonly string[], number: number) => ({
      messages: questionLast(passages, number).map(({ role, text }) => ({ role, content: text })),
    });
    const passages = passagesOf(NEXT);
    await ask(write(passages, NEXT));
    const report = await ask(write([...passages].reverse(), NEXT + 1));
    expect(report).toMatchObject({ documentsMoved: 0, isUnchanged: true, noGain: 'nothing-reused' });
  });
});

it.each(['vllm', 'sglang', 'warmpath'] as const)('%s that caches prefixes is sent another order', async (owner) => {
  const { ask } = await standing(() => ({ owner, caching: 'True' }));
  await ask(fieldOf([3, 1, 2]));
  const report = await ask(fieldOf([2, 3, 1]));
  expect(report.documentsMoved).toBeGreaterThan(0);
  expect(report.noGain).not.toBe('nothing-reused');
});

it('an engine that caches again after a restart is known by its kind and its blocks again', () => {
  for (const name of ['vllm', 'embedded', 'llama-server'] as const) {
    const off = withReuse(dialectOf(name), false);
    expect(off.reuse).toEqual({ kind: 'none' });
    expect(withBlocks(off, 32).reuse).toEqual({ kind: 'none' });
    expect(withReuse(off, true)).toEqual(dialectOf(name));
  }
  expect(withBlocks(withReuse(withReuse(dialectOf('vllm'), false), true), 32).reuse).toEqual({
    kind: 'prefix',
    unit: 32,
  });
  const blocks = withBlocks(dialectOf('vllm'), 32);
  expect(withReuse(blocks, true)).toEqual(blocks);
});

it('an embedded engine says whether it goes on at checkpoints alone, also after a restart with another model', () => {
  expect(readReuse('{"reuse":"checkpoint"}')).toEqual({ isReused: true, resumesAtCheckpoints: true });
  expect(readReuse('{"reuse":"prefix"}')).toEqual({ isReused: true, resumesAtCheckpoints: false });
  expect(readReuse('{"reuse":"none"}')).toEqual({ isReused: false, resumesAtCheckpoints: false });
  const checkpoints = withCheckpoints(dialectOf('embedded'), true);
  expect(checkpoints.reuse).toEqual({ kind: 'checkpoint' });
  expect(withReuse(checkpoints, true)).toEqual(checkpoints);
  expect(withBlocks(checkpoints, 16)).toEqual(checkpoints);
  expect(reusable(checkpoints, 'model', 119)).toBe(119);
  expect(withCheckpoints(checkpoints, false)).toEqual(dialectOf('embedded'));
  expect(withCheckpoints(withReuse(checkpoints, false), false).reuse).toEqual({ kind: 'none' });
});
