import type { ArrangedContext, Arranger, OrderSwitches } from '@warmpath/client';
import type { DocumentInput } from '@warmpath/core';
import { canonicalJson } from '@warmpath/core/internal';
import type { SpecificationVersion } from './middleware.js';

/** Documents as `rerank()` hands them over. */
export type RerankedDocuments =
  | { readonly type: 'text'; readonly values: readonly string[] }
  | { readonly type: 'object'; readonly values: readonly object[] };

export interface RerankingOptions {
  /** What the prompt has before the documents. */
  readonly preamble?: string;
  /** How far documents may move. */
  readonly switches?: OrderSwitches;
  /**
   * Receives every order that was given: its `text` and `hint` for the prompt, and `completed` and `failed` to tell
   * what became of it.
   */
  readonly onArranged?: (context: ArrangedContext) => void;
}

/** A model for `rerank()`. */
export interface WarmpathRerankingModel<Version extends SpecificationVersion> {
  readonly specificationVersion: Version;
  readonly provider: 'warmpath';
  readonly modelId: 'arrange';
  /** Errors: those of the arranger. */
  doRerank(call: {
    readonly documents: RerankedDocuments;
    readonly topN?: number;
    readonly abortSignal?: AbortSignal;
  }): Promise<{ ranking: { index: number; relevanceScore: number }[] }>;
}

/**
 * A reranking model for AI SDK 6 that ranks for the cache: it takes documents in retrieval order and answers with the
 * order in which they should stand in the prompt. Scores fall with the place, and say nothing of relevance. `topN`
 * keeps the first of the retrieval order. A text that stands twice comes last the second time.
 */
export function warmpathReranking(arranger: Arranger, options: RerankingOptions = {}): WarmpathRerankingModel<'v3'> {
  return reranking('v3', arranger, options);
}

/** The same for AI SDK 7. */
export function warmpathRerankingV4(arranger: Arranger, options: RerankingOptions = {}): WarmpathRerankingModel<'v4'> {
  return reranking('v4', arranger, options);
}

function reranking<Version extends SpecificationVersion>(
  specificationVersion: Version,
  arranger: Arranger,
  { preamble, switches, onArranged }: RerankingOptions,
): WarmpathRerankingModel<Version> {
  return {
    specificationVersion,
    provider: 'warmpath',
    modelId: 'arrange',
    async doRerank({ documents, topN, abortSignal }) {
      const asked = readDocuments(documents).slice(0, topN);
      const context = await arranger.arrange(
        { ...switches, documents: asked, ...(preamble !== undefined && { preamble }) },
        abortSignal === undefined ? {} : { signal: abortSignal },
      );
      onArranged?.(context);
      const arranged = context.documents.map(({ source }) => source);
      const places = new Set(arranged);
      const repeated = asked.map((_, index) => index).filter((index) => !places.has(index));
      const order = [...arranged, ...repeated];
      return { ranking: order.map((index, place) => ({ index, relevanceScore: 1 - place / order.length })) };
    },
  };
}

/** Objects keep the `id` that they have; their text is JSON with sorted keys. */
function readDocuments(documents: RerankedDocuments): readonly DocumentInput[] {
  if (documents.type === 'text') return documents.values.map((content) => ({ content }));
  return documents.values.map((value) => {
    const { id } = value as { readonly id?: unknown };
    return { ...(typeof id === 'string' && { id }), content: canonicalJson(value) };
  });
}
