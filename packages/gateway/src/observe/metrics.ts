import type { ErrorCode } from '@warmpath/core';
import type { StoreFailure, StoreOperation } from '@warmpath/core/internal';
import { Counter, Gauge, Histogram, type MetricObject, Registry } from 'prom-client';
import type { Engine } from '../engines/engine.js';
import type { OverloadReason, ProcessLoad } from '../limits/load.js';
import { bytesOfPart, MEMORY_PARTS, type MemoryPart } from '../limits/memory-budget.js';
import type { Fallback, Report } from '../shapes/shapes.js';

/** What the gauges read when someone asks. */
export interface GaugeSources {
  readonly histories: () => number;
  readonly treeNodes: () => number;
  readonly sessions: () => number;
  readonly sessionTurns: () => number;
  readonly sessionStoreUp: () => boolean;
  /** What gateways tell each other, where the store of conversations is shared. */
  readonly peers: () => Readonly<Record<'told' | 'heard' | 'lost' | 'unreadable', number>> | undefined;
  readonly warmPrefixes: () => number;
  readonly engines: () => readonly Engine[];
  readonly plansWaiting: () => number;
  readonly openArrangements: () => number;
  readonly sentMessages: () => number;
  readonly agentSessions: () => number;
  readonly recordedRequests: () => number;
  /** Bytes that the parts of the memory hold. */
  readonly memory: Readonly<Record<MemoryPart, () => number>>;
  readonly memoryBytes: number;
  readonly load: () => ProcessLoad;
  readonly isShedding: () => boolean;
  /** Lines of the log that could not be written. */
  readonly logLinesLost: () => number;
}

/** One metric, for the reference page. */
export interface MetricDescription {
  readonly name: string;
  readonly type: string;
  readonly labels: readonly string[];
  readonly help: string;
}

/** Reads 0 everywhere: what there is to measure does not depend on what is measured. */
const NO_SOURCES = new Proxy({} as GaugeSources, { get: (_, key) => () => (key === 'engines' ? [] : 0) });

/** Every metric of the gateway with its labels, in the order of their names. */
export function describeMetrics(): MetricDescription[] {
  return new Metrics(NO_SOURCES).describe();
}

/** A value that is read when someone asks, and its labels. */
type ObservedSample = readonly [labels: Readonly<Record<string, string>>, value: number | undefined];

/** As the registry gives it; `metricName` is that of a histogram's sum and count. */
interface MetricSample {
  readonly value: number;
  readonly labels: Readonly<Record<string, string | number>>;
  readonly metricName?: string;
}

const SECONDS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300];
const STORE_SECONDS = [0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1];
const OVERHEAD_SECONDS = [0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 1];

/** The gateway's Prometheus metrics, each in its own registry so that two gateways in one process stay apart. */
export class Metrics {
  readonly #registry = new Registry();
  readonly #requests = this.#counter('requests_total', 'Requests answered.', ['route', 'status']);
  readonly #inFlight = this.#gauge('requests_in_flight', 'Requests whose answer is not complete.');
  readonly #overhead = this.#histogram('overhead_seconds', "The gateway's own time before dispatch.", OVERHEAD_SECONDS);
  readonly #ttft = this.#histogram('ttft_seconds', 'From dispatch to the first content.', SECONDS);
  readonly #holdoutTtft = this.#histogram('holdout_ttft_seconds', 'The same, of prompts that are held out.', SECONDS);
  readonly #queueWait = this.#histogram('queue_wait_seconds', 'Wait of prompts that found no room at once.', SECONDS);
  readonly #documents = this.#counter('documents_total', 'Documents arranged.');
  readonly #recognised = this.#counter('recognised_documents_total', 'Documents found where they stand in prompts.');
  readonly #moved = this.#counter('documents_moved_total', 'Documents that left their retrieval rank.');
  readonly #references = this.#counter('documents_deduplicated_total', 'Documents referred to, not repeated.');
  readonly #shortened = this.#counter('documents_shortened_total', 'Documents of which parts were referred to.');
  readonly #spared = this.#counter('deduplicated_tokens_total', 'Tokens that references spared, estimated.');
  readonly #forgotten = this.#counter('sessions_forgotten_total', 'Turns whose earlier turns were forgotten.');
  readonly #replayed = this.#counter('replayed_turns_total', 'Earlier turns sent again as they were rendered.');
  readonly #keptPrefix = this.#counter('prefix_kept_total', 'Prompts changed to begin as earlier ones did.', [
    'keeper',
  ]);
  readonly #predicted = this.#counter('predicted_cached_tokens_total', 'Prompt tokens predicted to be cached.');
  readonly #prompt = this.#counter('prompt_tokens_total', 'Prompt tokens, as the engine counted them.');
  readonly #cached = this.#counter('cached_tokens_total', 'Of those, tokens the engine had cached.');
  readonly #measured = this.#counter(
    'measured_prompt_tokens_total',
    'Prompt tokens of prompts with a cached count and a baseline, by whether the gateway changed the prompt, and by group: `holdout` is left as it is.',
    ['changed', 'group'],
  );
  readonly #measuredCached = this.#counter('measured_cached_tokens_total', 'Of these, tokens the engine had cached.', [
    'changed',
    'group',
  ]);
  readonly #baseline = this.#counter(
    'baseline_tokens_total',
    'Of these, tokens the engine would have cached of prompts as clients wrote them. The gain is the difference, of changed prompts; of unchanged prompts, the difference is the error of the baseline.',
    ['changed', 'group'],
  );
  readonly #cacheWrites = this.#counter(
    'cache_write_tokens_total',
    'Prompt tokens that engines wrote into their caches for a price of their own. They are no cached tokens.',
  );
  readonly #cost = this.#counter(
    'prompt_cost_total',
    'What prompts with a baseline cost, by `prices`. As `measured_prompt_tokens_total`.',
    ['changed', 'group'],
  );
  readonly #baselineCost = this.#counter(
    'baseline_cost_total',
    'What they would have cost as clients wrote them. The difference is the gain in money.',
    ['changed', 'group'],
  );
  readonly #sessionTokens = this.#counter(
    'session_tokens_total',
    'Prompt tokens of sessions, by the client that named them and by what became of them: `cached`, `written` or `computed`.',
    ['client', 'outcome'],
  );
  readonly #sessionBreaks = this.#counter('session_breaks_total', 'Prompts whose session lost cached tokens.', [
    'cause',
  ]);
  readonly #lostTokens = this.#counter(
    'session_lost_tokens_total',
    'Tokens that were in the cache for an earlier prompt of the session, and were computed or written again.',
    ['cause'],
  );
  readonly #lostCost = this.#counter('session_lost_cost_total', 'What that cost, by `prices`.', ['cause']);
  readonly #noGain = this.#counter('no_gain_total', 'Prompts that gained nothing, by the reason.', ['reason']);
  readonly #storeTime = this.#histogram(
    'session_store_seconds',
    'Time of the shared store of conversations.',
    STORE_SECONDS,
    ['operation'],
  );
  readonly #storeFailures = this.#counter(
    'session_store_failures_total',
    'What the store of conversations did not do.',
    ['operation', 'reason'],
  );
  readonly #failOpen = this.#counter('fail_open_total', 'Defects that cost an order, not an answer.', ['fallback']);
  readonly #errors = this.#counter('errors_total', 'Errors by code of the table.', ['code', 'source']);
  readonly #shed = this.#counter('shed_requests_total', 'Requests refused because the process has too much to do.', [
    'reason',
  ]);
  readonly #clientAborts = this.#counter('client_aborts_total', 'Clients that left before their answer was complete.');
  readonly #stalled = this.#counter(
    'stalled_readers_total',
    'Answers ended because their client took nothing of them.',
  );
  readonly #reloads = this.#counter('config_reloads_total', 'Configurations to change to: `taken`, or `refused`.', [
    'outcome',
  ]);
  readonly #plans = this.#counter('plans_total', 'Batches to plan, by what became of them.', ['outcome']);
  readonly #retrieval = this.#histogram('retrieval_seconds', 'Until the last stage of a search.', SECONDS);
  readonly #speculations = this.#counter(
    'speculations_total',
    'Searches before whose end a generation started, by whether it was the right one.',
    ['outcome'],
  );
  readonly #wasted = this.#counter(
    'speculation_wasted_tokens_total',
    'Prompt tokens sent in vain by these, estimated.',
  );
  readonly #warmups = this.#counter('warmups_total', 'Answers to warm-up calls.', ['state']);
  readonly #searchWarmups = this.#counter(
    'search_warmups_total',
    'Prefills of cold system prompts beside a search: started, and of these stopped because the search was over first.',
    ['event'],
  );

  constructor(sources: GaugeSources) {
    this.#read('histories', 'Histories kept, one per tenant and model.', sources.histories);
    this.#read('tree_nodes', 'Nodes of all knowledge trees.', sources.treeNodes);
    this.#read('sessions', 'Conversations that are remembered.', sources.sessions);
    this.#read('session_turns', 'Turns of conversations that are remembered.', sources.sessionTurns);
    const isUp = () => Number(sources.sessionStoreUp());
    this.#read('session_store_up', 'Whether the store of conversations can be asked: 1, or 0.', isUp);
    this.#observe(
      { type: 'counter', name: 'peer_orders_total', labels: ['event'] },
      'Orders that gateways over the same store sent each other; `unreadable`: notes of another version.',
      () => Object.entries(sources.peers() ?? {}).map(([event, value]) => [{ event }, value]),
    );
    this.#read('warm_prefixes', 'Prompt prefixes whose last use is remembered.', sources.warmPrefixes);
    this.#readEngines(sources.engines);
    this.#read('plans_waiting', 'Batches that wait to be planned.', sources.plansWaiting);
    this.#read('open_arrangements', 'Orders given alone whose outcome is not known.', sources.openArrangements);
    this.#read('sent_messages', 'Messages whose order of documents is remembered.', sources.sentMessages);
    this.#read('session_accounts', 'Sessions whose tokens are counted.', sources.agentSessions);
    this.#read('recorded_requests', 'Requests that can be asked about.', sources.recordedRequests);
    this.#readMemory(sources);
    this.#readProcess();
    this.#readLoad(sources);
    this.#readTotal('log_lines_lost_total', 'Lines of the log that could not be written.', sources.logLinesLost);
  }

  get contentType(): string {
    return this.#registry.contentType;
  }

  /** Prometheus text. */
  text(): Promise<string> {
    return this.#registry.metrics();
  }

  /** Every metric, in the order of their names. */
  describe(): MetricDescription[] {
    const metrics = this.#registry.getMetricsAsArray() as (MetricObject & { readonly labelNames: readonly string[] })[];
    return metrics
      .map((metric) => {
        const type = metric.constructor.name.toLowerCase();
        return { name: metric.name, type, labels: metric.labelNames, help: metric.help };
      })
      .toSorted((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** The same values by name and labels as in the text, without the classes of histograms. */
  async values(): Promise<Record<string, number>> {
    const values: Record<string, number> = {};
    for (const { name, values: samples } of await this.#registry.getMetricsAsJSON()) {
      for (const sample of samples as readonly MetricSample[]) {
        const { metricName = name, labels, value } = sample;
        if (metricName.endsWith('_bucket')) continue;
        const listed = Object.entries(labels).map(([label, text]) => `${label}="${text}"`);
        values[listed.length === 0 ? metricName : `${metricName}{${listed.join(',')}}`] = value;
      }
    }
    return values;
  }

  began(): void {
    this.#inFlight.inc();
  }

  /** The client has its answer, or has gone. */
  ended(report: Report): void {
    this.#inFlight.dec();
    this.#requests.inc({ route: report.route, status: report.status });
    if (report.overheadMs !== undefined) this.#overhead.observe(report.overheadMs / 1_000);
    if (report.ttftMs !== undefined) this.#ttft.observe(report.ttftMs / 1_000);
    this.#documents.inc(report.documents ?? 0);
    this.#recognised.inc(report.recognised ?? 0);
    this.#moved.inc(report.documentsMoved ?? 0);
    this.#references.inc(report.references);
    this.#shortened.inc(report.shortened);
    this.#spared.inc(Math.max(0, report.deduplicatedTokens));
    if (report.conversation === 'forgotten') this.#forgotten.inc();
    this.#replayed.inc(report.replayedTurns);
    for (const keeper of report.keptPrefix) this.#keptPrefix.inc({ keeper });
    this.#predicted.inc(report.predictedCachedTokens ?? 0);
    this.#prompt.inc(report.promptTokens ?? 0);
    this.#cached.inc(report.cachedTokens ?? 0);
    this.#cacheWrites.inc(report.cacheWriteTokens ?? 0);
    this.#gained(report);
    if (report.session !== undefined) this.#lost(report.session, report);
    if (report.errorCode === 'WARMPATH_CLIENT_CLOSED') this.#clientAborts.inc();
    else if (report.errorCode !== undefined) this.error(report.errorCode, report.errorSource ?? 'gateway');
  }

  #gained(report: Report): void {
    const { promptTokens, cachedTokens, baselineTokens, isUnchanged, isHeldOut, noGain, ttftMs } = report;
    if (isHeldOut && ttftMs !== undefined) this.#holdoutTtft.observe(ttftMs / 1_000);
    if (noGain !== undefined) this.#noGain.inc({ reason: noGain });
    if (promptTokens === undefined || cachedTokens === undefined || baselineTokens === undefined) return;
    const labels = { changed: String(isUnchanged === false), group: isHeldOut ? 'holdout' : 'rest' };
    this.#measured.inc(labels, promptTokens);
    this.#measuredCached.inc(labels, cachedTokens);
    this.#baseline.inc(labels, baselineTokens);
    const { cost, baselineCost } = report;
    if (cost === undefined || baselineCost === undefined) return;
    this.#cost.inc(labels, cost);
    this.#baselineCost.inc(labels, baselineCost);
  }

  #lost(
    { client }: NonNullable<Report['session']>,
    { sessionBreak, promptTokens, cachedTokens = 0, cacheWriteTokens = 0 }: Report,
  ): void {
    if (promptTokens === undefined) return;
    this.#sessionTokens.inc({ client, outcome: 'cached' }, cachedTokens);
    this.#sessionTokens.inc({ client, outcome: 'written' }, cacheWriteTokens);
    const computed = Math.max(0, promptTokens - cachedTokens - cacheWriteTokens);
    this.#sessionTokens.inc({ client, outcome: 'computed' }, computed);
    if (sessionBreak === undefined) return;
    const { cause, lostTokens, cost } = sessionBreak;
    this.#sessionBreaks.inc({ cause });
    this.#lostTokens.inc({ cause }, lostTokens);
    if (cost !== null) this.#lostCost.inc({ cause }, Math.max(0, cost));
  }

  error(code: ErrorCode, source: 'gateway' | 'upstream'): void {
    this.#errors.inc({ code, source });
  }

  searched(ms: number): void {
    this.#retrieval.observe(ms / 1_000);
  }

  speculated(outcome: 'confirmed' | 'wrong', wastedTokens: number): void {
    this.#speculations.inc({ outcome });
    this.#wasted.inc(wastedTokens);
  }

  failedOpen(fallback: Fallback): void {
    this.#failOpen.inc({ fallback });
  }

  stored(operation: StoreOperation, ms: number): void {
    this.#storeTime.observe({ operation }, ms / 1_000);
  }

  /** A request whose conversation could not be looked up goes on with what this gateway knows by itself. */
  notStored(operation: StoreOperation, reason: StoreFailure): void {
    this.#storeFailures.inc({ operation, reason });
    if (operation === 'find' && reason !== 'unreadable') this.failedOpen('conversation');
  }

  /** A request was refused because the process has too much to do. */
  shed(reason: OverloadReason): void {
    this.#shed.inc({ reason });
  }

  /** An answer was ended because its client took nothing of it. */
  readerStalled(): void {
    this.#stalled.inc();
  }

  /** Another configuration was read, and holds as far as it can, or changed nothing. */
  reloaded(outcome: 'taken' | 'refused'): void {
    this.#reloads.inc({ outcome });
  }

  waited(ms: number): void {
    this.#queueWait.observe(ms / 1_000);
  }

  /** `planned`, or the code of an error. */
  planned(outcome: string): void {
    this.#plans.inc({ outcome });
  }

  warmup(state: string): void {
    this.#warmups.inc({ state });
  }

  warmedDuringSearch(event: 'started' | 'stopped'): void {
    this.#searchWarmups.inc({ event });
  }

  #counter<Label extends string = never>(name: string, help: string, labelNames: Label[] = []): Counter<Label> {
    return new Counter({ name: `warmpath_${name}`, help, labelNames, registers: [this.#registry] });
  }

  #gauge(name: string, help: string): Gauge {
    return new Gauge({ name: `warmpath_${name}`, help, registers: [this.#registry] });
  }

  #histogram<Label extends string = never>(
    name: string,
    help: string,
    buckets: number[],
    labelNames: Label[] = [],
  ): Histogram<Label> {
    return new Histogram({ name: `warmpath_${name}`, help, buckets, labelNames, registers: [this.#registry] });
  }

  /** A gauge that is read when someone asks. */
  #read(name: string, help: string, value: () => number): void {
    this.#observe({ type: 'gauge', name }, help, () => [[{}, value()]]);
  }

  /** A counter that someone else keeps. */
  #readTotal(name: string, help: string, value: () => number): void {
    this.#observe({ type: 'counter', name }, help, () => [[{}, value()]]);
  }

  /** A metric whose values are asked for when someone asks for it. */
  #observe(
    { type, name, labels = [] }: { type: 'counter' | 'gauge'; name: string; labels?: readonly string[] },
    help: string,
    samples: () => readonly ObservedSample[],
  ): void {
    const Metric = type === 'counter' ? Counter : Gauge;
    const metric: Counter | Gauge = new Metric({
      name: `warmpath_${name}`,
      help,
      labelNames: labels,
      registers: [this.#registry],
      collect: () => {
        // What was there before may be gone.
        metric.reset();
        for (const [own, value] of samples()) if (value !== undefined) metric.inc(own, value);
      },
    });
  }

  #readProcess(): void {
    this.#read('resident_memory_bytes', 'Resident memory of the gateway process.', () => process.memoryUsage.rss());
    this.#readTotal('cpu_seconds_total', 'User and system CPU time of the gateway process.', () => {
      const { user, system } = process.cpuUsage();
      return (user + system) / 1e6;
    });
  }

  /** The load of the process, and whether the gateway refuses requests because of it. */
  #readLoad({ load, isShedding }: GaugeSources): void {
    this.#read('event_loop_delay_seconds', 'How late the event loop is, as last seen.', () => load().delayMs / 1_000);
    this.#read('heap_used_bytes', "Bytes of V8's heap that are taken, garbage included.", () => load().heapBytes);
    this.#read('heap_limit_bytes', 'Bytes that the heap may have.', () => load().heapLimitBytes);
    this.#read('shedding', 'Whether requests are refused because of these: 1, or 0.', () => Number(isShedding()));
  }

  /** What each part of the memory holds, and may hold. */
  #readMemory({ memory, memoryBytes }: GaugeSources): void {
    const read = (name: string, help: string, bytesOf: (part: MemoryPart) => number): void =>
      this.#observe({ type: 'gauge', name, labels: ['part'] }, help, () =>
        MEMORY_PARTS.map((part) => [{ part }, bytesOf(part)]),
      );
    read('memory_bytes', 'Bytes held of what clients sent, by part.', (part) => memory[part]());
    read('memory_budget_bytes', 'Bytes that each part may hold (`limits.memoryBytes`).', (part) =>
      bytesOfPart(part, memoryBytes),
    );
  }

  /** What each engine has to do and how it is; sums over all where the name of an engine is no label. */
  #readEngines(engines: () => readonly Engine[]): void {
    const sum = (value: (engine: Engine) => number) => () =>
      engines().reduce((total, engine) => total + value(engine), 0);
    const retries = sum(({ upstream }) => upstream.retries);
    this.#readTotal('upstream_retries_total', 'Second tries after a failed connection.', retries);
    const depth = sum(({ queue }) => queue.depth);
    this.#read('queue_depth', 'Prompts that wait for room in the engines.', depth);
    const underWay = sum(({ queue }) => queue.underWay);
    this.#read('upstream_in_flight', 'Prompts that the engines have.', underWay);
    const read = (name: string, help: string, value: (engine: Engine) => number | undefined): void =>
      this.#observe({ type: 'gauge', name, labels: ['engine'] }, help, () =>
        engines().map((engine) => [{ engine: engine.name }, value(engine)]),
      );
    const count = (
      { name, label }: { readonly name: string; readonly label: string },
      help: string,
      counts: (engine: Engine) => Readonly<Record<string, number>>,
    ): void =>
      this.#observe({ type: 'counter', name, labels: ['engine', label] }, help, () =>
        engines().flatMap((engine) =>
          Object.entries(counts(engine)).map(
            ([counted, value]): ObservedSample => [{ engine: engine.name, [label]: counted }, value],
          ),
        ),
      );
    read('engine_up', 'Whether an engine gets requests: 1, or 0 (ejected or drained).', ({ isDraining, health }) =>
      Number(!isDraining && health.state === 'up'),
    );
    read('engine_in_flight', 'Prompts that an engine has.', ({ queue }) => queue.underWay);
    read('engine_queue_depth', 'Prompts that wait for an engine.', ({ queue }) => queue.depth);
    read('engine_limit', 'Prompts that an engine may have at once.', ({ queue }) => queue.limit);
    const inside = 'Prompts that wait inside an engine, as it last reported.';
    read('engine_waiting_inside', inside, ({ queue }) => queue.waitingInside);
    const pending = 'Prompt tokens that one of several engines has to compute, estimated.';
    read('engine_pending_tokens', pending, ({ pendingTokens }) => pendingTokens);
    read(
      'kv_events_exact',
      'Whether all KV events of an engine were received and the tokens of its latest prompt are known: 1, or 0.',
      ({ kvResidency }) => kvResidency && Number(kvResidency.isExact),
    );
    const awaited = 'The number of the batch of KV events that is awaited.';
    read('kv_next_sequence', awaited, ({ kvResidency }) => kvResidency?.nextSequence);
    const waiting = 'Prompts whose tokens are to be asked for.';
    read('kv_prompts_waiting', waiting, ({ kvResidency }) => kvResidency?.waiting);
    const blocks = "Blocks of an engine's KV cache that are known.";
    read('kv_blocks', blocks, ({ kvResidency }) => kvResidency?.events.blocks);
    this.#observe(
      { type: 'counter', name: 'engine_ejections_total', labels: ['engine'] },
      'Times that an engine got no more requests.',
      () => engines().map(({ name: engine, health }) => [{ engine }, health.ejections]),
    );
    count(
      { name: 'engine_requests_total', label: 'outcome' },
      'Requests that an engine got, by outcome. `retriedElsewhere`: failed requests that another engine got.',
      ({ requests }) => ({ ...requests }),
    );
    count(
      { name: 'kv_events_total', label: 'kind' },
      'KV events: batches, and what was not as it should be.',
      ({ kvResidency }) => kvResidency?.counts ?? {},
    );
  }
}
