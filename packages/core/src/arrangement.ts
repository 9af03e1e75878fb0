import type { Document, DocumentReference } from './document.js';
import type { ErrorCode, Warning } from './errors.js';
import type { CutShort, OrderingPolicy, PolicyName } from './ordering/policy.js';
import type { Preamble } from './preamble.js';
import type { ServedRequest } from './residency/history.js';
import type { ResidencyState } from './residency/view.js';
import type { SeenSegments } from './session/dedup.js';
import type { VisibleDocuments } from './session/recall.js';

/** Input of `arrange`: prepared documents and the constraints. `prepareRequest` makes it from raw input. */
export interface ArrangeRequest {
  /** In retrieval order (see `prepareDocuments`). */
  readonly documents: readonly Document[];
  /** `sources[rank]` is the position of that document in the caller's list. `arrange` does not read it. */
  readonly sources?: readonly number[] | undefined;
  readonly preamble?: Preamble | undefined;
  /** A policy's name, or your own policy. Default `foresight`. */
  readonly policy?: PolicyName | OrderingPolicy | undefined;
  /** Places a document may move from its retrieval rank. */
  readonly maxShift?: number | undefined;
  /**
   * Price in tokens of each place that a document moves. `greedy`, `exact` and `foresight` choose the order that saves
   * most after this price. From 0 to 1,000,000,000; default 0. `warmpath lab eval --shift-prices` measures which price
   * keeps your answers.
   */
  readonly shiftPrice?: number | undefined;
  /** Ids of documents that keep their place. */
  readonly pin?: readonly string[] | undefined;
  /**
   * Whether to state the retrieval order in a hint when it changed. Default true. `greedy`, `exact` and `foresight`
   * then change an order only if that saves more tokens than the hint has.
   */
  readonly hints?: boolean | undefined;
  /**
   * Documents of requests that wait for the same engine with the same preamble, in the order in which they will be
   * served. `foresight` chooses an order whose prefix they can reuse. It reads the first 64.
   */
  readonly waiting?: readonly (readonly Document[])[] | undefined;
  /**
   * The documents that the conversation holds already (`recallConversation`). A document whose full text is among them
   * becomes a reference. Without it, no document is removed, not even one that comes twice.
   */
  readonly visible?: VisibleDocuments | undefined;
  /** False sends documents again that `visible` holds. A label still never names two texts. Default true. */
  readonly deduplicate?: boolean | undefined;
  /**
   * Texts that the prompt has before its documents (`shownSegments`). Parts of a document that are among them, letter
   * by letter, become references. Without it, documents are sent whole.
   */
  readonly shown?: Pick<SeenSegments, 'shorten'> | undefined;
  /** Warnings of `prepareDocuments`, copied to the trace. */
  readonly warnings?: readonly Warning[] | undefined;
}

/**
 * States the retrieval order of the documents that moved, each after the one that it followed (RAGBoost §5.3). With
 * references, it names all documents.
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
  /** `moves[p]` is the retrieval rank minus `p`: positive if the document at place `p` moved forward. */
  readonly moves: readonly number[];
  /** Leading documents that follow a path of the knowledge tree. */
  readonly cachedDocuments: number;
  readonly maxShift: number | undefined;
  /** Price in tokens of each place moved. */
  readonly shiftPrice: number;
  readonly pinned: readonly number[];
  readonly warnings: readonly Warning[];
  /** Set if the policy's search reached its limit of operations: what it returned instead. */
  readonly cutShort: CutShort | undefined;
  /** Set if the policy failed and this is the retrieval order. */
  readonly fellBack: ErrorCode | undefined;
}

/** Documents in prompt order, the hint, the predicted cached tokens, and the reasons. */
export interface Arrangement {
  /** In prompt order, without `references`. A shortened document has its full form in `whole`. */
  readonly documents: readonly Document[];
  /** `order[p]` is the retrieval rank of `documents[p]` among these documents. */
  readonly order: readonly number[];
  /** Documents whose full text the conversation already holds, in retrieval order. */
  readonly references: readonly DocumentReference[];
  readonly hint: OrderHint | undefined;
  /** Whether the prompt says where the referenced documents are (RAGBoost §6). */
  readonly locationHint: boolean;
  readonly preamble: Preamble | undefined;
  /** Leading tokens of the prompt that the engine is believed to hold. */
  readonly predictedCachedTokens: number;
  readonly trace: ArrangementTrace;
}

/** What happened to a request. Times in milliseconds of the caller's monotonic clock. */
export type Outcome =
  | { readonly kind: 'dispatched'; readonly arrangement: ServedRequest; readonly now: number }
  | {
      readonly kind: 'completed';
      readonly arrangement: ServedRequest;
      readonly now: number;
      /** The engine's own count, when it reports one. */
      readonly promptTokens?: number | undefined;
      readonly cachedTokens?: number | undefined;
      /** Tokens of a block, where the engine reuses whole blocks. */
      readonly blockTokens?: number | undefined;
      readonly answerTokens?: number | undefined;
    }
  /** Another gateway sent it to the same engine. */
  | { readonly kind: 'received'; readonly arrangement: ServedRequest; readonly now: number }
  /** The engine prefilled a path without a request. Counts as resident, not as an access. */
  | { readonly kind: 'prefilled'; readonly path: ServedRequest; readonly now: number }
  /** The engine failed, or the client left, before the prompt was prefilled. */
  | { readonly kind: 'failed'; readonly arrangement: ServedRequest; readonly now: number };
