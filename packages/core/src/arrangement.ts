import type { Document, DocumentReference } from './document.js';
import type { ErrorCode, Warning } from './errors.js';
import type { CutShort, OrderingPolicy, PolicyName } from './ordering/policy.js';
import type { PrewarmPath } from './ordering/prewarm.js';
import type { Preamble } from './preamble.js';
import type { ServedRequest } from './residency/history.js';
import type { ResidencyState } from './residency/view.js';
import type { SeenSegments } from './session/segments.js';
import type { VisibleDocuments } from './session/sent-turn.js';

/**
 * What `arrange` is asked: prepared documents and the constraints. Validation of raw input happens in `prepareRequest`.
 */
export interface ArrangeRequest {
  /** In retrieval order (see `prepareDocuments`). */
  readonly documents: readonly Document[];
  readonly preamble?: Preamble | undefined;
  /** A policy's name, or a policy of one's own. Default `foresight`. */
  readonly policy?: PolicyName | OrderingPolicy | undefined;
  /** Places a document may move from its retrieval rank. */
  readonly maxShift?: number | undefined;
  /**
   * Tokens that each place costs by which a document moves: `greedy`, `exact` and `foresight` take the order that saves
   * most above that. From 0 to 1,000,000,000; default 0. `warmpath lab eval --shift-prices` finds the one that keeps
   * your answers.
   */
  readonly shiftPrice?: number | undefined;
  /** Ids of documents that keep their place. */
  readonly pin?: readonly string[] | undefined;
  /**
   * Whether to state the retrieval order in a hint when it changed. Default true: then `greedy`, `exact` and
   * `foresight` change an order only if that saves more tokens than its hint takes.
   */
  readonly hints?: boolean | undefined;
  /**
   * The documents of requests that are known to be waiting for the same engine behind the same preamble, in the order
   * they will be served, so that `foresight` can leave a prefix they share. At most the first 64 are looked at; other
   * policies ignore them.
   */
  readonly waiting?: readonly (readonly Document[])[] | undefined;
  /**
   * The documents that the conversation holds already (`recallConversation`). A document whose full text is among them
   * becomes a reference. Without it, no document is removed, not even one that comes twice.
   */
  readonly visible?: VisibleDocuments | undefined;
  /** Set false to send documents again that `visible` holds. Labels still never name two texts. Default true. */
  readonly deduplicate?: boolean | undefined;
  /**
   * What the prompt shows before its documents (`shownSegments`): parts of a document that stand there, letter by
   * letter, become references. Left out, every document that is sent is sent whole.
   */
  readonly shown?: Pick<SeenSegments, 'shorten'> | undefined;
  /** Carried into the trace: what `prepareDocuments` mended. */
  readonly warnings?: readonly Warning[] | undefined;
}

/**
 * Tells the model the retrieval order of the documents that moved, by label, each behind the one that it followed
 * (RAGBoost §5.3); all others stand as they were retrieved. With references, which count as standing behind the
 * documents, all are named.
 */
export interface OrderHint {
  /** Labels, most relevant first. */
  readonly labels: readonly string[];
}

/** Why the arrangement is what it is. Data, not text. */
interface ArrangementTrace {
  /** The policy's name. */
  readonly policy: string;
  readonly residency: ResidencyState;
  /** `moves[p]` = retrieval rank minus place: positive if the document at place `p` moved forward. */
  readonly moves: readonly number[];
  /** Leading documents that follow a path of the knowledge tree. */
  readonly cachedDocuments: number;
  readonly maxShift: number | undefined;
  /** Tokens that a place moved cost; 0 for nothing. */
  readonly shiftPrice: number;
  readonly pinned: readonly number[];
  readonly warnings: readonly Warning[];
  /** Set where the policy's search would have taken too many operations, and what it answered with instead. */
  readonly cutShort: CutShort | undefined;
  /** Set when a failure made this the retrieval order. */
  readonly fellBack: ErrorCode | undefined;
}

/**
 * The answer to «in which order?»: documents in prompt order, the hint, what the engine should already hold, and why.
 */
export interface Arrangement {
  /** In prompt order, without those that `references` stand for; `whole` says which are shortened. */
  readonly documents: readonly Document[];
  /** `order[p]` is the retrieval rank of `documents[p]` among these documents. */
  readonly order: readonly number[];
  /** Documents whose full text the conversation holds already, in retrieval order. */
  readonly references: readonly DocumentReference[];
  readonly hint: OrderHint | undefined;
  /** Whether the prompt says where the references stand (RAGBoost §6). */
  readonly locationHint: boolean;
  readonly preamble: Preamble | undefined;
  /**
   * Tokens of the prompt's start that the engine is believed to hold: the preamble and the leading documents of a known
   * path.
   */
  readonly predictedCachedTokens: number;
  readonly trace: ArrangementTrace;
}

/**
 * What became of a request; the only thing that changes state. Times in milliseconds of the caller's monotonic clock.
 */
export type Outcome =
  | { readonly kind: 'dispatched'; readonly arrangement: ServedRequest; readonly now: number }
  | {
      readonly kind: 'completed';
      readonly arrangement: ServedRequest;
      readonly now: number;
      /** The engine's own count, when it reports one. */
      readonly promptTokens?: number | undefined;
      readonly cachedTokens?: number | undefined;
      readonly answerTokens?: number | undefined;
      /** Time to the first token, only where the engine had nothing else under way (`TtftFeedback`). */
      readonly ttftMs?: number | undefined;
    }
  /** Another gateway sent it to the same engine, a moment ago. */
  | { readonly kind: 'received'; readonly arrangement: ServedRequest; readonly now: number }
  /** The engine prefilled a path ahead of any request (`planPrewarm`): it is resident, and counts as no access. */
  | { readonly kind: 'prewarmed'; readonly path: PrewarmPath; readonly now: number }
  /** The engine failed or the client left before the prompt was prefilled: its path is not believed resident. */
  | { readonly kind: 'failed'; readonly arrangement: ServedRequest; readonly now: number };
