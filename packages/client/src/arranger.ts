import type { DocumentInput, OrderSwitches, Warning } from '@warmpath/core';

/** A context to arrange, by callers that write their own prompts. */
export interface ContextRequest extends OrderSwitches {
  /** In retrieval order. */
  readonly documents: readonly DocumentInput[];
  /** The text that the prompt has before the documents: it must be equal for their KV to be reused. */
  readonly preamble?: string;
  /** Keeps the histories of several models apart. */
  readonly model?: string;
}

/** A document of an arranged context. */
export interface ArrangedDocument {
  readonly id: string;
  /** What hints call it. */
  readonly label: string;
  /** Position in the caller's list; of a document that stood there twice, the first. */
  readonly source: number;
  /** Retrieval rank among the documents of the context. */
  readonly rank: number;
  /** Tokens of the rendered document, as far as Warmpath can count. */
  readonly tokens: number;
}

/** The order in which the retrieved documents should be read, for the prompt. */
export interface ContextHint {
  /** Labels, most relevant first. */
  readonly labels: readonly string[];
  readonly text: string;
}

/** What an engine reported of a prompt, in its own tokens, as far as it did. */
export interface EngineUsage {
  readonly promptTokens?: number | undefined;
  readonly cachedTokens?: number | undefined;
}

/** Takes back to the arranger what became of what it arranged. Only the first report counts. */
export interface Feedback {
  /** The engine has prefilled the prompt. `usage`: as the API or SDK reports it, or its whole answer. */
  completed(usage?: unknown): Promise<void>;
  /** The prompt never reached the engine's cache. */
  failed(): Promise<void>;
}

/** A context in prompt order. */
export interface ArrangedContext extends Feedback {
  /** In prompt order. A document that stood twice in the caller's list, with the same id and text, stands here once. */
  readonly documents: readonly ArrangedDocument[];
  /** Undefined if the retrieval order stayed, or no hints were wanted. */
  readonly hint: ContextHint | undefined;
  /** Documents and hint as Warmpath renders them: byte-stable, ready to be put before the question. */
  readonly text: string;
  /** Prompt tokens that the engine is believed to hold. */
  readonly predictedCachedTokens: number;
  /** What was mended. */
  readonly warnings: readonly Warning[];
}

export interface CallOptions {
  /** Ends the call; it then rejects with the signal's reason. */
  readonly signal?: AbortSignal;
}

/**
 * Says in which order documents should stand in a prompt. Both the client of a gateway and the local one do, so that
 * adapters need not know which they were given. What was arranged counts as dispatched; tell `completed` or `failed`.
 */
export interface Arranger {
  /** Errors: those of core's `prepareRequest`, and with a gateway those of reaching it. */
  arrange(request: ContextRequest, options?: CallOptions): Promise<ArrangedContext>;
}
