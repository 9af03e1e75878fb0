import {
  checkSearch,
  type Query,
  type ScoredDocument,
  type SearchOptions,
  type Stage,
  type StagedRetriever,
  untilAborted,
} from '../staged-retriever.js';

import { matchesWhere } from '../where.js';

/** What a function finds. Without scores, the order is the ranking. */
export type FoundDocument = Omit<ScoredDocument, 'score'> & { readonly score?: number };

export type SearchFunction = (
  query: Query,
  options: SearchOptions,
) => readonly FoundDocument[] | Promise<readonly FoundDocument[]>;

/** Any function as a retriever with one stage, which is final. What it finds is filtered, if it did not filter. */
export class FunctionRetriever implements StagedRetriever {
  readonly #find: SearchFunction;

  constructor(find: SearchFunction) {
    this.#find = find;
  }

  async *search(query: Query, options: SearchOptions): AsyncGenerator<Stage, void> {
    checkSearch(options);
    const { k, signal, where = {} } = options;
    const found = await untilAborted(Promise.resolve(this.#find(query, options)), signal);
    const unique = new Map<string, ScoredDocument>();
    for (const [rank, document] of found.entries()) {
      if (!matchesWhere(where, document.metadata)) continue;
      if (!unique.has(document.id)) unique.set(document.id, { ...document, score: document.score ?? -rank });
    }
    const candidates = [...unique.values()].sort((a, b) => b.score - a.score).slice(0, k);
    yield { candidates, index: 0, final: true };
  }
}

/** The part of a LangChain.js retriever that is used. */
export interface LangChainRetriever {
  invoke(
    query: string,
    options?: { signal?: AbortSignal },
  ): Promise<readonly { id?: string; pageContent: string; metadata: Record<string, unknown> }[]>;
}

/** A LangChain.js retriever. A document without an id is known by its text. */
export function fromLangChain(retriever: LangChainRetriever): FunctionRetriever {
  return new FunctionRetriever(async ({ text }, { signal }) =>
    (await retriever.invoke(text, { signal })).map(({ id, pageContent, metadata }) => ({
      id: id ?? pageContent,
      content: pageContent,
      ...given(metadata),
    })),
  );
}

/** The part of a LlamaIndex.TS retriever that is used. */
export interface LlamaIndexRetriever {
  retrieve(query: { query: string }): Promise<readonly LlamaIndexNode[]>;
}

interface LlamaIndexNode {
  readonly score?: number;
  readonly node: { id_: string; metadata: Record<string, unknown>; getContent(mode: never): string };
}

/** A LlamaIndex.TS retriever. */
export function fromLlamaIndex(retriever: LlamaIndexRetriever): FunctionRetriever {
  return new FunctionRetriever(async ({ text }) =>
    (await retriever.retrieve({ query: text })).map(({ score, node }) => ({
      id: node.id_,
      content: node.getContent('NONE' as never),
      ...given(node.metadata),
      ...(score !== undefined && { score }),
    })),
  );
}

/** Metadata, where there are any: frameworks write `{}` for none. */
function given(metadata: Record<string, unknown>): Pick<FoundDocument, 'metadata'> {
  return Object.keys(metadata).length > 0 ? { metadata } : {};
}
