import { WarmpathError } from '@warmpath/core';
import { estimateTokensOfBytes, SpeculativePipeline } from '@warmpath/core/internal';
import type { ScoredDocument } from '@warmpath/retrieval';
import { HeldReply } from '../answer/held-reply.js';
import type { Engines } from '../engines/engines.js';
import { RESPONSE_HEADERS } from '../intake/headers.js';
import type { Metrics } from '../observe/metrics.js';
import { summaryHeader } from '../observe/report.js';
import { type Call, NOTHING_DONE } from '../shapes/shapes.js';
import type { OpenCollections } from './open-collections.js';
import type { RetrievalCall } from './retrieve-documents.js';

/**
 * Other prompts that an engine computes, from which on there is no speculation (RAGCache, Algorithm 2). The paper uses
 * the largest prefill batch; with chunked prefill, each added prompt delays all others.
 */
const MAX_PREFILLING = 1;

/** Sends a call to an engine. May throw. */
export type ServeCall = (call: Call) => void | Promise<void>;

export interface StagedAnswerParts {
  readonly collections: OpenCollections;
  readonly engines: Engines;
  readonly metrics: Metrics;
  /** Warms the preamble of a call whose documents are not known yet, until `end`. */
  readonly warm: (coming: () => Call) => { end(): void };
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
}

/** A generation on the candidates of a stage. Its answer is held. */
interface Generation {
  readonly startedAt: number;
  readonly reply: HeldReply;
  readonly call: Call;
}

/**
 * Answers from the results of a search. In a staged search, generation may start on the candidates of an earlier stage
 * (RAGCache, section 5.3). It is aborted when the candidates change. Its answer is sent if the final stage has the same
 * candidates. A load gate and the collection's earlier searches decide whether to speculate. Meanwhile a cold system
 * prompt is warmed.
 *
 * @throws WarmpathError those of the search, and of `serve`
 */
export async function answerInStages(
  { collections, engines, metrics, warm, now: clock }: StagedAnswerParts,
  retrieval: RetrievalCall,
  { serve, isTranslated }: { readonly serve: ServeCall; readonly isTranslated: boolean },
): Promise<void> {
  const { call, gate } = retrieval;
  const { report } = call.request;
  const startedAt = clock();
  const abort = new AbortController();
  const leave = (): void => abort.abort(new WarmpathError('WARMPATH_CLIENT_CLOSED'));
  call.reply.raw.once('close', leave);
  const pipeline = new SpeculativePipeline({
    maxPending: retrieval.mayNotSpeculate ? 0 : MAX_PREFILLING * engines.all.length,
    agreement: 'set',
    isWorthTrying: (stage) => mayWaste(engines, collections) && gate.mayStart(stage),
  });
  const warming = isTranslated ? undefined : warm(() => retrieval.withDocuments([]));
  const stages: (readonly string[])[] = [];
  let live: Generation | undefined;
  let wastedTokens = 0;
  const end = (): void => {
    if (live === undefined) return;
    if (live.reply.sent) wastedTokens += estimateTokensOfBytes(live.call.body);
    live.reply.cancel();
    live = undefined;
    forget(call);
  };
  try {
    for await (const { candidates, final, warnings } of retrieval.search(abort.signal)) {
      const documents = candidates.map(({ id }) => id);
      stages.push(documents);
      const now = clock();
      report.trace?.stage('retrieval', startedAt + (report.retrieval?.ms ?? 0), now);
      report.retrieval = {
        ms: now - startedAt,
        stages: stages.length,
        passages: documents.length,
        speculation: null,
        aheadMs: 0,
      };
      // Its prompt is aborted before another one is sent.
      const own = live?.reply.sent && !live.reply.isAnswering && !live.reply.hasFailed ? 1 : 0;
      for (const action of pipeline.stage({ documents, isFinal: final }, engines.prefilling - own)) {
        if (action.kind === 'end') end();
        else if (action.kind === 'start' && action.isSpeculative) {
          warming?.end();
          live = { startedAt: now, ...start(retrieval, candidates, serve) };
        }
      }
      if (!final) continue;
      warming?.end();
      const clientWarnings = collections.clientWarnings(call.request, warnings);
      const wasSpeculated = live !== undefined || wastedTokens > 0;
      const answer = retrieval.withDocuments(candidates);
      if (live !== undefined && !live.reply.hasFailed) {
        report.retrieval = { ...report.retrieval, speculation: 'confirmed', aheadMs: now - live.startedAt };
        Object.assign(live.call.sources!, { passages: candidates, clientWarnings });
        live.reply.release(call.reply, () => ({ [RESPONSE_HEADERS.summary]: summaryHeader(report.soFar()) }));
      } else {
        end();
        if (wasSpeculated) report.retrieval = { ...report.retrieval, speculation: 'wrong' };
        Object.assign(answer.sources!, { clientWarnings });
        await serve(answer);
      }
      if (wasSpeculated) metrics.speculated(report.retrieval.speculation!, wastedTokens);
      const agreed = stages.slice(0, -1).map((earlier) => isSameSet(earlier, documents));
      gate.observe({ agreed, promptTokens: estimateTokensOfBytes(answer.body), wastedTokens });
      live = undefined;
    }
  } catch (error) {
    end();
    throw error;
  } finally {
    warming?.end();
    call.reply.raw.removeListener('close', leave);
  }
}

/** Whether speculation is allowed: a hosted engine may charge by the token. */
function mayWaste(engines: Engines, { wastedShare }: OpenCollections): boolean {
  return wastedShare !== undefined || engines.all.every(({ dialect }) => dialect.owners.length > 0);
}

/** If a generation cannot start, the answer is generated after the search. */
function start(
  retrieval: RetrievalCall,
  candidates: readonly ScoredDocument[],
  serve: ServeCall,
): Omit<Generation, 'startedAt'> {
  const reply = new HeldReply();
  const call = { ...retrieval.withDocuments(candidates), reply };
  void (async () => serve(call))().catch((error: unknown) => reply.send(error));
  return { reply, call };
}

/** The report of a discarded answer. */
function forget({ request: { report } }: Call): void {
  report.errorCode = undefined;
  report.errorSource = undefined;
  report.translationWarnings = [];
  report.decision = NOTHING_DONE;
  report.queuedMs = undefined;
  report.ttftMs = undefined;
  report.promptTokens = undefined;
  report.cachedTokens = undefined;
}

function isSameSet(one: readonly string[], other: readonly string[]): boolean {
  const members = new Set(one);
  return members.size === new Set(other).size && other.every((id) => members.has(id));
}
