import { type CacheFacts, dialectOf } from '@warmpath/gateway';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { EngineFacts } from '../src/doctor/examine.js';
import { judge } from '../src/doctor/judge.js';
import { divergingText, estimateBlockSize, probeText } from '../src/doctor/probe-prompts.js';

describe('probe texts', () => {
  it('share exactly the words asked for, and are the same every time', () => {
    const counts = fc.tuple(fc.integer({ min: 4, max: 400 }), fc.integer({ min: 1, max: 400 }));
    fc.assert(
      fc.property(fc.stringMatching(/^[0-9a-f]{8}$/), counts, (nonce, [count, wanted]) => {
        const shared = Math.min(wanted, count - 2);
        const whole = probeText(nonce, count).split(' ');
        const other = divergingText(nonce, count, shared).split(' ');
        expect(whole).toHaveLength(count);
        expect(other).toHaveLength(count);
        expect(other.slice(0, shared)).toEqual(whole.slice(0, shared));
        expect(other[shared]).not.toBe(whole[shared]);
        expect(probeText(nonce, count)).toBe(whole.join(' '));
      }),
      { seed: 5, numRuns: 200 },
    );
  });
});

describe('estimateBlockSize', () => {
  it('finds the block size behind counts of many lengths', () => {
    for (const size of [1, 16, 32, 128]) {
      const shared = Array.from({ length: 16 }, (_, i) => 1_500 - i * 17);
      expect(estimateBlockSize(shared.map((tokens) => Math.floor(tokens / size) * size))).toBe(size);
    }
  });

  it('says nothing where the counts say nothing', () => {
    expect(estimateBlockSize([])).toBeUndefined();
    expect(estimateBlockSize([0, 0, 512, 512, 1_024])).toBeUndefined();
  });
});

const HEALTHY: EngineFacts = {
  models: [{ id: 'm', owned_by: 'vllm' }],
  model: 'm',
  owner: 'vllm',
  tokenizes: 'chats',
  repeat: { promptTokens: 1_600, cachedTokens: 1_584, streamedCachedTokens: 1_584 },
  half: { promptTokens: 1_600, cachedTokens: 784 },
  blockSize: 16,
  cache: {},
  ttftMs: { cold: 100, warm: 20 },
};

const SILENT = { promptTokens: 1_600, cachedTokens: undefined, streamedCachedTokens: undefined };
const verdicts = (facts: EngineFacts) => Object.fromEntries(judge(facts).map(({ name, verdict }) => [name, verdict]));
const advice = (facts: EngineFacts, name: string) => judge(facts).find((check) => check.name === name)?.advice;

describe('judge', () => {
  it('names the CPU code of an embedded engine', () => {
    expect(verdicts(HEALTHY)).not.toHaveProperty('CPU code');
    const facts = { ...HEALTHY, cpuVariant: { name: 'zen4', reason: 'the best for this processor' } };
    const checks = judge(facts).filter(({ name }) => name === 'CPU code');
    expect(checks).toEqual([{ name: 'CPU code', verdict: 'ok', finding: 'zen4 (the best for this processor)' }]);
  });

  it('finds nothing wrong with a healthy engine', () => {
    expect(new Set(Object.values(verdicts(HEALTHY)))).toEqual(new Set(['ok']));
    const rest = judge(HEALTHY).filter(({ name }) => name !== 'kind of engine');
    expect(rest.every((check) => check.advice === undefined)).toBe(true);
  });

  it('goes by the metrics of an engine that reports no counts', () => {
    const facts = { ...HEALTHY, repeat: SILENT, ttftMs: { cold: 20, warm: 19 }, blockSize: 32 };
    const caching = (isReused: boolean | undefined) =>
      judge({ ...facts, cache: isReused === undefined ? {} : { isReused } }).find(
        ({ name }) => name === 'prefix caching',
      )!;
    expect(caching(true)).toMatchObject({ verdict: 'ok', finding: 'on, as the engine says' });
    expect(caching(false).verdict).toBe('failed');
    expect(caching(undefined).verdict).toBe('failed');
    expect(judge(facts)[1]!.finding).toBe('vLLM: shared starts in blocks of 32 tokens');
    expect(judge({ ...facts, cache: { resumesAtCheckpoints: true } })[1]!.finding).toBe(
      'vLLM: shared starts up to the end of a document, message or prompt',
    );
  });

  it('says whether KV events are followed, or what to do for it', () => {
    const published = (rank: number) => ({
      endpoint: `tcp://*:${5_557 + rank}`,
      replayEndpoint: `tcp://*:${6_000 + rank}`,
    });
    const source = { endpoint: 'tcp://gpu:5557', replayEndpoint: 'tcp://gpu:6000' };
    const found = { source, isConnectable: true, isSupported: true };
    const events = (eventSources: CacheFacts['eventSources'], events?: EngineFacts['events']) =>
      judge({ ...HEALTHY, cache: { ...(eventSources && { eventSources }) }, events }).find(
        ({ name }) => name === 'KV events',
      );
    expect(events(undefined)).toBeUndefined();
    expect(events([])).toMatchObject({ finding: 'off', advice: expect.stringContaining('--kv-events-config') });
    expect(events([published(0)], found)).toEqual({
      name: 'KV events',
      verdict: 'ok',
      finding: 'published at tcp://gpu:5557: the gateway follows them',
    });
    const cases: [RegExp, EngineFacts['events']][] = [
      [/npm install zeromq/, { ...found, isSupported: false }],
      [/upstream\.kvEvents/, { ...found, isConnectable: false }],
      [/upstream\.kvEvents/, { source: undefined, isConnectable: false, isSupported: true }],
      [/replay_endpoint/, { ...found, source: { ...source, replayEndpoint: undefined } }],
    ];
    for (const [advice, each] of cases) {
      expect(events([published(0)], each)).toMatchObject({ verdict: 'warning', advice: expect.stringMatching(advice) });
    }
    expect(events([published(0), published(1)], found)).toMatchObject({
      verdict: 'warning',
      advice: 'write upstream.kvEvents: { endpoint: tcp://gpu:5557, replayEndpoint: tcp://gpu:6000, ranks: 2 }',
    });
  });

  it('says what kind of engine it is, and what would tell more of its cache', () => {
    const kind = (facts: EngineFacts) => judge(facts).find(({ name }) => name === 'kind of engine')!;
    expect(kind(HEALTHY)).toMatchObject({ verdict: 'ok', finding: 'vLLM: shared starts in blocks of 16 tokens' });
    expect(kind(HEALTHY).advice).toContain('--kv-events-config');
    const slots = kind({ ...HEALTHY, owner: 'llamacpp' });
    expect(slots.finding).toBe(
      'llama-server: one prompt a slot, and saved ones for one request each; tenants share what it caches',
    );
    expect(slots.advice).toContain('--cache-ram');
    const openai = kind({ ...HEALTHY, owner: 'system', dialect: dialectOf('openai') });
    expect(openai.finding).toContain('OpenAI: shared starts from 1024 tokens on');
    expect(kind({ ...HEALTHY, owner: 'somebody' })).toMatchObject({ verdict: 'unknown' });
  });

  it("names the engine's own switch when it does not report cached tokens", () => {
    const facts = { ...HEALTHY, repeat: SILENT };
    expect(verdicts(facts)).toMatchObject({ 'prefix caching': 'ok', 'cached tokens, streamed': 'warning' });
    expect(advice(facts, 'cached tokens, streamed')).toContain('--enable-prompt-tokens-details');
    const sglang = { ...facts, owner: 'sglang' };
    expect(advice(sglang, 'cached tokens, unstreamed')).toContain('--enable-cache-report');
    expect(advice({ ...facts, owner: undefined }, 'cached tokens, unstreamed')).toBeDefined();
  });

  it('fails an engine whose counts and times show no cache', () => {
    const cold = { ...HEALTHY, ttftMs: { cold: 100, warm: 99 } };
    const zero = { ...cold, repeat: { promptTokens: 1_600, cachedTokens: 0, streamedCachedTokens: 0 } };
    expect(verdicts(zero)['prefix caching']).toBe('failed');
    // What the engine says goes before what its times suggest.
    expect(verdicts({ ...zero, ttftMs: HEALTHY.ttftMs })['prefix caching']).toBe('failed');
    expect(verdicts({ ...cold, repeat: SILENT })['prefix caching']).toBe('failed');
    expect(advice(zero, 'prefix caching')).toContain('--enable-prefix-caching');
  });

  it('warns of an engine that reuses whole prompts only', () => {
    expect(verdicts({ ...HEALTHY, half: { promptTokens: 1_600, cachedTokens: 0 } })['shared prefix']).toBe('warning');
  });
});
