import type { Document } from '@warmpath/core';
import { labDocument, PAPER_LENGTHS, type WorkloadRequest } from '../workloads/workload.js';
import type { LoggedRequest } from './request-log.js';

/** Documents whose length and last mention are remembered; the one seen longest ago is forgotten first. */
const MAX_DOCUMENTS = 2 ** 20;

/** What a log left open, and what was made of it. */
export interface LogSummary {
  readonly requests: number;
  /** Mentions of documents, each once a request. */
  readonly documents: number;
  /** Mentions of a document that some earlier request held. */
  readonly documentsSeenBefore: number;
  /** Tokens of these mentions. */
  readonly seenBeforeTokens: number;
  readonly distinctDocuments: number;
  /** Distinct documents without a count at their first mention; they count as 200 tokens. */
  readonly documentsWithoutTokens: number;
  /** Second mentions of a document in one request; the first one stands. */
  readonly duplicates: number;
  /** Documents forgotten to stay within a million; one that comes back then counts as new. */
  readonly forgotten: number;
  /** Requests without `query_tokens`; they count as 24 tokens. */
  readonly requestsWithoutQueryTokens: number;
  /** Requests without a timestamp in a log whose first request has one; they come with the one before. */
  readonly requestsWithoutTimestamp: number;
  /** Requests earlier than one that stands before them; they come with it. */
  readonly requestsOutOfOrder: number;
}

/**
 * Turns the lines of a log into requests, one by one. A document has the tokens of its first mention, so that it is the
 * same stretch of prompt wherever it stands. Timestamps count if the first request has one. Memory for at most 2^20
 * documents.
 */
export class LoggedRequests {
  /** In order of last mention. */
  readonly #documents = new Map<string, Document>();
  readonly #counts = {
    requests: 0,
    documents: 0,
    documentsSeenBefore: 0,
    seenBeforeTokens: 0,
    distinctDocuments: 0,
    documentsWithoutTokens: 0,
    duplicates: 0,
    forgotten: 0,
    requestsWithoutQueryTokens: 0,
    requestsWithoutTimestamp: 0,
    requestsOutOfOrder: 0,
  };
  #firstMs: number | undefined;
  #arrivalMs = 0;

  /** Counts of the requests so far. */
  get summary(): LogSummary {
    return { ...this.#counts };
  }

  /** Whether requests come at the log's own times. */
  get isTimed(): boolean {
    return this.#firstMs !== undefined;
  }

  /** Milliseconds from the first request to the last one so far. */
  get spanMs(): number {
    return this.#arrivalMs;
  }

  /** The request of the log's next line. O(k). */
  next(logged: LoggedRequest): WorkloadRequest {
    const counts = this.#counts;
    if (counts.requests === 0) this.#firstMs = logged.timestampMs;
    counts.requests++;
    const documents = new Map<string, Document>();
    for (const { id, tokens } of logged.documents) {
      if (documents.has(id)) counts.duplicates++;
      else documents.set(id, this.#mention(id, tokens));
    }
    this.#forget();
    counts.documents += documents.size;
    if (logged.queryTokens === undefined) counts.requestsWithoutQueryTokens++;
    const question = { key: `question ${counts.requests}`, tokens: logged.queryTokens ?? PAPER_LENGTHS.question };
    return {
      documents: [...documents.values()],
      question,
      ...(logged.session !== undefined && { session: logged.session }),
      ...(this.#firstMs !== undefined && { arrivalMs: this.#arrival(logged.timestampMs, this.#firstMs) }),
    };
  }

  #mention(id: string, tokens: number | undefined): Document {
    const known = this.#documents.get(id);
    if (known === undefined) {
      this.#counts.distinctDocuments++;
      if (tokens === undefined) this.#counts.documentsWithoutTokens++;
    } else {
      this.#counts.documentsSeenBefore++;
      this.#counts.seenBeforeTokens += known.tokens;
      this.#documents.delete(id);
    }
    const document = known ?? labDocument(id, tokens ?? PAPER_LENGTHS.documents);
    this.#documents.set(id, document);
    return document;
  }

  #forget(): void {
    for (const id of this.#documents.keys()) {
      if (this.#documents.size <= MAX_DOCUMENTS) break;
      this.#documents.delete(id);
      this.#counts.forgotten++;
    }
  }

  #arrival(timestampMs: number | undefined, firstMs: number): number {
    if (timestampMs === undefined) this.#counts.requestsWithoutTimestamp++;
    const arrivalMs = timestampMs === undefined ? this.#arrivalMs : timestampMs - firstMs;
    if (arrivalMs < this.#arrivalMs) this.#counts.requestsOutOfOrder++;
    this.#arrivalMs = Math.max(this.#arrivalMs, arrivalMs);
    return this.#arrivalMs;
  }
}
