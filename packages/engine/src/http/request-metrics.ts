import { Counter, Histogram, type Registry } from 'prom-client';
import type { TokensByTier } from '../cache/tokens-by-tier.js';
import type { EndEvent } from '../loop/events.js';

/** From a token on a small model to a long answer on a busy machine, in seconds. */
export const SECONDS_BUCKETS = [
  0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 320,
];
const TOKEN_BUCKETS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000];
const STEP_BUCKETS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192];

/** How vLLM calls the reasons of requests that did not end by themselves. */
const OTHER_REASONS = { finished: 'stop', aborted: 'abort', failed: 'error' } as const;

const COUNTERS = {
  queries: ['prefix_cache_queries_total', 'Prompt tokens looked up on the device'],
  hits: ['prefix_cache_hits_total', 'Prompt tokens found on the device'],
  externalQueries: ['external_prefix_cache_queries_total', 'Prompt tokens looked up in host memory and on disk'],
  externalHits: ['external_prefix_cache_hits_total', 'Prompt tokens found in host memory or on disk'],
  prompt: ['prompt_tokens_total', 'Prompt tokens of requests whose prompt is done'],
  cached: ['prompt_tokens_cached_total', 'Those of them that were cached, in any tier'],
  generated: ['generation_tokens_total', 'Tokens generated'],
} as const;
const SECONDS = {
  firstToken: ['time_to_first_token_seconds', 'From arrival to the first token'],
  nextToken: ['inter_token_latency_seconds', 'Between two tokens of an answer'],
  perToken: ['request_time_per_output_token_seconds', 'Between two tokens, the mean of each request'],
  latency: ['e2e_request_latency_seconds', 'From arrival to the end'],
  queue: ['request_queue_time_seconds', 'From arrival to the start'],
  inference: ['request_inference_time_seconds', 'From the start to the end'],
  prefill: ['request_prefill_time_seconds', 'From the start to the first token'],
  decode: ['request_decode_time_seconds', 'From the first token to the last'],
} as const;
const TOKENS = {
  prompt: ['request_prompt_tokens', 'Prompt tokens of a request'],
  computed: ['request_prefill_kv_computed_tokens', 'Prompt tokens of a request that were computed'],
  answer: ['request_generation_tokens', 'Tokens of an answer'],
} as const;

/**
 * What vLLM tells of requests, by its names and with its meanings: the prefix cache proper is the device tier; what
 * comes from host memory or disk is external to it. Durations are observed when a request ends by itself.
 */
export class RequestMetrics {
  readonly #count: Record<keyof typeof COUNTERS, Counter>;
  readonly #seconds: Record<keyof typeof SECONDS, Histogram>;
  readonly #tokens: Record<keyof typeof TOKENS, Histogram>;
  readonly #bySource: Counter<'source'>;
  readonly #endings: Counter<'finished_reason'>;
  readonly #step: Histogram;

  constructor(registry: Registry) {
    const registers = [registry];
    this.#count = each(COUNTERS, (name, help) => new Counter({ name, help, registers }));
    this.#seconds = each(SECONDS, (name, help) => new Histogram({ name, help, buckets: SECONDS_BUCKETS, registers }));
    this.#tokens = each(TOKENS, (name, help) => new Histogram({ name, help, buckets: TOKEN_BUCKETS, registers }));
    this.#bySource = new Counter({
      name: 'vllm:prompt_tokens_by_source_total',
      help: 'Prompt tokens by where they came from',
      labelNames: ['source'],
      registers,
    });
    this.#endings = new Counter({
      name: 'vllm:request_success_total',
      help: 'Requests that ended, by reason',
      labelNames: ['finished_reason'],
      registers,
    });
    this.#step = new Histogram({
      name: 'vllm:iteration_tokens_total',
      help: 'Tokens of one decode',
      buckets: STEP_BUCKETS,
      registers,
    });
  }

  onPrompt(promptTokens: number, { device, host, disk }: TokensByTier, timeToFirstTokenMs: number | undefined): void {
    const below = host + disk;
    this.#count.queries.inc(promptTokens);
    this.#count.hits.inc(device);
    this.#count.externalQueries.inc(promptTokens - device);
    this.#count.externalHits.inc(below);
    this.#count.prompt.inc(promptTokens);
    this.#count.cached.inc(device + below);
    this.#bySource.inc({ source: 'local_compute' }, promptTokens - device - below);
    this.#bySource.inc({ source: 'local_cache_hit' }, device);
    this.#bySource.inc({ source: 'external_kv_transfer' }, below);
    if (timeToFirstTokenMs !== undefined) {
      this.#count.generated.inc();
      this.#seconds.firstToken.observe(timeToFirstTokenMs / 1000);
    }
  }

  onToken(gapMs: number): void {
    this.#count.generated.inc();
    this.#seconds.nextToken.observe(gapMs / 1000);
  }

  onStep({ promptTokens, generating }: { readonly promptTokens: number; readonly generating: number }): void {
    this.#step.observe(promptTokens + generating);
  }

  onEnd({ outcome, result, times }: EndEvent): void {
    this.#endings.inc({ finished_reason: result?.finishReason ?? OTHER_REASONS[outcome] });
    if (result === undefined) {
      return;
    }
    const { promptTokens, cachedTokens, completionTokens, timings } = result;
    this.#seconds.latency.observe(times.totalMs / 1000);
    this.#seconds.queue.observe(times.queueMs / 1000);
    this.#seconds.inference.observe((times.totalMs - times.queueMs) / 1000);
    this.#seconds.prefill.observe(timings.prompt_ms / 1000);
    this.#seconds.decode.observe(timings.predicted_ms / 1000);
    this.#tokens.prompt.observe(promptTokens);
    this.#tokens.computed.observe(promptTokens - cachedTokens);
    this.#tokens.answer.observe(completionTokens);
    if (completionTokens > 1) {
      this.#seconds.perToken.observe(timings.predicted_ms / (completionTokens - 1) / 1000);
    }
  }
}

function each<Key extends string, Metric>(
  metrics: Readonly<Record<Key, readonly [name: string, help: string]>>,
  make: (name: string, help: string) => Metric,
): Record<Key, Metric> {
  const entries = Object.entries<readonly [string, string]>(metrics);
  return Object.fromEntries(entries.map(([key, [name, help]]) => [key, make(`vllm:${name}`, help)])) as Record<
    Key,
    Metric
  >;
}
