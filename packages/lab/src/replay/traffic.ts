import type { OfflineBound, OfflineSolver } from '../bounds/offline.js';
import { LoggedRequests } from '../data/logged-requests.js';
import type { LoggedRequest } from '../data/request-log.js';
import { PAPER_LENGTHS, type WorkloadRequest } from '../workloads/workload.js';
import type { ReplayTraffic } from './replay-report.js';
import type { ReplaySettings } from './replay-settings.js';

/** Documents of sessions that are remembered in all; the session that spoke longest ago is forgotten first. */
const MAX_DOCUMENTS = 2 ** 20;

/** Finds documents that their own session has had before. Memory for at most 2^20 of them. */
export class SessionRepeats {
  /** In order of last use. */
  readonly #sessions = new Map<string, Set<string>>();
  #documents = 0;

  /** Enters the documents of a session's next request, by id; true for each that it has had. O(k). */
  enter(session: string, ids: readonly string[]): readonly boolean[] {
    const known = this.#sessions.get(session) ?? new Set<string>();
    this.#sessions.delete(session);
    this.#sessions.set(session, known);
    const repeats = ids.map((id) => known.has(id));
    for (const id of ids) known.add(id);
    this.#documents += repeats.filter((isRepeat) => !isRepeat).length;
    for (const [oldest, documents] of this.#sessions) {
      if (this.#documents <= MAX_DOCUMENTS || oldest === session) break;
      this.#sessions.delete(oldest);
      this.#documents -= documents.size;
    }
    return repeats;
  }
}

/** A longer log has no offline bound: its requests would have to be held, and the solver could not finish. */
const MAX_OFFLINE_REQUESTS = 10_000;

/** Turns the lines of a log into requests, and measures what the log itself shows. Memory for 2^20 documents. */
export class Traffic {
  readonly #preambleTokens: number;
  readonly #warmUp: number;
  readonly #requests = new LoggedRequests();
  readonly #repeats = new SessionRepeats();
  #before: ReadonlySet<string> = new Set();
  #jaccard = 0;
  readonly #counted = { promptTokens: 0, seenTokens: 0, documents: 0, repeated: 0 };

  readonly #offline: OfflineSolver | undefined;
  /** For the offline bound; empty once the log is too long for it. */
  #held: WorkloadRequest[] = [];

  constructor({ preambleTokens = PAPER_LENGTHS.preamble, warmUp = 0, offline }: ReplaySettings) {
    this.#preambleTokens = preambleTokens;
    this.#warmUp = warmUp;
    this.#offline = offline;
  }

  /** Requests so far. */
  get requests(): number {
    return this.#requests.summary.requests;
  }

  /** Whether requests come at the log's own times. */
  get isTimed(): boolean {
    return this.#requests.isTimed;
  }

  /** The request of the log's next line. O(k). */
  next(logged: LoggedRequest): WorkloadRequest {
    const isCounted = this.requests >= this.#warmUp;
    const seenBefore = this.#requests.summary.seenBeforeTokens;
    const request = this.#requests.next(logged);
    if (this.#offline !== undefined && this.requests <= MAX_OFFLINE_REQUESTS) this.#held.push(request);
    else this.#held = [];
    const seenTokens = this.#requests.summary.seenBeforeTokens - seenBefore;
    const ids = request.documents.map(({ id }) => id);
    this.#compare(ids);
    const repeats = request.session === undefined ? [] : this.#repeats.enter(request.session, ids);
    if (!isCounted) return request;
    const counted = this.#counted;
    const documentTokens = request.documents.reduce((sum, { tokens }) => sum + tokens, 0);
    counted.promptTokens += this.#preambleTokens + documentTokens + request.question.tokens;
    counted.seenTokens += seenTokens + (this.requests > 1 ? this.#preambleTokens : 0);
    counted.documents += ids.length;
    counted.repeated += repeats.filter((isRepeat) => isRepeat).length;
    return request;
  }

  report(): ReplayTraffic {
    const { summary } = this.#requests;
    const { promptTokens, seenTokens, documents, repeated } = this.#counted;
    return {
      ...summary,
      warmUp: Math.min(summary.requests, this.#warmUp),
      jaccard: summary.requests < 2 ? 0 : this.#jaccard / (summary.requests - 1),
      seenBefore: promptTokens === 0 ? 0 : seenTokens / promptTokens,
      repeatedInSession: documents === 0 ? 0 : repeated / documents,
      spanMs: this.#requests.isTimed ? this.#requests.spanMs : null,
    };
  }

  /** What the best orders of all requests together find; undefined if it was not asked for, or the log is too long. */
  offline(): OfflineBound | undefined {
    if (this.#held.length === 0) return undefined;
    return this.#offline?.({
      name: 'log',
      preamble: { key: 'preamble', tokens: this.#preambleTokens },
      requests: this.#held,
    });
  }

  /** Adds the Jaccard similarity of a request and the one before. */
  #compare(ids: readonly string[]): void {
    const before = this.#before;
    this.#before = new Set(ids);
    if (this.requests < 2) return;
    const shared = ids.filter((id) => before.has(id)).length;
    const union = before.size + ids.length - shared;
    this.#jaccard += union === 0 ? 0 : shared / union;
  }
}
