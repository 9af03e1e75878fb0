import type { CostModel, PolicyName } from '@warmpath/core';
import type { PrefixCacheModel } from '../cache/prefix-cache.js';
import { LoggedRequests } from '../data/logged-requests.js';
import type { LoggedRequest } from '../data/request-log.js';
import { checkQueue } from '../simulate.js';
import { PAPER_LENGTHS, type PromptSpan, type WorkloadRequest } from '../workloads/workload.js';
import { Lane } from './lane.js';
import { findingOf, type ReplayReport, type ReplayTraffic, savingsOf } from './replay-report.js';
import { SessionRepeats } from './session-repeats.js';

/** What to replay a log with. */
export interface ReplaySettings {
  /** Name of the log in the report. */
  readonly log: string;
  readonly policies: readonly PolicyName[];
  /** Engine caches as the report calls them, and as they are made. */
  readonly caches: readonly { readonly name: string; readonly create: () => PrefixCacheModel }[];
  /** Coming requests that policies may know of, 0 to 64. Default 0. */
  readonly queue?: number;
  /** Requests at the start that are served but not counted. Default 0. */
  readonly warmUp?: number;
  /** Tokens in front of the documents, the same for all requests. Default 28, as in the papers. */
  readonly preambleTokens?: number;
  /** Time to the first token, and the machine that has it. */
  readonly latency: { readonly name: string; readonly model: CostModel };
  /** Milliseconds of a monotonic clock, to time `arrange`. */
  readonly clock: () => number;
}

/**
 * Replays a user's own log, request by request, on every cache with every policy at once: what would I save? Requests are
 * served one after another. Memory does not grow with the log: what the caches hold, 2^20 documents, and sums.
 *
 * Errors: `WARMPATH_INVALID_REQUEST` for a look-ahead out of range. Cost: that of `SimulatedEngine.serve` for each pair of policy and cache.
 */
export class Replay {
  readonly #settings: ReplaySettings;
  readonly #queue: number;
  readonly #requests = new LoggedRequests();
  readonly #repeats = new SessionRepeats();
  readonly #lanes: readonly Lane[];
  /** The best order of each request by itself, cache by cache. */
  readonly #oracles: readonly Lane[];
  /** Requests that were read and wait to be served. */
  readonly #coming: WorkloadRequest[] = [];
  #served = 0;
  #before: ReadonlySet<string> = new Set();
  #jaccard = 0;
  #counted = { promptTokens: 0, seenTokens: 0, documents: 0, repeated: 0 };

  constructor(settings: ReplaySettings) {
    this.#settings = settings;
    this.#queue = checkQueue(settings.queue);
    const preamble: PromptSpan = { key: 'preamble', tokens: settings.preambleTokens ?? PAPER_LENGTHS.preamble };
    const lane = (policy: PolicyName, { name, create }: ReplaySettings['caches'][number], queue: number) =>
      new Lane({
        policy,
        name,
        cache: create(),
        preamble,
        queue,
        latency: settings.latency.model,
        clock: settings.clock,
      });
    this.#lanes = settings.caches.flatMap((cache) =>
      settings.policies.map((policy) => lane(policy, cache, this.#queue)),
    );
    this.#oracles = settings.caches.map(
      (cache) =>
        // `exact` takes no notice of what is coming, so a lane of it is the oracle already.
        this.#lanes.find(({ name, policy }) => name === cache.name && policy === 'exact') ?? lane('exact', cache, 0),
    );
  }

  /** Requests read so far. */
  get requests(): number {
    return this.#requests.summary.requests;
  }

  /** Takes the next line of the log. */
  next(logged: LoggedRequest): void {
    const isCounted = this.requests >= (this.#settings.warmUp ?? 0);
    const before = this.#requests.summary;
    const request = this.#requests.next(logged);
    this.#measure(request, isCounted, this.#requests.summary.seenBeforeTokens - before.seenBeforeTokens);
    this.#coming.push(request);
    if (this.#coming.length > this.#queue) this.#serve();
  }

  /** Serves what was read and still waits; to be called at the end of the log, or of what is wanted of it. */
  finish(): void {
    while (this.#coming.length > 0) this.#serve();
  }

  /** What the requests served so far amount to. */
  report(): ReplayReport {
    const results = this.#lanes.map((lane) => lane.result());
    const savings = savingsOf(results);
    return {
      log: this.#settings.log,
      arrivals: 'sequential',
      queue: this.#queue,
      traffic: this.#traffic(),
      results,
      bounds: this.#oracles.map((lane) => ({ cache: lane.name, oracle: lane.result().cachedTokenShare })),
      savings,
      finding: findingOf(results, savings),
      assumptions: this.#assumptions(),
    };
  }

  #serve(): void {
    const request = this.#coming.shift()!;
    const number = this.#served++;
    const isCounted = number >= (this.#settings.warmUp ?? 0);
    const waiting = this.#coming.map(({ documents }) => documents);
    for (const lane of new Set([...this.#lanes, ...this.#oracles])) lane.serve(request, { number, waiting, isCounted });
  }

  #measure(request: WorkloadRequest, isCounted: boolean, seenTokens: number): void {
    const ids = request.documents.map(({ id }) => id);
    const current = new Set(ids);
    if (this.requests > 1) {
      const shared = ids.filter((id) => this.#before.has(id)).length;
      const union = this.#before.size + current.size - shared;
      this.#jaccard += union === 0 ? 0 : shared / union;
    }
    this.#before = current;
    const repeats = request.session === undefined ? [] : this.#repeats.enter(request.session, ids);
    if (!isCounted) return;
    const preambleTokens = this.#settings.preambleTokens ?? PAPER_LENGTHS.preamble;
    const counted = this.#counted;
    const documentTokens = request.documents.reduce((sum, { tokens }) => sum + tokens, 0);
    counted.promptTokens += preambleTokens + documentTokens + request.question.tokens;
    counted.seenTokens += seenTokens + (this.requests > 1 ? preambleTokens : 0);
    counted.documents += ids.length;
    counted.repeated += repeats.filter((isRepeat) => isRepeat).length;
  }

  #traffic(): ReplayTraffic {
    const { summary } = this.#requests;
    const { promptTokens, seenTokens, documents, repeated } = this.#counted;
    return {
      ...summary,
      warmUp: Math.min(summary.requests, this.#settings.warmUp ?? 0),
      jaccard: summary.requests < 2 ? 0 : this.#jaccard / (summary.requests - 1),
      seenBefore: promptTokens === 0 ? 0 : seenTokens / promptTokens,
      repeatedInSession: documents === 0 ? 0 : repeated / documents,
      spanMs: this.#requests.isTimed ? this.#requests.spanMs : null,
    };
  }

  #assumptions(): readonly string[] {
    const { summary } = this.#requests;
    const { latency, preambleTokens = PAPER_LENGTHS.preamble } = this.#settings;
    const open = (what: string, count: number, meaning: string) =>
      count === 0 ? [] : [`${what} (${count.toLocaleString('en-US')}) ${meaning}.`];
    return [
      'All requests go to one engine, one after another, each when the one before is done; nothing else uses its cache.',
      `The time to the first token is that of ${latency.name}.`,
      `A prompt is ${preambleTokens} tokens that all requests share, the documents, and the question.`,
      ...open(
        'Documents without a token count',
        summary.documentsWithoutTokens,
        `have ${PAPER_LENGTHS.documents} tokens`,
      ),
      ...open('Requests without query_tokens', summary.requestsWithoutQueryTokens, `have ${PAPER_LENGTHS.question}`),
      ...open('Documents forgotten to stay within 2^20', summary.forgotten, 'count as new if they come back'),
    ];
  }
}
