import { readTokenCounts } from '@warmpath/core/internal';
import { describe, expect, it } from 'vitest';
import {
  beliefOf,
  configuredDialect,
  DIALECT_NAMES,
  DIALECTS,
  type DialectName,
  dialectOf,
  dialectOfOwner,
  reusable,
} from '../src/dialects/dialects.js';
import { ReportedCounts, ServedHistories } from '../src/memory/served-histories.js';
import { breakpointRule } from '../src/prompt/render.js';
import { startGateway } from '../src/start-gateway.js';
import { FakeEngine } from './fake-engine.js';
import { closing, DOCUMENTS, labelsIn, send, told } from './harness.js';

/** What engines say of a prompt of 100 tokens of which 64 were cached, and what they say when none were. */
const USAGES: readonly [name: DialectName, some: object, none: object][] = [
  [
    'vllm',
    { prompt_tokens: 100, total_tokens: 101, completion_tokens: 1, prompt_tokens_details: { cached_tokens: 64 } },
    { prompt_tokens: 100, total_tokens: 101, completion_tokens: 1, prompt_tokens_details: null },
  ],
  [
    'sglang',
    { prompt_tokens: 100, completion_tokens: 1, prompt_tokens_details: { cached_tokens: 64 }, reasoning_tokens: 0 },
    { prompt_tokens: 100, completion_tokens: 1, prompt_tokens_details: null, reasoning_tokens: 0 },
  ],
  [
    'llama-server',
    { completion_tokens: 1, prompt_tokens: 100, total_tokens: 101, prompt_tokens_details: { cached_tokens: 64 } },
    { completion_tokens: 1, prompt_tokens: 100, total_tokens: 101, prompt_tokens_details: { cached_tokens: 0 } },
  ],
  [
    'openai',
    { input_tokens: 100, input_tokens_details: { cached_tokens: 64 }, output_tokens: 1 },
    { input_tokens: 100, input_tokens_details: { cached_tokens: 0 }, output_tokens: 1 },
  ],
  [
    'anthropic',
    { input_tokens: 30, cache_creation_input_tokens: 6, cache_read_input_tokens: 64, output_tokens: 1 },
    { input_tokens: 30, cache_creation_input_tokens: 70, cache_read_input_tokens: 0, output_tokens: 1 },
  ],
  [
    'deepseek',
    { prompt_tokens: 100, completion_tokens: 1, prompt_cache_hit_tokens: 64, prompt_cache_miss_tokens: 36 },
    { prompt_tokens: 100, completion_tokens: 1, prompt_cache_hit_tokens: 0, prompt_cache_miss_tokens: 100 },
  ],
];

describe('the table of dialects', () => {
  it.each(USAGES)('reads the counts of %s; a count that is left out is 0', (name, some, none) => {
    // Anthropic alone counts what it writes to the cache.
    const writes = name === 'anthropic' ? { cacheWriteTokens: 6 } : {};
    const reasoning = name === 'sglang' ? { reasoningTokens: 0 } : {};
    const prompt = { promptTokens: 100, cachedTokens: 64, ...writes };
    expect(readTokenCounts(some)).toEqual({ ...prompt, completionTokens: 1, ...reasoning });
    const counts = new ReportedCounts(dialectOf(name).leavesOutZero === true);
    expect(counts.cachedTokens(readTokenCounts(none), 0)).toBe(0);
    expect(counts.cachedTokens(readTokenCounts(some), 64)).toBe(64);
    expect(counts.cachedTokens(readTokenCounts(none), 64)).toBe(0);
  });

  it('knows hosted APIs by their address alone, and engines of one’s own by what they say', () => {
    const at = (url: string, dialect: DialectName | 'auto' = 'auto') => configuredDialect({ url, dialect }).name;
    for (const { name, hosts } of DIALECTS) for (const host of hosts) expect(at(`https://${host}/v1`)).toBe(name);
    expect(at('https://api.openai.com.evil.example')).toBe('generic');
    expect(at('http://127.0.0.1:8080')).toBe('generic');
    expect(at('https://api.openai.com', 'vllm')).toBe('vllm');
    expect(dialectOfOwner('llamacpp')?.name).toBe('llama-server');
    expect(dialectOfOwner('vllm')?.name).toBe('vllm');
    // Proxies write this of every model.
    expect(dialectOfOwner('openai')).toBeUndefined();
    expect(dialectOfOwner(undefined)).toBeUndefined();
    const owners = DIALECTS.flatMap((dialect) => dialect.owners);
    expect(new Set(owners).size).toBe(owners.length);
  });

  it.each(DIALECT_NAMES)('%s: says how long and in which order it keeps what it holds', (name) => {
    const { reuse } = dialectOf(name);
    const { evictsLeastRecent, maxAgeMs, slots } = beliefOf(reuse);
    expect(evictsLeastRecent).toBe(reuse.kind === 'prefix');
    expect(maxAgeMs === undefined).toBe(reuse.kind === 'prefix' || reuse.kind === 'slots');
    expect(slots === undefined).toBe(name !== 'llama-server');
  });

  it.each([
    ['claude-opus-5', 512],
    ['claude-mythos-5-20260801', 512],
    ['claude-sonnet-5', 1_024],
    ['claude-sonnet-4-5-20250929', 1_024],
    ['claude-sonnet-4-20250514', 1_024],
    ['claude-opus-4-20250514', 1_024],
    ['claude-opus-4-1', 1_024],
    ['claude-opus-4-8', 1_024],
    ['claude-3-7-sonnet-20250219', 1_024],
    ['a model of tomorrow', 1_024],
    ['claude-opus-4-7', 2_048],
    ['claude-sonnet-4-6', 2_048],
    ['anthropic/claude-3.5-haiku', 2_048],
    ['claude-3-haiku-20240307', 2_048],
    ['claude-haiku-4-5-20251001', 4_096],
    ['anthropic.claude-opus-4-5-20251101-v1:0', 4_096],
    ['anthropic/claude-opus-4.6', 4_096],
  ])('marks nothing of %s below %i tokens, which it would not cache', (model, least) => {
    const anthropic = dialectOf('anthropic');
    const asked = { api: 'messages', model } as const;
    expect(breakpointRule(anthropic, asked)?.least).toBe(least);
    expect(reusable(anthropic, model, least - 1)).toBe(0);
    expect(reusable(anthropic, model, least)).toBe(least);
  });

  it.each<[DialectName, number, number]>([
    ['vllm', 1_000, 992],
    ['tensorrt-llm', 1_000, 992],
    ['embedded', 1_001, 1_001],
    ['llama-server', 1_001, 1_001],
    ['sglang', 1_001, 1_001],
    ['openai', 1_023, 0],
    ['openai', 1_200, 1_152],
    ['gemini', 1_023, 0],
    ['gemini', 1_025, 1_025],
    ['xai', 127, 0],
  ])('%s reuses of %i tokens that it holds %i', (name, held, reused) => {
    expect(reusable(dialectOf(name), 'm', held)).toBe(reused);
  });

  it.each<[DialectName, number, boolean]>([
    ['openai', 5, false],
    ['openai', 300, true],
    ['gemini', 5, false],
    ['vllm', 5, true],
    ['llama-server', 60, true],
  ])('%s: documents of %i sentences are put into another order: %s', async (dialect, sentences, isArranged) => {
    const engine = closing(await FakeEngine.start());
    const gateway = closing(
      await startGateway({
        server: { port: 0 },
        upstream: { url: engine.url, dialect },
        arrange: { policy: 'exact' },
        log: { level: 'silent' },
      }),
    );
    const documents = ['a', 'b', 'c'].map((id) => ({
      id,
      content: `The weight of ${id} is known. `.repeat(sentences),
    }));
    const ask = async (order: readonly object[]) => {
      const body = { model: 'm', messages: [{ role: 'user', content: 'What?' }], documents: order };
      const reply = told(await send(`${gateway.url}/v1/chat/completions`, body));
      return { predicted: Number(reply['predicted']), sent: labelsIn(engine.last.body).join('') };
    };
    await ask(documents);
    const second = await ask(documents.toReversed());
    expect(second.sent.slice(0, 3)).toBe(isArranged ? 'abc' : 'cba');
    expect(engine.last.body.includes('In order of relevance')).toBe(isArranged);
    // What was served is known all the same.
    const third = await ask(documents.toReversed());
    expect(third.predicted > 0).toBe(isArranged);
    const { text } = await send(`${gateway.url}/metrics`);
    expect(text).toMatch(/^warmpath_tree_nodes [1-9]/m);
  });

  it('decides what histories go by; what was believed of another kind of engine is forgotten', () => {
    const histories = new ServedHistories(1e6);
    const engine = { number: 0, name: 'one', url: 'http://one', dialect: dialectOf('generic'), kvResidency: undefined };
    const other = {
      number: 1,
      name: 'other',
      url: 'http://other',
      dialect: dialectOf('llama-server'),
      kvResidency: undefined,
    };
    expect(histories.of(engine, 't', 'm').history.state).toBe('history');
    const kept = histories.of(other, 't', 'm').history;
    expect(kept.state).toBe('modelled');
    engine.dialect = dialectOf('llama-server');
    histories.forget(engine);
    expect(histories.size).toBe(1);
    expect(histories.of(engine, 't', 'm').history.state).toBe('modelled');
    expect(histories.of(other, 't', 'm').history).toBe(kept);
  });

  it.each([
    ['llamacpp', 'auto', 'modelled'],
    ['vllm', 'auto', 'history'],
    ['llamacpp', 'vllm', 'history'],
    ['somebody', 'llama-server', 'modelled'],
  ] as const)('is found by a gateway: %s with %s', async (owner, dialect, expected) => {
    const engine = closing(
      await FakeEngine.start((response) =>
        response
          .writeHead(200, { 'content-type': 'application/json' })
          .end(JSON.stringify({ object: 'list', data: [{ id: 'm', owned_by: owner }] })),
      ),
    );
    let heard = (): void => {};
    const found = new Promise<void>((resolve) => {
      heard = resolve;
    });
    const upstream = { url: engine.url, dialect };
    const config = { server: { port: 0 }, upstream, log: { level: 'silent' } } as const;
    const gateway = closing(await startGateway(config, { onEngine: () => heard() }));
    await found;
    const reply = await send(`${gateway.url}/v1/arrange`, { documents: DOCUMENTS });
    expect(JSON.parse(reply.text).trace.residency).toBe(expected);
  });
});
