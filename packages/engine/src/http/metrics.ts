import type { ErrorCode } from '@warmpath/core';
import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { DiskTierStats } from '../cache/disk-tier.js';
import type { HostTierStats } from '../cache/host-tier.js';
import type { HotCopiesStats } from '../cache/hot-copies.js';
import type { TokensByTier } from '../cache/tokens-by-tier.js';
import type { LoopObserver } from '../loop/announcer.js';
import type { EndEvent } from '../loop/events.js';
import type { LoopStats } from '../loop/loop-options.js';
import { SPECULATION_OUTCOMES, type SpeculationOutcome, type Speculations } from '../loop/speculations.js';
import type { GrammarCounts } from '../native/grammar.js';
import { RequestMetrics, SECONDS_BUCKETS } from './request-metrics.js';

/** Why a body that was received is not read any further. */
const REFUSED_BODIES: Partial<Record<ErrorCode, string>> = {
  WARMPATH_BODY_TOO_LARGE: 'too_large',
  WARMPATH_BODY_TOO_COMPLEX: 'too_complex',
  WARMPATH_INVALID_JSON: 'no_json',
};

/** Prompt tokens of all requests whose prompt is done, and where they were found. */
export interface PromptTokenCounts extends TokensByTier {
  readonly computed: number;
}

/**
 * The engine's Prometheus metrics. Where vLLM has a metric of the same meaning it has vLLM's name, so that dashboards
 * and gateways read both alike; the rest begins with `warmpath_engine_`.
 */
export class EngineMetrics implements LoopObserver {
  readonly #registry = new Registry();
  readonly #requests = new RequestMetrics(this.#registry);
  readonly #tierHits: Counter<'tier'>;
  readonly #ended: Counter<'outcome'>;
  readonly #refusedBodies: Counter<'reason'>;
  readonly #speculations: Counter<'outcome'>;
  readonly #steps: Counter;
  readonly #stepSeconds: Histogram;
  readonly #stepPromptTokens: Counter;
  readonly #preemptions: Counter;

  #counts: PromptTokenCounts = { device: 0, host: 0, disk: 0, computed: 0 };

  /** @param model The label `model_name` of every metric. */
  constructor(model: string) {
    this.#registry.setDefaultLabels({ model_name: model });
    this.#tierHits = new Counter({
      name: 'warmpath_engine_tier_hits_total',
      help: 'Prompt tokens found in the prefix cache, by tier',
      labelNames: ['tier'],
      registers: [this.#registry],
    });
    for (const tier of ['device', 'host', 'disk']) {
      this.#tierHits.inc({ tier }, 0);
    }
    this.#preemptions = this.#counter('vllm:num_preemptions_total', 'Running requests that gave their cells away');
    this.#steps = this.#counter('warmpath_engine_steps_total', 'Decodes computed');
    this.#stepPromptTokens = this.#counter('warmpath_engine_prefill_tokens_total', 'Prompt tokens computed');
    this.#ended = new Counter({
      name: 'warmpath_engine_requests_total',
      help: 'Requests that left the engine, by outcome',
      labelNames: ['outcome'],
      registers: [this.#registry],
    });
    for (const outcome of ['finished', 'aborted', 'failed']) {
      this.#ended.inc({ outcome }, 0);
    }
    this.#refusedBodies = new Counter({
      name: 'warmpath_engine_refused_bodies_total',
      help: 'Bodies that were refused for their size or what they are, by reason',
      labelNames: ['reason'],
      registers: [this.#registry],
    });
    for (const reason of Object.values(REFUSED_BODIES)) {
      this.#refusedBodies.inc({ reason }, 0);
    }
    this.#speculations = new Counter({
      name: 'warmpath_engine_speculations_total',
      help: 'Speculative generations that ended as such, by outcome',
      labelNames: ['outcome'],
      registers: [this.#registry],
    });
    for (const outcome of SPECULATION_OUTCOMES) {
      this.#speculations.inc({ outcome }, 0);
    }
    this.#stepSeconds = this.#histogram('warmpath_engine_step_seconds', 'Duration of one decode');
  }

  onPrompt(promptTokens: number, cached: TokensByTier, timeToFirstTokenMs: number | undefined): void {
    const { device, host, disk } = cached;
    const counts = this.#counts;
    this.#counts = {
      device: counts.device + device,
      host: counts.host + host,
      disk: counts.disk + disk,
      computed: counts.computed + promptTokens - device - host - disk,
    };
    this.#tierHits.inc({ tier: 'device' }, device);
    this.#tierHits.inc({ tier: 'host' }, host);
    this.#tierHits.inc({ tier: 'disk' }, disk);
    this.#requests.onPrompt(promptTokens, cached, timeToFirstTokenMs);
  }

  onToken(gapMs: number): void {
    this.#requests.onToken(gapMs);
  }

  onEnd(event: EndEvent): void {
    this.#ended.inc({ outcome: event.outcome });
    this.#requests.onEnd(event);
  }

  onStep(figures: { promptTokens: number; generating: number; durationMs: number }): void {
    this.#requests.onStep(figures);
    this.#steps.inc();
    this.#stepPromptTokens.inc(figures.promptTokens);
    this.#stepSeconds.observe(figures.durationMs / 1000);
  }

  onPreemption(): void {
    this.#preemptions.inc();
  }

  /** A request was answered with an error, which may be about its body as such. */
  onRefusedBody(code: ErrorCode): void {
    const reason = REFUSED_BODIES[code];
    if (reason !== undefined) {
      this.#refusedBodies.inc({ reason });
    }
  }

  /** A speculative generation was confirmed, or ended without. */
  onSpeculationEnd(outcome: SpeculationOutcome): void {
    this.#speculations.inc({ outcome });
  }

  get promptTokenCounts(): PromptTokenCounts {
    return this.#counts;
  }

  /** @returns The body for `GET /metrics` and its content type. */
  async render(): Promise<{ body: string; contentType: string }> {
    return { body: await this.#registry.metrics(), contentType: this.#registry.contentType };
  }

  /** Adds the gauges, which read the loop whenever they are scraped. Call it once. */
  watch(stats: () => LoopStats, speculations: Speculations, grammars: Readonly<GrammarCounts>): void {
    this.#gauge('warmpath_engine_grammars', 'Grammars that answers are held to now', () => grammars.open);
    this.#total(
      'warmpath_engine_grammar_checks_total',
      'Times that a grammar was asked about a few tokens',
      () => grammars.checks,
    );
    this.#total(
      'warmpath_engine_grammar_masks_total',
      'Times that a grammar was asked about the whole vocabulary',
      () => grammars.masks,
    );
    this.#gauge(
      'warmpath_engine_speculations',
      'Speculations that wait for their confirmation',
      () => speculations.size,
    );
    this.#gauge('warmpath_engine_held_requests', 'Generations that pause until they are confirmed', () => stats().held);
    this.#gauge('vllm:num_requests_running', 'Requests being computed', () => stats().running);
    this.#gauge('vllm:num_requests_waiting', 'Requests waiting for a place', () => stats().waiting);
    this.#gauge('vllm:kv_cache_usage_perc', 'Share of the KV cells that hold a token, 0 to 1', () => {
      const { usedCells, cells } = stats();
      return usedCells / cells;
    });
    this.#gauge('warmpath_engine_cells', 'KV cells in all', () => stats().cells);
    this.#gauge('warmpath_engine_used_cells', 'KV cells that hold a token', () => stats().usedCells);
    this.#gauge('warmpath_engine_cached_cells', 'KV cells in the prefix cache', () => stats().cachedCells);
    this.#gauge('warmpath_engine_free_sequences', 'Sequence ids not in use', () => stats().freeSequences);
    this.#gauge('warmpath_engine_evicted_tokens', 'Tokens evicted since the start', () => stats().evictedTokens);
    this.#watchHost(() => stats().host);
    this.#watchDisk(() => stats().disk);
    this.#watchHot(() => stats().hot);
    const info = new Gauge({
      name: 'vllm:cache_config_info',
      help: 'The prefix cache: any token can be shared, so a block is one token',
      labelNames: ['block_size', 'num_gpu_blocks', 'enable_prefix_caching'],
      registers: [this.#registry],
    });
    info.set({ block_size: '1', num_gpu_blocks: String(stats().cells), enable_prefix_caching: 'True' }, 1);
  }

  #watchHost(host: () => HostTierStats | undefined): void {
    const total = (name: string, help: string, read: (stats: HostTierStats) => number): void =>
      this.#total(`warmpath_engine_host_${name}_total`, help, () => {
        const stats = host();
        return stats === undefined ? 0 : read(stats);
      });
    this.#gauge('warmpath_engine_host_bytes', 'Host tier in all, in bytes', () => host()?.capacityBytes ?? 0);
    this.#gauge('warmpath_engine_host_used_bytes', 'Bytes of the host tier in use', () => host()?.usedBytes ?? 0);
    this.#gauge('warmpath_engine_host_tokens', 'Tokens with a copy in the host tier', () => host()?.tokens ?? 0);
    total('saved_tokens', 'Tokens copied from the cells to the host tier', ({ savedTokens }) => savedTokens);
    total('restored_tokens', 'Tokens copied back from the host tier', ({ restoredTokens }) => restoredTokens);
    total('evicted_tokens', 'Tokens evicted from the host tier', ({ evictedTokens }) => evictedTokens);
    total('failures', 'Copies that could not be made or were refused', ({ failures }) => failures);
  }

  #watchHot(hot: () => HotCopiesStats | undefined): void {
    this.#gauge(
      'warmpath_engine_warm_bytes',
      'Copies kept for a restart in all, in bytes',
      () => hot()?.capacityBytes ?? 0,
    );
    this.#gauge(
      'warmpath_engine_warm_used_bytes',
      'Bytes of the copies kept for a restart',
      () => hot()?.usedBytes ?? 0,
    );
    this.#total(
      'warmpath_engine_warm_written_files_total',
      'Copies written for a restart',
      () => hot()?.writtenFiles ?? 0,
    );
    this.#total(
      'warmpath_engine_warm_restored_tokens_total',
      'Tokens that this process began with after a crash',
      () => hot()?.restoredTokens ?? 0,
    );
    this.#total(
      'warmpath_engine_warm_failures_total',
      'Copies for a restart that could not be made or were refused',
      () => hot()?.failures ?? 0,
    );
  }

  #watchDisk(disk: () => DiskTierStats | undefined): void {
    const total = (name: string, help: string, read: (stats: DiskTierStats) => number): void =>
      this.#total(`warmpath_engine_disk_${name}_total`, help, () => {
        const stats = disk();
        return stats === undefined ? 0 : read(stats);
      });
    this.#gauge('warmpath_engine_disk_bytes', 'Disk tier in all, in bytes', () => disk()?.capacityBytes ?? 0);
    this.#gauge('warmpath_engine_disk_used_bytes', 'Bytes of the disk tier in use', () => disk()?.usedBytes ?? 0);
    this.#gauge('warmpath_engine_disk_files', 'Files of the disk tier', () => disk()?.files ?? 0);
    this.#gauge('warmpath_engine_disk_tokens', 'Tokens with a file in the disk tier', () => disk()?.tokens ?? 0);
    total('saved_tokens', 'Tokens written to the disk tier', ({ savedTokens }) => savedTokens);
    total('loaded_tokens', 'Tokens read back from the disk tier', ({ loadedTokens }) => loadedTokens);
    total('left_out_tokens', 'Tokens not written because their like hardly came back', (stats) => stats.leftOutTokens);
    total('evicted_tokens', 'Tokens evicted from the disk tier', ({ evictedTokens }) => evictedTokens);
    total('failures', 'Files that could not be written or read', ({ failures }) => failures);
    total('refused_writes', 'Files not written because the disk was full or slow', (stats) => stats.refusedWrites);
    total('refused_files', 'Files found at the start that were of no use', ({ refusedFiles }) => refusedFiles);
  }

  #total(name: string, help: string, read: () => number): void {
    const counter: Counter = new Counter({
      name,
      help,
      registers: [this.#registry],
      collect: () => {
        counter.reset();
        counter.inc(read());
      },
    });
  }

  #counter(name: string, help: string): Counter {
    return new Counter({ name, help, registers: [this.#registry] });
  }

  #histogram(name: string, help: string): Histogram {
    return new Histogram({ name, help, buckets: SECONDS_BUCKETS, registers: [this.#registry] });
  }

  #gauge(name: string, help: string, read: () => number): void {
    const gauge: Gauge = new Gauge({
      name,
      help,
      registers: [this.#registry],
      collect: () => gauge.set(read()),
    });
  }
}
