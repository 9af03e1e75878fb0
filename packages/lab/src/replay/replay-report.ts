import type { OfflineBound } from '../bounds/offline.js';
import type { LogSummary } from '../data/logged-requests.js';
import type { LabPolicyName } from '../ordering/lab-policies.js';
import { PAPER_LENGTHS } from '../workloads/workload.js';
import type { ReplaySettings } from './replay-settings.js';

/** What one policy got from one cache. */
export interface ReplayResult {
  readonly policy: LabPolicyName;
  /** The cache as it was asked for. */
  readonly cache: string;
  /** The engine whose cache it is: `vLLM`, `SGLang`, `llama-server`, or `no cache`. */
  readonly engine: string;
  /** Tokens of room; `null` for no limit or where the room is counted in prompts. */
  readonly capacityTokens: number | null;
  /** Requests that are in the figures. */
  readonly requests: number;
  /** Requests that were left out because the engine's memory cannot hold them. */
  readonly tooLong: number;
  /** Mean over requests of the share of documents reused. */
  readonly cachedDocumentShare: number;
  /** Reused tokens over all prompt tokens. */
  readonly cachedTokenShare: number;
  /** Prompt tokens that had to be computed, in all and for a request. */
  readonly uncachedTokens: { readonly total: number; readonly mean: number; readonly p50: number };
  readonly ttftMs: { readonly p50: number; readonly p95: number; readonly p99: number; readonly mean: number };
  readonly arrangeUs: { readonly p50: number; readonly p99: number };
}

/** What no order can pass on one cache, as shares of all prompt tokens. */
export interface ReplayBounds {
  readonly cache: string;
  /** The best order of each request by itself, on this cache, with nothing known of coming requests. */
  readonly oracle: number;
}

/** What the log itself shows, whatever the engine. */
export interface ReplayTraffic extends LogSummary {
  /** Requests at the start that are served but not counted. */
  readonly warmUp: number;
  /** Mean Jaccard similarity of the documents of adjacent requests. */
  readonly jaccard: number;
  /** Share of the counted prompt tokens that earlier requests held at any position: no order of prefixes passes it. */
  readonly seenBefore: number;
  /** Share of the counted mentions of documents that their own session has had before; 0 without sessions. */
  readonly repeatedInSession: number;
  /** Milliseconds from the first request to the last, if the log has times. */
  readonly spanMs: number | null;
}

/** A policy against retrieval order on the same cache. */
export interface ReplaySaving {
  readonly policy: LabPolicyName;
  readonly cache: string;
  /** Share of the tokens that retrieval order computes and this policy does not. */
  readonly uncachedTokens: number;
  /** Share of the mean time to the first token. */
  readonly ttft: number;
}

/** What a replay amounts to: one plain object, the same for the screen, for JSON and for a page. */
export interface ReplayReport {
  readonly log: string;
  /**
   * `sequential`: each request when the one before is done; `recorded`: at the times of the log, and TTFT counts the
   * wait.
   */
  readonly arrivals: 'sequential' | 'recorded';
  /** Coming or waiting requests that are looked at; policies get those that could be waiting. */
  readonly queue: number;
  readonly traffic: ReplayTraffic;
  readonly results: readonly ReplayResult[];
  readonly bounds: readonly ReplayBounds[];
  /**
   * What the best orders of all requests together would find in a cache that forgets nothing, as shares of the
   * documents' tokens.
   */
  readonly offline?: OfflineBound;
  /** Share of the time in which the engines work in retrieval order on the first cache, for recorded arrivals. */
  readonly utilisation?: number;
  /** Every policy but retrieval order on every cache; empty unless retrieval order was replayed too. */
  readonly savings: readonly ReplaySaving[];
  /** What the user would save, in one plain sentence. */
  readonly finding: string;
  /** Under which assumptions, a sentence each. */
  readonly assumptions: readonly string[];
}

/** What was measured, before it is put into words. */
export interface ReplayFigures
  extends Pick<ReplayReport, 'arrivals' | 'traffic' | 'results' | 'bounds' | 'offline' | 'utilisation'> {
  /** Engines that share the requests. Default 1. */
  readonly replicas?: number;
}

/** The report of what was measured: savings, finding and assumptions follow from it. */
export function assembleReport(
  settings: ReplaySettings,
  { arrivals, replicas = 1, ...figures }: ReplayFigures,
): ReplayReport {
  const savings = savingsOf(figures.results);
  return {
    log: settings.log,
    arrivals,
    queue: settings.queue ?? 0,
    ...figures,
    savings,
    finding: findingOf(figures.results, savings) + overloadOf(figures.utilisation),
    assumptions: [arrivalsOf(arrivals, replicas, figures.utilisation), ...assumptionsOf(settings, figures.traffic)],
  };
}

/** What every policy is compared with. */
const BASELINE = 'retrieval';

/** Each policy but the baseline against it, cache by cache. */
function savingsOf(results: readonly ReplayResult[]): readonly ReplaySaving[] {
  return results.flatMap((result) => {
    const baseline = results.find(({ policy, cache }) => policy === BASELINE && cache === result.cache);
    if (baseline === undefined || result === baseline) return [];
    return [
      {
        policy: result.policy,
        cache: result.cache,
        uncachedTokens: saved(baseline.uncachedTokens.total, result.uncachedTokens.total),
        ttft: saved(baseline.ttftMs.mean, result.ttftMs.mean),
      },
    ];
  });
}

/**
 * What the user would save: the policy that saves most on the first cache, the figures there, and the range over the
 * caches. Empty savings say that there was nothing to compare with.
 */
function findingOf(results: readonly ReplayResult[], savings: readonly ReplaySaving[]): string {
  const first = results[0];
  if (first === undefined || first.requests === 0) return 'No request was replayed.';
  const here = savings.filter(({ cache }) => cache === first.cache);
  if (here.length === 0) return 'There is nothing to compare: replay retrieval order and another policy.';
  const best = here.reduce((one, other) => (other.uncachedTokens > one.uncachedTokens ? other : one));
  const all = savings.filter(({ policy }) => policy === best.policy).map(({ uncachedTokens }) => uncachedTokens);
  const [least, most] = [Math.min(...all), Math.max(...all)];
  const where = describeCache(first);
  if (best.uncachedTokens < 0.005) {
    return `Reordering documents would save you next to nothing on ${where}: ${percent(best.uncachedTokens)} of the tokens to prefill.`;
  }
  const at = (policy: string) => results.find((each) => each.policy === policy && each.cache === first.cache)!;
  const times = `${at(BASELINE).ttftMs.mean.toFixed(0)} to ${at(best.policy).ttftMs.mean.toFixed(0)} ms`;
  const range = all.length === 1 ? '' : ` (over the caches replayed, ${percent(least)} to ${percent(most)})`;
  return (
    `With the order of ${best.policy} instead of retrieval order, you would prefill ${percent(best.uncachedTokens)} fewer tokens on ${where}${range}, ` +
    `and the mean time to the first token would go from ${times}.`
  );
}

/** A cache in words. */
export function describeCache({ engine, capacityTokens, cache }: ReplayResult): string {
  if (engine === 'llama-server') return `${engine} (${cache})`;
  if (engine === 'no cache') return 'an engine without a cache';
  return capacityTokens === null
    ? `${engine} with unlimited room`
    : `${engine} with room for ${capacityTokens.toLocaleString('en-US')} tokens`;
}

/** From here on a queue grows for as long as the log lasts. */
const OVERLOAD = 0.97;

function overloadOf(utilisation: number | undefined): string {
  if (utilisation === undefined || utilisation < OVERLOAD) return '';
  return ' In retrieval order these engines are overloaded at the times of the log, so times to the first token are mostly waits: ask for more replicas, or for one request after another.';
}

function arrivalsOf(arrivals: ReplayReport['arrivals'], replicas: number, utilisation = 0): string {
  if (arrivals === 'sequential') {
    return 'All requests go to one engine, one after another, each when the one before is done; nothing else uses its cache.';
  }
  const engines = replicas === 1 ? 'one engine' : `${replicas} engines in turn`;
  return (
    `Requests come at the times of the log to ${engines}; an engine prefills one prompt at a time, first come first served, and nothing else uses its cache. ` +
    `In retrieval order engines work ${percent(utilisation)} of the time. The time of answers is not counted.`
  );
}

function assumptionsOf({ latency, preambleTokens = PAPER_LENGTHS.preamble }: ReplaySettings, traffic: ReplayTraffic) {
  const open = (what: string, count: number, meaning: string) =>
    count === 0 ? [] : [`${what} (${count.toLocaleString('en-US')}) ${meaning}.`];
  return [
    `The time to prefill is that of ${latency.name}.`,
    `A prompt is ${preambleTokens} tokens that all requests share, the documents, and the question.`,
    ...open(
      'Documents without a token count',
      traffic.documentsWithoutTokens,
      `have ${PAPER_LENGTHS.documents} tokens`,
    ),
    ...open('Requests without query_tokens', traffic.requestsWithoutQueryTokens, `have ${PAPER_LENGTHS.question}`),
    ...open('Documents forgotten to stay within 2^20', traffic.forgotten, 'count as new if they come back'),
    ...open('Requests without a timestamp', traffic.requestsWithoutTimestamp, 'come with the one before'),
    ...open('Requests earlier than the one before', traffic.requestsOutOfOrder, 'come with it'),
  ];
}

function saved(before: number, after: number): number {
  return before === 0 ? 0 : 1 - after / before;
}

function percent(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}
