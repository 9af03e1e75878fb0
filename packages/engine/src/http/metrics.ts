import type { ErrorCode } from '@warmpath/core';
import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { TokensByTier } from '../cache/tokens-by-tier.js';
import type { EndEvent, LoopObserver } from '../loop/events.js';
import type { LoopStats } from '../loop/loop-options.js';
import type { GrammarCounts } from '../native/grammar.js';

/** From a token on a small model to a long answer on a busy machine, in seconds. */
const SECONDS_BUCKETS = [
  0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 320,
];
const TOKEN_BUCKETS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000];
const STEP_BUCKETS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192];

/** Why a body that was received is not read any further. */
const REFUSED_BODIES: Partial<Record<ErrorCode, string>> = {
  WARMPATH_BODY_TOO_LARGE: 'too_large',
  WARMPATH_BODY_TOO_COMPLEX: 'too_complex',
  WARMPATH_INVALID_JSON: 'no_json',
};

/** How vLLM calls the reasons of requests that did not end by themselves. */
const OTHER_REASONS = { finished: 'stop', aborted: 'abort', failed: 'error' } as const;

const REFUSALS = Object.values(REFUSED_BODIES);
const TIERS = ['device', 'host', 'disk'];
const OUTCOMES = ['finished', 'aborted', 'failed'];

const COUNTERS = {
  queries: ['vllm:prefix_cache_queries_total', 'Prompt tokens looked up on the device'],
  hits: ['vllm:prefix_cache_hits_total', 'Prompt tokens found on the device'],
  externalQueries: ['vllm:external_prefix_cache_queries_total', 'Prompt tokens looked up in host memory and on disk'],
  externalHits: ['vllm:external_prefix_cache_hits_total', 'Prompt tokens found in host memory or on disk'],
  prompt: ['vllm:prompt_tokens_total', 'Prompt tokens of requests whose prompt is done'],
  cached: ['vllm:prompt_tokens_cached_total', 'Those of them that were cached, in any tier'],
  generated: ['vllm:generation_tokens_total', 'Tokens generated'],
  preemptions: ['vllm:num_preemptions_total', 'Running requests that gave their cells away'],
  embedded: ['warmpath_engine_embedding_tokens_total', 'Tokens of texts that were turned into vectors'],
  steps: ['warmpath_engine_steps_total', 'Decodes computed'],
  stepPromptTokens: ['warmpath_engine_prefill_tokens_total', 'Prompt tokens computed'],
} as const;

/** Each with a label, and its values that are there from the start. */
const LABELLED = {
  bySource: ['vllm:prompt_tokens_by_source_total', 'Prompt tokens by where they came from', 'source', []],
  endings: ['vllm:request_success_total', 'Requests that ended, by reason', 'finished_reason', []],
  tierHits: ['warmpath_engine_tier_hits_total', 'Prompt tokens found cached', 'tier', TIERS],
  ended: ['warmpath_engine_requests_total', 'Requests that ended', 'outcome', OUTCOMES],
  refusedBodies: ['warmpath_engine_refused_bodies_total', 'Bodies refused, by reason', 'reason', REFUSALS],
} as const;

const HISTOGRAMS = {
  firstToken: ['vllm:time_to_first_token_seconds', 'From arrival to the first token', SECONDS_BUCKETS],
  nextToken: ['vllm:inter_token_latency_seconds', 'Between two tokens of an answer', SECONDS_BUCKETS],
  perToken: ['vllm:request_time_per_output_token_seconds', 'Between tokens, request mean', SECONDS_BUCKETS],
  latency: ['vllm:e2e_request_latency_seconds', 'From arrival to the end', SECONDS_BUCKETS],
  queue: ['vllm:request_queue_time_seconds', 'From arrival to the start', SECONDS_BUCKETS],
  inference: ['vllm:request_inference_time_seconds', 'From the start to the end', SECONDS_BUCKETS],
  prefill: ['vllm:request_prefill_time_seconds', 'From the start to the first token', SECONDS_BUCKETS],
  decode: ['vllm:request_decode_time_seconds', 'From the first token to the last', SECONDS_BUCKETS],
  promptTokens: ['vllm:request_prompt_tokens', 'Prompt tokens of a request', TOKEN_BUCKETS],
  computedTokens: ['vllm:request_prefill_kv_computed_tokens', 'Computed prompt tokens', TOKEN_BUCKETS],
  answerTokens: ['vllm:request_generation_tokens', 'Tokens of an answer', TOKEN_BUCKETS],
  stepTokens: ['vllm:iteration_tokens_total', 'Tokens of one decode', STEP_BUCKETS],
} as const;

/** What is read from the loop whenever it is scraped; nothing where there is no such tier. */
type Reading = readonly [name: string, help: string, read: (figures: EngineFigures) => number | undefined];

/** What the loop, the grammars and the publisher of KV events hold. */
interface EngineFigures extends LoopStats {
  readonly grammars: GrammarCounts & { readonly bytes: number };
  readonly events?: { readonly nextSequence: number; readonly failures: number } | undefined;
}

const GAUGES: readonly Reading[] = [
  ['vllm:num_requests_running', 'Requests being computed', ({ running }) => running],
  ['vllm:num_requests_waiting', 'Requests waiting for a place', ({ waiting }) => waiting],
  ['vllm:kv_cache_usage_perc', 'Used share of the KV cells', ({ usedCells, cells }) => usedCells / cells],
  ['warmpath_engine_cells', 'KV cells in all', ({ cells }) => cells],
  ['warmpath_engine_used_cells', 'KV cells that hold a token', ({ usedCells }) => usedCells],
  ['warmpath_engine_cached_cells', 'KV cells in the prefix cache', ({ cachedCells }) => cachedCells],
  ['warmpath_engine_free_sequences', 'Sequence ids not in use', ({ freeSequences }) => freeSequences],
  ['warmpath_engine_evicted_tokens', 'Tokens evicted since the start', ({ evictedTokens }) => evictedTokens],
  ['warmpath_engine_host_bytes', 'Host tier in all, in bytes', ({ host }) => host.capacityBytes],
  ['warmpath_engine_host_used_bytes', 'Bytes of the host tier in use', ({ host }) => host.usedBytes],
  ['warmpath_engine_host_tokens', 'Tokens in host memory', ({ host }) => host.tokens],
  ['warmpath_engine_disk_bytes', 'Disk tier in all, in bytes', ({ disk }) => disk?.capacityBytes],
  ['warmpath_engine_disk_used_bytes', 'Bytes of the disk tier in use', ({ disk }) => disk?.usedBytes],
  ['warmpath_engine_grammars', 'Grammars that answers are held to now', ({ grammars }) => grammars.open],
  ['warmpath_engine_grammar_bytes', 'Bytes of schemas and grammars that are kept', ({ grammars }) => grammars.bytes],
  [
    'warmpath_engine_kv_event_next_sequence',
    'Number of the next batch of events',
    ({ events }) => events?.nextSequence,
  ],
  ['warmpath_engine_kv_event_failures', 'Batches of events that the socket refused', ({ events }) => events?.failures],
];

/** The same of what only grows, without its `_total`. */
const TOTALS: readonly Reading[] = [
  ['warmpath_engine_host_saved_tokens', 'Tokens copied to host memory', ({ host }) => host.savedTokens],
  ['warmpath_engine_host_restored_tokens', 'Tokens copied back', ({ host }) => host.restoredTokens],
  ['warmpath_engine_host_evicted_tokens', 'Tokens evicted from host memory', ({ host }) => host.evictedTokens],
  ['warmpath_engine_host_failures', 'Copies that failed', ({ host }) => host.failures],
  ['warmpath_engine_disk_loaded_tokens', 'Tokens read back', ({ disk }) => disk?.loadedTokens],
  ['warmpath_engine_disk_evicted_tokens', 'Tokens evicted from the disk tier', ({ disk }) => disk?.evictedTokens],
  ['warmpath_engine_disk_failures', 'Writes and reads that failed', ({ disk }) => disk?.failures],
  ['warmpath_engine_disk_refused_files', 'Unusable files at the start', ({ disk }) => disk?.refusedFiles],
  ['warmpath_engine_grammar_checks', 'Times that a grammar judged a few tokens', ({ grammars }) => grammars.checks],
  ['warmpath_engine_grammar_masks', 'Times that a grammar judged the vocabulary', ({ grammars }) => grammars.masks],
];

/** Prompt tokens of all requests whose prompt is done, and where they were found. */
export interface PromptTokenCounts extends TokensByTier {
  readonly computed: number;
}

/**
 * The engine's Prometheus metrics. Where vLLM has a metric of the same meaning it has vLLM's name, so that dashboards
 * and gateways read both alike: the prefix cache proper is the device tier, what comes from host memory or disk is
 * external to it, and durations are observed when a request ends by itself. The rest begins with `warmpath_engine_`.
 */
export class EngineMetrics implements LoopObserver {
  readonly #registry = new Registry();
  readonly #registers = [this.#registry];
  readonly #count = each(COUNTERS, ([name, help]) => new Counter({ name, help, registers: this.#registers }));
  readonly #by = each(LABELLED, ([name, help, label, values]) => {
    const counter = new Counter<string>({ name, help, labelNames: [label], registers: this.#registers });
    for (const value of values) counter.inc({ [label]: value }, 0);
    return counter;
  });
  readonly #observe = each(
    HISTOGRAMS,
    ([name, help, buckets]) => new Histogram({ name, help, buckets: [...buckets], registers: this.#registers }),
  );
  #counts: PromptTokenCounts = { device: 0, host: 0, disk: 0, computed: 0 };

  /** @param model The label `model_name` of every metric. */
  constructor(model: string) {
    this.#registry.setDefaultLabels({ model_name: model });
  }

  onPrompt(promptTokens: number, cached: TokensByTier, timeToFirstTokenMs: number | undefined): void {
    const { device, host, disk } = cached;
    const [below, computed] = [host + disk, promptTokens - device - host - disk];
    const counts = this.#counts;
    this.#counts = {
      device: counts.device + device,
      host: counts.host + host,
      disk: counts.disk + disk,
      computed: counts.computed + computed,
    };
    for (const [tier, tokens] of Object.entries({ device, host, disk })) this.#by.tierHits.inc({ tier }, tokens);
    this.#count.queries.inc(promptTokens);
    this.#count.hits.inc(device);
    this.#count.externalQueries.inc(promptTokens - device);
    this.#count.externalHits.inc(below);
    this.#count.prompt.inc(promptTokens);
    this.#count.cached.inc(device + below);
    this.#by.bySource.inc({ source: 'local_compute' }, computed);
    this.#by.bySource.inc({ source: 'local_cache_hit' }, device);
    this.#by.bySource.inc({ source: 'external_kv_transfer' }, below);
    if (timeToFirstTokenMs !== undefined) {
      this.#count.generated.inc();
      this.#observe.firstToken.observe(timeToFirstTokenMs / 1000);
    }
  }

  onToken(gapMs: number): void {
    this.#count.generated.inc();
    this.#observe.nextToken.observe(gapMs / 1000);
  }

  onEnd({ outcome, result, times }: EndEvent): void {
    this.#by.ended.inc({ outcome });
    this.#by.endings.inc({ finished_reason: result?.finishReason ?? OTHER_REASONS[outcome] });
    if (result === undefined) return;
    const { promptTokens, cachedTokens, completionTokens, timings } = result;
    this.#observe.latency.observe(times.totalMs / 1000);
    this.#observe.queue.observe(times.queueMs / 1000);
    this.#observe.inference.observe((times.totalMs - times.queueMs) / 1000);
    this.#observe.prefill.observe(timings.prompt_ms / 1000);
    this.#observe.decode.observe(timings.predicted_ms / 1000);
    this.#observe.promptTokens.observe(promptTokens);
    this.#observe.computedTokens.observe(promptTokens - cachedTokens);
    this.#observe.answerTokens.observe(completionTokens);
    if (completionTokens > 1) this.#observe.perToken.observe(timings.predicted_ms / (completionTokens - 1) / 1000);
  }

  /** A request for embeddings has ended. Its tokens are none of the prefix cache's. */
  onEmbeddings(outcome: EndEvent['outcome'], tokens: number, totalMs: number): void {
    this.#by.ended.inc({ outcome });
    this.#by.endings.inc({ finished_reason: OTHER_REASONS[outcome] });
    if (outcome === 'finished') {
      this.#count.embedded.inc(tokens);
      this.#observe.latency.observe(totalMs / 1000);
    }
  }

  onStep(figures: { promptTokens: number; generating: number; durationMs: number }): void {
    this.#count.steps.inc();
    this.#count.stepPromptTokens.inc(figures.promptTokens);
    this.#observe.stepTokens.observe(figures.promptTokens + figures.generating);
  }

  onPreemption(): void {
    this.#count.preemptions.inc();
  }

  /** A request was answered with an error, which may be about its body as such. */
  onRefusedBody(code: ErrorCode): void {
    const reason = REFUSED_BODIES[code];
    if (reason !== undefined) this.#by.refusedBodies.inc({ reason });
  }

  get promptTokenCounts(): PromptTokenCounts {
    return this.#counts;
  }

  /** @returns The body for `GET /metrics` and its content type. */
  async render(): Promise<{ body: string; contentType: string }> {
    return { body: await this.#registry.metrics(), contentType: this.#registry.contentType };
  }

  /** Adds what is read whenever it is scraped. Call it once. */
  watch(figures: () => EngineFigures, isReused: boolean): void {
    for (const [name, help, read] of GAUGES) {
      const collect = (): void => gauge.set(read(figures()) ?? 0);
      const gauge: Gauge = new Gauge({ name, help, registers: this.#registers, collect });
    }
    for (const [name, help, read] of TOTALS) {
      const collect = (): void => {
        counter.reset();
        counter.inc(read(figures()) ?? 0);
      };
      const counter: Counter = new Counter({ name: `${name}_total`, help, registers: this.#registers, collect });
    }
    const info = new Gauge({
      name: 'vllm:cache_config_info',
      help: 'The prefix cache: any token can be shared, so a block is one token',
      labelNames: ['block_size', 'num_gpu_blocks', 'enable_prefix_caching'],
      registers: this.#registers,
    });
    const caching = isReused ? 'True' : 'False';
    info.set({ block_size: '1', num_gpu_blocks: String(figures().cells), enable_prefix_caching: caching }, 1);
  }
}

function each<Key extends string, Row, Metric>(
  rows: Readonly<Record<Key, Row>>,
  make: (row: Row) => Metric,
): Record<Key, Metric> {
  const entries = Object.entries<Row>(rows).map(([key, row]) => [key, make(row)]);
  return Object.fromEntries(entries) as Record<Key, Metric>;
}
