import { afterEach, describe, expect, it } from 'vitest';
import { EventLog, someTokens, TestEngine } from '../support/engine.js';

/** What vLLM's dashboards and routers read, with the type of each. */
const NAMES = {
  gauge: ['num_requests_running', 'num_requests_waiting', 'kv_cache_usage_perc', 'cache_config_info'],
  counter: [
    'prefix_cache_queries_total',
    'prefix_cache_hits_total',
    'external_prefix_cache_queries_total',
    'external_prefix_cache_hits_total',
    'prompt_tokens_total',
    'prompt_tokens_cached_total',
    'prompt_tokens_by_source_total',
    'generation_tokens_total',
    'num_preemptions_total',
    'request_success_total',
  ],
  histogram: [
    'time_to_first_token_seconds',
    'inter_token_latency_seconds',
    'request_time_per_output_token_seconds',
    'e2e_request_latency_seconds',
    'request_queue_time_seconds',
    'request_inference_time_seconds',
    'request_prefill_time_seconds',
    'request_decode_time_seconds',
    'request_prompt_tokens',
    'request_prefill_kv_computed_tokens',
    'request_generation_tokens',
    'iteration_tokens_total',
  ],
};

describe("metrics by vLLM's names", () => {
  let engine: TestEngine;
  afterEach(() => engine.close());
  const read = (name: string, labels = ''): Promise<number> => engine.metric(`vllm:${name}`, labels);

  it('are there from the start, each of its type', async () => {
    engine = await TestEngine.start();
    const text = await engine.get('/metrics');
    const found = [...text.matchAll(/^# TYPE vllm:(\w+) (\w+)$/gm)].map(([, name, type]) => `${type} ${name}`);
    const expected = Object.entries(NAMES).flatMap(([type, names]) => names.map((name) => `${type} ${name}`));
    expect(found.sort()).toEqual(expected.sort());
  });

  it('count what requests took, token by token', async () => {
    engine = await TestEngine.start();
    await engine.complete(someTokens(100), { max_tokens: 8, ignore_eos: true });
    await engine.complete(someTokens(100), { max_tokens: 4, ignore_eos: true });
    expect(await read('generation_tokens_total')).toBe(12);
    expect(await read('inter_token_latency_seconds_count')).toBe(7 + 3);
    expect(await read('time_to_first_token_seconds_count')).toBe(2);
    for (const name of ['request_time_per_output_token', 'e2e_request_latency', 'request_queue_time']) {
      expect(await read(`${name}_seconds_count`), name).toBe(2);
    }
    expect(await read('request_prompt_tokens_sum')).toBe(200);
    expect(await read('request_prefill_kv_computed_tokens_sum')).toBe(101);
    expect(await read('request_generation_tokens_sum')).toBe(12);
    expect(await read('request_success_total', 'finished_reason="length"')).toBe(2);
    // Every prompt token that was computed, and every token of an answer but the last, which nobody needs in the cache.
    expect(await read('iteration_tokens_total_sum')).toBe(101 + 7 + 3);
    const [total, queue, inference] = await Promise.all(
      ['e2e_request_latency', 'request_queue_time', 'request_inference_time'].map((name) =>
        read(`${name}_seconds_sum`),
      ),
    );
    expect(total).toBeCloseTo(queue! + inference!, 6);
    expect(inference).toBeGreaterThanOrEqual(await read('request_decode_time_seconds_sum'));
  });

  it('tell what the device had from what came from elsewhere', async () => {
    engine = await TestEngine.start({ contextTokens: 512, hostTier: 2 ** 26 });
    const prompt = someTokens(300);
    await engine.complete(prompt, { segments: [200] });
    await engine.complete(someTokens(480, 1));
    const { usage } = await engine.complete(prompt, { segments: [200] });
    const { device, host } = usage.prompt_tokens_details.cached_tokens_by_tier;
    expect(host).toBeGreaterThan(0);
    expect(await read('prefix_cache_queries_total')).toBe(300 + 480 + 300);
    expect(await read('prefix_cache_hits_total')).toBe(device);
    expect(await read('external_prefix_cache_queries_total')).toBe(1080 - device);
    expect(await read('external_prefix_cache_hits_total')).toBe(host);
    expect(await read('prompt_tokens_cached_total')).toBe(device + host);
    expect(await read('prompt_tokens_by_source_total', 'source="local_compute"')).toBe(1080 - device - host);
    expect(await read('prompt_tokens_by_source_total', 'source="local_cache_hit"')).toBe(device);
    expect(await read('prompt_tokens_by_source_total', 'source="external_kv_transfer"')).toBe(host);
  });

  it('count what did not end by itself', async () => {
    engine = await TestEngine.start();
    const log = new EventLog();
    const request = engine.stream('/v1/completions', { prompt: 'text', max_tokens: 2000, ignore_eos: true });
    await request.next();
    request.destroy();
    await log.until(() => log.ends.length === 1);
    log.close();
    expect(await read('request_success_total', 'finished_reason="abort"')).toBe(1);
    expect(await read('e2e_request_latency_seconds_count')).toBe(0);
    expect(log.ends[0]!.times.totalMs).toBeGreaterThanOrEqual(log.ends[0]!.times.queueMs);
  });
});
